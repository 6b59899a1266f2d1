// Opening a userfaultfd, and its calls, for the trackers and for the watches of a file. Floor: region.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/assert.hpp"
#include "base/host.hpp"
#include "base/status.hpp"
#include "region/kernel_abi.hpp"

namespace memlith::core {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// The needs of the kernel's marks, for messages.
#if defined(__aarch64__)
inline constexpr const char* kWpAsync = "WP_ASYNC (Linux 6.10 on arm64)";
#else
inline constexpr const char* kWpAsync = "WP_ASYNC (Linux 6.7)";
#endif

// USER_MODE_ONLY works without privilege; a system call that meets such a fault fails with EFAULT instead of waiting.
inline Result<FileDescriptor> open_userfaultfd(std::uint64_t features, const char* lacking) {
  FileDescriptor fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (fd.get() < 0 && (errno == EPERM || errno == ENOSYS)) {
    return fail(Errc::unsupported, Detail::tracker,
                "the system call userfaultfd, which finds the pages that are stored to, is not allowed here ({}); in a "
                "container, add userfaultfd to the calls that its seccomp profile allows",
                errno == EPERM ? "Operation not permitted" : "Function not implemented");
  }
  if (fd.get() < 0 && errno == EINVAL) {
    return fail(Errc::unsupported, Detail::tracker,
                "this kernel's userfaultfd has no USER_MODE_ONLY (Linux 5.11), and no {}; update the kernel", lacking);
  }
  if (fd.get() < 0) return fail_errno(errno, Detail::tracker, "userfaultfd is not available");
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | features;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) {
    return fail(Errc::unsupported, Detail::tracker, "this kernel's userfaultfd has no {}; update the kernel", lacking);
  }
  return fd;
}

// The functions below may be called in a signal handler: bare system calls, false with errno on failure. They are for
// whole pages of the kernel's.

inline bool is_whole_pages(const std::byte* base, std::uint64_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(base) | bytes) % host_page_bytes() == 0;
}

inline bool register_range(int fd, const std::byte* base, std::uint64_t bytes, std::uint64_t mode) {
  MEMLITH_ASSERT(is_whole_pages(base, bytes));
  uffdio_register range{};
  range.range.start = reinterpret_cast<std::uintptr_t>(base);
  range.range.len = bytes;
  range.mode = mode;
  return ::ioctl(fd, UFFDIO_REGISTER, &range) == 0;
}

inline bool unregister_range(int fd, const std::byte* base, std::uint64_t bytes) {
  uffdio_range range{reinterpret_cast<std::uintptr_t>(base), bytes};
  return ::ioctl(fd, UFFDIO_UNREGISTER, &range) == 0;
}

inline bool write_protect(int fd, const std::byte* base, std::uint64_t bytes, bool protect) {
  MEMLITH_ASSERT(is_whole_pages(base, bytes));
  uffdio_writeprotect range{};
  range.range.start = reinterpret_cast<std::uintptr_t>(base);
  range.range.len = bytes;
  range.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
  return ::ioctl(fd, UFFDIO_WRITEPROTECT, &range) == 0;
}

// Fills missing pages of a registered range.
inline bool copy_pages(int fd, const std::byte* target, const std::byte* source, std::uint64_t bytes) {
  while (bytes > 0) {
    uffdio_copy range{};
    range.dst = reinterpret_cast<std::uintptr_t>(target);
    range.src = reinterpret_cast<std::uintptr_t>(source);
    range.len = bytes;
    if (::ioctl(fd, UFFDIO_COPY, &range) == 0) return true;
    if (errno != EAGAIN || range.copy < 0) return false;
    target += range.copy;
    source += range.copy;
    bytes -= static_cast<std::uint64_t>(range.copy);
  }
  return true;
}

}  // namespace memlith::core
