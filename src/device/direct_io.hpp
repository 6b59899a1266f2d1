// The requirements of direct transfers on a file system. Floor: device.
#pragma once

#include <cstdint>

namespace memlith::core {

// The alignment that O_DIRECT needs for the open file, or 0 if it does not work. Does not change the file.
std::uint32_t direct_block_bytes(int fd, bool writable);

}  // namespace memlith::core
