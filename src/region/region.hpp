// A region: an object of a store, mapped where it was created, whose stores persist() captures. Floor: region.
//
// The mapping is MAP_PRIVATE over the home file: pages come in lazily from the page cache, stores go to private copies
// and can never reach the file by themselves (invariant 4). The home file is never mapped shared and writable: the
// kernel would write stores back ahead of the log. A store reaches the medium only as bytes that persist() copied into
// a frame.
//
// Capture: under the regions' capture locks, the trackers say what was stored, the bytes are copied into one frame, and
// the locks are released; the I/O happens without them, so other threads continue to store and capture.
//
// A change is a time between two captures in which nothing else captures or rolls back: what is captured at its end is
// the whole of it, and what is undone leads back to its beginning.
//
// Rollback restores a region to what was last captured: from the tracker's copies of pages, or else from home and from
// what the log has that is not home yet. For many bytes, a checkpoint brings that home first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sync.hpp"
#include "region/capture_guard.hpp"
#include "region/captured_pages.hpp"
#include "region/copied_pages.hpp"
#include "region/equal_pages.hpp"
#include "region/hot_pages.hpp"
#include "region/open_transactions.hpp"
#include "region/tracker.hpp"
#include "region/twins.hpp"
#include "store/store.hpp"

namespace memlith::core {

struct AddressWord;
class RegionPart;   // region/region_part.hpp
class ShownRegion;  // region/shown_region.hpp

// Whose stores a persist or a rollback covers.
enum class Scope : std::uint32_t {
  process = 0,  // the stores of every thread, also of threads that have ended
  thread = 1,   // the stores of the calling thread; unsupported if the tracker does not distinguish threads
};

struct RegionOptions {
  bool create = false;
  bool exclusive = false;
  TrackerKind tracker = TrackerKind::automatic;
  std::uint64_t size_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // 0 = 4 times the size, at least 1 GiB
  std::uint64_t address = 0;        // 0 = chosen
  bool limited = false;             // the session has a memory limit, so release_for_limit() will be called
  bool process_scope = false;       // thread scope is refused, so pages of a fault region may be hot
  std::uint64_t use_magic = 0;  // not 0: a structure whose first bytes are Store::mark_use()'s, and these behind them
  // It lies where there is room, and in each process elsewhere: pointers into it lead nowhere. A new region has no
  // address then, and `reserve_bytes` is what it may grow to; a process reserves as much of it as it can use.
  bool anywhere = false;
};

class Region {
 public:
  // Maps the region, and creates it if requested. No other thread may open or close the same region meanwhile.
  static Result<std::unique_ptr<Region>> open(Store& store, std::string_view name, const RegionOptions& options);
  ~Region();  // unmaps; what was not persisted is dropped

  [[nodiscard]] std::byte* address() const { return base_; }
  [[nodiscard]] std::uint64_t size() const { return size_bytes_.load(std::memory_order_acquire); }
  // Its largest size in this process, and in any.
  [[nodiscard]] std::uint64_t reserve() const { return reserve_bytes_; }
  [[nodiscard]] std::uint64_t most() const { return most_bytes_; }
  [[nodiscard]] ObjectId object() const { return object_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // For messages: the region of a one-file store is known by its path.
  [[nodiscard]] const std::string& shown_name() const { return shown_name_; }
  [[nodiscard]] bool anywhere() const { return anywhere_; }  // see RegionOptions
  [[nodiscard]] Store& store() const { return store_; }
  // True if a structure (`what`, for messages) is to be made in this region. A region whose first bytes are zeros holds
  // none: nothing was made in it, or a crash cut the making. Errors: not_found - there is none, and `create` is not
  // set or the store is read-only; exists - `exclusive` forbids to open what is there.
  [[nodiscard]] Result<bool> is_for_making(std::string_view what, bool create, bool exclusive) const;
  // For the message of a structure that finds its bytes around `offset` damaged: what to do. In a store that is open
  // for writing, the memory alone may be damaged.
  [[nodiscard]] std::string_view after_damage(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t hot_pages();
  [[nodiscard]] const Tracker* tracker() const { return tracker_.get(); }  // null in a read-only store

  // Reserves space in the home file; the size becomes durable with the next persist. Any thread, also while others use
  // the region.
  Status grow(std::uint64_t size_bytes);

  // How many bytes a capture would take now. No thread stores to the region meanwhile.
  Result<std::uint64_t> unpersisted();

  Status touch(const void* address, std::uint64_t bytes);
  // Call this before a system call that stores to the range, so that the system call meets no protected page.
  Status prepare(const void* address, std::uint64_t bytes);

  // Captures the stores to the regions, in that scope, since the last capture, into one frame. All regions belong to
  // one store. Returns the LSN that has to become durable: Store::sync() waits for that, Store::flush_soon() does not.
  // On `full` and `no_space` nothing was captured, and the next capture covers everything. `will_sync`: the caller
  // waits at once.
  static Result<Lsn> capture(std::span<Region* const> regions, Scope scope, bool will_sync) {
    return capture_part(regions, {scope, will_sync});
  }

  // capture(), then waits until the commit is durable.
  static Status persist(std::span<Region* const> regions, Scope scope = Scope::process);
  // The same for the stores to these bytes, or, if the tracker finds pages, to the pages on which they lie. All other
  // stores stay due.
  Status persist_range(const void* address, std::uint64_t bytes, Scope scope);

  // Commits bytes that the caller gathered: for a structure that knows what it changed, and that has copied the changed
  // bytes at a moment at which it was whole. Later extents lie over earlier ones. Returns the LSN as capture() does.
  // The caller touches nothing that it commits in this way. Errors: full, no_space: nothing was committed.
  Result<Lsn> commit_bytes(std::span<const Extent> extents, std::span<const std::byte* const> sources, bool will_sync);

  // The same for a collector (store/collectors.hpp), whose frames alone have the region's size: a growth that no commit
  // carries yet, and that its frame is in the log.
  [[nodiscard]] std::optional<SizeChange> size_to_commit();
  void note_size_committed(const SizeChange& size);

  // Whole pages read as zeros from now on, durably on ok, and take neither memory nor disk space. What was stored to
  // them and not persisted is dropped. No other thread uses these pages meanwhile. A range of more than 1 GiB is
  // discarded in several commits. Errors: invalid; busy (a transaction is open in the region); full, no_space: nothing
  // happened.
  Status discard(const void* address, std::uint64_t bytes);

  // From now on the guard is asked before each capture, rollback and release. Null: there is no guard. Not while other
  // threads use the region. A region that has or had a guard refuses thread scope: all threads share the structures.
  void set_guard(CaptureGuard* guard);
  [[nodiscard]] CaptureGuard* guard() const { return guard_; }

  // Undoes the stores since the last capture. The size stays. On failure a region is unchanged, unless reading home
  // failed.
  static Status rollback(std::span<Region* const> regions, Scope scope);

  // ---- changes (region/change.cpp), of all threads' stores

  // Captures what was stored before, and begins a change of the regions: until it ends, captures and rollbacks of them
  // that others ask for are `busy`. Returns the LSN of the capture. Errors: those of capture(); busy (a change is under
  // way in one of them). Nothing has begun then.
  static Result<Lsn> begin_change(std::span<Region* const> regions);
  // Captures what was stored since, all or nothing, and ends the change on ok. After an error it is under way still.
  static Result<Lsn> capture_change(std::span<Region* const> regions, bool will_sync);
  // The regions are as they were when the change began, and it has ended; a growth stays. A region in which that failed
  // holds half of the change: it is captured no more, until it is opened again.
  static Status undo_change(std::span<Region* const> regions);
  // The stores of the change are captured. In the region's lock.
  void end_change() { change_ = Change::none; }
  [[nodiscard]] bool changing() const { return change_.load() == Change::under_way; }

  // True if the region is still mapped at its addresses; outlives the region.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> lies() const { return lies_; }

  // Runs a checkpoint and gives the memory of clean pages back to the system. `busy`, and nothing was released, if a
  // transaction has ranges in the region: the tracker does not know of its changes.
  Status release_clean();
  // The same for a session's memory limit: at any time. Pages of a region whose tracker cannot tell which pages are
  // clean are compared with home; stores to them wait meanwhile.
  Status release_for_limit();
  // Instead, for a user that knows which pages are home: gives the memory of the copied pages of [first, end) back of
  // which `is_home` says so. Such a page changes neither meanwhile nor in a frame that is not home yet, and no other
  // thread calls note_copied().
  Status release_copies(std::uint64_t first, std::uint64_t end, const std::function<bool(std::uint64_t page)>& is_home);
  // How many pages a release could give back, as far as known; of a region that was opened with `limited`. Any thread.
  [[nodiscard]] std::uint64_t copied_pages() const;

  // ---- for transactions (region/transaction.hpp)
  [[nodiscard]] Result<Range> range_of(const void* address, std::uint64_t bytes) const;
  // True if transactions may have ranges here: the tracker must not find their stores by itself.
  [[nodiscard]] Status check_transactions() const;
  [[nodiscard]] OpenTransactions& transactions() { return transactions_; }
  // Commits a growth that no commit carries yet.
  Status commit_size(bool will_sync) MEMLITH_EXCLUDES(capture_mutex_);
  // A commit with bytes of this region ends there.
  void note_commit(Lsn end);
  // A transaction commits these bytes.
  void note_copied(Range range) {
    if (copied_ != nullptr) copied_->note(range);
  }
  [[nodiscard]] Lsn newest_commit() const { return Lsn{committed_lsn_->load()}; }

 private:
  Region(Store& store, const ObjectInfo& info)
      : store_(store),
        object_(info.id),
        name_(info.name),
        shown_name_(store.one_file() ? store.path() : info.name),
        base_(reinterpret_cast<std::byte*>(info.address)),
        reserve_bytes_(info.reserve_bytes),
        most_bytes_(info.reserve_bytes) {}

  struct CaptureWish {
    Scope scope = Scope::process;
    bool will_sync = false;
    Range part = kWholeRegion;  // what lies in it, of each region
    bool ends_change = false;
  };
  static Result<Lsn> capture_part(std::span<Region* const> regions, const CaptureWish& wish);
  static Result<std::optional<Lsn>> capture_once(std::vector<Region*>& regions, const CaptureWish& wish,
                                                 bool wait_for_room);

  friend class RegionPart;
  friend class ShownRegion;
  Status map(const ObjectInfo& info) MEMLITH_REQUIRES(capture_mutex_);
  Status attach(const RegionOptions& options) MEMLITH_REQUIRES(capture_mutex_);
  Status allow_hot_pages() MEMLITH_REQUIRES(capture_mutex_);
  Status note_copies() MEMLITH_REQUIRES(capture_mutex_);
  Status release_at_home(const std::function<Status()>& release) MEMLITH_REQUIRES(capture_mutex_);
  Status show();  // instead, in a store that is followed
  Status map_pages(std::uint64_t begin, std::uint64_t end, int protection);
  Status collect(ThreadNumber thread, Range part) MEMLITH_REQUIRES(capture_mutex_);
  Status roll_back(ThreadNumber thread) MEMLITH_REQUIRES(capture_mutex_);
  Status roll_back_guarded(ThreadNumber thread) MEMLITH_REQUIRES(capture_mutex_);
  [[nodiscard]] Status check_unchanging() const;
  Status discard_part(Range part) MEMLITH_EXCLUDES(capture_mutex_);
  Status discard_held(Range part) MEMLITH_REQUIRES(capture_mutex_);
  Status restore_stored() MEMLITH_REQUIRES(capture_mutex_);
  Status complete_home() MEMLITH_REQUIRES(capture_mutex_);
  void cut_to_size() MEMLITH_REQUIRES(capture_mutex_);
  void cut_to_part(Range part) MEMLITH_REQUIRES(capture_mutex_);
  void append_extents(Range part, std::vector<Extent>& extents, std::vector<const std::byte*>& sources)
      MEMLITH_REQUIRES(capture_mutex_);
  void append_addresses(std::vector<AddressWord>& words) const MEMLITH_REQUIRES(capture_mutex_);
  // A capture of what lies in `part`: adds what has to be logged to the frame. give_back() follows if there is no
  // frame, also after a failure; keep_taken() if the frame ends there in the log, or (Lsn 0) nothing had to be logged.
  Status take(ThreadNumber thread, Range part, JointFrame& frame) MEMLITH_REQUIRES(capture_mutex_);
  void keep_taken(Range part, Lsn end) MEMLITH_REQUIRES(capture_mutex_);
  void accept(Range part) MEMLITH_REQUIRES(capture_mutex_);
  void give_back() MEMLITH_REQUIRES(capture_mutex_);
  void lock() MEMLITH_ACQUIRE(capture_mutex_);
  void unlock() MEMLITH_RELEASE(capture_mutex_);
  class MEMLITH_SCOPED_CAPABILITY Held {
   public:
    explicit Held(Region& region) MEMLITH_ACQUIRE(region.capture_mutex_) : region_(region) { region.lock(); }
    ~Held() MEMLITH_RELEASE() { region_.unlock(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Region& region_;
  };
  [[nodiscard]] Result<ThreadNumber> thread_of(Scope scope) const;

  Store& store_;
  ObjectId object_;
  std::string name_;
  std::string shown_name_;
  std::byte* base_;
  std::shared_ptr<Atomic<std::uint64_t>>
      committed_lsn_;                    // of the newest commit; owned by the store, the next opening reads it
  Mutex grow_mutex_;                     // taken before capture_mutex_, held while the home file becomes longer
  Atomic<std::uint64_t> size_bytes_{0};  // changed under both
  std::uint64_t reserve_bytes_;
  std::uint64_t most_bytes_;
  bool anywhere_ = false;
  bool reserved_ = false;  // this object reserved the address space
  std::shared_ptr<std::atomic<bool>> lies_ = std::make_shared<std::atomic<bool>>(true);
  std::unique_ptr<Tracker> tracker_;
  std::unique_ptr<CopiedPages> copied_;  // with equal_, only if the tracker cannot tell which pages are clean
  CaptureGuard* guard_ = nullptr;
  bool process_scope_ = false;  // constant while other threads use the region
  Mutex capture_mutex_;
  std::uint64_t mapped_bytes_ MEMLITH_GUARDED_BY(capture_mutex_) = 0;  // size, rounded up to the kernel's pages
  // Only if the tracker finds pages and not bytes:
  std::unique_ptr<Twins> twins_ MEMLITH_GUARDED_BY(capture_mutex_);
  std::unique_ptr<CapturedPages> captured_ MEMLITH_GUARDED_BY(capture_mutex_);
  // Only if no tracker finds bytes and no persist has thread scope.
  std::unique_ptr<HotPages> hot_ MEMLITH_GUARDED_BY(capture_mutex_);
  std::unique_ptr<EqualPages> equal_ MEMLITH_GUARDED_BY(capture_mutex_);
  std::vector<Range> stored_ MEMLITH_GUARDED_BY(capture_mutex_);         // collected by the running capture
  std::vector<SourceExtent> pieces_ MEMLITH_GUARDED_BY(capture_mutex_);  // the parts of stored_ that have to be logged
  enum class Change : std::uint8_t { none, under_way, left_half };
  Atomic<Change> change_{Change::none};  // changed under capture_mutex_
  Atomic<bool> size_changed_{false};     // since the last commit; changed under capture_mutex_
  OpenTransactions transactions_;
  std::unique_ptr<ShownObject> shown_;  // only in a store that is followed
};

}  // namespace memlith::core
