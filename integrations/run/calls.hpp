// The functions of this library that programs call in place of the C library's, as this library itself calls them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

extern "C" {
// calls_files.cpp
int our_open(const char* path, int flags, ...);
int our_openat(int folder, const char* path, int flags, ...);
int our_close(int fd);
int our_close_range(unsigned first, unsigned last, int flags);
int our_dup2(int from, int to);
int our_dup3(int from, int to, int flags);
ssize_t our_write(int fd, const void* bytes, size_t count);
ssize_t our_pwrite(int fd, const void* bytes, size_t count, off_t offset);
ssize_t our_writev(int fd, const struct iovec* parts, int count);
ssize_t our_pwritev(int fd, const struct iovec* parts, int count, off_t offset);
ssize_t our_pwritev2(int fd, const struct iovec* parts, int count, off_t offset, int flags);
ssize_t our_sendfile(int out, int in, off_t* offset, size_t count);
ssize_t our_splice(int in, off_t* in_at, int out, off_t* out_at, size_t count, unsigned flags);
ssize_t our_copy_file_range(int in, off_t* in_at, int out, off_t* out_at, size_t count, unsigned flags);
int our_truncate(const char* path, off_t bytes);
int our_ftruncate(int fd, off_t bytes);
int our_fallocate(int fd, int mode, off_t offset, off_t bytes);
int our_fsync(int fd);
int our_fdatasync(int fd);
int our_syncfs(int fd);
void our_sync();
// calls_memory.cpp
void* our_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
int our_munmap(void* address, size_t bytes);
void* our_mremap(void* address, size_t old_bytes, size_t bytes, int flags, ...);
int our_msync(void* address, size_t bytes, int flags);
int our_madvise(void* address, size_t bytes, int advice);
// calls_names.cpp
int our_stat(const char* path, struct stat* seen);
int our_lstat(const char* path, struct stat* seen);
int our_fstat(int fd, struct stat* seen);
int our_fstatat(int folder, const char* path, struct stat* seen, int flags);
int our_statx(int folder, const char* path, int flags, unsigned mask, struct statx* seen);
int our_rename(const char* from, const char* to);
int our_renameat(int from_folder, const char* from, int to_folder, const char* to);
int our_renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags);
int our_unlink(const char* path);
int our_unlinkat(int folder, const char* path, int flags);
int our_link(const char* from, const char* to);
int our_linkat(int from_folder, const char* from, int to_folder, const char* to, int flags);
int our_fchmod(int fd, mode_t mode);
int our_futimens(int fd, const struct timespec* times);
int our_fchown(int fd, uid_t owner, gid_t group);
// calls_process.cpp
int our_execve(const char* path, char* const* arguments, char* const* environment);
int our_execveat(int folder, const char* path, char* const* arguments, char* const* environment, int flags);
void our__exit(int status);
}
