// Several transfers of one file in flight, by io_uring. Floor: device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/sync.hpp"
#include "device/device.hpp"

namespace memlith::core {

// Nothing where the kernel refuses, for want of io_uring, descriptors or memory. `fd` is the device's, and outlives the queue.
std::unique_ptr<IoQueue> make_uring_queue(Device& device, int fd, std::uint32_t depth);

// Whether it does not refuse in principle.
bool uring_works();

// Transfers one by one, as pread(2) and pwritev(2) with their results and errno. Any thread. Where a ring cannot be had,
// it is those.
class UringCalls {
 public:
  explicit UringCalls(int fd);
  ~UringCalls();
  ssize_t read(std::span<std::byte> target, std::uint64_t offset);
  ssize_t write(std::span<const iovec> pieces, std::uint64_t offset);

 private:
  class Ring;
  std::unique_ptr<Ring> take();
  template <class Prepare, class Call>
  ssize_t transfer(const Prepare& prepare, const Call& call);

  int fd_;
  Mutex mutex_;
  std::unique_ptr<Ring> idle_ MEMLITH_GUARDED_BY(mutex_);  // a list of as many as there ever were calls at a time
};

}  // namespace memlith::core
