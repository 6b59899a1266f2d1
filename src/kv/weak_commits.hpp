// The commits of a kv store that are not durable yet. Floor: kv.
//
// Commits leave copies of what they changed in the batch of Writer. The batch waits in memory until a closing of the
// store's collectors puts it into a frame: because a commit of any structure has to be durable, because the batch has
// grown large, or because the window of its oldest commit has passed. The writer's mutex is held only while the batch
// is exchanged for an empty one, between two commits: a frame holds whole commits, and frames have their order.
//
// A batch that the log refuses stays in memory; store/collectors.hpp says what follows.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/sync.hpp"
#include "kv/pages.hpp"
#include "kv/writer_pace.hpp"
#include "store/collectors.hpp"
#include "store/durable_event.hpp"
#include "store/logged_numbers.hpp"

namespace memlith::core::kv {

// How long a weak commit may wait, at most; and for how many bytes.
struct Window {
  std::uint64_t interval_ms = 100;
  std::uint64_t bytes = 16 * kMiB;
};

// Threads: any; start() and stop() by the owner.
class WeakCommits final : public Collector {
 public:
  using Done = std::function<void(Lsn ticket, Status status)>;

  WeakCommits(Pages& pages, Collectors& collectors) : Collector(collectors), pages_(pages) {}
  // `manual`: no window.
  void start(Window window, bool manual);
  // Makes everything durable if it should, and calls what waits: nothing can be tried again.
  Status stop(bool persist);

  // ---- with the writer's mutex held

  // True if there is room for a commit of so many bytes, together with what waits in all of the store.
  bool has_room_for(std::uint64_t bytes) MEMLITH_REQUIRES(writing) {
    return !pages_.writer.logs() || may_wait(pages_.writer.batch().bytes() + bytes);
  }
  void commit_failed() MEMLITH_REQUIRES(writing) { drop_unused_allowance(); }
  // A commit is about to change pages.
  void begin() MEMLITH_REQUIRES(writing) {
    if (pages_.writer.logs()) begin_commit();
  }
  // It has changed pages. What the committing thread has to ask the store for, without the lock:
  struct Wish {
    bool window = false;  // it is the first that waits for the window
    bool frame = false;   // so much waits that it is worth a frame
  };
  Wish committed(bool weak) MEMLITH_REQUIRES(writing);

  // ---- without it

  void ask_for(const Wish& wish);
  // Waits while too much waits for the log. Errors: what waits was refused, and no commit may follow it.
  Status keep_up() {
    if (!log_refused() && waiting_bytes_.load(std::memory_order_relaxed) < kWaitingBytesMax) return kOk;
    return hand_over(~std::uint64_t{0}, false).status();
  }
  // Brings commits up to that number to the log.
  Result<Lsn> hand_over(std::uint64_t commit, bool will_sync);
  // Without locks if it is known to be durable.
  Status make_durable(std::uint64_t commit) {
    if (known_durable_.load(std::memory_order_acquire) >= commit) return kOk;
    return wait_durable(commit);
  }

  // ---- a commit whose frame has the changes of other structures, too (KvPart): with the mutex of the collectors held

  void hold_for_part() { part_hold_ = KeptLock(pages_.writer.mutex()); }  // the writer
  void let_part_go() { part_hold_.release(); }
  // Takes exactly the pieces that that commit has left. Lets the writer go.
  Batch::Front take_part();
  void part_in_log(const Batch::Front& front, Lsn end);
  void lose_part() {
    carried_.clear();
    aside_since_ns_.store(0);
  }

  std::uint64_t durable();
  void set_window(Window window);
  void set_eventfd(int fd) { event_.set(fd); }
  void when_durable(Lsn ticket, Done done);
  [[nodiscard]] std::uint64_t logged_bytes() const { return logged_bytes_.load(std::memory_order_relaxed); }

 private:
  Result<KeptLock> pause() override;
  void set_aside(const Closing& closing) noexcept override;
  CommitBatch first(std::uint64_t bytes_max) override;
  bool in_log(Lsn end) noexcept override;
  [[nodiscard]] std::string what_waits() const override;
  void durable_moved() override;
  [[nodiscard]] std::uint64_t oldest_waiting_ns() override;
  void after_background_closing(Status closed) override;

  [[nodiscard]] Store& store() const { return pages_.words.region().store(); }
  Status wait_durable(std::uint64_t commit);
  void note_sent(const Batch::Front& front, Lsn end);
  void note_aside() noexcept;
  void note_in_frame(Lsn end) noexcept MEMLITH_REQUIRES(queue_mutex_);
  // `unless_durable`: for commits that will not become durable any more.
  void call_done(Status unless_durable);
  void run_telling();
  void stop_telling();
  void note_durable();
  void count_waits(Lsn durable) MEMLITH_REQUIRES(queue_mutex_);
  [[nodiscard]] std::uint64_t newest();

  Pages& pages_;

  // Under the mutex of the collectors.
  Batch carried_;  // a batch that is on its way, or that the log had no room for
  Batch::Front front_;
  std::optional<SizeChange> size_;  // of the region, in the same frame
  KeptLock part_hold_;              // of the writer's lock, for a part

  // When the first weak commit was made, in ns of SteadyClock, of those that wait, of those that are set aside, and of
  // those in each frame; 0: there is none. Read in this order, in which commits move on.
  std::atomic<std::uint64_t> waits_since_ns_{0};  // changed under the writer's mutex
  std::atomic<std::uint64_t> aside_since_ns_{0};  // changed under the mutex of the collectors
  struct InFrame {
    Lsn end;
    std::uint64_t since_ns;
  };
  std::deque<InFrame> in_frames_ MEMLITH_GUARDED_BY(queue_mutex_);

  bool window_begun_ MEMLITH_GUARDED_BY(writing) = false;  // a commit waits for the window
  bool frame_wanted_ MEMLITH_GUARDED_BY(writing) = false;

  mutable Mutex queue_mutex_;
  LoggedNumbers numbers_ MEMLITH_GUARDED_BY(queue_mutex_);
  std::uint64_t durable_ MEMLITH_GUARDED_BY(queue_mutex_) = 0;  // as noted last
  std::atomic<std::uint64_t> known_durable_{0};                 // the same; release under the mutex, acquire without it
  std::multimap<Lsn, Done> waiting_ MEMLITH_GUARDED_BY(queue_mutex_);
  // The callbacks have a thread of their own, from the first of them on: a slow one delays those behind it, and no
  // window.
  Thread telling_ MEMLITH_GUARDED_BY(queue_mutex_);
  ConditionVariable tell_;
  bool can_tell_ MEMLITH_GUARDED_BY(queue_mutex_) = false;
  bool telling_stops_ MEMLITH_GUARDED_BY(queue_mutex_) = false;

  std::atomic<std::uint64_t> interval_ms_{0};
  std::atomic<std::uint64_t> window_bytes_{0};
  std::atomic<std::uint64_t> waiting_bytes_{0};  // in the batch of the Writer
  std::uint64_t unflushed_bytes_ = 0;            // since a flush was asked for; under the mutex of the collectors
  std::atomic<std::uint64_t> logged_bytes_{0};
  bool manual_ = false;  // constant after start()
  DurableEvent event_;
};

}  // namespace memlith::core::kv
