// The other ways in which a program can make random dirty pages durable, as the papers measured them: write each page
// into an ordinary file and fsync, or map the file shared and msync.
//
// Both are durable, and neither is atomic: a crash can keep any of the pages. The files are preallocated and written
// once, as those of programs in use are, so that a round changes no block map.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "kit/raw_device.hpp"
#include "page_stores.hpp"

namespace memlith::tool {

// The file system under a folder's files: "ext4", "xfs". `note` names the loop device, if there is one.
struct FileSystem {
  std::string name;
  std::string note;
};
Result<FileSystem> file_system_of(const std::string& folder);

// Rounds over one file of random content. One thread.
class PeerFile {
 public:
  // Creates `path`, which must not exist, of `bytes`, a multiple of 1 MiB.
  static Result<PeerFile> create(const std::string& path, std::uint64_t bytes, PageOrder order = PageOrder::random);
  PeerFile(PeerFile&& other) noexcept;
  PeerFile& operator=(PeerFile&&) = delete;
  ~PeerFile();

  // Through the page cache; durable with the next flush().
  [[nodiscard]] MaybeFailure write(std::uint64_t offset, std::span<const std::byte> source) const;
  [[nodiscard]] MaybeFailure flush() const;  // fdatasync

  // Each of `pages` random pages with a pwrite of its own, or sequential ones with one pwritev; then one fsync.
  [[nodiscard]] MaybeFailure pwrite_round(std::uint64_t pages, std::uint64_t& elapsed_ns);
  // Stores `bytes_per_page` bytes to each of `pages` pages of a shared mapping, then one msync(MS_SYNC) of it.
  [[nodiscard]] MaybeFailure msync_round(std::uint64_t pages, std::uint64_t bytes_per_page, std::uint64_t& elapsed_ns);

 private:
  PeerFile(std::string path, int descriptor, std::uint64_t bytes, HugeBuffer source, PageOrder order);
  [[nodiscard]] const std::byte* content();
  [[nodiscard]] MaybeFailure write_run(std::span<const std::uint32_t> pages);

  std::string path_;
  int descriptor_;
  std::uint64_t bytes_;
  std::byte* mapping_ = nullptr;  // made by the first msync_round
  HugeBuffer source_;
  ChosenPages pages_;
  Random random_;
  std::vector<iovec> pieces_;  // of a pwritev
};

}  // namespace memlith::tool
