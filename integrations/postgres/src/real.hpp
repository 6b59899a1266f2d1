// The C library's own functions, behind those that this library puts in their place. Floor: postgres.
#pragma once

#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace memlith_postgres {

struct RealCalls {
  int (*open)(const char*, int, ...);
  FILE* (*fopen)(const char*, const char*);
  int (*close)(int);
  ssize_t (*pread)(int, void*, size_t, off_t);
  ssize_t (*pwrite)(int, const void*, size_t, off_t);
  ssize_t (*preadv)(int, const iovec*, int, off_t);
  ssize_t (*pwritev)(int, const iovec*, int, off_t);
  int (*posix_fallocate)(int, off_t, off_t);
  int (*fsync)(int);
  int (*fdatasync)(int);
  int (*ftruncate)(int, off_t);
  int (*truncate)(const char*, off_t);
  int (*unlink)(const char*);
  int (*stat)(const char*, struct stat*);
  int (*lstat)(const char*, struct stat*);
  int (*sync_file_range)(int, off_t, off_t, unsigned);
};

const RealCalls& real();

}  // namespace memlith_postgres
