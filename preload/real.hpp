// The C library's own functions, behind those that this library interposes.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>

namespace memlith::preload {

// clang-format off: its result for a list of calls without separators differs from run to run.
#define MEMLITH_REAL_CALLS(X) \
  X(open) X(openat) X(close) X(dup2) X(dup3) X(fopen) X(fdopen) X(freopen) X(fclose) X(write) X(pwrite) \
  X(writev) X(pwritev) X(pwritev2) X(sendfile) X(copy_file_range) X(splice) X(ftruncate) X(truncate) \
  X(fallocate) X(posix_fallocate) X(mmap) X(munmap) X(mremap) X(msync) X(stat) X(lstat) X(fstat) X(fstatat) \
  X(statx) X(rename) X(renameat) X(renameat2) X(unlink) X(unlinkat) X(remove) X(link) X(linkat) X(fsync) \
  X(fdatasync) X(sync) X(syncfs) X(fchmod) X(fchown) X(execve) X(execvpe) X(fexecve) X(posix_spawn) \
  X(posix_spawnp) X(syscall) X(memfd_create) X(_exit) X(pthread_create)
// clang-format on

struct RealCalls {
#define MEMLITH_REAL_CALL(name) decltype(&::name) name;
  MEMLITH_REAL_CALLS(MEMLITH_REAL_CALL)
#undef MEMLITH_REAL_CALL
};

// Looked up at the first call, which may come before any constructor.
const RealCalls& real();

// Defines the function NAME that programs call in place of the C library's. The name that C++ sees is another one,
// because the headers declare NAME with attributes that differ between versions of the C library.
#define MEMLITH_INTERPOSE(result, name, ...)                                                       \
  extern "C" __attribute__((visibility("default"))) result our_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result our_##name(__VA_ARGS__)
// The same function under a second name.
#define MEMLITH_INTERPOSE_ALSO(other, name) \
  extern "C" decltype(our_##name) our_##other __asm__(#other) __attribute__((alias(#name), visibility("default")))

}  // namespace memlith::preload
