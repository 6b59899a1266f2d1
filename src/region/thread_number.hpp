// Numbers threads, from 1 on, each once a process: unlike a thread id, the number of a thread that ended never comes back,
// so what it stored and did not persist is never taken for another's. Floor: region.
#pragma once

#include <cstdint>

namespace memlith::core {

using ThreadNumber = std::uint32_t;
inline constexpr ThreadNumber kAllThreads = 0;

// Of the calling thread. Async-signal-safe.
ThreadNumber this_thread_number();

}  // namespace memlith::core
