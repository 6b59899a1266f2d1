#include "base/status.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace memlith::core {

namespace detail {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "memlith: bug: \"%s\" does not hold at %s:%d; stopping. What was committed is safe.\n",
               expression, file, line);
  std::abort();
}

ErrorText& error_text() {
  thread_local ErrorText text{};
  return text;
}

Errc category_of_errno(int os_errno) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR: return Errc::not_found;
    case EEXIST: return Errc::exists;
    case EACCES:
    case EPERM: return Errc::permission;
    case EROFS: return Errc::read_only;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return Errc::no_space;
    case ENOMEM:
    case EAGAIN: return Errc::no_memory;  // for example of mmap(2), if all memory is locked and a limit applies
    case EMFILE:
    case ENFILE: return Errc::too_many_files;
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
    case ELOOP: return Errc::invalid;
    case EOPNOTSUPP:
    case ENOSYS: return Errc::unsupported;
    case EBUSY:
    case ETXTBSY: return Errc::busy;
    default: return Errc::io;
  }
}

std::string_view text_of_errno(int os_errno) {
  if (os_errno == EMFILE) {
    return "this process has too many open files; close some, or raise its limit (RLIMIT_NOFILE, ulimit -n)";
  }
  if (os_errno == ENFILE) {
    return "the machine has too many open files; close some, or raise its limit (sysctl fs.file-max)";
  }
  thread_local char buffer[128];
  return ::strerror_r(os_errno, buffer, sizeof buffer);
}

}  // namespace detail

std::string_view last_error_text() {
  const auto& text = detail::error_text();
  return {text.text, text.used};
}

void set_error_text(std::string_view text) {
  auto& slot = detail::error_text();
  slot.used = std::min(text.size(), sizeof slot.text);
  std::memmove(slot.text, text.data(), slot.used);
}

std::string_view name_of(Errc category) {
  switch (category) {
    case Errc::ok: return "ok";
    case Errc::invalid: return "invalid";
    case Errc::not_found: return "not found";
    case Errc::exists: return "exists";
    case Errc::busy: return "busy";
    case Errc::io: return "i/o error";
    case Errc::corrupt: return "corrupt";
    case Errc::incompatible: return "incompatible";
    case Errc::full: return "log full";
    case Errc::no_space: return "no space";
    case Errc::poisoned: return "poisoned";
    case Errc::permission: return "permission denied";
    case Errc::read_only: return "read-only";
    case Errc::address_taken: return "address taken";
    case Errc::unsupported: return "unsupported";
    case Errc::no_memory: return "no memory";
    case Errc::too_many_files: return "too many open files";
    case Errc::conflict: return "conflict";
  }
  return "unknown";
}

std::string_view name_of(Detail detail) {
  switch (detail) {
    case Detail::none: return "none";
    case Detail::argument: return "argument";
    case Detail::superblock: return "superblock";
    case Detail::slot: return "slot";
    case Detail::frame: return "frame";
    case Detail::directory: return "directory";
    case Detail::object: return "object";
    case Detail::lock: return "lock";
    case Detail::open: return "open";
    case Detail::read: return "read";
    case Detail::write: return "write";
    case Detail::flush: return "flush";
    case Detail::resize: return "resize";
    case Detail::mapping: return "mapping";
    case Detail::tracker: return "tracker";
    case Detail::version: return "version";
    case Detail::thread: return "thread";
    case Detail::heap: return "heap";
    case Detail::kv: return "kv";
  }
  return "unknown";
}

}  // namespace memlith::core
