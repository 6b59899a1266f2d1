// Commits that wait in memory for their frame, of all structures of a store. Floor: store.
//
// A weak commit of a kv store, or an entry appended to an application log, has taken effect in memory; its bytes go to
// the log later, many at a time. A structure that keeps such commits is a collector. A closing puts what all collectors
// keep into one frame, as of one moment: while each of them is held, between two of its commits.
//
// INVARIANT one-order: a commit lies in the log before every commit that was begun after it had returned. A thread that
// brings something to the log therefore closes the collectors first (Store::close_collectors()), before it takes the
// locks under which it captures. So a crash leaves a prefix of one order, whatever structures the commits were made in.
//
// The log may refuse a frame: it is full, and the disk has no space for it to grow. What was set aside for the frame
// stays in memory, and each later closing tries it again. Until the log has taken it, every closing fails, and so every
// commit of the store: none may lie before those that wait. If a single collector waits, smaller frames are tried, each
// of which ends between two of its commits.
//
// TICKETS. A ticket is an LSN: its commit is durable once Store::durable_ticket() has reached the ticket. A commit that
// is in the log has the end of its frame. The frame's place of a waiting commit is not known yet, and a weak commit
// takes no lock of the log to find one. Its ticket is an LSN right behind the head of the log, as the commit finds it:
// the frame will end behind that. If a commit of another thread comes in between, the log may be durable behind the
// ticket before the frame is. So each collector holds the durable ticket back: below the tickets of what waits in it,
// until that is durable. [mutant tickets_not_held_back] A caller that looks at the durable ticket then may look again
// until it has moved, and causes a closing within 100 ms.
//
// PAUSED COLLECTORS. A Closing is the right to act while collectors are paused: Collectors::pause_all() returns it, and
// their commits go on when it is gone. A function that may be called only meanwhile takes it as an argument.
//
// Threads: any. mutex() is taken before the locks of collectors and regions, and held until what was set aside is in
// the log. A transaction of several structures holds it, too, until its frame is in the log.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/sync.hpp"
#include "log/log.hpp"
#include "store/held_tickets.hpp"
#include "store/objects.hpp"

namespace memlith::core {

class Closing;
class Collectors;
class Store;

// The content of one frame. The bytes stay in their place until the frame is in the log.
struct JointFrame {
  std::vector<Extent> extents;
  std::vector<const std::byte*> sources;
  std::vector<SizeChange> sizes;
  std::size_t reserved = 0;  // extents
  // Room for so many extents in all, so that adding them allocates nothing; reserve_more() is for a part that learns
  // late how many it has.
  void reserve(std::size_t count) {
    reserved = count;
    extents.reserve(count);
    sources.reserve(count);
  }
  void reserve_more(std::size_t more) { reserve(reserved + more); }
  void add(ObjectId object, std::uint64_t offset, const std::byte* bytes, std::uint64_t count) {
    if (count == 0) return;
    extents.push_back({object, offset, count});
    sources.push_back(bytes);
  }
  void clear() {
    extents.clear();
    sources.clear();
    sizes.clear();
  }
};

class Collector {
 public:
  explicit Collector(Collectors& all) : all_(all) {}
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  virtual ~Collector() = default;

  // The newest ticket up to which this structure's commits are durable. Only rises.
  [[nodiscard]] Lsn durable_ticket();
  // That of the newest commit whose effect is seen.
  [[nodiscard]] Lsn newest_ticket() const { return Lsn{ticket_.load(std::memory_order_acquire)}; }

 protected:
  // Counts of the commits that were set aside.
  struct CommitBatch {
    std::span<const Extent> extents;
    std::span<const std::byte* const> sources;
    std::optional<SizeChange> size;
    std::uint64_t bytes = 0;
    std::size_t steps = 0;  // places between two commits, its end included
  };
  // With the structure's lock held, before a commit takes effect: gives it its ticket. While the lock is held,
  // note_waiting_commit() follows; or, if the commit's frame has the changes of other structures, too, and with
  // Collectors::mutex() held, set_tickets_aside(), and tickets_in_log() once the frame is in the log.
  void begin_commit();
  void set_tickets_aside() noexcept;
  void tickets_in_log(Lsn end, bool more) noexcept;  // `more`: of the commits that were set aside, not all are in it
  // No look at the durable ticket causes a closing for the commits that wait here.
  void close_by_hand() { by_hand_ = true; }
  // True if the log did not take what waited (Collectors::refused()).
  [[nodiscard]] bool log_refused() const;
  // With the structure's lock held. A commit waits, if none did yet:
  void note_waiting_commit() {
    if (!waits_.load(std::memory_order_relaxed)) note_first();
  }
  // True if so many bytes in all may wait here. What all collectors may have waiting fits one frame; a collector may
  // always begin if nothing waits in any. If not, a closing makes room.
  bool may_wait(std::uint64_t bytes) { return bytes <= allowed_ || allow_more(bytes); }
  // A commit that may_wait() has failed.
  void drop_unused_allowance();

 private:
  friend class Collectors;
  // These are called with Collectors::mutex() held.

  // No commit of the structure ends as long as the returned lock is there; it holds nothing if a part of a transaction
  // on this thread has the structure's lock. After an error commits go on. In between, if something waits: it is set
  // aside, which cannot fail.
  virtual Result<KeptLock> pause() = 0;
  virtual void set_aside(const Closing& closing) noexcept = 0;
  // The first of what was set aside: as much as fits so many bytes and ends between two commits, but one step at least.
  // Valid until in_log().
  virtual CommitBatch first(std::uint64_t bytes_max) = 0;
  // That is in the log, in a frame that ends there. Returns whether more is set aside.
  virtual bool in_log(Lsn end) noexcept = 0;
  // For messages: which of its commits are in memory only.
  [[nodiscard]] virtual std::string what_waits() const = 0;

  // More is durable. Waits for nothing: the writer of the log calls it, whatever locks it has.
  virtual void durable_moved() {}
  // When the oldest of its weak commits was made that is not known to be durable, in ns of SteadyClock; 0: all are. For
  // statistics: it may be slightly old. As durable_moved().
  [[nodiscard]] virtual std::uint64_t oldest_waiting_ns() { return 0; }
  // A closing in the background is over: what a commit would have to wait for can be done now. Without locks.
  virtual void after_background_closing(Status /*closed*/) {}

  void note_first();
  bool allow_more(std::uint64_t bytes);
  void hold_back();  // and gives the commit its ticket
  void set_ticket(std::uint64_t at_least) {
    ticket_.store(std::max(ticket_.load(std::memory_order_relaxed), at_least), std::memory_order_release);
  }
  // Behind it are the tickets of what waits here, or is set aside.
  [[nodiscard]] Lsn held_at() const;
  Lsn durable_ticket(Lsn durable_lsn) { return held_tickets_.durable(durable_lsn, held_at()); }

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  Collectors& all_;
  std::atomic<std::uint64_t> ticket_{0};   // the newest; changed under the structure's lock
  Atomic<std::uint64_t> held_at_{kNone};   // the tickets of what waits are behind it; likewise
  Atomic<std::uint64_t> aside_at_{kNone};  // those of what was set aside; changed under Collectors::mutex()
  HeldTickets held_tickets_;               // those of what is in the log
  bool by_hand_ = false;                   // constant once it was added
  std::atomic<bool> waits_{false};         // something waits that was not set aside; changed under the structure's lock
  std::uint64_t allowed_ = 0;              // bytes that may wait; under the structure's lock
  std::uint64_t allowed_aside_ = 0;        // likewise, of what was set aside; under Collectors::mutex()
};

// The collectors in which something waits, each held between two of its commits for as long as this lives.
class Closing {
 public:
  Closing(Closing&& other) noexcept : paused_(std::exchange(other.paused_, nullptr)) {}
  Closing& operator=(Closing&&) = delete;
  ~Closing() {
    if (paused_ != nullptr) paused_->clear();
  }
  [[nodiscard]] bool holds(const Collector& collector) const {
    return std::ranges::any_of(*paused_, [&](const Paused& each) { return each.collector == &collector; });
  }

 private:
  friend class Collectors;
  struct Paused {
    Collector* collector;
    KeptLock commits;
  };
  // `room` is empty, and has room for all collectors, so that pausing them allocates nothing.
  explicit Closing(std::vector<Paused>& room) : paused_(&room) { MEMLITH_ASSERT(room.empty()); }
  void add(Collector& collector, KeptLock commits) {
    MEMLITH_ASSERT(paused_->size() < paused_->capacity());
    paused_->push_back({&collector, std::move(commits)});
  }

  std::vector<Paused>* paused_;
};

class Collectors {
 public:
  explicit Collectors(Store& store) : store_(store) {}

  void add(Collector& collector);
  // The commits that wait in it never go to the log. `acknowledged`: if something waits, it is lost, and nothing that
  // waits in another collector may follow it.
  void remove(Collector& collector, bool acknowledged);

  // True if a commit waits that is not in the log yet, also one that another thread's closing is taking to the log. A
  // commit that must not lie before such a commit closes first; the closing waits for that thread.
  [[nodiscard]] bool any_waits() const {
    return waiting_.load(std::memory_order_acquire) > 0 || aside_waits_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool refused() const { return refused_.load(std::memory_order_acquire); }
  [[nodiscard]] Mutex& mutex() MEMLITH_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // Puts what waits into the log. Returns the end of the newest frame of a closing. `will_sync`: the caller waits for
  // that at once. Errors: those of Store::commit(). If some of it is refused, what the log took before has its frames.
  Result<Lsn> close(bool will_sync) {
    const LockGuard lock(mutex_);
    return close_held(will_sync);
  }
  Result<Lsn> close_held(bool will_sync) MEMLITH_REQUIRES(mutex_);

  // The newest ticket up to which every commit of the store is durable. Only rises.
  [[nodiscard]] Lsn durable_ticket();
  // A ticket that no commit is behind that has returned.
  [[nodiscard]] Lsn newest_ticket();
  // How far the log has to be durable for the commits up to that ticket. Puts them into the log if they wait.
  Result<Lsn> bring_to_log(Lsn ticket);

  // That of all collectors.
  [[nodiscard]] std::uint64_t oldest_waiting_ns();
  // For the store and its flusher.
  void durable_moved();
  void after_background_closing(Status closed);

 private:
  friend class Collector;
  Result<Closing> pause_all() MEMLITH_REQUIRES(mutex_);
  void set_aside(const Closing& closing) MEMLITH_REQUIRES(mutex_);
  Status send(bool will_sync) MEMLITH_REQUIRES(mutex_);
  Result<Lsn> commit(std::span<const Collector::CommitBatch> pieces, bool will_sync) MEMLITH_REQUIRES(mutex_);
  Status refused_because(Status cause) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Status commits_are_lost() const;
  // No closing is under way: what is set aside still was refused.
  void note_refused() MEMLITH_REQUIRES(mutex_);

  Store& store_;
  std::atomic<std::uint32_t> waiting_{0};  // collectors of which waits_ is set
  std::atomic<bool> aside_waits_{false};   // something was set aside that is not in the log
  std::atomic<bool> refused_{false};       // the log did not take it
  std::atomic<std::uint64_t> allowed_{0};  // the sum of what collectors may have waiting
  Mutex mutex_;
  std::vector<Collector*> aside_ MEMLITH_GUARDED_BY(mutex_);  // those that have set something aside; there is room
  std::vector<Closing::Paused> paused_ MEMLITH_GUARDED_BY(mutex_);         // likewise, by the closing that is under way
  std::vector<Collector::CommitBatch> pieces_ MEMLITH_GUARDED_BY(mutex_);  // likewise
  JointFrame frame_ MEMLITH_GUARDED_BY(mutex_);
  Lsn newest_ MEMLITH_GUARDED_BY(mutex_);
  bool lost_ MEMLITH_GUARDED_BY(mutex_) = false;
  // Tickets of waiting commits that begin now are behind this one, which is behind those that were set aside.
  std::atomic<std::uint64_t> ticket_floor_{0};
  HeldTickets held_tickets_;  // of collectors that are gone
  // Held while collectors are told that more is durable, which waits for nothing; and while they prepare ahead.
  Mutex moved_mutex_;
  Mutex ahead_mutex_;
  std::atomic<std::size_t> count_{0};
  std::vector<Collector*> all_;  // read under any of the three mutexes, changed under all
  const Log* log_ = nullptr;     // of the store, from the first collector on
};

inline bool Collector::log_refused() const { return all_.refused(); }

inline void Collector::begin_commit() {
  if (held_at_.load(std::memory_order_relaxed) == kNone) return hold_back();
  set_ticket(all_.log_->head().value + 1);
}

}  // namespace memlith::core
