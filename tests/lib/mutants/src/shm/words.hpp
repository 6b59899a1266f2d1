// The tests' copy of the engine has this in the place of src/shm/words.hpp. Each use of a word that processes share,
// and each copy of bytes, is a step: under a Controller another process may run there, or this one may die; without
// one, the observer of a real process is called, which may kill it.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "base/threads.hpp"

namespace memlith::core::shm {

inline void (*observer)() = nullptr;  // null: nothing happens

inline thread_local bool unseen = false;

inline void observe() {
  if (controller == nullptr && observer != nullptr && !unseen) observer();
}
// This thread's doings meanwhile are no steps, if that is asked for: of many that are alike, one shows all.
class Unseen {
 public:
  explicit Unseen(bool is)
      : before_(std::exchange(unseen, unseen || is)),
        controller_(std::exchange(controller, is ? nullptr : controller)) {}
  ~Unseen() {
    unseen = before_;
    controller = controller_;
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  const bool before_;
  Controller* const controller_;
};
inline void step(const char* what) {
  if (controller != nullptr) controller->point(what, nullptr);
  observe();
}

template <class T>
class Shared : public Atomic<T> {
 public:
  using Base = Atomic<T>;
  using Base::Base;
  T load(std::memory_order order = std::memory_order_seq_cst) const { return observe(), Base::load(order); }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) { observe(), Base::store(value, order); }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return observe(), Base::exchange(value, order);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    return observe(), Base::fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    return observe(), Base::fetch_sub(value, order);
  }
  bool compare_exchange_strong(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst) {
    return observe(), Base::compare_exchange_strong(expected, wanted, order);
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, wanted, order);
  }
};
using Word = Shared<std::uint32_t>;

inline constexpr std::uint32_t kAnyBit = ~std::uint32_t{0};

inline constexpr std::chrono::nanoseconds kWaitMax = std::chrono::hours(24);  // the end of a longer one may not fit

inline void wait_for_change(const Word& word, std::uint32_t seen, std::chrono::nanoseconds at_most,
                            std::uint32_t bits = kAnyBit) {
  if (at_most.count() <= 0) return;
  if (controller != nullptr) return word.wait_briefly(seen, at_most, bits);
  observe();
  const auto until = std::chrono::steady_clock::now().time_since_epoch() + std::min(at_most, kWaitMax);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(until);
  const timespec time{static_cast<std::time_t>(seconds.count()), static_cast<long>((until - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &time, nullptr, bits);
}
inline void wake(Word& word, int count, std::uint32_t bits) {
  step("wake");
  if (controller != nullptr) return word.wake(count != 1, bits);
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, count, nullptr, nullptr, bits);
}
inline void wake_one(Word& word, std::uint32_t bits = kAnyBit) { wake(word, 1, bits); }
inline void wake_all(Word& word, std::uint32_t bits = kAnyBit) { wake(word, INT_MAX, bits); }

inline void sleep(std::chrono::nanoseconds time) {
  if (controller == nullptr) return std::this_thread::sleep_for(time);
  (void)controller->block("sleep", nullptr, time, [] { return false; });
}

// In two steps.
inline void copy_bytes(void* target, const void* source, std::size_t bytes) {
  const std::size_t half = bytes / 2;
  step("copy the first half");
  std::memcpy(target, source, half);
  step("copy the other half");
  std::memcpy(static_cast<std::byte*>(target) + half, static_cast<const std::byte*>(source) + half, bytes - half);
}

}  // namespace memlith::core::shm
