// New slots are filled with zeros before they are used. Floor: log.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/buffer.hpp"
#include "base/units.hpp"
#include "device/device.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kZeroBytes = 2 * kMiB;  // large enough for huge pages

inline Result<AlignedBuffer> zeros_for(std::uint64_t begin, std::uint64_t end) {
  MEMLITH_TRY_ASSIGN(AlignedBuffer zeros, AlignedBuffer::allocate(std::min(kZeroBytes, end - begin)));
  std::memset(zeros.data(), 0, zeros.size());
  return zeros;
}

// Writes the zeros instead of reserving space, so that a later flush changes no metadata of the file system.
inline Status write_zeros(Device& device, std::uint64_t begin, std::uint64_t end, const AlignedBuffer& zeros) {
  for (std::uint64_t offset = begin; offset < end;) {
    const std::uint64_t step = std::min(zeros.size(), end - offset);
    MEMLITH_TRY(device.write(offset, {zeros.data(), step}));
    offset += step;
  }
  return kOk;
}

}  // namespace memlith::core
