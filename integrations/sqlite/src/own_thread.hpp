// Threads of the plugin's own: an object for each process, whose thread works for all its databases. Part of the SQLite
// plugin.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>

#include "base/process.hpp"

namespace memlith::sqlite {

// The one T of this process, made when it is first asked for and never destroyed, because its thread runs until the
// process ends. A forked child gets one of its own: the thread, and possibly a mutex, stayed with the parent.
// T::at_exit() is called when a process that has one ends by exit(). Threads: any.
template <class T>
class OneOfProcess {
 public:
  T& get() {
    const std::uint64_t mark = core::process_mark();
    Made* found = made_.load(std::memory_order_acquire);
    if (found != nullptr && found->process_mark == mark) return found->it;
    auto made = std::make_unique<Made>(mark);
    if (!made_.compare_exchange_strong(found, made.get())) return found->it;
    std::call_once(once_, [] { (void)std::atexit(T::at_exit); });
    return made.release()->it;
  }
  // Null if this process has made none.
  T* find() {
    Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr && found->process_mark == core::process_mark() ? &found->it : nullptr;
  }

 private:
  struct Made {
    explicit Made(std::uint64_t mark) : process_mark(mark) {}
    const std::uint64_t process_mark;
    T it;
  };
  std::atomic<Made*> made_{nullptr};
  std::once_flag once_;
};

// Runs `body` in a detached thread that no signal interrupts. False if the system has no thread left.
bool start_thread(std::function<void()> body);

}  // namespace memlith::sqlite
