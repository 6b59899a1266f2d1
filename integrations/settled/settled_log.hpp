// A log in front of homes: what has to be durable soon goes to an application log, with one write and one flush, and to
// its home in other files later. Part: settled, over the public interface.
//
// LIFE OF AN ENTRY. append() takes it into memory; write() makes it durable. settle() has the owner bring home what the
// entries say, and then gives them up: they are consumed, and the checkpoint that follows drops their bytes from the
// redo log. So an entry is written once. Entries that were not given up are read again after a crash (replay()), so
// bringing them home once more must do no harm.
//
// FAILURE. See behind.hpp: append, write and settle keep the first, and are POISONED from then on.
//
// Threads: any number append and write. settle() lets one at a time in; replay() is called before all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "memlith/applog.hpp"
#include "settled/behind.hpp"

namespace memlith_settled {

// Tests have others than StoredLog.
class EntryLog {
 public:
  virtual ~EntryLog() = default;
  [[nodiscard]] virtual bool has_room(std::uint64_t entry_bytes) const = 0;
  virtual Result<void> append(std::string_view entry) = 0;
  virtual Result<void> write() = 0;
  virtual Result<std::uint64_t> newest() = 0;  // the number of the newest entry
  // The next entry that was not given up, valid until the next call. Nothing at the end.
  virtual Result<std::optional<std::string_view>> next() = 0;
  // No entry up to that number is needed any more. Durable on return.
  virtual Result<void> give_up(std::uint64_t upto) = 0;
};

class SettledLog {
 public:
  // `settle_bytes`: so much of the redo log, before wants_settling().
  SettledLog(EntryLog& log, std::uint64_t settle_bytes) : log_(log), settle_bytes_(settle_bytes) {}

  [[nodiscard]] bool has_room(std::uint64_t entry_bytes) const { return log_.has_room(entry_bytes); }
  Result<void> append(std::string_view entry) {
    if (Result<void> fine = check(); !fine) return fine;
    if (Result<void> appended = behind_.keep(log_.append(entry)); !appended) return appended;
    unsettled_.fetch_add(entry.size() + kFrameBytes, std::memory_order_relaxed);
    return {};
  }
  Result<void> write() {
    Result<void> fine = check();
    return fine ? behind_.keep(log_.write()) : fine;
  }

  // Calls act(entry) with each entry that was not given up.
  template <class Act>
  Result<void> replay(Act&& act) {
    for (;;) {
      const Result<std::optional<std::string_view>> entry = log_.next();
      if (!entry) return entry.error();
      if (!entry->has_value()) return {};
      if (Result<void> done = act(**entry); !done) return done;
    }
  }
  // bring_home() makes durable in other files whatever the entries say that were appended before the call.
  template <class BringHome>
  Result<void> settle(BringHome&& bring_home) {
    const std::lock_guard lock(settling_);
    if (Result<void> fine = check(); !fine) return fine;
    const std::uint64_t bytes = unsettled_.load(std::memory_order_relaxed);
    const Result<std::uint64_t> newest = log_.newest();
    if (!newest) return behind_.fail(newest.error());
    // ORDER home-before-give-up: an entry that was given up is not read again. [test
    // PostgresCrash.TheLogStartsOverWhenTheHomesAreFlushed]
    if (Result<void> home = behind_.keep(bring_home()); !home) return home;
    if (Result<void> given_up = behind_.keep(log_.give_up(*newest)); !given_up) return given_up;
    unsettled_.fetch_sub(bytes, std::memory_order_relaxed);
    return {};
  }
  // The thread behind calls settle(), the owner's, when that is wanted, until the end.
  template <class Settle>
  void settle_behind(Settle&& settle) {
    // A wake() that comes too early is lost.
    while (!behind_.wait(std::chrono::seconds(1), [this] { return wants_settling(); })) {
      if (wants_settling() && !behind_.until_room(settle, [] {})) return;
    }
  }
  [[nodiscard]] bool wants_settling() const { return unsettled_.load(std::memory_order_relaxed) >= settle_bytes_; }
  // How much there is, is not known.
  void want_settling() { unsettled_.fetch_add(settle_bytes_, std::memory_order_relaxed); }

  [[nodiscard]] Behind& behind() { return behind_; }
  [[nodiscard]] Result<void> check() const {
    return behind_.failed() ? Error(MEMLITH_POISONED, behind_.failure()) : Result<void>();
  }

 private:
  static constexpr std::uint64_t kFrameBytes = 512;  // at least a block of the redo log, whatever the entry's size

  EntryLog& log_;
  const std::uint64_t settle_bytes_;
  Behind behind_;
  std::mutex settling_;
  std::atomic<std::uint64_t> unsettled_{0};  // a hint, pairs with nothing
};

// An application log in a store that has nothing else.
class StoredLog final : public EntryLog {
 public:
  struct Options {
    std::string name;
    bool exclusive = false;        // refuse a store that is there
    std::uint64_t bytes = 0;       // of a new log
    std::uint64_t redo_bytes = 0;  // of a new redo log, which is filled with zeros once
  };
  static Result<std::unique_ptr<StoredLog>> open(const std::string& path, const Options& options) {
    // The checkpoint comes when entries were given up. One that came before would write them home.
    Result<memlith::Store> store = memlith::Store::open(path, {.create = true,
                                                               .exclusive = options.exclusive,
                                                               .manual_checkpoint = true,
                                                               .log_bytes = options.redo_bytes,
                                                               .log_max_bytes = 2 * options.bytes});
    if (!store) return store.error();
    Result<memlith::AppLog> log =
        memlith::AppLog::open(*store, options.name,
                              {.create = true, .when_full = memlith::WhenFull::fail, .size = options.bytes});
    if (!log) return log.error();
    return std::unique_ptr<StoredLog>(new StoredLog(std::move(*store), std::move(*log)));
  }
  [[nodiscard]] Result<memlith_applog_info> info() const { return log_.info(); }
  Result<void> close() {
    if (Result<void> closed = log_.close(); !closed) return closed;
    return store_.close();
  }

  [[nodiscard]] bool has_room(std::uint64_t entry_bytes) const override {
    const Result<memlith_applog_info> info = log_.info();
    return info && info->room >= entry_bytes + kEntryOverhead;
  }
  Result<void> append(std::string_view entry) override {
    const Result<std::uint64_t> number = log_.append(entry);
    return number ? Result<void>() : number.error();
  }
  Result<void> write() override { return log_.write(); }
  Result<std::uint64_t> newest() override {
    const Result<memlith_applog_info> info = log_.info();
    return info ? Result<std::uint64_t>(info->newest) : info.error();
  }
  Result<std::optional<std::string_view>> next() override {
    const Result<std::optional<memlith::LogEntry>> entry = log_.read();
    if (!entry) return entry.error();
    return entry->has_value() ? std::optional((*entry)->content) : std::optional<std::string_view>();
  }
  Result<void> give_up(std::uint64_t upto) override {
    if (Result<void> dropped = log_.truncate_before(upto + 1); !dropped) return dropped;
    if (Result<void> written = log_.write(); !written) return written;
    // One that fails for lack of memory comes when the redo log is full; other failures the next write tells.
    (void)store_.checkpoint();
    return {};
  }

 private:
  static constexpr std::uint64_t kEntryOverhead = 64;  // of an application log, more than enough

  StoredLog(memlith::Store store, memlith::AppLog log) : store_(std::move(store)), log_(std::move(log)) {}

  memlith::Store store_;
  memlith::AppLog log_;
};

}  // namespace memlith_settled
