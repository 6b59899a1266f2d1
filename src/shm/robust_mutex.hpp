// A mutex that survives its owner. Floor: shm.
//
// A word in memory that processes share: the participant that has the mutex. Robust mutexes of the C library are told
// apart by thread numbers, which two PID name spaces give twice: the kernel would take a mutex from its owner when a
// thread of the same number dies in another container. Here the number is the participant's, and a waiter asks now and
// then whether the owner lives.
#pragma once

#include <cstdint>
#include <utility>

#include "base/thread_annotations.hpp"
#include "shm/participant.hpp"
#include "shm/words.hpp"

namespace memlith::core::shm {

// Zeros are a mutex that no participant has. Threads: any. It is not recursive, and not fair. A thread that waits for
// an owner that has died gets the mutex within some milliseconds.
class MEMLITH_CAPABILITY("mutex") RobustMutex {
 public:
  // `repair` is called, with the mutex held, if its owner has died: what the mutex guards is as the owner left it. A
  // process that dies in its repair leaves the repair to the next one.
  template <class Repair>
  void lock(const Participant& self, Repair&& repair) MEMLITH_ACQUIRE() {
    if (acquire(self)) mend(std::forward<Repair>(repair));
  }
  // For what needs no repair, because each change is one store.
  void lock(const Participant& self) MEMLITH_ACQUIRE() {
    lock(self, [] {});
  }
  // False: another one has it, and lives. Does not wait.
  template <class Repair>
  bool try_lock(const Participant& self, Repair&& repair) MEMLITH_TRY_ACQUIRE(true) {
    const Got got = try_to_acquire(self);
    if (got == Got::damaged) mend(std::forward<Repair>(repair));
    return got != Got::nothing;
  }
  void unlock() MEMLITH_RELEASE();

 private:
  enum class Got { nothing, whole, damaged };
  // True: damaged.
  bool acquire(const Participant& self);
  Got try_to_acquire(const Participant& self);
  Got take_over(const Participant& self, std::uint32_t word);
  void say_mended();
  template <class Repair>
  void mend(Repair&& repair) {
    std::forward<Repair>(repair)();
    say_mended();
  }

  // The owner's id and the bits of robust_mutex.cpp. Acquire by the exchange that takes the mutex, release by the one
  // that gives it back.
  Word word_{0};
};

// Holds the mutex for as long as it lives.
class MEMLITH_SCOPED_CAPABILITY RobustLock {
 public:
  RobustLock(RobustMutex& mutex, const Participant& self) MEMLITH_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(self); }
  template <class Repair>
  RobustLock(RobustMutex& mutex, const Participant& self, Repair&& repair) MEMLITH_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.lock(self, std::forward<Repair>(repair));
  }
  ~RobustLock() MEMLITH_RELEASE() { mutex_.unlock(); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  RobustMutex& mutex_;
};

}  // namespace memlith::core::shm
