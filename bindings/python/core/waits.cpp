#include "waits.hpp"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "unlocked.hpp"

namespace memlith::python {

bool runs_handlers() { return ::gettid() == ::getpid(); }

void look_at_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

std::unique_lock<std::mutex> lock_briefly(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (lock.owns_lock()) return lock;
  const Unlocked unlocked;
  lock.lock();
  return lock;
}

std::shared_lock<std::shared_mutex> share(std::shared_mutex& mutex) {
  std::shared_lock shared(mutex, std::try_to_lock);
  if (shared.owns_lock()) return shared;
  const Unlocked unlocked;
  shared.lock();
  return shared;
}

void run_beside(std::function<void()> work) {
  struct Result {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_ended = false;
    std::exception_ptr failure;
  };
  const auto result = std::make_shared<Result>();
  try {
    std::thread([result, work] {
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(result->mutex);
      result->failure = std::move(failure);
      result->has_ended = true;
      result->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no thread can be made: the wait is then deaf to signals
    const Unlocked unlocked;
    return work();
  }
  while (true) {
    {
      const Unlocked unlocked;
      std::unique_lock lock(result->mutex);
      if (result->changed.wait_for(lock, kBetweenLooks, [&] { return result->has_ended; })) break;
    }
    look_at_signals();
  }
  if (result->failure != nullptr) std::rethrow_exception(result->failure);
}

void run_hearing_signals(const std::function<void()>& work) {
  if (runs_handlers()) return run_beside(work);
  const Unlocked unlocked;
  work();
}

}  // namespace memlith::python
