// Page-aligned memory for direct I/O. Floor: base.
//
// Buffers of 2 MiB and more ask for huge pages: a transfer from 4 KiB pages is cut into one segment per page, which on
// virtio disks can halve the speed of a 1 MiB transfer (results/performance-history.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace memlith::core {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  static Result<AlignedBuffer> allocate(std::uint64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t size() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::uint64_t mapping_bytes_ = 0;
};

}  // namespace memlith::core
