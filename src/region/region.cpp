#include "region/region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "base/host.hpp"
#include "region/address.hpp"
#include "region/drop_pages.hpp"
#include "region/participant.hpp"
#include "region/per_thread.hpp"
#include "region/pointer_check.hpp"
#include "region/shown_region.hpp"
#include "region/take_addresses.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kRegionBytesMax = 1ull << 46;

Status check_options(std::string_view name, const RegionOptions& options) {
  if (name.empty() || name.size() > kNameBytesMax || name.find('\0') != std::string_view::npos) {
    return fail(Errc::invalid, Detail::argument, "a region's name has 1 to {} bytes, none of them zero", kNameBytesMax);
  }
  if (options.size_bytes > kRegionBytesMax || options.reserve_bytes > kRegionBytesMax) {
    return fail(Errc::invalid, Detail::argument, "region \"{}\": at most {} bytes", name, kRegionBytesMax);
  }
  if (options.address % host_page_bytes() != 0) {
    return fail(Errc::invalid, Detail::argument, "region \"{}\": address {:#x} is not a multiple of {}", name,
                options.address, host_page_bytes());
  }
  if (options.process_scope && options.thread_scope) {
    return fail(Errc::invalid, Detail::argument,
                "region \"{}\": MEMLITH_REGION_PROCESS_SCOPE and MEMLITH_REGION_THREAD_SCOPE exclude each other; name "
                "one of them, or neither",
                name);
  }
  if (options.thread_scope && options.tracker == TrackerKind::scan) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\": the scan tracker does not tell threads apart, as MEMLITH_REGION_THREAD_SCOPE wants it; "
                "name auto, fault, explicit or instrumented",
                name);
  }
  return kOk;
}

// Addresses that are taken until an owner keeps them.
struct TakenAddresses {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  TakenAddresses(std::uint64_t at, std::uint64_t count) : address(at), bytes(count) {}
  TakenAddresses(const TakenAddresses&) = delete;
  TakenAddresses& operator=(const TakenAddresses&) = delete;
  ~TakenAddresses() {
    if (bytes > 0) release_addresses(address, bytes);
  }
  void keep() { bytes = 0; }
};

// Makes the object, at an address that is taken in this process on ok; without an address if it may lie anywhere.
Result<ObjectInfo> create_object(Store& store, std::string_view name, const RegionOptions& options,
                                 std::uint64_t size_bytes) {
  const std::uint64_t least = round_up(std::max(size_bytes, kPageBytes), kPageBytes);
  const std::uint64_t reserve =
      options.reserve_bytes != 0 ? round_up(options.reserve_bytes, kPageBytes) : std::max(4 * least, kReserveBytesMin);
  if (reserve < least) {
    return fail(Errc::invalid, Detail::argument, "region \"{}\": max_size {} is below its size {}", name, reserve,
                size_bytes);
  }
  std::uint64_t address = options.address;
  if (options.anywhere) return store.create(name, size_bytes, 0, reserve);
  const std::vector<ObjectInfo> others = store.one_file() ? std::vector<ObjectInfo>{} : store.objects();
  if (address == 0) {
    MEMLITH_TRY_ASSIGN(address, choose_addresses(reserve, others));
  } else {
    MEMLITH_TRY(check_unclaimed(address, reserve, others));
    MEMLITH_TRY(reserve_addresses(address, reserve));
  }
  TakenAddresses taken(address, reserve);
  auto info = store.create(name, size_bytes, address, reserve);
  if (info.ok()) taken.keep();
  return info;
}

}  // namespace

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Region>> Region::open(Store& store, std::string_view name, const RegionOptions& options) {
  MEMLITH_TRY(check_options(name, options));
  if (store.guards_file()) {
    return fail(Errc::unsupported, Detail::argument,
                "{}: the file is guarded: while it is in use, its first bytes are those of the guard, so it cannot be "
                "a region; use memlith_mmap or an image (memlith/files.h), or open it without the guard",
                store.path());
  }
  std::optional<ObjectInfo> info = store.find(name);
  // The region of a one-file store is always there, but lies nowhere until it was opened for the first time, and has no
  // size until it was given one.
  const auto lies_nowhere = [&] { return options.anywhere ? info->reserve_bytes == 0 : info->address == 0; };
  const bool unplaced =
      info.has_value() && store.one_file() && (lies_nowhere() || (info->size_bytes == 0 && options.size_bytes > 0));
  if (info.has_value() && options.create && options.exclusive && !unplaced) {
    return fail(Errc::exists, Detail::object, "{}: there is a region \"{}\" already", store.path(), name);
  }
  if (!info.has_value() && !(options.create && !store.one_file())) {
    return fail(Errc::not_found, Detail::object, "{}: there is no region \"{}\"{}", store.path(), name,
                store.one_file() ? "; a one-file store has one, named \"file\"" : "; create it, or check its name");
  }
  if (info.has_value() && !options.anywhere && info->address % host_page_bytes() != 0) {
    return fail(Errc::unsupported, Detail::mapping,
                "region \"{}\" lies at {:#x}, which is no multiple of this kernel's pages of {} bytes; open the store "
                "under a kernel with smaller pages",
                name, info->address, host_page_bytes());
  }
  std::uint64_t most = info.has_value() ? info->reserve_bytes : 0;
  if ((!info.has_value() || unplaced) && !store.read_only()) {
    if (!unplaced && options.size_bytes == 0) {
      return fail(Errc::invalid, Detail::argument, "region \"{}\": a new region needs a size", name);
    }
    const std::uint64_t size = unplaced ? (info->size_bytes != 0 ? info->size_bytes : options.size_bytes)
                                        : round_up(options.size_bytes, kPageBytes);
    MEMLITH_TRY_ASSIGN(info, create_object(store, name, options, size));
    most = info->reserve_bytes;
    if (options.anywhere) MEMLITH_TRY(take_room(store, *info));
  } else if (!info.has_value()) {
    return fail(Errc::read_only, Detail::object, "{}: opened read-only, so region \"{}\" cannot be created",
                store.path(), name);
  } else if (store.read_only()) {
    MEMLITH_TRY(take_addresses_to_read(store, *info, options));
  } else {
    MEMLITH_TRY(take_own_addresses(store, *info, options));
  }
  TakenAddresses taken(info->address, info->reserve_bytes);
  // A region of zeros is about to become such a structure. If it is refused instead, the in-use header goes with the
  // close.
  if (options.use_magic != 0) MEMLITH_TRY(store.put_in_use_header(options.use_magic, true));
  auto region = std::unique_ptr<Region>(new Region(store, *info, most, options));
  taken.keep();
  MEMLITH_TRY(region->begin(*info, options));
  return region;
}

Status Region::begin(const ObjectInfo& info, const RegionOptions& options) {
  MEMLITH_ASSERT(shown_ == nullptr && tracker() == nullptr);
  if (store().view() != nullptr) {
    auto shown = std::make_unique<ShownRegion>(home_, mapping_);
    ShownRegion& now = *shown;
    shown_ = std::move(shown);
    return now.begin();
  }
  MEMLITH_TRY(mapping_.begin(info.size_bytes));
  if (store().read_only()) return kOk;
  const LockGuard lock(capture_.mutex);  // no other thread knows the region yet
  return capture_.begin(options);
}

Status Region::need_writable() const {
  if (!store().read_only()) return kOk;
  return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name());
}

// ---- change ----------------------------------------------------------------------------------------------------

Status Region::grow(std::uint64_t size_bytes) {
  MEMLITH_TRY(need_writable());
  const LockGuard growing(grow_mutex_);
  MEMLITH_TRY_ASSIGN(const std::uint64_t grown, mapping_.size_to_grow_to(size_bytes));
  if (grown == size()) return kOk;
  MEMLITH_TRY(store().check_process());
  MEMLITH_TRY(store().failure());
  // ORDER growth-before-name: the home is long enough, durably, before a frame carries the new size or bytes beyond the
  // old one. [mutant home_grown_unflushed]
  MEMLITH_TRY(store().reserve_home(object(), grown));
  const LockGuard lock(capture_.mutex);
  MEMLITH_ASSERT(grown > size());  // no other growth ran meanwhile
  MEMLITH_TRY(mapping_.extend(grown));
  const std::uint64_t end = round_up(grown, host_page_bytes());
  if (end > mapping_.mapped_bytes()) MEMLITH_TRY(capture_.tracker()->grow(end));
  mapping_.set_size(grown);
  size_changed_ = true;
  return kOk;
}

Status Region::touch(const void* address, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(const Range range, range_of(address, bytes));
  if (Tracker* const tracker = capture_.tracker(); tracker != nullptr && bytes > 0) tracker->touch(range);
  return kOk;
}

Status Region::prepare(const void* address, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(const Range range, range_of(address, bytes));
  MEMLITH_TRY(need_writable());
  MEMLITH_ASSERT(capture_.tracker() != nullptr);
  return bytes > 0 ? capture_.tracker()->prepare(range) : kOk;
}

Result<std::uint64_t> Region::unpersisted(Range but) {
  MEMLITH_TRY(need_writable());
  MEMLITH_TRY(store().check_process());
  const Held held(*this);
  return capture_.bytes_due(but);
}

Result<ThreadNumber> Region::thread_of(Scope scope) const {
  if (scope == Scope::process) return kAllThreads;
  if (guard_ != nullptr && !guard_->knows_threads()) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {} that was not opened for thread scope, so its threads share structures; open it "
                "with MEMLITH_REGION_THREAD_SCOPE, or persist with process scope",
                shown_name(), guard_->what());
  }
  if (process_scope_) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" was opened for process scope only, so it is unknown which thread stored where; open it "
                "without MEMLITH_REGION_PROCESS_SCOPE, or persist with process scope",
                shown_name());
  }
  MEMLITH_ASSERT(capture_.tracker() != nullptr);
  if (capture_.tracker()->knows_threads()) return this_thread_number();
  return fail(Errc::unsupported, Detail::tracker,
              "region \"{}\": its tracker (scan, or fault in its place) does not tell threads apart; open it with "
              "MEMLITH_REGION_THREAD_SCOPE, or with the fault, the explicit or the instrumented tracker, or persist "
              "with process scope",
              shown_name());
}

std::uint64_t Region::hot_pages() {
  const LockGuard lock(capture_.mutex);
  return capture_.hot_pages();
}

void Region::set_guard(CaptureGuard* guard) {
  guard_ = guard;
  if (guard == nullptr || tracker() == nullptr) return;
  const LockGuard lock(capture_.mutex);
  process_scope_ = !guard->knows_threads();
  if (process_scope_) {
    (void)capture_.allow_hot_pages(true);  // without memory, no page becomes hot
  } else {
    capture_.leave_out_of_check([guard](std::uint64_t page) { return guard->shares_page(page); });
  }
}

// ---- capture ---------------------------------------------------------------------------------------------------

// ORDER guard-before-capture: threads that change the guarded structures take the guard's locks first and then this
// one, to grow the region. And while the structures are whole, a crash brings none of them back half changed. [test
// Heap.EveryCaptureIsOfAWholeHeap]
void Region::lock() {
  if (guard_ != nullptr) guard_->hold();
  capture_.mutex.lock();
}

void Region::unlock() {
  capture_.mutex.unlock();
  if (guard_ != nullptr) guard_->let_go();
}

namespace {

// Kept per thread, so that persisting allocates nothing once the vectors have grown.
struct Scratch {
  std::vector<Region*> regions;
  JointFrame frame;
  std::vector<AddressWord> addresses;  // where pointers are checked
};

// Captures retried for lack of log room before the last one waits for room while it holds the regions' locks. Other
// threads may always be faster.
constexpr int kCapturesMax = 4;

// One order for all threads, so that two threads with several regions do not wait for each other.
Status put_in_order(std::span<Region* const> given, std::vector<Region*>& regions) {
  MEMLITH_ASSERT(!given.empty());
  regions.assign(given.begin(), given.end());
  std::sort(regions.begin(), regions.end(), [](const Region* a, const Region* b) { return a->object() < b->object(); });
  regions.erase(std::unique(regions.begin(), regions.end()), regions.end());
  const Store& store = regions.front()->store();
  for (const Region* region : regions) {
    if (&region->store() == &store) continue;
    return fail(Errc::invalid, Detail::argument, "regions of two stores cannot be persisted in one");
  }
  if (store.read_only()) return fail(Errc::read_only, Detail::open, "{}: the store was opened read-only", store.path());
  // First of all: a forked child's scan would reset the parent's marks, for what it inherited is the parent's pagemap.
  return store.check_process();
}

}  // namespace

Status Region::take(ThreadNumber thread, Range part, JointFrame& frame) {
  shared_.clear();
  if (guard_ != nullptr) MEMLITH_TRY(guard_->before_capture(thread, shared_));
  MEMLITH_TRY(capture_.take(thread, part, shared_, frame));
  if (size_changed_) frame.sizes.push_back({object(), size()});
  return kOk;
}

void Region::keep_taken(Range part, Lsn end) {
  MEMLITH_ASSERT(end != Lsn{0} || !size_changed_);  // a changed size alone is a commit
  if (end != Lsn{0}) {
    size_changed_ = false;
    note_commit(end);
  }
  capture_.keep(part, end);
  if (guard_ != nullptr) guard_->captured();
}

void Region::give_back_taken() {
  capture_.give_back();
  if (guard_ != nullptr) guard_->not_captured();
}

void Region::append_addresses(std::vector<AddressWord>& words) const {
  for (const SourceExtent& piece : capture_.pieces()) {
    find_addresses(*this, piece.range.offset, piece.range.bytes, words);
  }
}

Result<Lsn> Region::capture_part(std::span<Region* const> given, const CaptureWish& wish) {
  MEMLITH_ASSERT(!given.empty());
  Store& store = given.front()->store();
  Scratch& work = of_this_thread<Scratch>();
  std::vector<Region*>& regions = work.regions;
  MEMLITH_TRY(put_in_order(given, regions));
  for (const Region* region : regions) MEMLITH_TRY(region->thread_of(wish.scope).status());
  MEMLITH_TRY(store.close_collectors());
  for (int attempt = 0;; ++attempt) {
    MEMLITH_TRY_ASSIGN(const std::optional<Lsn> end, capture_once(regions, wish, attempt == kCapturesMax));
    if (end.has_value()) report_addresses(work.addresses);
    if (end.has_value()) return *end;
    // The regions are free meanwhile: others capture into what room there is, and the disk may be slow.
    MEMLITH_TRY(store.make_room({work.frame.extents, work.frame.sources, work.frame.sizes}, wish.will_sync));
  }
}

// Nothing if the log has no room right now: everything is due still. Unless the caller shall wait in here.
Result<std::optional<Lsn>> Region::capture_once(std::vector<Region*>& regions, const CaptureWish& wish,
                                                bool wait_for_room) {
  const Range part = wish.part;
  Store& store = regions.front()->store();
  Scratch& work = of_this_thread<Scratch>();
  work.frame.extents.clear();
  work.frame.sources.clear();
  work.frame.sizes.clear();
  work.addresses.clear();
  // Holds the regions, and gives back what was taken unless a frame has it.
  struct Capture {
    std::vector<Region*>& regions;
    std::size_t taken = 0;
    explicit Capture(std::vector<Region*>& all) : regions(all) {
      const auto lock = [](Region& region) MEMLITH_ACQUIRE(region.capture_.mutex) { region.lock(); };
      for (Region* region : regions) call_annotated(lock, *region);
    }
    ~Capture() {
      while (taken > 0) {
        Region* const region = regions[--taken];
        region->capture_.mutex.assert_held();
        region->give_back_taken();
      }
      const auto unlock = [](Region& region) MEMLITH_RELEASE(region.capture_.mutex) { region.unlock(); };
      for (Region* region : regions) call_annotated(unlock, *region);
    }
  };
  Lsn end;
  {
    Capture capture(regions);
    for (Region* region : regions) {
      region->capture_.mutex.assert_held();
      MEMLITH_TRY_ASSIGN(const ThreadNumber thread, region->thread_of(wish.scope));
      if (!wish.ends_change) MEMLITH_TRY(region->check_unchanging());
      ++capture.taken;
      MEMLITH_TRY(region->take(thread, part, work.frame));
      if (pointers_are_checked()) region->append_addresses(work.addresses);
      // With nothing stored since, this call still answers for what another thread captured and is writing now.
      end = std::max(end, region->newest_commit());
    }
    MEMLITH_ASSERT(work.frame.extents.size() == work.frame.sources.size());
    std::optional<Lsn> committed(Lsn{0});
    if (!work.frame.extents.empty() || !work.frame.sizes.empty()) {
      const Changes changes{work.frame.extents, work.frame.sources, work.frame.sizes};
      if (wait_for_room) {
        MEMLITH_TRY_ASSIGN(committed, store.commit_weak(changes, wish.will_sync));
      } else {
        MEMLITH_TRY_ASSIGN(committed, store.commit_weak_at_once(changes, wish.will_sync));
      }
      if (!committed.has_value()) return committed;
      MEMLITH_ASSERT(*committed > end);  // the log has only grown since the regions' last commits
      end = *committed;
    } else {
      MEMLITH_TRY(store.failure());  // an empty persist of a poisoned store says so too
    }
    while (capture.taken > 0) {
      Region* const region = regions[--capture.taken];
      region->capture_.mutex.assert_held();
      region->keep_taken(part, *committed);
      MEMLITH_ASSERT(!wish.ends_change || region->change_ == Change::under_way);
      if (wish.ends_change) region->change_ = Change::none;
    }
  }
  return std::optional(end);
}

Status Region::persist(std::span<Region* const> regions, Scope scope) {
  if (regions.empty()) return kOk;
  MEMLITH_TRY_ASSIGN(const Lsn end, capture(regions, scope, true));
  return regions.front()->store().sync(end);
}

Status Region::persist_range(const void* address, std::uint64_t bytes, Scope scope) {
  MEMLITH_TRY_ASSIGN(Range part, range_of(address, bytes));
  MEMLITH_TRY(need_writable());
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, of which a part alone is not whole; persist all of it instead", shown_name(),
                guard_->what());
  }
  const TrackerKind kind = tracker()->kind();
  if (kind == TrackerKind::scan || kind == TrackerKind::fault) part = host_pages_around(part);
  Region* const self = this;
  MEMLITH_TRY_ASSIGN(const Lsn end, capture_part({&self, 1}, {scope, true, part}));
  return store().sync(end);
}

Status Region::roll_back_guarded(ThreadNumber thread) {
  shared_.clear();
  if (guard_ != nullptr) guard_->add_shared(shared_);
  const Status done = capture_.roll_back(thread, shared_);
  if (guard_ != nullptr) guard_->rolled_back();  // some of it may be, even where it failed
  return done;
}

Status Region::rollback(std::span<Region* const> given, Scope scope) {
  std::vector<Region*> regions;
  if (given.empty()) return kOk;
  MEMLITH_TRY(put_in_order(given, regions));
  for (const Region* region : regions) {
    MEMLITH_TRY(region->thread_of(scope).status());
    if (scope == Scope::process || region->guard_ == nullptr) continue;
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, in which a thread's stores alone cannot be undone; roll back with process "
                "scope",
                region->shown_name(), region->guard_->what());
  }
  for (Region* region : regions) {
    const Held held(*region);
    MEMLITH_TRY_ASSIGN(const ThreadNumber thread, region->thread_of(scope));
    MEMLITH_TRY(region->check_unchanging());
    MEMLITH_TRY(region->roll_back_guarded(thread));
  }
  return kOk;
}

}  // namespace memlith::core
