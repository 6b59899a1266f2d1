// The memory of a working image. Floor: files.
//
// MemfdMemory is for a file that is also read and written by descriptors; PrivateMemory for one that is only mapped.
//
// All calls under one lock of the owner; other threads use the memory meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "region/tracker.hpp"
#include "region/twins.hpp"

namespace memlith::core {

class ImageMemory {
 public:
  virtual ~ImageMemory() = default;

  // The image from its first byte on, for reading. Valid until the next reach().
  [[nodiscard]] virtual const std::byte* base() const = 0;
  // As far as it can be read there; kWholeImage: to its end.
  static constexpr std::uint64_t kWholeImage = ~std::uint64_t{0};
  [[nodiscard]] virtual std::uint64_t reachable() const { return kWholeImage; }
  // Prepares base() for an image of that length.
  virtual Status reach(std::uint64_t /*bytes*/) { return kOk; }
  virtual Status read(std::uint64_t offset, std::span<std::byte> target) const = 0;

  [[nodiscard]] virtual Result<std::uint64_t> length() const = 0;
  // Between the old and a larger new length there are zeros then. From `data_bytes` on the file has zeros, too.
  virtual Status set_length(std::uint64_t bytes, std::uint64_t data_bytes) = 0;
  // True if the file has to have a length before the image is given it.
  [[nodiscard]] virtual bool lies_on_file() const { return false; }

  // Adds to `stored` what was stored to the first `bytes` bytes. False: there may be more. keep() or give_back()
  // follows, also after a failure.
  virtual Result<bool> collect(std::uint64_t bytes, std::vector<Range>& stored) = 0;
  // The collected bytes of `part`, whole pages, are in a commit, or as they were committed last. Others are given back.
  virtual void keep(Range /*part*/) {}
  // The next collect() adds it again, if the memory can; the owner keeps what it was told.
  virtual void give_back() {}
  // The commit that ends there has these bytes.
  virtual void note_logged(Range /*logged*/, Lsn /*end*/) {}
  // Adds the ranges of [begin, end) that may hold anything but zeros, and of which collect() does not know.
  virtual Status add_data(std::uint64_t /*begin*/, std::uint64_t /*end*/, std::vector<Range>& /*stored*/) {
    return kOk;
  }
  // Pages of the first `committed_bytes` bytes as they were committed last, for Twins; may be empty.
  [[nodiscard]] virtual ReadTwin twin_reader(std::uint64_t /*committed_bytes*/) { return nullptr; }

  // The range becomes what `read` reads. `at_home`: the file has the same.
  virtual Status restore(Range range, const Tracker::ReadHome& read, bool at_home) = 0;

  // How many bytes a release could give back, as far as known.
  [[nodiscard]] virtual std::uint64_t copied_bytes() const { return 0; }
  // Gives memory back of which the file has the content. All that was kept is home.
  virtual Status release() { return kOk; }
};

}  // namespace memlith::core
