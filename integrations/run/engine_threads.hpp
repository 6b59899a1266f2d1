// The engine's threads. To make a thread the C library calls the program's malloc, which no handler of signals may do
// (see engine_heap.cpp): so threads are made where a file is opened, and wait until the engine wants them.
#pragma once

#include <pthread.h>

#include <memory>
#include <mutex>
#include <vector>

namespace memlith::preload {

// All signals are blocked while it is used.
class EngineThreads {
 public:
  // A file is opened for writing. The first needs a thread for flushes, one for checkpoints, one for the figures that
  // `memlith top` shows, and one for LateCommits; each further one, one more, up to the engine's limits.
  void prepare();
  // As pthread_create. What the thread calls goes to the C library.
  int start(pthread_t& thread, void* (*body)(void*), void* context);
  // In a forked child, which has none of the threads.
  void in_child();

 private:
  struct Spare;
  static void* wait(void* given);
  int make(std::unique_ptr<Spare>& made);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Spare>> spares_;
  int opened_ = 0;
};

// Never destroyed: its threads wait until the process ends.
EngineThreads& engine_threads();

}  // namespace memlith::preload
