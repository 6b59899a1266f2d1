// How a store uses the disk, by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace memlith::tool {

// The names of MEMLITH_IO_*, in their order.
inline constexpr std::array<std::string_view, 4> kIoNames{"auto", "posix", "uring", "dax"};

inline std::uint32_t io_of(std::string_view name) {
  return static_cast<std::uint32_t>(std::find(kIoNames.begin(), kIoNames.end(), name) - kIoNames.begin());
}

}  // namespace memlith::tool
