// A store that this process has open, with its open regions: the basis of every storey above regions. Floor: region.
//
// A session owns the volume, the store and its open regions. It times persists for the store's statistics. After a
// persist it releases memory if the regions hold more private copies than the memory budget allows: a background thread
// does so where a release asks nothing of the program, and commits are slowed down meanwhile.
//
// Threads: any; open() and close() while no other thread uses the session, and closing a region while no other thread
// uses the region. In a forked child only close() may be called, and it leaves the session as it is: a thread that the
// child does not have may have held its locks at the fork. check_process() tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/memory_budget.hpp"
#include "base/sync.hpp"
#include "region/region.hpp"
#include "region/region_user.hpp"
#include "region/release_pace.hpp"
#include "region/shards.hpp"
#include "region/transaction.hpp"
#include "store/background.hpp"
#include "store/place.hpp"

namespace memlith::core {

class Session;

// `session` and `region` are constant from opening to closing.
struct OpenRegion {
  Session& session;
  std::unique_ptr<Region> region;
  bool limited = false;                        // keeps to the session's memory budget
  std::unique_ptr<RegionUser> user = nullptr;  // what was opened in the region, if anything was; goes before it
};

struct SessionPart;

// A transaction of a session, which owns it.
struct OpenTransaction {
  OpenTransaction(Session& of, SessionPart& in);
  Session& session;
  SessionPart& part;
  Transaction transaction;
  std::vector<Region*> changing;  // an abort undoes all that was stored to them since (Region::begin_change)
  bool captured = false;          // what was stored to them is in the log
};

// The needs of transactions from a session, for the threads of one part.
struct SessionPart {
  Mutex mutex;
  std::vector<Region*> places MEMLITH_GUARDED_BY(mutex);  // the open regions
  std::vector<std::unique_ptr<OpenTransaction>> transactions MEMLITH_GUARDED_BY(mutex);
  std::vector<OpenTransaction*> idle MEMLITH_GUARDED_BY(mutex);  // of these, those that are not open
};

class Session {
 public:
  // Opens the store of `options.kind` at `place`. `memory_max_bytes`: for the private copies of all regions; 0: those
  // of kv stores and application logs share what the process may have with those of its other sessions (MemoryBudget).
  static Result<std::unique_ptr<Session>> open(Place place, StoreOptions options, std::uint64_t memory_max_bytes = 0);
  // Unmaps the regions and closes the store. In a forked child the session stays in memory, as its parent's threads
  // left it.
  static Status close(std::unique_ptr<Session> session);

  // If set, a sentence on standard error tells of each region that is closed with changes that no persist covers. Set
  // before the session is used.
  void tell_dropped_changes(bool tell) { tells_dropped_ = tell; }

  [[nodiscard]] Store& store() const { return *store_; }
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }  // as of opening
  [[nodiscard]] Status check_process() const { return store_->check_process(); }

  // For a store that is followed: moves the view, with the open regions, to the newest durable commit, and returns its
  // LSN. No other thread uses the store or its regions meanwhile. Errors: those of View::refresh(); invalid (the store
  // is not followed); busy (a transaction reads).
  Result<Lsn> refresh();

  // ---- the regions that are open

  // `busy` if the region is open already. The session keeps the region until close_region() or close().
  Result<OpenRegion*> open_region(std::string_view name, const RegionOptions& options);
  // Unmaps the region; changes that were not persisted are dropped. `busy` if a transaction or a change is open in the
  // region.
  Status close_region(OpenRegion& region);
  // The same without a word about dropped changes, for a region whose structure was refused.
  Status drop_region(OpenRegion& region);
  // Durable on ok. `busy` while the region is open.
  Status remove_region(std::string_view name);
  // Calls `look` if the region of that object is open. The region stays open meanwhile.
  void look_at_region(ObjectId object, const std::function<void(const Region&)>& look);

  // ---- persist

  // Makes the stores to the regions, all of this session, durable in one commit. No regions: ok.
  Status persist(std::span<Region* const> regions, Scope scope);
  // Makes the stores to the range of this region of the session durable.
  Status persist_range(Region& region, const void* address, std::uint64_t bytes, Scope scope);
  // Captures the stores; a background thread makes them durable. Store::wait() waits for the returned LSN, which is 0
  // if there are no regions.
  Result<Lsn> persist_async(std::span<Region* const> regions, Scope scope);
  // persist() of all open regions. Without open regions: `poisoned` if the store is poisoned.
  Status persist_all(Scope scope);
  Status rollback(std::span<Region* const> regions, Scope scope);

  // ---- transactions (region/transaction.hpp)

  // The session keeps it until commit() returns ok or abort(). Any thread.
  OpenTransaction* begin();
  // Keeps an image of the bytes. `invalid` if they lie in no open region of this session.
  Status touch_before(OpenTransaction& open, const void* address, std::uint64_t bytes);
  // Begins a change of these regions of the session; none given: of all that are open. Earlier stores are captured, and
  // a background thread makes them durable. None of the regions can be closed until the transaction has ended.
  Status begin_change(OpenTransaction& open, std::span<Region* const> regions);
  // Durable on ok if `wait`; otherwise captured, and a background thread makes it durable. Returns the LSN for wait().
  // After a failure the transaction is still open.
  Result<Lsn> commit(OpenTransaction& open, bool wait);
  // The memory is as it was, and the transaction has ended. A failure is that of undoing a change, or, after a commit
  // that captured a change and could not make it durable, the store's: memory stays as it is then.
  Status abort(OpenTransaction& open);
  // Releases memory if the budget is used up, or rests while another thread does. After each persist and commit,
  // without locks.
  void keep_to_memory() {
    if (memory_budget_.told() || releasing_.load(std::memory_order_relaxed) || is_turn_to_look()) {
      release_if_used_up();
    }
  }
  // Before a commit that takes so much memory: releases memory, unless that and the copies fit into `most_bytes`.
  // Without locks.
  void make_memory(std::uint64_t bytes, std::uint64_t most_bytes);
  // The result of the last release of memory that the budget demanded. The persist that demanded it was durable, or
  // captured, in any case.
  [[nodiscard]] Status memory_status() const { return memory_status_.load(std::memory_order_relaxed); }

 private:
  Session(Place place, std::uint64_t memory_max_bytes)
      : volume_(std::move(place.volume)), memory_budget_(memory_max_bytes) {}
  // A budget that was not told is looked at by one call of a thread in sixteen, because nearly all find nothing to do.
  static bool is_turn_to_look() {
    thread_local std::uint32_t calls = 0;
    return ++calls % 16 == 0;
  }
  void release_if_used_up();
  void release_now() MEMLITH_REQUIRES(regions_mutex_);
  [[nodiscard]] bool releases_in_background() const MEMLITH_REQUIRES(regions_mutex_);
  // False: there is no thread for it.
  bool release_in_background() MEMLITH_REQUIRES(regions_mutex_);
  std::optional<Workers::Time> run_release();
  void end_release();
  void stop_releases();
  // The copies of key-value stores and application logs, also while another thread releases them.
  [[nodiscard]] std::uint64_t copied_beside();
  void tell_dropped(const OpenRegion& open) const;
  Status move_view(const std::function<Status()>& move) MEMLITH_REQUIRES(regions_mutex_);
  OpenRegion* find_open(ObjectId object) MEMLITH_REQUIRES(regions_mutex_);
  Result<Region*> region_at(const void* address);
  void add_place(Region* region) MEMLITH_REQUIRES(regions_mutex_);
  void remove_place(const Region* region) MEMLITH_REQUIRES(regions_mutex_);
  static void give_back(OpenTransaction& open);
  std::vector<Region*>& all_open();
  Status finish(Lsn end, bool wait, const PersistTimer& timer);
  Status release_regions() MEMLITH_REQUIRES(regions_mutex_);
  [[nodiscard]] std::uint64_t copied_bytes() const MEMLITH_REQUIRES(regions_mutex_);

  std::unique_ptr<Volume> volume_;
  std::unique_ptr<Store> store_;   // destroyed before the volume
  std::uint64_t incarnation_ = 0;  // constant after open
  bool tells_dropped_ = false;
  Mutex regions_mutex_;  // held while a region is opened, removed, or releases its memory
  std::vector<std::unique_ptr<OpenRegion>> regions_ MEMLITH_GUARDED_BY(regions_mutex_);
  Shards<SessionPart> parts_;  // with mutexes of their own, because opening a region can take long
  const MemoryBudget memory_budget_;
  std::uint64_t release_from_ MEMLITH_GUARDED_BY(regions_mutex_) = 0;          // bytes of copies; or when there
  std::uint32_t persists_skipped_ MEMLITH_GUARDED_BY(regions_mutex_) = 0;      // were kPersistsSkipped persists
  std::shared_ptr<Background> background_ MEMLITH_GUARDED_BY(regions_mutex_);  // from the first release there on
  Workers::Job release_job_{[this] { return run_release(); }};
  std::atomic<bool> releasing_{false};  // the job was asked for, and has not ended
  ReleasePace release_pace_;
  std::atomic<Status> memory_status_{kOk};
  static_assert(std::atomic<Status>::is_always_lock_free);
};

// An empty list, kept per thread so that persisting allocates nothing once the list has grown. Valid until the thread's
// next call of this function or of persist_all().
std::vector<Region*>& empty_region_list();

}  // namespace memlith::core
