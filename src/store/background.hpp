// The threads that all stores of a process share. Floor: store.
//
// Each kind of work has threads of its own, so that none waits for another. A flush is short, and a thread may wait for
// it. A checkpoint is long; a commit that finds no thread for the checkpoint that it needs runs the checkpoint itself.
// Statistics are published to other processes.
#pragma once

#include <memory>

#include "base/workers.hpp"

namespace memlith::core {

struct Background {
  Workers flushes{4};
  Workers checkpoints{2};
  Workers shows{1};

  // The threads of this process; they end with the last reference. A child of fork() gets new ones, and must keep the
  // inherited object without using it: its threads stayed with the parent.
  static std::shared_ptr<Background> of_process();
};

}  // namespace memlith::core
