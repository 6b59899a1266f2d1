// Waits that react to signals, as those of threading.Lock do.
//
// Part: python. Python runs signal handlers in the main thread only, between instructions of Python code or when
// PyErr_CheckSignals is called. A wait therefore looks at signals again and again, without any lock of this module.
#ifndef MEMLITH_PYTHON_WAITS_HPP
#define MEMLITH_PYTHON_WAITS_HPP

#include <chrono>
#include <functional>
#include <mutex>
#include <shared_mutex>

namespace memlith::python {

inline constexpr std::chrono::milliseconds kBetweenLooks{50};

// True in the thread that runs the signal handlers of Python.
bool runs_handlers();

// Throws what a signal handler raised.
void look_at_signals();

// Runs `work` in a thread of its own, and returns when it has ended. If a signal handler raises, throws that at once:
// `work` goes on, and its result is dropped. Releases the interpreter lock, which `work` must not take.
void run_beside(std::function<void()> work);

// The same in the main thread; elsewhere, where no handler runs, `work` is simply called.
void run_hearing_signals(const std::function<void()>& work);

// Locks or shares a mutex that other threads hold for a moment. Releases the interpreter lock if it has to wait.
std::unique_lock<std::mutex> lock_briefly(std::mutex& mutex);
std::shared_lock<std::shared_mutex> share(std::shared_mutex& mutex);

}  // namespace memlith::python

#endif
