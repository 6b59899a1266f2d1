// Two ways of writing the extents of one home file, in order of offset. Floor: store.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/buffer.hpp"
#include "base/units.hpp"
#include "device/volume.hpp"

namespace memlith::core {

// Collects extents that are adjacent or, in a file of ours, close to each other, and writes up to `bytes_max` of them
// at once through the page cache.
class BufferedHome {
 public:
  // Called after a write with the number of bytes of pages that have to be flushed and were not reported before.
  using Written = std::function<Status(std::uint64_t page_bytes)>;
  // `home_bytes` counts what is written. `is_ours`: no other program writes the file.
  BufferedHome(Device& device, std::uint64_t bytes_max, bool is_ours, std::atomic<std::uint64_t>& home_bytes,
               Written written)
      : device_(device),
        bytes_max_(bytes_max),
        is_ours_(is_ours),
        home_bytes_(home_bytes),
        written_(std::move(written)) {}

  // The bytes must stay valid until the next put() or finish() has returned.
  Status put(std::uint64_t offset, std::span<const std::byte> bytes);
  Status finish();

 private:
  static constexpr std::size_t kPiecesMax = 256;
  static constexpr std::uint64_t kGapBytes = 1 * kKiB - 1;  // less than a block of any file system

  // The pieces that are held end there.
  [[nodiscard]] std::uint64_t end() const {
    return count_ == 0 ? 0 : offsets_[count_ - 1] + pieces_[count_ - 1].iov_len;
  }
  [[nodiscard]] bool continues(std::uint64_t offset, std::uint64_t bytes) const;

  Device& device_;
  const std::uint64_t bytes_max_;
  const bool is_ours_;
  std::atomic<std::uint64_t>& home_bytes_;
  const Written written_;
  std::array<iovec, kPiecesMax> pieces_;
  std::array<std::uint64_t, kPiecesMax> offsets_;
  std::size_t count_ = 0;
  bool has_gaps_ = false;
  std::uint64_t bytes_held_ = 0;
  std::uint64_t pages_end_ = 0;  // the pages before it were reported
};

// Collects neighbouring whole pages and writes them past the page cache, many transfers at a time.
class DirectHome {
 public:
  // For the file of `buffered`. Null if the file system refuses direct I/O.
  static Result<std::unique_ptr<DirectHome>> open(Volume& volume, const std::string& name, Device& buffered);
  static bool takes(std::uint64_t offset, std::uint64_t bytes);
  Status put(std::uint64_t offset, std::span<const std::byte> bytes);
  Status finish();

 private:
  [[nodiscard]] std::byte* buffer() const;
  Status send();

  std::unique_ptr<Device> device_;
  AlignedBuffer memory_;
  std::unique_ptr<IoQueue> queue_;
  std::uint32_t slot_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t used_ = 0;
};

}  // namespace memlith::core
