// Distinguishes a process from the processes it was forked from. Floor: base.
#pragma once

#include <atomic>
#include <cstdint>

namespace memlith::core {

using ProcessMark = std::atomic<std::uint64_t>;
extern std::atomic<ProcessMark*> g_process_mark;  // on a page that is empty in a forked child; never unmapped
std::uint64_t make_process_mark();

// A number that is constant in a process and differs from that of all its ancestors, whichever call forked it. Never 0.
// Costs two loads and no system call. Any thread.
inline std::uint64_t process_mark() {
  const ProcessMark* const mark = g_process_mark.load(std::memory_order_acquire);
  const std::uint64_t number = mark != nullptr ? mark->load(std::memory_order_relaxed) : 0;
  return number != 0 ? number : make_process_mark();
}

}  // namespace memlith::core
