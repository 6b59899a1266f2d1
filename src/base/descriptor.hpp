// Descriptors of files. Floor: base.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace memlith::core {

// Owns a descriptor and closes it.
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

// Takes ownership of `fd`, which may be negative, and returns a descriptor above 2 for the same file, or a negative
// number with errno. The program writes its messages to descriptors 0 to 2, even if they were closed when it started: a
// store's file must not get one of these numbers.
inline int above_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  ::close(fd);
  errno = error;
  return above;
}

}  // namespace memlith::core
