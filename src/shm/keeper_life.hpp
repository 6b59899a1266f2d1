// The life of the process that keeps a memory for others, which one load tells. Floor: shm.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace memlith::core::shm {

// Lies in memory that processes share, which others than the keeper need not be able to write to: they look at the word
// of the mutex, which the kernel marks when the thread that has it ends, before another keeper can have the store.
class KeeperLife {
 public:
  // The calling thread is the keeper's; it calls end(), or has ended. Errors: unsupported.
  Status begin();
  void end();
  // The keeper ends, and has said so: any thread of it.
  void say_ended() { ended_.store(1); }
  // Any process. No system call.
  [[nodiscard]] bool lasts() const;

 private:
  pthread_mutex_t mutex_;
  std::atomic<std::uint32_t> ended_;  // 1: it ends, and has said so
};

}  // namespace memlith::core::shm
