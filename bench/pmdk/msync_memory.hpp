// A mapped file with msync after each operation, for comparison: durable, but not atomic. A crash inside of an msync
// may leave half an operation behind. Memory is never freed. With MSYNC_HUGE the file lies in pages of 2 MiB, which
// msync writes whole; where the kernel gives none, the program ends with 77.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace pmdk_bench {

class Memory {
 public:
  template <class T>
  using Ref = T*;
  static constexpr const char* kSide = MSYNC_SIDE;
  static constexpr const char* kMedium = "disk";
  static constexpr const char* kDurability = "each operation, not atomic";

  Memory(const std::string& folder, std::uint64_t bytes) : bytes_(bytes) {
    const int fd = ::open((folder + "/file").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) fail("create");
    // Where pages of 2 MiB can be.
    void* const place = ::mmap(nullptr, bytes + kHugeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) fail("mmap");
    base_ =
        reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(place) + kHugeBytes - 1) / kHugeBytes * kHugeBytes);
    if (::mmap(base_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) fail("mmap");
    ::close(fd);
#if defined(MSYNC_HUGE)
    if (::madvise(base_, bytes, MADV_HUGEPAGE) != 0) fail("madvise");
    (void)*const_cast<volatile char*>(base_);  // a page is mapped when it is read
    if (!huge()) {
      std::fprintf(stderr, "%s: this kernel maps no file of this file system by pages of 2 MiB\n", kSide);
      std::exit(77);
    }
#endif
    commit();
  }
  ~Memory() { ::munmap(base_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class Root>
  Root* root() {
    return static_cast<Root*>(allocate_bytes(sizeof(Root)));
  }
  template <class T>
  static T* get(T* reference) {
    return reference;
  }
  template <class T>
  static bool is(T* reference) {
    return reference != nullptr;
  }
  void begin() {}
  void commit() {
    if (::msync(base_, bytes_, MS_SYNC) != 0) fail("msync");
  }
  void change(const void*, std::uint64_t) {}
  void fresh(const void*, std::uint64_t) {}
  template <class T>
  T* allocate() {
    return static_cast<T*>(allocate_bytes(sizeof(T)));
  }
  void* allocate_bytes(std::uint64_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (used_ + bytes > bytes_) fail("allocate: the file is full");
    used_ += bytes;
    return base_ + used_ - bytes;
  }
  template <class T>
  void release(T*) {}
  using Block = void*;

 private:
  static constexpr std::uint64_t kHugeBytes = 2 << 20;

  // True if the kernel says that a page of 2 MiB is mapped.
  [[nodiscard]] bool huge() const {
    std::FILE* const file = std::fopen("/proc/self/smaps", "re");
    if (file == nullptr) fail("smaps");
    char line[512];
    bool here = false;
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
      unsigned long long begin = 0;
      unsigned long long end = 0;
      if (std::sscanf(line, "%llx-%llx ", &begin, &end) == 2) here = begin == reinterpret_cast<std::uintptr_t>(base_);
      if (here && std::sscanf(line, "FilePmdMapped: %llu", &kib) == 1) break;
    }
    std::fclose(file);
    return kib > 0;
  }
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(1);
  }
  char* base_ = nullptr;
  std::uint64_t bytes_;
  std::uint64_t used_ = 0;
};

}  // namespace pmdk_bench
