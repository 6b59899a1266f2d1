// Brings the changes of commits to the log. Floor: kv.
//
// Commits leave copies of what they changed in the batch of Pages. A batch becomes one frame of the log when a commit
// has to be durable, when the batch has grown large, or when the window has passed. The writer's lock is held only
// while the batch is exchanged for an empty one, between two commits: a frame holds whole commits, and frames have the
// order of the commits. So a crash leaves a prefix of that order.
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
  // Ends the thread, makes everything durable if it should, and calls what waits.
  Status stop(bool persist);

  // A commit that is not waited for has left its changes; `bytes` wait by now.
  void left(std::uint64_t bytes);
  // With the writer's lock held: so many bytes wait for the log by now.
  void note_waiting(std::uint64_t bytes) { waiting_bytes_.store(bytes, std::memory_order_relaxed); }
  // Waits while too much waits for the log.
  Status keep_up();
  // Brings commits up to that number to the log.
  Result<Lsn> hand_over(std::uint64_t commit, bool will_sync);
  Status make_durable(std::uint64_t commit);
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
  void run();
  bool wait_for_work() MEMLITH_REQUIRES(wake_mutex_);
  void call_done();
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
  std::atomic<std::uint64_t> unsynced_bytes_{0};
  std::atomic<std::uint64_t> logged_bytes_{0};
  bool manual_ = false;  // constant after start()
  DurableEvent event_;
  Thread thread_;
};

}  // namespace memlith::core::kv
