// Tells a process from those it was forked from. Floor: base.
#pragma once

#include <cstdint>

namespace memlith::core {

// A number that a process keeps and that none of its ancestors has, whatever call forked it. Never 0. A load, no system
// call. Any thread.
std::uint64_t process_mark();

}  // namespace memlith::core
