// Opening, closing and writing files, as programs call it.
#include <stdarg.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <vector>

#include "calls.hpp"
#include "engine_files.hpp"
#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

// ---- opening ---------------------------------------------------------------------------------------------------

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

bool is_of_interest(int fd, const struct stat& seen) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return length > 0 && settings().matches({path.data(), static_cast<std::size_t>(length)}) && may_be_kept(fd, seen);
}

// A file may be truncated only when it is known whose it is.
int truncate_opened(int fd, int folder, const char* path, int flags, mode_t mode) {
  if ((flags & O_ACCMODE) == O_RDONLY) {
    real().close(fd);
    return real().openat(folder, path, flags & ~O_EXCL, mode);
  }
  if (real().ftruncate(fd, 0) == 0) return fd;
  const int error = errno;
  real().close(fd);
  errno = error;
  return -1;
}

int open_file(int folder, const char* path, int flags, mode_t mode) {
  const bool other = (flags & (O_PATH | O_DIRECTORY)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  if (other || settings().patterns.empty() || NoSignals::held()) return real().openat(folder, path, flags, mode);
  const bool truncates = (flags & O_TRUNC) != 0;
  const int fd = real().openat(folder, path, flags & ~O_TRUNC, mode);
  if (fd < 0) return fd;
  struct stat seen{};
  if (real().fstat(fd, &seen) != 0 || !S_ISREG(seen.st_mode)) return fd;
  if (is_of_interest(fd, seen)) return images().take_over(fd, flags, seen);
  if (!truncates) return fd;
  if (const ImagePtr image = images().of_descriptor(fd)) {  // by /proc/self/fd
    images().resize(image, 0);
    return fd;
  }
  return truncate_opened(fd, folder, path, flags, mode);
}

// ---- writing ---------------------------------------------------------------------------------------------------

// Where a write went: `known` is false if only the kernel knows it.
struct WriteOffset {
  off_t offset = 0;
  bool known = false;
};

bool refused(const Image& image) {
  if (image.owner == ::getpid()) return false;
  say(image.path() + ": a forked child cannot write the file that its parent has open");
  errno = EIO;
  return true;
}

// Does a write to the image by `call`, which returns what a write returns.
template <class Call>
ssize_t write_to(const ImagePtr& written, int fd, WriteOffset went, int flags, Call call) {
  Image& image = *written;
  if (refused(image)) return -1;
  if (images().touch(written) != 0) return -1;
  ssize_t done = 0;
  {
    const NoSignals no_signals;
    const std::shared_lock alive(image.life);
    const int mode = ::fcntl(fd, F_GETFL) | ((flags & RWF_APPEND) != 0 ? O_APPEND : 0) |
                     ((flags & RWF_DSYNC) != 0 ? O_DSYNC : 0) | ((flags & RWF_SYNC) != 0 ? O_SYNC : 0);
    const bool in_order = !went.known || (mode & O_APPEND) != 0;
    std::unique_lock<std::mutex> order(image.order, std::defer_lock);
    if (in_order) order.lock();
    done = call();
    if (done <= 0) return done;
    if ((mode & O_APPEND) != 0 && went.known) {
      struct stat seen{};
      real().fstat(fd, &seen);
      went.offset = seen.st_size - done;
    } else if (in_order) {
      went.offset = ::lseek(fd, 0, SEEK_CUR) - done;
    }
    if (image.attached) {
      memlith_image_written(image.handle, static_cast<std::uint64_t>(went.offset), static_cast<std::uint64_t>(done));
    }
    if ((mode & (O_SYNC | O_DSYNC)) == 0) {
      if (image.attached) Images::note_written(image, static_cast<std::uint64_t>(done));
      return done;
    }
  }
  return images().commit(written, true) == 0 ? done : -1;
}

WriteOffset at(off_t offset) { return {offset, true}; }
constexpr WriteOffset kHere{};

int sync_descriptor(int fd, int (*call)(int)) {
  ImagePtr image = images().of_descriptor(fd);
  if (image == nullptr && !settings().patterns.empty()) {
    images().adopt_unseen(fd);
    image = images().of_descriptor(fd);
  }
  if (image == nullptr) return call(fd);
  image->was_fsynced = true;
  image->msyncs_left_out = 0;
  return images().commit(image, true);
}

int resize_descriptor(int fd, off_t bytes) {
  const ImagePtr image = images().of_descriptor(fd);
  const bool writable = image != nullptr && (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
  if (!writable || bytes < 0) return real().ftruncate(fd, bytes);
  return refused(*image) ? -1 : images().resize(image, bytes);
}

// The kernel copies only within a file system.
ssize_t copy_through_memory(int in, off_t* in_at, int out, off_t* out_at, size_t count) {
  const int in_mode = ::fcntl(in, F_GETFL);
  const int out_mode = ::fcntl(out, F_GETFL);
  const bool allowed = in_mode >= 0 && out_mode >= 0 && (in_mode & O_ACCMODE) != O_WRONLY &&
                       (out_mode & O_ACCMODE) != O_RDONLY && (out_mode & O_APPEND) == 0;
  if (!allowed) {
    errno = EBADF;
    return -1;
  }
  std::vector<std::byte> bytes(std::min<size_t>(count, 1 << 20));
  ssize_t total = 0;
  while (static_cast<size_t>(total) < count) {
    const size_t wanted = std::min(bytes.size(), count - static_cast<size_t>(total));
    const ssize_t got = in_at != nullptr ? ::pread(in, bytes.data(), wanted, *in_at) : ::read(in, bytes.data(), wanted);
    if (got <= 0) return total > 0 ? total : got;
    const ssize_t put = out_at != nullptr ? our_pwrite(out, bytes.data(), static_cast<size_t>(got), *out_at)
                                          : our_write(out, bytes.data(), static_cast<size_t>(got));
    if (put < got && in_at == nullptr) ::lseek(in, std::max<ssize_t>(put, 0) - got, SEEK_CUR);
    if (put <= 0) return total > 0 ? total : put;
    if (in_at != nullptr) *in_at += put;
    if (out_at != nullptr) *out_at += put;
    total += put;
  }
  return total;
}

// The flags of a stream's mode; -1 if this library leaves the mode to the C library.
int flags_of(const char* mode) {
  if (std::strstr(mode, "ccs=") != nullptr) return -1;
  const bool both = std::strchr(mode, '+') != nullptr;
  int flags = 0;
  switch (mode[0]) {
    case 'r': flags = both ? O_RDWR : O_RDONLY; break;
    case 'w': flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC; break;
    case 'a': flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND; break;
    default: return -1;
  }
  if (std::strchr(mode, 'x') != nullptr) flags |= O_EXCL;
  if (std::strchr(mode, 'e') != nullptr) flags |= O_CLOEXEC;
  return flags;
}

int close_descriptor(int fd) {
  if (is_engine_descriptor(fd)) {
    errno = EBADF;
    return -1;
  }
  const ImagePtr image = images().of_descriptor(fd);
  if (image == nullptr) return real().close(fd);
  const int result = real().close(fd);
  return images().closed_one(image) != 0 ? -1 : result;
}

template <class Call>
int replace_descriptor(int to, Call call) {
  if (is_engine_descriptor(to)) {
    say("dup2 to descriptor " + std::to_string(to) +
        " fails with EBUSY: memlith uses this descriptor. Its own descriptors are those from 512 on");
    errno = EBUSY;
    return -1;
  }
  const ImagePtr replaced = images().of_descriptor(to);
  const int result = call();
  if (result >= 0 && replaced != nullptr) images().closed_one(replaced);
  return result;
}

}  // namespace

#define MEMLITH_MODE_OF(flags)   \
  mode_t mode = 0;               \
  if (takes_mode(flags)) {       \
    va_list more;                \
    va_start(more, flags);       \
    mode = va_arg(more, mode_t); \
    va_end(more);                \
  }

MEMLITH_INTERPOSE(int, open, const char* path, int flags, ...) {
  MEMLITH_MODE_OF(flags)
  return open_file(AT_FDCWD, path, flags, mode);
}
MEMLITH_INTERPOSE_ALSO(open64, open);
MEMLITH_INTERPOSE(int, openat, int folder, const char* path, int flags, ...) {
  MEMLITH_MODE_OF(flags)
  return open_file(folder, path, flags, mode);
}
MEMLITH_INTERPOSE_ALSO(openat64, openat);
MEMLITH_INTERPOSE(int, __open_2, const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
MEMLITH_INTERPOSE_ALSO(__open64_2, __open_2);
MEMLITH_INTERPOSE(int, __openat_2, int folder, const char* path, int flags) {
  return open_file(folder, path, flags, 0);
}
MEMLITH_INTERPOSE_ALSO(__openat64_2, __openat_2);
MEMLITH_INTERPOSE(int, creat, const char* path, mode_t mode) {
  return open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
MEMLITH_INTERPOSE_ALSO(creat64, creat);

MEMLITH_INTERPOSE(FILE*, fopen, const char* path, const char* mode) {
  const int flags = flags_of(mode);
  if (flags < 0 || settings().patterns.empty()) return real().fopen(path, mode);
  const int fd = open_file(AT_FDCWD, path, flags, 0666);
  if (fd < 0) return nullptr;
  FILE* const stream = real().fdopen(fd, mode);
  const int error = errno;
  if (stream == nullptr) {
    close_descriptor(fd);
  } else if (const ImagePtr image = (flags & O_ACCMODE) != O_RDONLY ? images().of_descriptor(fd) : nullptr) {
    images().expect_unseen(image);
  }
  errno = error;
  return stream;
}
MEMLITH_INTERPOSE_ALSO(fopen64, fopen);
MEMLITH_INTERPOSE(FILE*, fdopen, int fd, const char* mode) {
  const ImagePtr image = mode[0] != 'r' || std::strchr(mode, '+') != nullptr ? images().of_descriptor(fd) : nullptr;
  if (image != nullptr) images().expect_unseen(image);
  return real().fdopen(fd, mode);
}
MEMLITH_INTERPOSE(FILE*, freopen, const char* path, const char* mode, FILE* stream) {
  std::array<char, PATH_MAX> whole{};
  const bool known = path != nullptr && ::realpath(path, whole.data()) != nullptr;
  struct stat seen{};
  const bool is_other = known && real().stat(path, &seen) == 0 && !S_ISREG(seen.st_mode);
  if (path != nullptr && !is_other && settings().matches(known ? whole.data() : path)) {
    say(std::string(path) + ": freopen of a file that matches --match is not supported; use fopen");
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const ImagePtr closed = images().any() && stream != nullptr ? images().of_descriptor(::fileno(stream)) : nullptr;
  FILE* const opened = real().freopen(path, mode, stream);
  if (closed != nullptr) images().closed_one(closed);
  return opened;
}
MEMLITH_INTERPOSE_ALSO(freopen64, freopen);
MEMLITH_INTERPOSE(int, fclose, FILE* stream) {
  const ImagePtr image = images().any() ? images().of_descriptor(::fileno(stream)) : nullptr;
  const int result = real().fclose(stream);
  if (image != nullptr && images().closed_one(image) != 0) return EOF;
  return result;
}

MEMLITH_INTERPOSE(int, close, int fd) { return close_descriptor(fd); }
MEMLITH_INTERPOSE(int, dup2, int from, int to) {
  if (from == to) return real().dup2(from, to);
  return replace_descriptor(to, [&] { return real().dup2(from, to); });
}
MEMLITH_INTERPOSE(int, dup3, int from, int to, int flags) {
  return replace_descriptor(to, [&] { return real().dup3(from, to, flags); });
}
MEMLITH_INTERPOSE(int, close_range, unsigned first, unsigned last, int flags) {
  for (unsigned fd = first; fd <= last && fd < 65536; ++fd) {
    if ((flags & 4) != 0) {  // CLOSE_RANGE_CLOEXEC
      if (!is_engine_descriptor(static_cast<int>(fd))) ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
    } else {
      close_descriptor(static_cast<int>(fd));
    }
  }
  return 0;
}
MEMLITH_INTERPOSE(void, closefrom, int first) { our_close_range(static_cast<unsigned>(std::max(first, 0)), ~0U, 0); }

MEMLITH_INTERPOSE(ssize_t, write, int fd, const void* bytes, size_t count) {
  const auto call = [=] { return real().write(fd, bytes, count); };
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? call() : write_to(image, fd, kHere, 0, call);
}
MEMLITH_INTERPOSE(ssize_t, pwrite, int fd, const void* bytes, size_t count, off_t offset) {
  const auto call = [=] { return real().pwrite(fd, bytes, count, offset); };
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? call() : write_to(image, fd, at(offset), 0, call);
}
MEMLITH_INTERPOSE_ALSO(pwrite64, pwrite);
MEMLITH_INTERPOSE(ssize_t, writev, int fd, const struct iovec* parts, int count) {
  const auto call = [=] { return real().writev(fd, parts, count); };
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? call() : write_to(image, fd, kHere, 0, call);
}
MEMLITH_INTERPOSE(ssize_t, pwritev, int fd, const struct iovec* parts, int count, off_t offset) {
  const auto call = [=] { return real().pwritev(fd, parts, count, offset); };
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? call() : write_to(image, fd, at(offset), 0, call);
}
MEMLITH_INTERPOSE_ALSO(pwritev64, pwritev);
MEMLITH_INTERPOSE(ssize_t, pwritev2, int fd, const struct iovec* parts, int count, off_t offset, int flags) {
  const auto call = [=] { return real().pwritev2(fd, parts, count, offset, flags); };
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? call() : write_to(image, fd, offset == -1 ? kHere : at(offset), flags, call);
}
MEMLITH_INTERPOSE_ALSO(pwritev64v2, pwritev2);
MEMLITH_INTERPOSE(ssize_t, sendfile, int out, int in, off_t* offset, size_t count) {
  const auto call = [=] { return real().sendfile(out, in, offset, count); };
  const ImagePtr image = images().of_descriptor(out);
  return image == nullptr ? call() : write_to(image, out, kHere, 0, call);
}
MEMLITH_INTERPOSE_ALSO(sendfile64, sendfile);
MEMLITH_INTERPOSE(ssize_t, splice, int in, off_t* in_at, int out, off_t* out_at, size_t count, unsigned flags) {
  const auto call = [=] { return real().splice(in, in_at, out, out_at, count, flags); };
  const ImagePtr image = images().of_descriptor(out);
  return image == nullptr ? call() : write_to(image, out, out_at == nullptr ? kHere : at(*out_at), 0, call);
}
MEMLITH_INTERPOSE(ssize_t, copy_file_range, int in, off_t* in_at, int out, off_t* out_at, size_t count,
                  unsigned flags) {
  const bool ours = images().of_descriptor(in) != nullptr || images().of_descriptor(out) != nullptr;
  return ours ? copy_through_memory(in, in_at, out, out_at, count)
              : real().copy_file_range(in, in_at, out, out_at, count, flags);
}

MEMLITH_INTERPOSE(int, ftruncate, int fd, off_t bytes) { return resize_descriptor(fd, bytes); }
MEMLITH_INTERPOSE_ALSO(ftruncate64, ftruncate);
MEMLITH_INTERPOSE(int, truncate, const char* path, off_t bytes) {
  std::array<char, PATH_MAX> whole{};
  if (::realpath(path, whole.data()) == nullptr || !settings().matches(whole.data())) {
    return real().truncate(path, bytes);
  }
  const int fd = open_file(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int result = resize_descriptor(fd, bytes);
  const int error = errno;
  if (close_descriptor(fd) != 0) return -1;
  errno = error;
  return result;
}
MEMLITH_INTERPOSE_ALSO(truncate64, truncate);
MEMLITH_INTERPOSE(int, fallocate, int fd, int mode, off_t offset, off_t bytes) {
  const ImagePtr image = images().of_descriptor(fd);
  if (image == nullptr) return real().fallocate(fd, mode, offset, bytes);
  if (refused(*image) || images().touch(image) != 0) return -1;
  const NoSignals no_signals;
  const std::shared_lock alive(image->life);
  const int result = real().fallocate(fd, mode, offset, bytes);
  if (result == 0 && image->attached) {
    memlith_image_written(image->handle, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes));
  }
  return result;
}
MEMLITH_INTERPOSE_ALSO(fallocate64, fallocate);
MEMLITH_INTERPOSE(int, posix_fallocate, int fd, off_t offset, off_t bytes) {
  if (images().of_descriptor(fd) == nullptr) return real().posix_fallocate(fd, offset, bytes);
  const int before = errno;
  const int result = our_fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
  errno = before;
  return result;
}
MEMLITH_INTERPOSE_ALSO(posix_fallocate64, posix_fallocate);

MEMLITH_INTERPOSE(int, fsync, int fd) { return sync_descriptor(fd, real().fsync); }
MEMLITH_INTERPOSE(int, fdatasync, int fd) { return sync_descriptor(fd, real().fdatasync); }
MEMLITH_INTERPOSE(int, syncfs, int fd) {
  if (images().any() && images().commit_all() != 0) return -1;
  return real().syncfs(fd);
}
MEMLITH_INTERPOSE(void, sync, void) {
  if (images().any()) images().commit_all();
  real().sync();
}

}  // namespace memlith::preload
