// A slower disk under all sides. Floor: ycsb-bench.
#pragma once

#include <cstdint>

namespace memlith::tool {

// From now on each flush of this process takes so much longer: fsync, fdatasync, msync with MS_SYNC, and a write
// through a descriptor that was opened with O_DSYNC. The program has these functions in place of the C library's, so
// all libraries find them. 0: as the disk is.
void slow_flushes_down(std::uint64_t us);

}  // namespace memlith::tool
