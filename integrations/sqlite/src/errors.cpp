#include "errors.hpp"

#include <algorithm>
#include <cstring>

#include "base/sync.hpp"
#include "line_log.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;

namespace {

struct Last {
  char text[core::kErrorTextBytes];
  std::size_t used;
  int os_errno;
};
Last& last() {
  thread_local Last instance{};
  return instance;
}
// The newest of all threads.
core::Mutex& newest_mutex() {
  static core::Mutex instance;
  return instance;
}
Last& newest() {
  static Last instance{};
  return instance;
}

int io_code(Detail detail) {
  switch (detail) {
    case Detail::read: return SQLITE_IOERR_READ;
    case Detail::write: return SQLITE_IOERR_WRITE;
    case Detail::flush: return SQLITE_IOERR_FSYNC;
    case Detail::resize: return SQLITE_IOERR_TRUNCATE;
    case Detail::mapping: return SQLITE_IOERR_MMAP;
    case Detail::lock: return SQLITE_IOERR_LOCK;
    default: return SQLITE_IOERR;
  }
}

// SQLite cuts messages longer than 3 * SQLITE_PRINT_BUF_SIZE, usually 210 bytes, and the advice is at the end of a
// message.
void log(const Api& api, int code, std::string_view text) {
  constexpr std::size_t kLineBytes = 180;
  const char* format = "memlith: %.*s";
  while (!text.empty()) {
    const std::size_t blank = text.size() > kLineBytes ? text.rfind(' ', kLineBytes - 1) : std::string_view::npos;
    const std::size_t count = blank != std::string_view::npos ? blank + 1 : std::min(text.size(), kLineBytes);
    api.log(code, format, static_cast<int>(count), text.data());
    text.remove_prefix(count);
    format = "memlith, further: %.*s";
  }
}

}  // namespace

int code_of(core::Status status, bool opening) {
  switch (status.category) {
    case Errc::ok: return SQLITE_OK;
    case Errc::busy: return SQLITE_BUSY;
    case Errc::full:
    case Errc::no_space: return SQLITE_FULL;
    case Errc::corrupt: return SQLITE_CORRUPT;
    case Errc::incompatible: return SQLITE_NOTADB;
    case Errc::no_memory: return opening ? SQLITE_NOMEM : SQLITE_IOERR_NOMEM;
    case Errc::read_only: return SQLITE_READONLY;
    case Errc::io: return io_code(status.detail);
    case Errc::not_found:
    case Errc::permission:
    case Errc::exists:
    case Errc::invalid:
    case Errc::unsupported:
    case Errc::too_many_files:
    case Errc::conflict:
    case Errc::address_taken: return opening ? SQLITE_CANTOPEN : SQLITE_IOERR;
    case Errc::poisoned: break;
  }
  return SQLITE_IOERR;
}

int report(const Api& api, core::Status status, bool opening) {
  if (status.ok()) return SQLITE_OK;
  const std::string_view text = core::last_error_text();
  Last& kept = last();
  // A connection that waits for another process tries again and again.
  const bool again = status.category == Errc::busy && text == last_report();
  if (!again) log_line("error: {}", text);
  kept.used = std::min(text.size(), sizeof kept.text);
  std::memcpy(kept.text, text.data(), kept.used);
  kept.os_errno = status.os_errno;
  if (newest_mutex().try_lock()) {  // a forked child may never get it
    const core::LockGuard guard(newest_mutex(), std::adopt_lock);
    newest() = kept;
  }
  const int code = code_of(status, opening);
  log(api, code, {kept.text, kept.used});
  return code;
}

std::string newest_report() {
  if (last().used > 0) return {last().text, last().used};
  const core::LockGuard guard(newest_mutex());
  return {newest().text, newest().used};
}

std::string_view last_report() { return {last().text, last().used}; }
int last_report_errno() { return last().os_errno; }

}  // namespace memlith::sqlite
