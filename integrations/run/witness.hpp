// True if another process writes to a file that this one keeps. Its writes go past memlith: a checkpoint may overwrite
// them, and a commit may lie over the half of them.
#pragma once

#include <sys/types.h>

#include <array>
#include <vector>

namespace memlith::preload {

// By fanotify, which says of each event whether this process caused it. Where the kernel or the file system has none,
// nothing is seen. A file that is only mapped by the other process is seen when that process closes it. All witnesses
// of the process share one descriptor.
class Witness {
 public:
  // `fd` is the file, also with O_PATH, and stays open until stop().
  void watch(int fd);
  // Since the last call.
  [[nodiscard]] bool another_wrote();
  void stop();
  // In a forked child: what the parent watches is not the child's.
  static void in_child();

 private:
  struct Group;
  static Group& group();

  int file_ = -1;  // -1: nothing is watched
  // How events name the file: its file system, and its handle there.
  std::array<int, 2> volume_{};
  std::vector<char> handle_;
  bool another_wrote_ = false;  // guarded by the group
};

}  // namespace memlith::preload
