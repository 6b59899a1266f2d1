// The threads that all stores of a process share. Floor: store.
//
// Each kind of work has its own, so that none waits for another: a flush is short, and somebody may wait for it; a checkpoint takes its
// time, and a commit that finds no thread for the checkpoint it needs does that itself; statistics are shown to other processes.
#pragma once

#include <memory>

#include "base/workers.hpp"

namespace memlith::core {

struct Background {
  Workers flushes{4};
  Workers checkpoints{2};
  Workers shows{1};

  // The process's; they end when nobody has them any more. A child of fork() gets its own, and must keep those that it was born with
  // without using them: their threads stayed with the parent.
  static std::shared_ptr<Background> of_process();
};

}  // namespace memlith::core
