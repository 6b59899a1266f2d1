// Brings the changes of commits to the log. Floor: kv.
//
// Commits leave copies of what they changed in the batch of Pages. A batch becomes one frame of the log when a commit
// has to be durable, when the batch has grown large, or when the window has passed. The writer's lock is held only
// while the batch is exchanged for an empty one, between two commits: a frame holds whole commits, and frames have the
// order of the commits. So a crash leaves a prefix of that order.
//
// The log may refuse a batch: it is full, and the disk has no space for it to grow. The batch stays in memory, and is
// tried again by each call that brings commits to the log, as a whole or in smaller frames, between two commits. As
// long as some of it is left, commits are refused, because their window could not be kept.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>

#include "base/sync.hpp"
#include "kv/pages.hpp"
#include "store/durable_event.hpp"

namespace memlith::core::kv {

struct Window {
  std::uint64_t interval_ms = 100;
  std::uint64_t bytes = 16 * kMiB;
};

// Threads: any; start() and stop() by the owner.
class Gatherer {
 public:
  using Done = std::function<void(std::uint64_t commit, Status status)>;

  explicit Gatherer(Pages& pages) : pages_(pages) {}
  void start(Window window, bool manual);
  // Ends the thread, makes everything durable if it should, and calls what waits: nothing can be tried again.
  Status stop(bool persist);

  // A commit that is not waited for has left its changes; `bytes` wait by now.
  void left(std::uint64_t bytes);
  // With the writer's lock held: so many bytes of the batch wait for the log by now. Returns how many do in all.
  std::uint64_t note_waiting(std::uint64_t bytes) {
    waiting_bytes_.store(bytes, std::memory_order_relaxed);
    return bytes + refused_bytes_.load(std::memory_order_relaxed);
  }
  // Waits while too much waits for the log. Errors: what waits was refused, and no commit may follow it.
  Status keep_up();
  // Brings commits up to that number to the log.
  Result<Lsn> hand_over(std::uint64_t commit, bool will_sync);
  Status make_durable(std::uint64_t commit);

  // A commit whose frame has the changes of other structures, too (KvPart). hold() brings to the log what waits, and
  // holds the writer's lock and the way to the log. take_held() hands out what the next commit has left, and lets the
  // writer go; held_in_log() says where its frame ends, and lets the way go. let_go() ends a hold() without a commit.
  Status hold() MEMLITH_ACQUIRE(hand_mutex_);
  void let_go() MEMLITH_RELEASE(hand_mutex_);
  Batch::Piece take_held() MEMLITH_REQUIRES(hand_mutex_);
  void held_in_log(const Batch::Piece& piece, Lsn end) MEMLITH_RELEASE(hand_mutex_);
  void lose_held() MEMLITH_RELEASE(hand_mutex_);

  std::uint64_t durable();
  void set_window(Window window);
  void set_eventfd(int fd) { event_.set(fd); }
  void when_durable(std::uint64_t commit, Done done);
  [[nodiscard]] std::uint64_t logged_bytes() const { return logged_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Handed {
    std::uint64_t commit = 0;
    Lsn lsn;
  };
  Status send_carried(bool will_sync) MEMLITH_REQUIRES(hand_mutex_);
  void note_sent(const Batch::Piece& piece, Lsn end) MEMLITH_REQUIRES(hand_mutex_);
  void take_batch() MEMLITH_REQUIRES(hand_mutex_);
  Status refused(Status cause) MEMLITH_REQUIRES(hand_mutex_);
  Lsn newest_in_log();
  void run();
  bool wait_for_work() MEMLITH_REQUIRES(wake_mutex_);
  // `unless_durable`: for commits that will not become durable any more.
  void call_done(Status unless_durable);
  void tell();
  void run_telling();
  void stop_telling();
  void note_durable();
  [[nodiscard]] std::uint64_t newest();

  Pages& pages_;

  Mutex hand_mutex_;                               // taken before the writer's lock; held while a batch goes to the log
  Batch carried_ MEMLITH_GUARDED_BY(hand_mutex_);  // a batch that is on its way, or that the log had no room for
  Handed handed_ MEMLITH_GUARDED_BY(hand_mutex_);

  Mutex queue_mutex_;
  std::deque<Handed> queue_ MEMLITH_GUARDED_BY(queue_mutex_);  // in the log, not known to be durable
  std::uint64_t durable_ MEMLITH_GUARDED_BY(queue_mutex_) = 0;
  std::multimap<std::uint64_t, Done> waiting_ MEMLITH_GUARDED_BY(queue_mutex_);
  // The callbacks have a thread of their own, from the first of them on: a slow one delays those behind it, and no
  // window.
  Thread telling_ MEMLITH_GUARDED_BY(queue_mutex_);
  ConditionVariable tell_;
  bool can_tell_ MEMLITH_GUARDED_BY(queue_mutex_) = false;
  bool telling_stops_ MEMLITH_GUARDED_BY(queue_mutex_) = false;

  Mutex wake_mutex_;
  ConditionVariable wake_;
  Window window_ MEMLITH_GUARDED_BY(wake_mutex_);
  bool stopping_ MEMLITH_GUARDED_BY(wake_mutex_) = false;
  bool nudged_ MEMLITH_GUARDED_BY(wake_mutex_) = false;
  SteadyClock::time_point since_ MEMLITH_GUARDED_BY(wake_mutex_);  // of the oldest commit that waits for the window
  std::atomic<bool> pending_{false};                               // a commit waits for the window
  std::atomic<bool> hand_soon_{false};                             // enough waits for a frame
  std::atomic<std::uint64_t> waiting_bytes_{0};                    // in the batch of Pages
  std::atomic<std::uint64_t> refused_bytes_{0};                    // in carried_, when the log had no room for it
  std::atomic<std::uint64_t> unsynced_bytes_{0};
  std::atomic<std::uint64_t> logged_bytes_{0};
  bool manual_ = false;  // constant after start()
  DurableEvent event_;
  Thread thread_;
};

}  // namespace memlith::core::kv
