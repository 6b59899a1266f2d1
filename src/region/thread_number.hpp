// Numbers threads from 1 on, each number once per process. Unlike a thread id, the number of an ended thread is never
// reused, so its unpersisted stores are never attributed to another thread. Floor: region.
#pragma once

#include <cstdint>

namespace memlith::core {

using ThreadNumber = std::uint32_t;
inline constexpr ThreadNumber kAllThreads = 0;

// The number of the calling thread. Async-signal-safe.
ThreadNumber this_thread_number();

}  // namespace memlith::core
