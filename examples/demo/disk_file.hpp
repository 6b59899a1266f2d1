// A file that a measurement of the demo writes, and its removal.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace demo {

class DiskFile {
 public:
  explicit DiskFile(int descriptor) : descriptor_(descriptor) {}
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  ~DiskFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// The file goes, however measuring ends.
struct Removal {
  std::string path;
  explicit Removal(std::string of) : path(std::move(of)) {}
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  ~Removal() { ::unlink(path.c_str()); }
};

struct Unmap {
  std::uint64_t bytes = 0;
  void operator()(char* memory) const { ::munmap(memory, bytes); }
};

inline bool write_all(int file, const char* from, std::uint64_t bytes, std::uint64_t offset) {
  while (bytes > 0) {
    const ssize_t wrote = ::pwrite(file, from, bytes, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    from += wrote;
    bytes -= static_cast<std::uint64_t>(wrote);
    offset += static_cast<std::uint64_t>(wrote);
  }
  return true;
}

}  // namespace demo
