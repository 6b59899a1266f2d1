// A working image in private pages over the file: it takes memory for what was changed, whatever the size of the file.
// For a file that the program only maps: each page has one address in the process, and there is no descriptor.
// Floor: files.
//
// It is memory like a region's (region/region_mapping.hpp), whose stores a tracker finds: scan, or fault where the
// kernel cannot scan. Other than a region the image can become shorter. What lies in memory behind its end is anything,
// and becomes zeros when the image grows again. The file is never made shorter meanwhile, so those pages stay mapped.
//
// While the file is guarded, its first bytes are not the image's: that page is copied at opening, and is never dropped.
#pragma once

#include <memory>

#include "files/image_memory.hpp"
#include "region/address.hpp"
#include "region/captured_pages.hpp"
#include "region/region_home.hpp"
#include "region/region_mapping.hpp"

namespace memlith::core {

class PrivateMemory final : public ImageMemory {
 public:
  // `info` is that of the file, with addresses that this process has taken, and that the memory releases. What of the
  // file lies behind their end cannot be reached. All commits are home.
  static Result<std::unique_ptr<PrivateMemory>> make(Store& store, const ObjectInfo& info);

  [[nodiscard]] std::byte* address() const { return mapping_.base(); }
  [[nodiscard]] const std::byte* base() const override { return mapping_.base(); }
  [[nodiscard]] std::uint64_t reachable() const override { return mapping_.reserve(); }
  Status read(std::uint64_t offset, std::span<std::byte> target) const override;
  [[nodiscard]] Result<std::uint64_t> length() const override { return length_; }
  Status set_length(std::uint64_t bytes, std::uint64_t data_bytes) override;
  [[nodiscard]] bool lies_on_file() const override { return true; }
  Result<bool> collect(std::uint64_t bytes, std::vector<Range>& stored) override;
  void keep(Range part) override;
  void give_back() override;
  void note_logged(Range logged, Lsn end) override;
  [[nodiscard]] ReadTwin twin_reader(std::uint64_t committed_bytes) override;
  Status restore(Range range, const Tracker::ReadHome& read, bool at_home) override;
  [[nodiscard]] std::uint64_t copied_bytes() const override;
  Status release() override;

 private:
  PrivateMemory(Store& store, const ObjectInfo& info)
      : home_(store, kFile), mapping_(home_, info, info.reserve_bytes, true), guarded_(store.guards_file()) {}
  Status attach();
  Status clear(std::uint64_t begin, std::uint64_t end, std::uint64_t data_bytes);

  RegionHome home_;
  RegionMapping mapping_;  // its size: the longest that the image was
  const bool guarded_;
  std::uint64_t length_ = 0;
  std::unique_ptr<Tracker> tracker_;         // null as long as the image has no bytes
  std::unique_ptr<CapturedPages> captured_;  // null: the tracker finds bytes
};

}  // namespace memlith::core
