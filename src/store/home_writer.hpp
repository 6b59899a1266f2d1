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
#include "device/volume.hpp"

namespace memlith::core {

// Collects adjacent extents, and writes up to `bytes_max` of them at once through the page cache.
class BufferedHome {
 public:
  // Called after a write with the number of bytes of pages that have to be flushed and were not reported before.
  using Written = std::function<Status(std::uint64_t page_bytes)>;
  // `home_bytes` counts what is written.
  BufferedHome(Device& device, std::uint64_t bytes_max, std::atomic<std::uint64_t>& home_bytes, Written written)
      : device_(device), bytes_max_(bytes_max), home_bytes_(home_bytes), written_(std::move(written)) {}

  // The bytes must stay valid until the next put() or finish() has returned.
  Status put(std::uint64_t offset, std::span<const std::byte> bytes);
  Status finish();

 private:
  static constexpr std::size_t kPiecesMax = 256;
  Device& device_;
  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t>& home_bytes_;
  const Written written_;
  std::array<iovec, kPiecesMax> pieces_;
  std::size_t count_ = 0;
  std::uint64_t begin_ = 0;
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
