// Functions of the C library that open or write files by calls of its own, which no interposed function sees: they are
// made of this library's functions here.
//
// Asynchronous I/O (aio.h) on files that memlith keeps is done when it is asked for, as POSIX allows: a write goes to
// memory, and aio_fsync commits. Requests on other files go to the C library.
#include <aio.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "calls.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

// ---- formatted output ------------------------------------------------------------------------------------------

int print_to(int fd, const char* format, va_list arguments) {
  if (images().of_descriptor(fd) == nullptr) return real().vdprintf(fd, format, arguments);
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length < 0) return length;
  std::vector<char> text(static_cast<std::size_t>(length) + 1);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  int written = 0;
  while (written < length) {
    const ssize_t done = our_write(fd, text.data() + written, static_cast<size_t>(length - written));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;
    written += static_cast<int>(done);
  }
  return written == length ? length : -1;
}

// ---- temporary files -------------------------------------------------------------------------------------------

constexpr std::string_view kPlaces = "XXXXXX";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

int make_temporary(char* name, int suffix_bytes, int flags) {
  const std::string_view whole(name);
  const auto suffix = static_cast<std::size_t>(suffix_bytes);
  const bool fits = suffix_bytes >= 0 && whole.size() >= kPlaces.size() + suffix;
  const std::size_t at = fits ? whole.size() - suffix - kPlaces.size() : 0;
  if (!fits || whole.substr(at, kPlaces.size()) != kPlaces) {
    errno = EINVAL;
    return -1;
  }
  for (int attempt = 0; attempt < TMP_MAX; ++attempt) {
    std::array<unsigned char, kPlaces.size()> chance{};
    if (::getrandom(chance.data(), chance.size(), 0) < 0) return -1;
    for (std::size_t i = 0; i < chance.size(); ++i) name[at + i] = kLetters[chance[i] % kLetters.size()];
    const int fd = our_open(name, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  errno = EEXIST;
  return -1;
}

// ---- asynchronous I/O ------------------------------------------------------------------------------------------

void finish_request(aiocb& request, ssize_t result) {
  request.__return_value = result;
  request.__error_code = result < 0 ? errno : 0;
}

void* run_notice(void* given) {
  const std::unique_ptr<sigevent> notice(static_cast<sigevent*>(given));
  notice->sigev_notify_function(notice->sigev_value);
  return nullptr;
}

// Says to the program, as it asked, that the request is done.
void notify(const sigevent& notice) {
  if (notice.sigev_notify == SIGEV_SIGNAL) {
    siginfo_t info{};
    info.si_signo = notice.sigev_signo;
    info.si_code = SI_ASYNCIO;
    info.si_pid = ::getpid();
    info.si_uid = ::getuid();
    info.si_value = notice.sigev_value;
    real().syscall(SYS_rt_sigqueueinfo, ::getpid(), notice.sigev_signo, &info);
    return;
  }
  if (notice.sigev_notify != SIGEV_THREAD) return;
  pthread_attr_t detached;
  ::pthread_attr_init(&detached);
  const bool given = notice.sigev_notify_attributes != nullptr;
  pthread_attr_t& attributes = given ? *notice.sigev_notify_attributes : detached;
  if (!given) ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto copy = std::make_unique<sigevent>(notice);
  pthread_t thread{};
  if (real().pthread_create(&thread, &attributes, run_notice, copy.get()) == 0) (void)copy.release();
  ::pthread_attr_destroy(&detached);
}

void write_now(aiocb& request) {
  void* const bytes = const_cast<void*>(request.aio_buf);
  finish_request(request, our_pwrite(request.aio_fildes, bytes, request.aio_nbytes, request.aio_offset));
}

bool is_ours(const aiocb* request) { return images().of_descriptor(request->aio_fildes) != nullptr; }

int list_io(int mode, aiocb* const* requests, int count, sigevent* notice) {
  std::vector<aiocb*> others;
  bool failed = false;
  bool any_is_ours = false;
  for (int i = 0; i < count; ++i) {
    aiocb* const each = requests[i];
    const bool is_write = each != nullptr && each->aio_lio_opcode == LIO_WRITE && is_ours(each);
    others.push_back(is_write ? nullptr : each);  // which the C library leaves out
    if (!is_write) continue;
    any_is_ours = true;
    write_now(*each);
    failed = failed || each->__error_code != 0;
    if (mode == LIO_NOWAIT) notify(each->aio_sigevent);
  }
  if (!any_is_ours) return real().lio_listio(mode, requests, count, notice);
  const int result = real().lio_listio(mode, others.data(), count, notice);
  if (result != 0 || !failed || mode == LIO_NOWAIT) return result;
  errno = EIO;
  return -1;
}

// ---- descriptors for other processes ---------------------------------------------------------------------------

bool sends_image(const msghdr& message) {
  if (!images().any() || message.msg_control == nullptr) return false;
  auto& given = const_cast<msghdr&>(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(&given); part != nullptr; part = CMSG_NXTHDR(&given, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      const ImagePtr image = images().of_descriptor(fd);
      if (image == nullptr) continue;
      say(image->path() + ": its descriptor " + std::to_string(fd) +
          " cannot be sent to another process, whose writes memlith would not see; let that process open the file");
      errno = EPERM;
      return true;
    }
  }
  return false;
}

}  // namespace

MEMLITH_INTERPOSE(int, vdprintf, int fd, const char* format, va_list arguments) {
  return print_to(fd, format, arguments);
}
MEMLITH_INTERPOSE(int, dprintf, int fd, const char* format, ...) {
  va_list more;
  va_start(more, format);
  const int result = print_to(fd, format, more);
  va_end(more);
  return result;
}
// Called by programs that are built with _FORTIFY_SOURCE.
MEMLITH_INTERPOSE(int, __vdprintf_chk, int fd, int, const char* format, va_list arguments) {
  return print_to(fd, format, arguments);
}
MEMLITH_INTERPOSE(int, __dprintf_chk, int fd, int, const char* format, ...) {
  va_list more;
  va_start(more, format);
  const int result = print_to(fd, format, more);
  va_end(more);
  return result;
}

MEMLITH_INTERPOSE(int, mkstemp, char* name) { return make_temporary(name, 0, 0); }
MEMLITH_INTERPOSE_ALSO(mkstemp64, mkstemp);
MEMLITH_INTERPOSE(int, mkostemp, char* name, int flags) { return make_temporary(name, 0, flags); }
MEMLITH_INTERPOSE_ALSO(mkostemp64, mkostemp);
MEMLITH_INTERPOSE(int, mkstemps, char* name, int suffix_bytes) { return make_temporary(name, suffix_bytes, 0); }
MEMLITH_INTERPOSE_ALSO(mkstemps64, mkstemps);
MEMLITH_INTERPOSE(int, mkostemps, char* name, int suffix_bytes, int flags) {
  return make_temporary(name, suffix_bytes, flags);
}
MEMLITH_INTERPOSE_ALSO(mkostemps64, mkostemps);

MEMLITH_INTERPOSE(int, aio_write, aiocb* request) {
  if (!is_ours(request)) return real().aio_write(request);
  write_now(*request);
  notify(request->aio_sigevent);
  return 0;
}
MEMLITH_INTERPOSE_ALSO(aio_write64, aio_write);
MEMLITH_INTERPOSE(int, aio_fsync, int flags, aiocb* request) {
  if (!is_ours(request) || (flags != O_SYNC && flags != O_DSYNC)) return real().aio_fsync(flags, request);
  finish_request(*request, our_fsync(request->aio_fildes));
  notify(request->aio_sigevent);
  return 0;
}
MEMLITH_INTERPOSE_ALSO(aio_fsync64, aio_fsync);
MEMLITH_INTERPOSE(int, lio_listio, int mode, aiocb* const* requests, int count, sigevent* notice) {
  return list_io(mode, requests, count, notice);
}
MEMLITH_INTERPOSE_ALSO(lio_listio64, lio_listio);

MEMLITH_INTERPOSE(ssize_t, sendmsg, int socket, const msghdr* message, int flags) {
  return message != nullptr && sends_image(*message) ? -1 : real().sendmsg(socket, message, flags);
}

}  // namespace memlith::preload
