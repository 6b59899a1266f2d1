// Words and bytes in memory that processes share: waiting for a word, and copying bytes. Floor: shm.
//
// The laboratory has a header of its own in the place of this one, which makes each use of a word and each of these
// calls a place where another process runs, or where this one dies.
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

#include "base/threads.hpp"

namespace memlith::core::shm {

template <class T>
using Shared = Atomic<T>;
using Word = Shared<std::uint32_t>;

// Those that wait for one word may wait for several things, each of which has a bit.
inline constexpr std::uint32_t kAnyBit = ~std::uint32_t{0};

inline constexpr std::chrono::nanoseconds kWaitMax = std::chrono::hours(24);  // the end of a longer one may not fit

// Returns when the word is not `seen`, at once or by a wake for one of the bits; when `at_most` is over; or for no
// reason.
inline void wait_for_change(const Word& word, std::uint32_t seen, std::chrono::nanoseconds at_most,
                            std::uint32_t bits = kAnyBit) {
  if (at_most.count() <= 0) return;
  const auto until = std::chrono::steady_clock::now().time_since_epoch() + std::min(at_most, kWaitMax);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(until);
  const timespec time{static_cast<std::time_t>(seconds.count()), static_cast<long>((until - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &time, nullptr, bits);
}
inline void wake(Word& word, int count, std::uint32_t bits) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, count, nullptr, nullptr, bits);
}
inline void wake_one(Word& word, std::uint32_t bits = kAnyBit) { wake(word, 1, bits); }
inline void wake_all(Word& word, std::uint32_t bits = kAnyBit) { wake(word, INT_MAX, bits); }

inline void sleep(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

// As memcpy(3). A process that dies in it leaves any part of the bytes.
inline void copy_bytes(void* target, const void* source, std::size_t bytes) { std::memcpy(target, source, bytes); }

}  // namespace memlith::core::shm
