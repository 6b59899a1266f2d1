// Distinguishes a process from the processes it was forked from. Floor: base.
#pragma once

#include <cstdint>

namespace memlith::core {

// A number that is constant in a process and differs from that of all its ancestors, whichever call forked it. Never 0.
// Costs a load and no system call. Any thread.
std::uint64_t process_mark();

}  // namespace memlith::core
