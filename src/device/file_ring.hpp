// An io_uring for the transfers of one file. Floor: device.
#pragma once

#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/assert.hpp"

namespace memlith::core {

// Transfers that cannot be done at once need a thread of the kernel. If signals keep arriving or threads are limited,
// the kernel cannot create that thread and abandons the transfer before it has begun.
inline constexpr int kNoThread = -ECANCELED;

// A ring for one file. The file is not registered with the ring, although that would save a lookup per transfer: the
// kernel destroys a ring about 40 ms after it was closed and keeps registered files until then. During that time, the
// volume of a closed store could not be unmounted, the space of a removed log stayed in use, and the locks of a killed
// process stayed held.
class FileRing {
 public:
  // `setup`: IORING_SETUP_*.
  FileRing(int fd, std::uint32_t depth, std::uint32_t setup = 0)
      : fd_(fd), ready_(::io_uring_queue_init(depth, &ring_, setup) == 0) {}
  ~FileRing() {
    if (ready_) ::io_uring_queue_exit(&ring_);
  }
  FileRing(const FileRing&) = delete;
  FileRing& operator=(const FileRing&) = delete;

  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] io_uring* get() { return &ring_; }

  // At most `depth` entries are in flight. `prepare(entry, fd)` fills the entry. 0, or the reason why the kernel
  // refused it; the ring is unusable then, because the entry stays where the kernel would find it. The same system call
  // waits for `wait_for` completions, if it is not interrupted.
  template <class Prepare>
  int submit(std::uint64_t user_data, const Prepare& prepare, std::uint32_t wait_for = 0) {
    if (refused_ != 0) return refused_;
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    MEMLITH_ASSERT(entry != nullptr);
    prepare(entry, fd_);
    entry->user_data = user_data;
    int submitted = 0;
    do {
      submitted = ::io_uring_submit_and_wait(&ring_, wait_for);
    } while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
    if (submitted < 0) refused_ = -submitted;
    return refused_;
  }

  struct Completion {
    std::uint64_t user_data = 0;
    int result = 0;
  };
  // 0, or the reason why waiting failed.
  int wait(Completion& completion) {
    io_uring_cqe* entry = nullptr;
    int waited = 0;
    do {
      waited = ::io_uring_wait_cqe(&ring_, &entry);
      // Transfers that began before a sandbox refused further calls still complete.
      if (waited == -EPERM || waited == -EACCES || waited == -ENOSYS) {
        refused_ = -waited;
        (void)::usleep(kLookEveryUs);
        waited = ::io_uring_peek_cqe(&ring_, &entry) == 0 ? 0 : -EINTR;
      }
    } while (waited == -EINTR);
    if (waited < 0) return -waited;
    completion = {entry->user_data, entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return 0;
  }

 private:
  static constexpr unsigned kLookEveryUs = 50;

  io_uring ring_{};
  int fd_;
  bool ready_;
  int refused_ = 0;  // why the kernel accepts no more entries
};

}  // namespace memlith::core
