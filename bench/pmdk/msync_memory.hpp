// A mapped file with msync after each operation, for comparison: durable, but not atomic. A crash inside of an msync
// may leave half an operation behind. Memory is never freed.
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
  static constexpr const char* kSide = "msync 4 KiB";
  static constexpr const char* kMedium = "disk";
  static constexpr const char* kDurability = "each operation, not atomic";

  Memory(const std::string& folder, std::uint64_t bytes) : bytes_(bytes) {
    const int fd = ::open((folder + "/file").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) fail("create");
    void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (got == MAP_FAILED) fail("mmap");
    ::close(fd);
    base_ = static_cast<char*>(got);
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
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(1);
  }
  char* base_ = nullptr;
  std::uint64_t bytes_;
  std::uint64_t used_ = 0;
};

}  // namespace pmdk_bench
