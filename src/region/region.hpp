// A region: an object of a store, mapped where it was created, whose stores persist() captures. Floor: region.
//
// Its parts: the RegionMapping has the addresses and the size, the RegionHome reads the data files, and the
// RegionCapture finds the stores. Stores go to private copies of pages; a store reaches the medium only as bytes that
// persist() copied into a frame.
//
// Capture: under the regions' capture locks, the trackers say what was stored, the bytes are copied into one frame, and
// the locks are released; the I/O happens without them, so other threads continue to store and capture.
//
// A change is a time between two captures in which nothing else captures or rolls back: what is captured at its end is
// the whole of it, and what is undone leads back to its beginning.
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
#include "region/open_transactions.hpp"
#include "region/region_capture.hpp"
#include "region/region_home.hpp"
#include "region/region_mapping.hpp"
#include "region/tracker.hpp"
#include "region/tracker_choice.hpp"
#include "store/store.hpp"

namespace memlith::core {

struct AddressWord;
class RegionPart;  // region/region_part.hpp

// Whose stores a persist or a rollback covers.
enum class Scope : std::uint32_t {
  process = 0,  // the stores of every thread, also of threads that have ended
  thread = 1,   // the stores of the calling thread; unsupported if the tracker does not distinguish threads
};

// The regions to which a session's memory budget applies: release_for_limit() will be called.
enum class Limited : std::uint8_t {
  never,
  if_told,  // if the budget was told: a release asks something of the program's threads and system calls
  always,   // a release asks nothing of the program
};

struct RegionOptions {
  bool create = false;
  bool exclusive = false;
  TrackerKind tracker = TrackerKind::automatic;
  TrackerCosts tracker_costs = {};
  std::uint64_t size_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // 0 = 4 times the size, at least 1 GiB
  std::uint64_t address = 0;        // 0 = chosen
  Limited limited = Limited::never;
  bool process_scope = false;   // thread scope is refused, so pages of a fault region may be hot
  bool thread_scope = false;    // the tracker has to know threads
  std::uint64_t use_magic = 0;  // not 0: a structure whose first bytes are
                                // Store::put_in_use_header()'s, and these behind them
  // It lies where there is room, and in each process elsewhere: pointers into it lead nowhere. A new region has no
  // address then, and `reserve_bytes` is what it may grow to; a process reserves as much of it as it can use.
  bool anywhere = false;
};

class Region {
 public:
  // Maps the region, and creates it if requested. No other thread may open or close the same region meanwhile.
  static Result<std::unique_ptr<Region>> open(Store& store, std::string_view name, const RegionOptions& options);
  // Unmaps; what was not persisted is dropped.
  ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] std::byte* address() const { return mapping_.base(); }
  [[nodiscard]] std::uint64_t size() const { return mapping_.size(); }
  // Its largest size in this process, and in any.
  [[nodiscard]] std::uint64_t reserve() const { return mapping_.reserve(); }
  [[nodiscard]] std::uint64_t most() const { return mapping_.most(); }
  [[nodiscard]] ObjectId object() const { return home_.object(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  // For messages: the region of a one-file store is known by its path.
  [[nodiscard]] const std::string& shown_name() const { return mapping_.shown_name(); }
  [[nodiscard]] bool anywhere() const { return mapping_.anywhere(); }  // see RegionOptions
  [[nodiscard]] Store& store() const { return home_.store(); }
  // True if a structure (`what`, for messages) is to be made in this region. A region whose first bytes are zeros holds
  // none: nothing was made in it, or a crash cut the making. Errors: not_found - there is none, and `create` is not set
  // or the store is read-only; exists - `exclusive` forbids to open what is there.
  [[nodiscard]] Result<bool> is_for_making(std::string_view what, bool create, bool exclusive) const;
  // For a structure, before its first use of these bytes: see RegionMapping::load().
  [[nodiscard]] Status load(Range range) const { return mapping_.load(range); }
  // For the message of a structure that finds its bytes around `offset` damaged: what to do. In a store that is open
  // for writing, the memory alone may be damaged.
  [[nodiscard]] std::string_view after_damage(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t hot_pages();
  [[nodiscard]] const Tracker* tracker() const { return capture_.tracker(); }  // null in a read-only store

  // Reserves space in the home file; the size becomes durable with the next persist. Any thread, also while others use
  // the region.
  Status grow(std::uint64_t size_bytes);

  // The program is about to store to these ranges, which are not empty. A hint; see Tracker.
  void announce(std::span<const Range> ranges) {
    if (Tracker* const known = capture_.tracker(); known != nullptr) known->announce(ranges);
  }

  // How many bytes a capture would take now, those of `but` left out. No thread stores to the region meanwhile.
  Result<std::uint64_t> unpersisted(Range but = {});

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
  // threads use the region. A region that has or had a guard refuses thread scope, unless the guard knows threads.
  void set_guard(CaptureGuard* guard);
  [[nodiscard]] CaptureGuard* guard() const { return guard_; }

  // For a guard that knows threads, with its locks: whole pages that hold nothing any more become the calling thread's.
  void give_pages(Range pages) { capture_.tracker()->give_pages(pages, this_thread_number()); }
  // True if the thread, which has ended, has stored nothing that no capture has.
  [[nodiscard]] bool has_nothing_of(ThreadNumber thread) {
    const LockGuard lock(capture_.mutex);
    return capture_.has_nothing_of(thread);
  }

  // Undoes the stores since the last capture. The size stays. On failure a region is unchanged, unless reading home
  // failed. Thread scope is refused where there is a guard.
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
  // No change is under way, and none was left half undone.
  [[nodiscard]] bool is_between_changes() const { return change_.load() == Change::none; }

  // True if the region is still mapped at its addresses; outlives the region.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> lies() const { return mapping_.lies(); }

  // Runs a checkpoint and gives the memory of clean pages back to the system. `busy`, and nothing was released, if a
  // transaction has ranges in the region: the tracker does not know of its changes.
  Status release_clean();
  // The same for a session's memory limit: at any time. Pages of a region whose tracker cannot tell which pages are
  // clean are compared with home; stores to them wait meanwhile.
  Status release_for_limit();
  // Instead, for a user that knows which pages are home: gives the memory of the copied pages of [first, end) back of
  // which `is_home` says so, as many as take some tenths of a millisecond; returns how far it came. Such a page changes
  // neither meanwhile nor in a frame that is not home yet, and no other thread calls note_copied().
  Result<std::uint64_t> release_copies(std::uint64_t first, std::uint64_t end,
                                       const std::function<bool(std::uint64_t page)>& is_home) {
    return capture_.release_copies(first, end, is_home);
  }
  // How many pages a release could give back, as far as known; of a region that is `limited`. Any thread.
  [[nodiscard]] std::uint64_t copied_pages() const { return capture_.copied_pages(); }

  // ---- for transactions (region/transaction.hpp)
  [[nodiscard]] Result<Range> range_of(const void* address, std::uint64_t bytes) const {
    return mapping_.range_of(address, bytes);
  }
  // True if transactions may have ranges here: the tracker must not find their stores by itself.
  [[nodiscard]] Status check_transactions() const;
  [[nodiscard]] OpenTransactions& transactions() { return transactions_; }
  // Commits a growth that no commit carries yet.
  Status commit_size(bool will_sync) MEMLITH_EXCLUDES(capture_.mutex);
  // A commit with bytes of this region ends there.
  void note_commit(Lsn end) { home_.note_commit(end); }
  // A transaction commits these bytes.
  void note_copied(Range range) { capture_.note_copied(range); }
  [[nodiscard]] Lsn newest_commit() const { return home_.newest_commit(); }

 private:
  friend class RegionPart;

  // The object's addresses are taken by this process.
  Region(Store& store, const ObjectInfo& info, std::uint64_t most_bytes, const RegionOptions& options)
      : name_(info.name),
        home_(store, info.id),
        mapping_(home_, info, most_bytes, options.anywhere),
        capture_(home_, mapping_),
        process_scope_(options.process_scope) {}
  Status begin(const ObjectInfo& info, const RegionOptions& options);
  [[nodiscard]] Status need_writable() const;
  [[nodiscard]] Result<bool> is_blank() const;  // nothing but zeros where each structure has others
  [[nodiscard]] Result<ThreadNumber> thread_of(Scope scope) const;
  [[nodiscard]] Status check_unchanging() const;

  // ---- captures of several regions
  struct CaptureWish {
    Scope scope = Scope::process;
    bool will_sync = false;
    Range part = kWholeRegion;  // what lies in it, of each region
    bool ends_change = false;
  };
  static Result<Lsn> capture_part(std::span<Region* const> regions, const CaptureWish& wish);
  static Result<std::optional<Lsn>> capture_once(std::vector<Region*>& regions, const CaptureWish& wish,
                                                 bool wait_for_room);

  // ---- of this region: the guard's locks and the capture lock
  void lock() MEMLITH_ACQUIRE(capture_.mutex);
  void unlock() MEMLITH_RELEASE(capture_.mutex);
  class MEMLITH_SCOPED_CAPABILITY Held {
   public:
    explicit Held(Region& region) MEMLITH_ACQUIRE(region.capture_.mutex) : region_(region) { region.lock(); }
    ~Held() MEMLITH_RELEASE() { region_.unlock(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Region& region_;
  };
  // Adds what has to be logged to the frame, the size too. give_back_taken() follows if there is no frame, also after a
  // failure; keep_taken() if the frame ends there in the log, or (Lsn 0) nothing had to be logged.
  Status take(ThreadNumber thread, Range part, JointFrame& frame) MEMLITH_REQUIRES(capture_.mutex);
  void keep_taken(Range part, Lsn end) MEMLITH_REQUIRES(capture_.mutex);
  void give_back_taken() MEMLITH_REQUIRES(capture_.mutex);
  void append_addresses(std::vector<AddressWord>& words) const MEMLITH_REQUIRES(capture_.mutex);
  Status roll_back_guarded(ThreadNumber thread) MEMLITH_REQUIRES(capture_.mutex);
  Status discard_part(Range part) MEMLITH_EXCLUDES(capture_.mutex);
  Status release_at_home(const std::function<Status()>& release) MEMLITH_REQUIRES(capture_.mutex);

  const std::string name_;
  RegionHome home_;
  RegionMapping mapping_;
  Mutex grow_mutex_;  // taken before the capture lock, held while the home file becomes longer
  RegionCapture capture_;
  CaptureGuard* guard_ = nullptr;
  std::vector<Range> shared_;  // what the guard gives a capture; under the capture lock
  bool process_scope_;         // constant while other threads use the region
  enum class Change : std::uint8_t { none, under_way, left_half };
  Atomic<Change> change_{Change::none};  // changed under the capture lock
  Atomic<bool> size_changed_{false};     // since the last commit; changed under the capture lock
  OpenTransactions transactions_;
  std::unique_ptr<ShownObject> shown_;  // only in a store that is followed
};

}  // namespace memlith::core
