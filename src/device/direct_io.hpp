// What transfers past the page cache need of a file's system. Floor: device.
#pragma once

#include <cstdint>

namespace memlith::core {

// The alignment that O_DIRECT needs for the open file, or 0 where it does not work. The file keeps its bytes.
std::uint32_t direct_block_bytes(int fd, bool writable);

}  // namespace memlith::core
