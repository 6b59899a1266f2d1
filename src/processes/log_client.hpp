// An application log that several processes have open, in one of them. Floor: processes.
//
// Entries are read where they lie, in memory of the keeper that this process cannot write to. All that changes the log
// is a message. So a process that dies, at whatever instruction, leaves nothing behind but entries that it appended and
// did not write, as a thread does that ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "applog/board.hpp"
#include "applog/open_log.hpp"
#include "base/sync.hpp"
#include "processes/join.hpp"
#include "shared/line.hpp"

namespace memlith::core::processes {

struct LogClientOptions : Joining {
  std::uint64_t size_bytes = 0;  // of a new log's region, and its largest
  std::uint64_t reserve_bytes = 0;
  applog::WhenFull when_full = applog::WhenFull::block;
};

// Threads: those of an application log. In a forked child nothing but its end.
class LogClient final : public applog::OpenLog {
 public:
  static Result<std::unique_ptr<LogClient>> open(const LogClientOptions& options);
  // That keeper has answered to the request to open the log.
  static Result<std::unique_ptr<LogClient>> join(const std::string& name, applog::WhenFull when_full,
                                                 shared::Joined joined);
  ~LogClient() override;

  // Errors of all: poisoned - the keeper has ended; io - it ended meanwhile.
  [[nodiscard]] Status check_process() const override;
  [[nodiscard]] applog::AppLog* alone() override { return nullptr; }
  Result<std::uint64_t> append(std::span<const Content> entries) override;
  Result<Lsn> write() override { return write(true); }
  Result<Lsn> write_weak() override { return write(false); }
  Status wait(Lsn ticket) override;
  Result<bool> read(std::uint64_t wait_ms, Entry& entry) override;
  void rewind() override;
  Status consume(std::uint64_t number) override;
  Result<bool> read_at(std::uint64_t number, std::vector<std::byte>& content) override;
  Status truncate_after(std::uint64_t last) override { return tell(LogAsk::truncate_after, last); }
  Status truncate_before(std::uint64_t first) override { return tell(LogAsk::truncate_before, first); }
  Status restart(std::uint64_t next) override { return tell(LogAsk::restart, next); }
  Result<applog::AppLogReport> info() override;
  // Makes durable what this handle has changed since its last write.
  Status stop();

 private:
  // A place, and the newest entry that was known to be durable when it was told.
  struct Known {
    applog::Place place;
    std::uint64_t durable = 0;
  };
  enum class Copied { entry, moved, damaged };

  LogClient(std::string name, applog::WhenFull when_full, std::uint64_t process);
  [[nodiscard]] Status check() const;
  Result<shared::Answer> ask(const shared::Request& request, std::string_view payload = {});
  Status tell(LogAsk what, std::uint64_t number);
  Result<Lsn> write(bool waits);
  Result<Known> place_of(std::uint64_t number, std::uint64_t changes, bool waits);
  // The entry of that place, which is durable.
  Copied copy(const applog::Place& place, std::vector<std::byte>& content) const;
  [[nodiscard]] Status damaged(std::uint64_t number) const;

  const std::string name_;
  const applog::WhenFull when_full_;
  const std::uint64_t process_;  // mark of the process that has opened it
  std::uint64_t seed_ = 0;       // constant after join()
  std::unique_ptr<applog::Board> board_;
  shared::Line line_;
  std::atomic<bool> has_unwritten_{false};  // changes since the last write that was waited for
  std::atomic<std::uint64_t> read_to_{0};   // the newest entry that was read since the last rewind

  // The reader's.
  applog::Place next_;  // to be read; number 0: the first
  std::uint64_t known_durable_ = 0;
  std::vector<std::byte> content_;
};

}  // namespace memlith::core::processes
