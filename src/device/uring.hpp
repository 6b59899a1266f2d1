// Several concurrent transfers of one file, with io_uring. Floor: device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/not_for_children.hpp"
#include "base/sync.hpp"
#include "device/device.hpp"

namespace memlith::core {

// The file of a device, opened once more for its rings. When a process is killed, the kernel finishes the transfers
// that the rings of the process had begun, and keeps their file open until then. A lock on the device's own file is
// therefore released at once. What is still being written must not meet the next opening of a store, so the file of
// rings carries a lock of its own, which wait_for_transfers() waits for.
class RingFile {
 public:
  // Null where the file cannot be opened once more: without /proc, without descriptors, or without the permission by
  // now.
  static std::unique_ptr<RingFile> open(int device_fd, bool direct);
  ~RingFile();
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  [[nodiscard]] int fd() const { return descriptor_.get(); }

  // Waits until no ring of any process writes to the file that `fd` is open on; `busy` after some seconds. The caller
  // holds an exclusive lock on the file, so no process that lives has rings for it.
  static Status wait_for_transfers(int fd, const std::string& path);

 private:
  explicit RingFile(Descriptor descriptor);

  Descriptor descriptor_;
  NotForChildren not_for_children_;
  int process_;  // a child that has the lock, too, leaves it alone
};

// Nothing where the kernel refuses, for want of io_uring, descriptors or memory.
std::unique_ptr<IoQueue> make_uring_queue(Device& device, std::shared_ptr<const RingFile> file, std::uint32_t depth);

// True if the kernel offers io_uring at all.
bool uring_works();

// Single transfers with the results and errno of pread(2) and pwritev2(2). Any thread. Uses these calls if there is no
// ring.
class UringCalls {
 public:
  explicit UringCalls(std::shared_ptr<const RingFile> file);
  ~UringCalls();
  ssize_t read(std::span<std::byte> target, std::uint64_t offset);
  // `flags` are those of pwritev2(2).
  ssize_t write(std::span<const iovec> pieces, std::uint64_t offset, int flags);

 private:
  class Ring;
  std::unique_ptr<Ring> take();
  template <class Prepare, class Call>
  ssize_t transfer(const Prepare& prepare, const Call& call);

  std::shared_ptr<const RingFile> file_;
  Mutex mutex_;
  // A list of as many rings as there ever were concurrent calls.
  std::unique_ptr<Ring> idle_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
