// System calls by their numbers, syscall(2): those that this library has a function for go to that function, with the
// arguments that the kernel would get. Node.js (libuv) and others call statx, copy_file_range, close and more so.
#include <stdarg.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "calls.hpp"
#include "images.hpp"
#include "real.hpp"
#include "start.hpp"

namespace memlith::preload {

namespace {

using Words = std::array<long, 6>;

template <class Type>
Type as(long word) {
  if constexpr (std::is_pointer_v<Type>) {
    return reinterpret_cast<Type>(word);
  } else {
    return static_cast<Type>(word);
  }
}

template <class Result, class... Arguments, std::size_t... Numbers>
long call(Result (*function)(Arguments...), const Words& words, std::index_sequence<Numbers...>) {
  if constexpr (std::is_void_v<Result>) {
    function(as<Arguments>(words[Numbers])...);
    return 0;
  } else if constexpr (std::is_pointer_v<Result>) {
    return reinterpret_cast<long>(function(as<Arguments>(words[Numbers])...));
  } else {
    return function(as<Arguments>(words[Numbers])...);
  }
}
template <class Result, class... Arguments>
long call(Result (*function)(Arguments...), const Words& words) {
  return call(function, words, std::index_sequence_for<Arguments...>());
}

int open_at(int folder, const char* path, int flags, mode_t mode) { return our_openat(folder, path, flags, mode); }
void* remap(void* address, size_t old_bytes, size_t bytes, int flags, void* wanted) {
  return our_mremap(address, old_bytes, bytes, flags, wanted);
}
// The kernel takes an offset as two words, of which 64-bit processors use the first.
ssize_t write_parts_at(int fd, const iovec* parts, int count, off_t offset, long, int flags) {
  return our_pwritev2(fd, parts, count, offset, flags);
}

// `known` is false if this library has no function for the call.
long on_files(long number, const Words& words, bool& known) {
  switch (number) {
    case SYS_openat: return call(open_at, words);
    case SYS_close: return call(our_close, words);
    case SYS_close_range: return call(our_close_range, words);
    case SYS_dup3: return call(our_dup3, words);
    case SYS_write: return call(our_write, words);
    case SYS_pwrite64: return call(our_pwrite, words);
    case SYS_writev: return call(our_writev, words);
    case SYS_pwritev: return call(our_pwritev, words);
    case SYS_pwritev2: return call(write_parts_at, words);
    case SYS_sendfile: return call(our_sendfile, words);
    case SYS_splice: return call(our_splice, words);
    case SYS_copy_file_range: return call(our_copy_file_range, words);
    case SYS_truncate: return call(our_truncate, words);
    case SYS_ftruncate: return call(our_ftruncate, words);
    case SYS_fallocate: return call(our_fallocate, words);
    case SYS_fsync: return call(our_fsync, words);
    case SYS_fdatasync: return call(our_fdatasync, words);
    case SYS_syncfs: return call(our_syncfs, words);
    case SYS_sync: return call(our_sync, words);
    case SYS_mmap: return call(our_mmap, words);
    case SYS_munmap: return call(our_munmap, words);
    case SYS_mremap: return call(remap, words);
    case SYS_msync: return call(our_msync, words);
    case SYS_madvise: return call(our_madvise, words);
    default: known = false; return 0;
  }
}

long on_names(long number, const Words& words, bool& known) {
  switch (number) {
    case SYS_fstat: return call(our_fstat, words);
    case SYS_newfstatat: return call(our_fstatat, words);
    case SYS_statx: return call(our_statx, words);
    case SYS_renameat: return call(our_renameat, words);
    case SYS_renameat2: return call(our_renameat2, words);
    case SYS_unlinkat: return call(our_unlinkat, words);
    case SYS_linkat: return call(our_linkat, words);
    case SYS_fchmod: return call(our_fchmod, words);
    case SYS_fchown: return call(our_fchown, words);
    case SYS_execve: return call(our_execve, words);
    case SYS_execveat: return call(our_execveat, words);
    case SYS_exit_group: return call(our__exit, words);
    default: known = false; return 0;
  }
}

// The calls that x86-64 has beside the newer ones.
long on_old_ones([[maybe_unused]] long number, [[maybe_unused]] const Words& words, bool& known) {
#ifdef SYS_open
  constexpr int kMakes = O_WRONLY | O_CREAT | O_TRUNC;
  switch (number) {
    case SYS_open: return open_at(AT_FDCWD, as<const char*>(words[0]), as<int>(words[1]), as<mode_t>(words[2]));
    case SYS_creat: return open_at(AT_FDCWD, as<const char*>(words[0]), kMakes, as<mode_t>(words[1]));
    case SYS_dup2: return call(our_dup2, words);
    case SYS_stat: return call(our_stat, words);
    case SYS_lstat: return call(our_lstat, words);
    case SYS_rename: return call(our_rename, words);
    case SYS_unlink: return call(our_unlink, words);
    case SYS_link: return call(our_link, words);
    case SYS_fork: return fork_by([](const void*) { return real().syscall(SYS_fork); }, nullptr);
    default: break;
  }
#endif
  known = false;
  return 0;
}

// Writes that the kernel makes through a ring cannot be seen in the program. `memlith run` has the kernel refuse such
// rings, also to programs that do not ask by syscall(2).
long refuse_ring() {
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) {
    say("the program asked for io_uring or Linux aio, which memlith run refuses (ENOSYS), because it cannot see what "
        "the kernel writes for them; programs use other calls then");
  }
  errno = ENOSYS;
  return -1;
}

long call_kernel(long number, const Words& words) {
  return real().syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

struct Clone {
  long number;
  const Words* words;
};
long clone_process(const void* context) {
  const Clone& clone = *static_cast<const Clone*>(context);
  return call_kernel(clone.number, *clone.words);
}

// A child that has the memory of its parent as a copy, and goes on where the parent does.
bool is_fork(long number, const Words& words) {
  constexpr long kSharesMemory = 0x100;  // CLONE_VM
  return number == SYS_clone && (words[0] & kSharesMemory) == 0 && words[1] == 0;
}

}  // namespace

MEMLITH_INTERPOSE(long, syscall, long number, ...) {
  Words words{};
  va_list more;
  va_start(more, number);
  for (long& each : words) each = va_arg(more, long);
  va_end(more);
  if (settings().patterns.empty() || NoSignals::held()) return call_kernel(number, words);
  if (number == SYS_io_uring_setup || number == SYS_io_setup) return refuse_ring();
  if (number == SYS_utimensat && words[1] == 0) {  // of a descriptor
    return our_futimens(as<int>(words[0]), as<const timespec*>(words[2]));
  }
  if (number == SYS_openat2) {  // programs do without, as on Linux before 5.6
    errno = ENOSYS;
    return -1;
  }
  if (is_fork(number, words)) {
    const Clone clone{number, &words};
    return fork_by(clone_process, &clone);
  }
  for (const auto look : {on_files, on_names, on_old_ones}) {
    bool known = true;
    const long result = look(number, words, known);
    if (known) return result;
  }
  return call_kernel(number, words);
}

}  // namespace memlith::preload
