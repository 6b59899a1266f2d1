// Whether another process writes to a file that this one keeps. Its writes go past memlith: a checkpoint may overwrite
// them, and a commit may lie over the half of them.
#pragma once

namespace memlith::preload {

// By fanotify, which says of each event whether this process caused it. Where the kernel or the file system has none,
// nothing is seen. A file that is only mapped by the other process is seen when that process closes it.
class Witness {
 public:
  // `fd` is the file, also with O_PATH.
  void watch(int fd);
  // Since the last call.
  [[nodiscard]] bool another_wrote() const;
  void stop();

 private:
  int events_ = -1;
};

}  // namespace memlith::preload
