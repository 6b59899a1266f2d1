// Descriptors of files. Floor: base.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
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

// The text of one of the kernel's files (/proc, /sys), which have no length before they are read. Empty if the file
// cannot be read. Unlike a stream of the C library, calls no malloc but C++'s (integrations/run/engine_heap.cpp).
inline std::string text_of(const char* path) {
  const Descriptor file(above_standard(::open(path, O_RDONLY | O_CLOEXEC)));
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = file.get() < 0 ? 0 : ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace memlith::core
