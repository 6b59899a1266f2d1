#include "device/uring.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "device/file_ring.hpp"

namespace memlith::core {

namespace {

class UringQueue final : public IoQueue {
 public:
  UringQueue(Device& device, std::shared_ptr<const RingFile> file, std::uint32_t depth)
      : device_(device), file_(std::move(file)), ring_(file_->fd(), depth), transfers_(depth) {}
  ~UringQueue() override {
    if (ready()) (void)wait_all();
  }
  [[nodiscard]] bool ready() const { return ring_.ready(); }

  Status read(std::uint32_t number, std::uint64_t offset, std::span<std::byte> target) override {
    return start(number, offset, target, false);
  }
  Status write(std::uint32_t number, std::uint64_t offset, std::span<const std::byte> source) override {
    return start(number, offset, {const_cast<std::byte*>(source.data()), source.size()}, true);
  }

  Status wait(std::uint32_t number) override {
    while (transfers_[number].in_flight || transfers_[number].refused) MEMLITH_TRY(reap());
    return std::exchange(transfers_[number].result, kOk);
  }
  Status wait_all() override {
    Status first = kOk;
    for (std::uint32_t number = 0; number < transfers_.size(); ++number) {
      if (const Status status = wait(number); first.ok()) first = status;
    }
    return first;
  }

  // The kernel pins the memory, as far as RLIMIT_MEMLOCK allows; if it refuses, transfers work as before. Buffers lie
  // in huge pages, which the kernel finds quickly, so registration gained nothing measurable; it is used only if
  // everything goes through io_uring.
  void register_memory(std::span<std::byte> memory) override {
    if (device_.caps().io != IoBackend::uring) return;
    if (!registered_.empty()) (void)::io_uring_unregister_buffers(ring_.get());
    const iovec piece{memory.data(), memory.size()};
    const bool taken = !memory.empty() && ::io_uring_register_buffers(ring_.get(), &piece, 1) == 0;
    registered_ = taken ? memory : std::span<std::byte>();
  }

 private:
  struct Transfer {
    std::uint64_t offset = 0;
    std::span<std::byte> memory;
    std::uint64_t done = 0;  // bytes
    bool writes = false;
    bool direct = false;  // as of its submission
    bool in_flight = false;
    bool refused = false;  // refused as a direct transfer; to be done by a system call
    Status result = kOk;
  };

  Status start(std::uint32_t number, std::uint64_t offset, std::span<std::byte> memory, bool writes) {
    MEMLITH_TRY(wait(number));
    if (writes) MEMLITH_TRY(device_.check_latch());
    transfers_[number] = Transfer{offset, memory, 0, writes, false, true, false, kOk};
    return submit(number);
  }

  Status submit(std::uint32_t number) {
    Transfer& transfer = transfers_[number];
    const std::span<std::byte> rest = transfer.memory.subspan(transfer.done);
    const std::uint64_t offset = transfer.offset + transfer.done;
    const auto bytes = static_cast<unsigned>(std::min<std::uint64_t>(rest.size(), 1 * kGiB));
    std::byte* const memory = rest.data();
    const bool registered = memory >= registered_.data() && memory + bytes <= registered_.data() + registered_.size();
    transfer.direct = transfer.writes ? device_.begin_direct_write() : device_.direct();
    const int error = ring_.submit(number, [&](io_uring_sqe* entry, int file) {
      if (transfer.writes && registered) {
        ::io_uring_prep_write_fixed(entry, file, memory, bytes, offset, 0);
      } else if (transfer.writes) {
        ::io_uring_prep_write(entry, file, memory, bytes, offset);
      } else if (registered) {
        ::io_uring_prep_read_fixed(entry, file, memory, bytes, offset, 0);
      } else {
        ::io_uring_prep_read(entry, file, memory, bytes, offset);
      }
    });
    if (error == 0) return kOk;
    // Refused, for example by a sandbox that was installed after the ring was created.
    end_direct_write(transfer);
    finish_by_call(transfer);
    return kOk;
  }

  void end_direct_write(Transfer& transfer) {
    if (transfer.direct && transfer.writes) device_.end_direct_write();
    transfer.direct = false;
  }

  // None of the remaining transfers has begun; they are done by system calls.
  void finish_by_call(Transfer& transfer) {
    const std::span<std::byte> rest = transfer.memory.subspan(transfer.done);
    const std::uint64_t offset = transfer.offset + transfer.done;
    transfer.in_flight = false;
    transfer.result = transfer.writes ? device_.write(offset, rest) : device_.read(offset, rest);
  }

  // Processes one completion; a short transfer continues with its rest.
  Status reap() {
    // The file system refuses direct transfers. The system call will show that to the device, which changes to the page
    // cache only when no direct write is in flight.
    if (std::none_of(transfers_.begin(), transfers_.end(), [](const Transfer& each) { return each.in_flight; })) {
      for (Transfer& each : transfers_) {
        if (std::exchange(each.refused, false)) finish_by_call(each);
      }
      return kOk;
    }
    FileRing::Completion completion;
    if (const int error = ring_.wait(completion); error != 0) {
      return fail_errno(error, Detail::read, "{}: cannot wait for a transfer", device_.path());
    }
    const auto number = static_cast<std::uint32_t>(completion.user_data);
    const int result = completion.result;
    Transfer& transfer = transfers_[number];
    const bool direct = transfer.direct;
    end_direct_write(transfer);
    if (result == -EINTR || result == -EAGAIN) return submit(number);
    if (result == kNoThread) {
      finish_by_call(transfer);
      return kOk;
    }
    if (result == -EINVAL && direct) {
      transfer.in_flight = false;
      transfer.refused = true;
      return kOk;
    }
    if (result <= 0) {
      transfer.in_flight = false;
      if (result == 0 && !transfer.writes) {
        transfer.result = cut_short(device_.path(), transfer.offset, transfer.memory.size(), transfer.done);
      } else {
        transfer.result = fail_errno(result == 0 ? EIO : -result, transfer.writes ? Detail::write : Detail::read,
                                     "{}: {} of {} bytes at offset {} failed", device_.path(),
                                     transfer.writes ? "write" : "read", transfer.memory.size(), transfer.offset);
        if (transfer.writes) transfer.result = device_.latch(transfer.result);
      }
      return kOk;
    }
    transfer.done += static_cast<std::uint64_t>(result);
    if (transfer.done < transfer.memory.size()) return submit(number);
    transfer.in_flight = false;
    return kOk;
  }

  Device& device_;
  std::shared_ptr<const RingFile> file_;
  FileRing ring_;
  std::vector<Transfer> transfers_;
  std::span<std::byte> registered_;
};

// The byte that the lock of a file of rings is on: behind any content, and behind the bytes that SQLite locks.
constexpr off_t kRingByte = off_t{1} << 62;
constexpr auto kTransferLookEvery = std::chrono::milliseconds(1);
constexpr int kTransferLooks = 10'000;

struct flock ring_lock(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kRingByte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

// ---- RingFile ----------------------------------------------------------------------------------------------------

RingFile::RingFile(Descriptor descriptor)
    : descriptor_(std::move(descriptor)), not_for_children_(descriptor_.get()), process_(::getpid()) {}

std::unique_ptr<RingFile> RingFile::open(int device_fd, bool direct) {
  const int access = ::fcntl(device_fd, F_GETFL) & O_ACCMODE;
  const std::string path = fmt::format("/proc/thread-self/fd/{}", device_fd);
  Descriptor descriptor(above_standard(::open(path.c_str(), access | O_CLOEXEC | (direct ? O_DIRECT : 0))));
  if (descriptor.get() < 0) return nullptr;
  struct flock lock = ring_lock(F_RDLCK);
  if (access != O_RDONLY && ::fcntl(descriptor.get(), F_OFD_SETLK, &lock) != 0) return nullptr;
  return std::unique_ptr<RingFile>(new RingFile(std::move(descriptor)));
}

RingFile::~RingFile() {
  if (process_ != ::getpid()) return;
  struct flock lock = ring_lock(F_UNLCK);
  (void)::fcntl(fd(), F_OFD_SETLK, &lock);
}

Status RingFile::wait_for_transfers(int fd, const std::string& path) {
  for (int look = 0; look < kTransferLooks; ++look) {
    struct flock lock = ring_lock(F_WRLCK);
    if (::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return kOk;
    std::this_thread::sleep_for(kTransferLookEvery);
  }
  return fail(Errc::busy, Detail::lock,
              "{}: a process that had it open has ended, but the disk is still writing what that process wrote; try "
              "again later",
              path);
}

// ---- UringQueue --------------------------------------------------------------------------------------------------

std::unique_ptr<IoQueue> make_uring_queue(Device& device, std::shared_ptr<const RingFile> file, std::uint32_t depth) {
  auto queue = std::make_unique<UringQueue>(device, std::move(file), depth);
  return queue->ready() ? std::move(queue) : nullptr;
}

bool uring_works() { return FileRing(-1, 1).ready(); }

// ---- UringCalls --------------------------------------------------------------------------------------------------

class UringCalls::Ring : public FileRing {
 public:
  explicit Ring(int fd) : FileRing(fd, 1) {}
  std::unique_ptr<Ring> next;
};

UringCalls::UringCalls(std::shared_ptr<const RingFile> file) : file_(std::move(file)) {}
UringCalls::~UringCalls() = default;

std::unique_ptr<UringCalls::Ring> UringCalls::take() {
  {
    const LockGuard lock(mutex_);
    if (idle_ != nullptr) {
      auto ring = std::move(idle_);
      idle_ = std::move(ring->next);
      return ring;
    }
  }
  // The caller may be in the middle of a commit, which must not throw.
  std::unique_ptr<Ring> ring(new (std::nothrow) Ring(file_->fd()));
  return ring != nullptr && ring->ready() ? std::move(ring) : nullptr;
}

template <class Prepare, class Call>
ssize_t UringCalls::transfer(const Prepare& prepare, const Call& call) {
  std::unique_ptr<Ring> ring = take();
  if (ring == nullptr || ring->submit(0, prepare) != 0) return call();
  FileRing::Completion completion;
  int error = ring->wait(completion);
  if (error == 0) {
    {
      const LockGuard lock(mutex_);
      ring->next = std::move(idle_);
      idle_ = std::move(ring);
    }
    if (completion.result == kNoThread) return call();
    if (completion.result >= 0) return completion.result;
    error = -completion.result;
  }
  ring = nullptr;  // which may change errno
  errno = error == EAGAIN ? EINTR : error;
  return -1;
}

ssize_t UringCalls::read(std::span<std::byte> target, std::uint64_t offset) {
  const auto bytes = static_cast<unsigned>(std::min<std::uint64_t>(target.size(), 1 * kGiB));
  return transfer([&](io_uring_sqe* entry,
                      int file) { ::io_uring_prep_read(entry, file, target.data(), bytes, offset); },
                  [&] { return ::pread(file_->fd(), target.data(), bytes, static_cast<off_t>(offset)); });
}

ssize_t UringCalls::write(std::span<const iovec> pieces, std::uint64_t offset, int flags) {
  const auto count = static_cast<unsigned>(pieces.size());
  return transfer([&](io_uring_sqe* entry,
                      int file) { ::io_uring_prep_writev2(entry, file, pieces.data(), count, offset, flags); },
                  [&] {
                    return ::pwritev2(file_->fd(), pieces.data(), static_cast<int>(count), static_cast<off_t>(offset),
                                      flags);
                  });
}

}  // namespace memlith::core
