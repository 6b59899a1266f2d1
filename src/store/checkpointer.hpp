// Writes durable commits home, and thereby makes room in the log. Floor: store. docs/architecture.md, "Life of a
// checkpoint".
//
// A background thread runs a checkpoint when the log is half full; a commit that finds the log full, or a caller, runs
// one in its own thread. While there are no commits, the background thread runs small ones, one behind the other, each
// over the next few hundred pages of the log. One checkpoint runs at a time (mutex_). Requests to the running one are
// guarded by another lock (wake_mutex_), which is never held during I/O.
//
// A checkpoint that makes room for commits leaves in the log what an archiver asks for, up to a size
// (store/archived.hpp). The log grows then. Checkpoints for callers free everything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/sync.hpp"
#include "store/background.hpp"
#include "store/log_grower.hpp"
#include "store/pace.hpp"
#include "store/publisher.hpp"
#include "store/replay.hpp"

namespace memlith::core {

// Threads: any; start and stop alone.
class Checkpointer {
 public:
  Checkpointer(StoreFiles& files, Directory& directory, Replay& replay)
      : files_(files), directory_(directory), replay_(&replay), grower_(files, directory) {}

  // The store is recovered. From now on checkpoints make room in the log; unless they are manual, a thread runs them
  // ahead of need.
  void start(Background& background, StatsPublisher& publisher) MEMLITH_EXCLUDES(mutex_);
  // When this returns, no background thread runs a checkpoint, and none will. Callers still may.
  void stop() MEMLITH_EXCLUDES(wake_mutex_);

  // Writes everything that is durable home, without pauses; a running background checkpoint stops pausing, too.
  Status checkpoint() MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  // The same, and then calls `act` before another checkpoint begins. A read-only store has nothing to write home.
  Status checkpoint_and(const std::function<Status()>& act) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  // The last checkpoint of a store that is being closed. Everything before the returned tail is home then, and leaves
  // the log when Log::close() writes this tail. A second call without commits in between does nothing.
  Result<LogPosition> checkpoint_for_close() MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  // The number of slots that a clean close leaves.
  [[nodiscard]] std::uint64_t slots_to_keep() MEMLITH_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    return grower_.slots_to_keep();
  }
  // Calls `act` while no checkpoint runs.
  Status between_checkpoints(const std::function<Status()>& act) MEMLITH_EXCLUDES(mutex_);
  // Returns when everything before `end`, which is durable, is home. Runs a checkpoint only if necessary, and gives way
  // to commits of other threads.
  Status bring_home(Lsn end) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  // Returns when reads of the home files find everything before `end`, which is durable. The bytes stay in the page
  // cache: nothing is flushed, and the log keeps its frames until a checkpoint.
  Status write_home(Lsn end) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  // True while the home files have bytes of write_home() that no flush has made durable.
  [[nodiscard]] bool has_unflushed_homes() const { return has_unflushed_homes_.load(std::memory_order_relaxed); }

  // Wakes the thread if a frame that ends there has filled the log so far.
  void wake_at(Lsn end);
  // Looks whether the store is idle, and wakes the thread if so and enough waits to go home. One thread at a time.
  // `newest`: the store's newest ticket. True: another look is due in IdleWatch::kLookAgain.
  bool look_for_idle(Lsn newest);
  // Writes home piece by piece everything that is durable now, until there is a commit or another checkpoint is wanted.
  Status run_while_idle() MEMLITH_EXCLUDES(mutex_, wake_mutex_);

 private:
  // The reason for a checkpoint: the store is idle; commits will need room; they wait for it.
  enum class Need : std::uint8_t { idle, soon, now };
  static constexpr std::uint64_t kAsked = ~0ull;  // of trigger_lsn_

  // The pace of one checkpoint. A checkpoint without a pace hurries: its caller waits for it, and commits may wait,
  // too.
  class Pacing final : public ReplayPace {
   public:
    explicit Pacing(Checkpointer& owner) : owner_(owner) {}
    // The checkpoint should be over when three quarters of the room that is left now are used.
    void keep_pace(bool caller_waits);
    // The checkpoint ends at the first frame behind this number of pages.
    void set_pages(std::uint64_t pages) { pages_ = pages; }
    // Home files are written without flushes in between, and at once.
    void leave_unflushed() { flushes_ = false; }
    [[nodiscard]] std::uint64_t pages() const { return pages_; }
    [[nodiscard]] std::uint64_t write_bytes_max() const override;
    std::uint64_t step_bytes(double home) override;
    void pause() override;

   private:
    struct Kept {
      CheckpointPace pace;
      Lsn head_at_begin;
      SteadyClock::time_point begin;
      bool caller_waits;  // pauses only if there are commits
    };
    Checkpointer& owner_;
    std::optional<Kept> kept_;
    std::uint64_t pages_ = ~0ull;
    bool flushes_ = true;
  };
  // While such an object exists, a checkpoint does not pause, because a thread waits for it.
  class Haste {
   public:
    explicit Haste(Checkpointer& owner);
    ~Haste();
    Haste(const Haste&) = delete;
    Haste& operator=(const Haste&) = delete;

   private:
    Checkpointer& owner_;
  };

  std::optional<Workers::Time> work();
  // For a commit that found the log full: waits for the running checkpoint, or runs one itself. The commit therefore
  // needs no background thread, and does not wait for other stores.
  Status make_room() MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  Status run_unless_running(Need need) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  Status run_for_all(Need need) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  Status run_once(Need need) MEMLITH_EXCLUDES(mutex_, wake_mutex_);
  Status grow_or_run(Need need) MEMLITH_REQUIRES(mutex_);
  Status run_piece() MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool is_idle() const { return files_.log->head().value == idle_at_.load(std::memory_order_relaxed); }
  bool grow_log() MEMLITH_REQUIRES(mutex_);
  // How far a checkpoint goes that makes room for commits: not beyond what is archived, if an archiver asks for that.
  // Empty: the log has grown instead, and there is room.
  std::optional<LogPosition> end_for_commits() MEMLITH_REQUIRES(mutex_);
  bool grow_for_archive(std::uint64_t keep_bytes) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] LogPosition last_before(Lsn end) const MEMLITH_REQUIRES(mutex_);
  Status run_unless_poisoned(Pacing& pacing, LogPosition to) MEMLITH_REQUIRES(mutex_);
  template <typename Work>
  Status unless_poisoned(Work&& work) MEMLITH_REQUIRES(mutex_);
  Status run(Pacing& pacing, LogPosition to) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] LogPosition written() const MEMLITH_REQUIRES(mutex_);
  Result<LogPosition> write_homes(Pacing& pacing, LogPosition to) MEMLITH_REQUIRES(mutex_);
  Result<LogPosition> gather(LogPosition from, LogPosition to, Pacing& pacing) MEMLITH_REQUIRES(mutex_);
  Status free_frames(LogPosition to) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t room_left(Lsn head) const;
  void ask_again_after(Lsn lsn, std::uint64_t bytes) {
    trigger_lsn_.store(lsn.value + bytes, std::memory_order_relaxed);
  }
  void set_bringing_home(bool now) MEMLITH_EXCLUDES(wake_mutex_);
  // Sleeps until a checkpoint has to hurry, at most for this time. True: it has to hurry.
  bool rest(std::chrono::nanoseconds time) MEMLITH_REQUIRES(wake_mutex_);
  [[nodiscard]] bool others_wait() const { return background_ != nullptr && background_->checkpoints.crowded(); }
  void show_progress(double home);
  void assert_state() const MEMLITH_REQUIRES(wake_mutex_);

  StoreFiles& files_;
  Directory& directory_;
  StatsPublisher* publisher_ = nullptr;  // null: the store is not open for writing, or not yet
  Background* background_ = nullptr;     // likewise, or the jobs were stopped

  Mutex mutex_;  // one checkpoint at a time; taken before wake_mutex_
  Replay* const replay_ MEMLITH_PT_GUARDED_BY(mutex_);
  LogGrower grower_ MEMLITH_GUARDED_BY(mutex_);
  LogPosition written_ MEMLITH_GUARDED_BY(mutex_);   // the home files have everything before it, flushed or not
  Atomic<bool> has_unflushed_homes_{false};          // changes under mutex_
  bool closing_ MEMLITH_GUARDED_BY(mutex_) = false;  // the checkpoint that runs leaves the tail as it is
  std::optional<LogPosition> home_ MEMLITH_GUARDED_BY(mutex_);  // by such a checkpoint, everything before it is home

  Mutex wake_mutex_;
  ConditionVariable wake_;  // of a checkpoint that pauses
  // The job, or a commit that found the log full, is making room.
  bool running_ MEMLITH_GUARDED_BY(wake_mutex_) = false;
  bool log_full_ MEMLITH_GUARDED_BY(wake_mutex_) = false;       // a commit waits for that
  bool bringing_home_ MEMLITH_GUARDED_BY(wake_mutex_) = false;  // bring_home() has a checkpoint under way
  std::uint32_t hurrying_ MEMLITH_GUARDED_BY(wake_mutex_) = 0;  // callers of checkpoint(), and of others for its end
  bool stopping_ MEMLITH_GUARDED_BY(wake_mutex_) = false;

  Atomic<std::uint64_t> trigger_lsn_{kAsked};  // a commit that reaches it wakes the job
  IdleWatch idle_watch_;                       // of the thread that looks
  Atomic<std::uint64_t> idle_at_{0};           // the log's head when the store was found idle
  Workers::Job job_{[this] { return work(); }};
};

}  // namespace memlith::core
