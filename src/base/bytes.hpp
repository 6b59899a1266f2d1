// Questions about bytes that many places ask. Floor: base.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace memlith::core {

// Ends at the first byte that is not; all zeros are compared as fast as memory is read.
inline bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace memlith::core
