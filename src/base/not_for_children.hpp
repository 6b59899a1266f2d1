// Descriptors that a forked child gives up. Floor: base.
//
// A lock of an open file (flock(2), F_OFD_SETLK), and the claim of a device, last until the last process has closed the
// open file, and fork(2) hands it to the child. Without this, a helper that a program has forked would keep the store
// locked after the program was killed.
#pragma once

#include <atomic>

namespace memlith::core {

// As long as this object lives, each child that fork(2) makes gives the descriptor up before fork returns there: the
// number stays taken in the child and leads to no file, so nothing of the child's own gets that number. Children of
// clone(2) and _Fork(3), which call no handlers of pthread_atfork(3), keep the file open. The object ends before the
// descriptor is closed. Any thread; takes no lock.
class NotForChildren {
 public:
  explicit NotForChildren(int fd);  // which may be negative: none
  ~NotForChildren();
  NotForChildren(const NotForChildren&) = delete;
  NotForChildren& operator=(const NotForChildren&) = delete;

 private:
  const int fd_;
  std::atomic<int>* place_;  // in the list; null without a descriptor, or if memory was lacking
};

}  // namespace memlith::core
