#include "base/not_for_children.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <new>

namespace memlith::core {

namespace {

// A list that only grows, because a lock might be held by another thread at the fork. 0 stands for no descriptor: those
// of stores are above 2.
struct Part {
  std::array<std::atomic<int>, 64> places{};
  std::atomic<Part*> next{nullptr};
};

Part g_first;

// By system calls, which no library that is preloaded sees, and which may be called in the child of a process with
// threads.
void give_up_in_child() {
  const int error = errno;
  const auto nothing = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0));
  for (Part* part = &g_first; nothing >= 0 && part != nullptr; part = part->next.load(std::memory_order_acquire)) {
    for (std::atomic<int>& place : part->places) {
      const int fd = place.exchange(0, std::memory_order_relaxed);
      if (fd > 0) (void)::syscall(SYS_dup3, nothing, fd, O_CLOEXEC);
    }
  }
  if (nothing >= 0) (void)::syscall(SYS_close, nothing);
  errno = error;
}

std::atomic<int>* enter(int fd) {
  static std::once_flag handler;
  std::call_once(handler, [] { (void)::pthread_atfork(nullptr, nullptr, &give_up_in_child); });
  for (Part* part = &g_first;;) {
    for (std::atomic<int>& place : part->places) {
      int free = 0;
      if (place.compare_exchange_strong(free, fd, std::memory_order_relaxed)) return &place;
    }
    Part* next = part->next.load(std::memory_order_acquire);
    if (next == nullptr) {
      auto* const made = new (std::nothrow) Part;
      if (made == nullptr) return nullptr;
      // Release; pairs with the loads of `next`.
      if (part->next.compare_exchange_strong(next, made, std::memory_order_acq_rel)) {
        next = made;
      } else {
        delete made;
      }
    }
    part = next;
  }
}

}  // namespace

NotForChildren::NotForChildren(int fd) : fd_(fd), place_(fd < 0 ? nullptr : enter(fd)) {}

// In a child the place is free already, or has the descriptor of another object.
NotForChildren::~NotForChildren() {
  int own = fd_;
  if (place_ != nullptr) place_->compare_exchange_strong(own, 0, std::memory_order_relaxed);
}

}  // namespace memlith::core
