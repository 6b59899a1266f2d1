// The failure that ends a log in front of homes with all threads behind it, and their patience with a disk that has no
// room. Part: settled, over the public interface.
//
// A lack of room, memory or descriptors is a refusal: nothing has changed, and the same call may succeed later. The
// first other failure is kept. From then on nothing is acknowledged, until the log is opened again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "memlith/memlith.hpp"

namespace memlith_settled {

using memlith::Error;
using memlith::Result;

inline bool is_refusal(const Error& error) {
  const std::int32_t category = error.category();
  return category == MEMLITH_NO_SPACE || category == MEMLITH_FULL || category == MEMLITH_NO_MEMORY ||
         category == MEMLITH_TOO_MANY_FILES;
}

// Threads: any.
class Behind {
 public:
  // Keeps the first failure, such as a flush for which there was no room. Returns this one.
  Error fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = error.message();
    failed_.store(true, std::memory_order_release);
    return error;
  }
  // The same, unless it is a refusal.
  Result<void> keep(Result<void> result) {
    if (!result && !is_refusal(result.error())) (void)fail(result.error());
    return result;
  }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string failure() const {  // empty: none
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Threads behind the log may wait, from begin() to end().
  void begin() { set_ended(false); }
  void end() { set_ended(true); }
  // Waits until wanted(), after a wake(), or for that long. True: the end has come.
  template <class Wanted>
  bool wait(std::chrono::milliseconds time, Wanted&& wanted) {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, time, [&] { return ended_ || wanted(); });
    return ended_;
  }
  void wake() { woken_.notify_all(); }
  // Acts until there is room for it, or the end. Each time that it is refused, on_refusal() is called.
  template <class Act, class OnRefusal>
  Result<void> until_room(Act&& act, OnRefusal&& on_refusal) {
    for (;;) {
      Result<void> done = act();
      if (done || !is_refusal(done.error())) return done;
      on_refusal();
      if (wait(kTryAgainAfter, [] { return false; })) return done;
    }
  }

 private:
  static constexpr std::chrono::milliseconds kTryAgainAfter{100};

  void set_ended(bool ended) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = ended;
    }
    woken_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::string failure_;              // mutex_
  bool ended_ = false;               // mutex_
  std::atomic<bool> failed_{false};  // for a look without the mutex; set after failure_
};

}  // namespace memlith_settled
