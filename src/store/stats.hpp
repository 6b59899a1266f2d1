// The live counters of an open store, in a file that other processes can read. Floor: store.
//
// The file is "stats" in a folder store, FILE.memlith-stats beside a one-file store's file, and is removed when the
// store is closed. It is advisory: nothing is recovered from it, it is never flushed, and a store that cannot create it
// works without it. A reader checks only its magic number and version, and every number may be slightly old. One number
// is more than advice: how far the log is durable, for processes that follow the store (store/view.hpp). It carries a
// checksum, and is shown before a checkpoint writes home what lies before it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.hpp"
#include "base/latency_histogram.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "device/volume.hpp"

namespace memlith::core {

using Counter = std::atomic<std::uint64_t>;

struct StatsPage {
  static constexpr std::uint64_t kMagic = 0x0a5441545348544d;  // "MTHSTAT\n"
  static constexpr std::uint32_t kVersion = 5;
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t process;
  std::uint64_t opened_ns;         // since 1970
  FileIdentity file;               // of the file of a one-file store; zeros in a folder store
  std::uint64_t incarnation;       // of the log, which tells that the page is of this opening
  std::uint64_t durable_checksum;  // of incarnation and durable_lsn, in what is shown
  Counter frames;
  Counter batches;
  Counter captured_bytes;
  Counter captured_pages;
  Counter last_captured_pages;  // of the last capture
  Counter logged_bytes;
  Counter log_bytes;
  Counter log_used_bytes;
  Counter durable_lsn;
  Counter checkpoints;
  Counter home_bytes;
  Counter checkpoint_done_bytes;   // bytes of log that the running checkpoint has processed
  Counter checkpoint_total_bytes;  // 0: none runs
  Counter poisoned;
  Counter kv_weak_commits;         // of kv stores; added to by them, as the next one
  Counter applog_entries;          // appended to application logs
  Counter oldest_waiting_ns;       // by SteadyClock: the oldest weak commit that is not durable was made; 0: all are
  LatencyHistogram persists;       // from the call until it is durable
  LatencyHistogram captures;       // asynchronous persists, from the call until it returns
  LatencyHistogram kv_commits;     // sync commits of kv stores, until they are durable
  LatencyHistogram kv_weak_waits;  // of each frame of weak commits, from the first of them until it is durable
  LatencyHistogram applog_writes;  // of application logs, until what was appended is durable
};

// For a page that may have been read while it was written.
std::uint64_t durable_checksum(std::uint64_t incarnation, std::uint64_t durable_lsn);

// Times one call that makes something durable, from when it was made.
class PersistTimer {
 public:
  // The call waited, and its commit is durable.
  void note_persist(StatsPage& page) const { page.persists.add(elapsed_ns()); }
  void note_kv_commit(StatsPage& page) const { page.kv_commits.add(elapsed_ns()); }
  void note_applog_write(StatsPage& page) const { page.applog_writes.add(elapsed_ns()); }
  // The call did not wait.
  void note_capture(StatsPage& page) const { page.captures.add(elapsed_ns()); }

 private:
  [[nodiscard]] std::uint64_t elapsed_ns() const {
    return static_cast<std::uint64_t>((SteadyClock::now() - begin_).count());
  }
  const SteadyClock::time_point begin_ = SteadyClock::now();
};

// The page of the owner's store.
class LiveStats {
 public:
  static std::string name_beside(const std::string& log_name);
  // Never fails for lack of a file. `file` of a one-file store: the page says which file it is of, and the page's own
  // file gets its permissions. The volume outlives the page.
  static Result<LiveStats> make(Volume& volume, const std::string& name, Device* file, std::uint64_t incarnation);
  [[nodiscard]] StatsPage& operator*() const { return *reinterpret_cast<StatsPage*>(page_.data()); }
  [[nodiscard]] StatsPage* operator->() const { return &**this; }
  // True if other processes can read it; if so, show() has to be called, from one thread at a time.
  [[nodiscard]] bool shown() const { return notice_ != nullptr; }
  void show();
  // Removes the file, unless another store has put its own in its place since.
  void remove() {
    if (shown()) notice_->remove();
  }

 private:
  AlignedBuffer page_;
  AlignedBuffer copy_;
  std::unique_ptr<Notice> notice_;
};

// The page of another process.
class SeenStats {
 public:
  // Errors: not_found, incompatible.
  static Result<SeenStats> look(Volume& volume, const std::string& name);
  [[nodiscard]] const StatsPage& operator*() const { return *reinterpret_cast<const StatsPage*>(page_.data()); }
  [[nodiscard]] const StatsPage* operator->() const { return &**this; }
  [[nodiscard]] bool held() const { return held_; }  // the process that wrote them is alive
  // How far the log is durable; empty if the page was read while it was written.
  [[nodiscard]] std::optional<std::uint64_t> durable_lsn() const;

 private:
  AlignedBuffer page_;
  bool held_ = false;
};

}  // namespace memlith::core
