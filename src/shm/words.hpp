// Words and bytes in memory that processes share: waiting for a word, and copying bytes. Floor: shm.
//
// The laboratory has a header of its own in the place of this one, which makes each use of a word and each of these
// calls a place where another process runs, or where this one dies.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/threads.hpp"

namespace memlith::core::shm {

template <class T>
using Shared = Atomic<T>;
using Word = Shared<std::uint32_t>;

// Returns when the word is not `seen`, at once or by a wake; when `at_most` is over; or for no reason.
inline void wait_for_change(const Word& word, std::uint32_t seen, std::chrono::nanoseconds at_most) {
  if (at_most.count() <= 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{static_cast<std::time_t>(seconds.count()), static_cast<long>((at_most - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}
inline void wake_one(Word& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
inline void wake_all(Word& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// As memcpy(3). A process that dies in it leaves any part of the bytes.
inline void copy_bytes(void* target, const void* source, std::size_t bytes) { std::memcpy(target, source, bytes); }

}  // namespace memlith::core::shm
