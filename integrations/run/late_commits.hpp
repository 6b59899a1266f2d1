// Changes that the program does not commit: a program that never calls fsync loses them all if it is killed. After five
// seconds, or 16 MiB, a line on standard error says so, once a file; with --commit-every, they are committed.
#pragma once

#include <chrono>
#include <cstdint>

namespace memlith::preload {

inline constexpr std::uint64_t kLateBytes = 16 << 20;
inline constexpr std::chrono::seconds kLate{5};

// The thread that looks at the files. All signals are blocked while it is begun.
class LateCommits {
 public:
  // A file was opened for writing: makes the thread, the first time.
  void begin();
  // In a forked child, which has no such thread.
  void in_child() { begun_ = false; }

 private:
  static void* look(void*);

  bool begun_ = false;  // guarded by the lock of the list of images
};

LateCommits& late_commits();

}  // namespace memlith::preload
