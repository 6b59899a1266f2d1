// The functions of the C library that PostgreSQL calls for its files. In a process that is none of a server with
// memlith they do what the C library does.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "process.hpp"
#include "real.hpp"
#include "standby.hpp"

namespace memlith_postgres {

namespace {

template <class Function>
void find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

RealCalls find_all() {
  RealCalls calls{};
  find(calls.open, "open");
  find(calls.fopen, "fopen");
  find(calls.close, "close");
  find(calls.pread, "pread");
  find(calls.pwrite, "pwrite");
  find(calls.preadv, "preadv");
  find(calls.pwritev, "pwritev");
  find(calls.posix_fallocate, "posix_fallocate");
  find(calls.fsync, "fsync");
  find(calls.fdatasync, "fdatasync");
  find(calls.ftruncate, "ftruncate");
  find(calls.truncate, "truncate");
  find(calls.unlink, "unlink");
  find(calls.stat, "stat");
  find(calls.lstat, "lstat");
  find(calls.sync_file_range, "sync_file_range");
  return calls;
}

Process* ours(int descriptor) {
  Process* const server = process();
  return server != nullptr && server->is_ours(descriptor) ? server : nullptr;
}

Process* of_wal(int descriptor) {
  Process* const server = process();
  return server != nullptr && server->is_wal(descriptor) ? server : nullptr;
}

int flush(int descriptor, int (*sync)(int)) {
  if (Process* const server = ours(descriptor)) return server->flush(descriptor, sync);
  if (Process* const server = of_wal(descriptor)) return server->flush_wal(descriptor, sync);
  return sync(descriptor);
}

}  // namespace

const RealCalls& real() {
  static const RealCalls calls = find_all();
  return calls;
}

}  // namespace memlith_postgres

// NOLINTBEGIN: names and signatures are the C library's.
#define MEMLITH_CALL extern "C" __attribute__((visibility("default")))

using memlith_postgres::flush;
using memlith_postgres::of_wal;
using memlith_postgres::ours;
using memlith_postgres::process;
using memlith_postgres::real;

MEMLITH_CALL int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if (process() == nullptr) return real().open(path, flags, mode);
  memlith_postgres::check_receiver(path, flags);
  return process()->open(path, flags, mode);
}

MEMLITH_CALL FILE* fopen(const char* path, const char* mode) {
  return real().fopen(process() != nullptr ? process()->redirect(path) : path, mode);
}

MEMLITH_CALL int close(int descriptor) {
  auto* const server = process();
  if (server != nullptr && (server->is_ours(descriptor) || server->is_wal(descriptor))) server->forget(descriptor);
  return real().close(descriptor);
}

MEMLITH_CALL ssize_t pread(int descriptor, void* target, size_t bytes, off_t offset) {
  if (auto* const server = ours(descriptor)) return server->read(descriptor, target, bytes, offset);
  return real().pread(descriptor, target, bytes, offset);
}

MEMLITH_CALL ssize_t pwrite(int descriptor, const void* source, size_t bytes, off_t offset) {
  if (auto* const server = ours(descriptor)) return server->write(descriptor, source, bytes, offset);
  if (auto* const server = of_wal(descriptor)) return server->write_wal(descriptor, source, bytes, offset);
  return real().pwrite(descriptor, source, bytes, offset);
}

MEMLITH_CALL ssize_t preadv(int descriptor, const struct iovec* pieces, int count, off_t offset) {
  if (auto* const server = ours(descriptor)) return server->read(descriptor, pieces, count, offset);
  return real().preadv(descriptor, pieces, count, offset);
}

MEMLITH_CALL ssize_t pwritev(int descriptor, const struct iovec* pieces, int count, off_t offset) {
  if (auto* const server = ours(descriptor)) return server->write(descriptor, pieces, count, offset);
  return real().pwritev(descriptor, pieces, count, offset);
}

MEMLITH_CALL int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  if (auto* const server = ours(descriptor)) return server->allocate(descriptor, offset, bytes);
  return real().posix_fallocate(descriptor, offset, bytes);
}

MEMLITH_CALL int fsync(int descriptor) { return flush(descriptor, real().fsync); }

MEMLITH_CALL int fdatasync(int descriptor) { return flush(descriptor, real().fdatasync); }

MEMLITH_CALL int ftruncate(int descriptor, off_t bytes) noexcept {
  if (auto* const server = ours(descriptor)) return server->cut(descriptor, bytes);
  return real().ftruncate(descriptor, bytes);
}

MEMLITH_CALL int truncate(const char* path, off_t bytes) noexcept {
  auto* const server = process();
  if (server == nullptr || !server->is_relation_path(path)) return real().truncate(path, bytes);
  return server->cut(path, bytes);
}

MEMLITH_CALL int unlink(const char* path) noexcept {
  return process() != nullptr ? process()->unlink(path) : real().unlink(path);
}

MEMLITH_CALL int stat(const char* path, struct stat* status) noexcept {
  if (process() == nullptr) return real().stat(path, status);
  memlith_postgres::announce_standby(path);
  return real().stat(process()->redirect(path), status);
}

MEMLITH_CALL int lstat(const char* path, struct stat* status) noexcept {
  return real().lstat(process() != nullptr ? process()->redirect(path) : path, status);
}

// A hint to write early: the keeper decides when pages go home.
MEMLITH_CALL int sync_file_range(int descriptor, off_t offset, off_t bytes, unsigned flags) {
  return ours(descriptor) != nullptr ? 0 : real().sync_file_range(descriptor, offset, bytes, flags);
}
// NOLINTEND
