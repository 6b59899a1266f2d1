// An application log that is open, in its own process or in a keeper for several. Floor: applog.
// include/memlith/applog.h states the contract of each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/units.hpp"

namespace memlith::core::applog {

enum class WhenFull : std::uint32_t { block = 0, fail = 1, grow = 2 };

struct AppLogReport {
  std::uint64_t capacity = 0;
  std::uint64_t room = 0;      // for contents and headers of entries
  std::uint64_t newest = 0;    // number of the newest entry that was appended; 0: none ever was
  std::uint64_t durable = 0;   // likewise, of the newest durable one
  std::uint64_t read = 0;      // likewise, of the newest that was read since the last rewind
  std::uint64_t consumed = 0;  // likewise, of the newest consumed one
};

class AppLog;

class OpenLog {
 public:
  using Content = std::span<const std::byte>;
  struct Entry {
    std::uint64_t number = 0;
    Content content;  // valid until the next read
  };

  OpenLog() = default;
  OpenLog(const OpenLog&) = delete;
  OpenLog& operator=(const OpenLog&) = delete;
  virtual ~OpenLog() = default;

  [[nodiscard]] virtual Status check_process() const = 0;
  // Null: several processes have it open.
  [[nodiscard]] virtual AppLog* alone() = 0;

  // ---- writers
  // The entries lie behind each other, and a crash keeps all of them or none. Returns the number of the last.
  virtual Result<std::uint64_t> append(std::span<const Content> entries) = 0;
  // Makes durable what was appended. Returns the ticket.
  virtual Result<Lsn> write() = 0;
  // The same without waiting, for wait().
  virtual Result<Lsn> write_weak() = 0;
  virtual Status wait(Lsn ticket) = 0;

  // ---- the reader
  // The next durable entry; waits so long for one. False: there is none.
  virtual Result<bool> read(std::uint64_t wait_ms, Entry& entry) = 0;
  // The next entry to be read is the first that is not consumed.
  virtual void rewind() = 0;
  // Everything up to that entry, which was read, is not needed any more.
  virtual Status consume(std::uint64_t number) = 0;

  // ---- by number
  // Any thread. False: there is no such durable entry, or it was consumed.
  virtual Result<bool> read_at(std::uint64_t number, std::vector<std::byte>& content) = 0;
  // The reader's, but not beside the commit of a transaction in which the log consumes. Each takes effect at once, and
  // is durable with the next write.
  virtual Status truncate_after(std::uint64_t last) = 0;    // `last` becomes the newest entry
  virtual Status truncate_before(std::uint64_t first) = 0;  // `first`, read or not, becomes the first entry
  virtual Status restart(std::uint64_t next) = 0;           // no entry is left, and the next gets that number

  virtual Result<AppLogReport> info() = 0;
};

// Entries that one append may have, whose bytes in the ring are added to `bytes`. Errors: invalid; full - they are
// larger than `bytes_max`, less what a frame has beside them.
Status check_sizes(std::span<const OpenLog::Content> entries, std::uint64_t bytes_max, std::uint64_t& bytes);
[[nodiscard]] Status too_large(std::uint64_t bytes, std::uint64_t bytes_max);

}  // namespace memlith::core::applog
