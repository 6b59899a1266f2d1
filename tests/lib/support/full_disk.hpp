// A small file system that a test fills, in a mount namespace of its own.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace memlith::test {

// A mount namespace of the child's own, so that nothing mounted outlives it. "", or why not.
inline std::string own_mounts() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("skip: no mount namespace: ") + std::strerror(errno);
  }
  return "";
}

// "size=8m", say. "", or why not.
inline std::string own_tmpfs(const std::string& path, const char* size) {
  if (std::string reason = own_mounts(); !reason.empty()) return reason;
  if (::mount("none", path.c_str(), "tmpfs", 0, size) != 0) return "skip: cannot mount a tmpfs";
  return "";
}

// Takes the rest of a file system, to the last block, until it is released.
class Filler {
 public:
  explicit Filler(const std::string& folder) : path_(folder + "/filler") {
    const int file = ::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    const std::string chunk(4096, 'f');
    while (::write(file, chunk.data(), chunk.size()) > 0) continue;
    ::fsync(file);
    ::close(file);
  }
  ~Filler() { release(); }
  Filler(const Filler&) = delete;
  void release() { ::unlink(path_.c_str()); }

 private:
  std::string path_;
};

}  // namespace memlith::test
