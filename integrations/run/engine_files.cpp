#include "engine_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <memory>
#include <new>

#include "real.hpp"

namespace memlith::preload {

namespace {

constexpr int kLowest = 512;
constexpr int kHighest = 1 << 16;
std::array<std::atomic<bool>, kHighest> used{};

}  // namespace

int engine_descriptor(int fd) {
  if (fd < 0) return fd;
  const int error = errno;
  if (const int high = real().fcntl(fd, F_DUPFD_CLOEXEC, kLowest); high >= 0) {
    real().close(fd);
    fd = high;
  }
  if (fd < kHighest) used[static_cast<std::size_t>(fd)] = true;
  errno = error;
  return fd;
}

bool is_engine_descriptor(int fd) { return fd >= 0 && fd < kHighest && used[static_cast<std::size_t>(fd)]; }

void close_engine_descriptor(int fd) {
  if (is_engine_descriptor(fd)) used[static_cast<std::size_t>(fd)] = false;
  if (fd >= 0) real().close(fd);
}

}  // namespace memlith::preload

// The linker leads the engine's calls here (--wrap, CMakeLists.txt): they must not come back to the functions of this
// library that programs call.
using memlith::preload::close_engine_descriptor;
using memlith::preload::engine_descriptor;
using memlith::preload::is_engine_descriptor;
using memlith::preload::real;

namespace {

// The engine's opendir: the C library's own would call the program's malloc (see engine_heap.cpp).
struct Folder {
  int fd;
  std::size_t at = 0;
  std::size_t filled = 0;
  alignas(dirent64) std::array<char, 4096> entries{};
};

}  // namespace

extern "C" {

int __wrap_open(const char* path, int flags, mode_t mode) { return engine_descriptor(real().open(path, flags, mode)); }
int __wrap_openat(int folder, const char* path, int flags, mode_t mode) {
  return engine_descriptor(real().openat(folder, path, flags, mode));
}
int __wrap_fcntl(int fd, int command, long argument) {
  const int result = real().fcntl(fd, command, argument);
  return command == F_DUPFD_CLOEXEC ? engine_descriptor(result) : result;
}
int __wrap_memfd_create(const char* name, unsigned flags) {
  return engine_descriptor(real().memfd_create(name, flags));
}
int __wrap_close(int fd) {
  if (is_engine_descriptor(fd)) {
    close_engine_descriptor(fd);
    return 0;
  }
  return real().close(fd);
}
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  const long result = real().syscall(number, a, b, c, d, e, f);
  return number == SYS_userfaultfd ? engine_descriptor(static_cast<int>(result)) : result;
}
ssize_t __wrap_write(int fd, const void* bytes, size_t count) { return real().write(fd, bytes, count); }
ssize_t __wrap_pwrite(int fd, const void* bytes, size_t count, off_t at) { return real().pwrite(fd, bytes, count, at); }
ssize_t __wrap_pwritev(int fd, const struct iovec* parts, int count, off_t at) {
  return real().pwritev(fd, parts, count, at);
}
ssize_t __wrap_pwritev2(int fd, const struct iovec* parts, int count, off_t at, int flags) {
  return real().pwritev2(fd, parts, count, at, flags);
}
int __wrap_ftruncate(int fd, off_t bytes) { return real().ftruncate(fd, bytes); }
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes) { return real().fallocate(fd, mode, at, bytes); }
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes) { return real().posix_fallocate(fd, at, bytes); }
int __wrap_fsync(int fd) { return real().fsync(fd); }
int __wrap_fdatasync(int fd) { return real().fdatasync(fd); }
int __wrap_syncfs(int fd) { return real().syncfs(fd); }
int __wrap_fstat(int fd, struct stat* seen) { return real().fstat(fd, seen); }
int __wrap_stat(const char* path, struct stat* seen) { return real().stat(path, seen); }
int __wrap_lstat(const char* path, struct stat* seen) { return real().lstat(path, seen); }
int __wrap_fstatat(int folder, const char* path, struct stat* seen, int flags) {
  return real().fstatat(folder, path, seen, flags);
}
int __wrap_statx(int folder, const char* path, int flags, unsigned mask, struct statx* seen) {
  return real().statx(folder, path, flags, mask, seen);
}
int __wrap_fchmod(int fd, mode_t mode) { return real().fchmod(fd, mode); }
int __wrap_fchown(int fd, uid_t owner, gid_t group) { return real().fchown(fd, owner, group); }
int __wrap_unlink(const char* path) { return real().unlink(path); }
int __wrap_unlinkat(int folder, const char* path, int flags) { return real().unlinkat(folder, path, flags); }
int __wrap_rename(const char* from, const char* to) { return real().rename(from, to); }
int __wrap_renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return real().renameat(from_folder, from, to_folder, to);
}
int __wrap_renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return real().renameat2(from_folder, from, to_folder, to, flags);
}
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return real().mmap(address, bytes, protection, flags, fd, offset);
}
int __wrap_munmap(void* address, size_t bytes) { return real().munmap(address, bytes); }
void* __wrap_mremap(void* address, size_t old_bytes, size_t bytes, int flags, void* wanted) {
  return real().mremap(address, old_bytes, bytes, flags, wanted);
}
int __wrap_msync(void* address, size_t bytes, int flags) { return real().msync(address, bytes, flags); }
int __wrap_madvise(void* address, size_t bytes, int advice) { return real().madvise(address, bytes, advice); }
DIR* __wrap_fdopendir(int fd) { return reinterpret_cast<DIR*>(new (std::nothrow) Folder{fd}); }
DIR* __wrap_opendir(const char* path) {
  const int fd = engine_descriptor(real().open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const made = fd < 0 ? nullptr : __wrap_fdopendir(fd);
  if (fd >= 0 && made == nullptr) close_engine_descriptor(fd);
  return made;
}
dirent* __wrap_readdir(DIR* opened) {
  auto* const folder = reinterpret_cast<Folder*>(opened);
  if (folder->at == folder->filled) {
    const long got = real().syscall(SYS_getdents64, folder->fd, folder->entries.data(), folder->entries.size());
    if (got <= 0) return nullptr;
    folder->filled = static_cast<std::size_t>(got);
    folder->at = 0;
  }
  static_assert(sizeof(dirent) == sizeof(dirent64) && offsetof(dirent, d_name) == offsetof(dirent64, d_name));
  auto* const entry = reinterpret_cast<dirent*>(&folder->entries[folder->at]);
  folder->at += entry->d_reclen;
  return entry;
}
int __wrap_dirfd(DIR* opened) { return reinterpret_cast<Folder*>(opened)->fd; }
int __wrap_closedir(DIR* opened) {
  const std::unique_ptr<Folder> folder(reinterpret_cast<Folder*>(opened));
  close_engine_descriptor(folder->fd);
  return 0;
}
int __wrap_fclose(FILE* file) { return real().fclose(file); }

}  // extern "C"
