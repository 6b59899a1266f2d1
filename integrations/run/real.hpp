// The C library's own functions, behind those that this library interposes.
#pragma once

#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>

namespace memlith::preload {

// clang-format off: its result for a list of calls without separators differs from run to run.
#define MEMLITH_REAL_CALLS(X) \
  X(open) X(openat) X(fcntl) X(close) X(dup2) X(dup3) X(fopen) X(fdopen) X(freopen) X(fclose) X(write) X(pwrite) \
  X(writev) X(pwritev) X(pwritev2) X(sendfile) X(copy_file_range) X(splice) X(ftruncate) X(truncate) \
  X(fallocate) X(posix_fallocate) X(mmap) X(munmap) X(mremap) X(msync) X(madvise) X(stat) X(lstat) X(fstat) X(fstatat) \
  X(statx) X(rename) X(renameat) X(renameat2) X(unlink) X(unlinkat) X(remove) X(link) X(linkat) X(fsync) \
  X(fdatasync) X(sync) X(syncfs) X(fchmod) X(futimens) X(fchown) X(execve) X(execvpe) X(fexecve) X(posix_spawn) \
  X(posix_spawnp) X(syscall) X(memfd_create) X(_exit) X(pthread_create) X(vdprintf) X(aio_write) X(aio_fsync) \
  X(lio_listio) X(sendmsg)
// clang-format on

struct RealCalls {
#define MEMLITH_REAL_CALL(name) decltype(&::name) name;
  MEMLITH_REAL_CALLS(MEMLITH_REAL_CALL)
#undef MEMLITH_REAL_CALL
};

// Looked up at the first call, which may come before any constructor.
const RealCalls& real();

// Defines our_NAME, which programs call as NAME in place of the C library's function. Within this library it has the
// other name only: the linker leads references to NAME to the engine's functions (--wrap). The headers declare NAME
// with attributes that differ between versions of the C library, so C++ knows the exported name as another one, too.
#define MEMLITH_INTERPOSE(result, name, ...)                                                                          \
  extern "C" result our_##name(__VA_ARGS__);                                                                          \
  extern "C"                                                                                                          \
      __attribute__((alias("our_" #name), visibility("default"))) result exported_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result our_##name(__VA_ARGS__)
// The same function under a second name.
#define MEMLITH_INTERPOSE_ALSO(other, name)      \
  extern "C" __attribute__((alias("our_" #name), \
                            visibility("default"))) decltype(our_##name) exported_##other __asm__(#other)

}  // namespace memlith::preload
