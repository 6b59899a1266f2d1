// Descriptors of files that are written to. Floor: base.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace memlith::core {

// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Takes `fd`, which may be negative, and gives one above 2 for the same file; negative, with errno, where there is none. 0 to 2 are
// where the program's messages go, also when it runs with one of them closed: they must not go into a file of ours.
inline int above_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  ::close(fd);
  errno = error;
  return above;
}

}  // namespace memlith::core
