#include "applog/applog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/random.hpp"
#include "region/per_thread.hpp"
#include "store/refusal.hpp"

namespace memlith::core::applog {

namespace {
constexpr std::uint64_t kFrameBytesMax = 1 * kMiB;
constexpr std::uint64_t kMarkBytes = sizeof(EntryHeader);
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 62;  // above the bytes or entries of any log
constexpr std::size_t kExtentsMax = 4;  // of entries that wait: two runs of the ring, and two of the mark
// A writer that waits for room looks from time to time whether the store can still commit.
constexpr std::chrono::milliseconds kLookAgainAfter{50};

template <class Record>
Record record_at(const Region& region, std::uint64_t offset) {
  Record record;
  std::memcpy(&record, region.address() + offset, sizeof record);
  return record;
}
}  // namespace

bool holds_applog(const Region& region) {
  return region.size() >= kShapeOffset && record_at<Identity>(region, kIdentityOffset).magic == kMagic;
}

// ---- room ------------------------------------------------------------------------------------------------------

std::uint64_t AppLog::in_use_from() const {
  // ORDER release-before-reuse: bytes are used again only when the frame that released them is in the redo log, so
  // that it lies before the frame that overwrites them. [mutant applog_reused_early]
  return consumed_.at;
}

bool AppLog::has_room(std::uint64_t bytes) const {
  MEMLITH_ASSERT(in_use_from() <= handed_ && handed_ <= appended_);
  return appended_ - in_use_from() + bytes + kMarkBytes <= ring_.capacity();
}

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<AppLog>> AppLog::open(Region& region, const AppLogOptions& options) {
  auto log = std::unique_ptr<AppLog>(new AppLog(region, options));
  log->stopped_ = true;  // until it is whole
  if (region.size() < 2 * kPageBytes) {
    return fail(Errc::incompatible, Detail::object, "region \"{}\" has {} bytes; an application log has at least {}",
                region.shown_name(), region.size(), 2 * kPageBytes);
  }
  // Several of the frames fit the redo log as it is, in case it cannot grow because the disk is full.
  log->frame_bytes_ = std::min({kFrameBytesMax, log->frame_bytes_max() / 2, region.store().log().capacity_bytes() / 4});
  MEMLITH_TRY_ASSIGN(const bool fresh, region.is_for_making("an application log", options.create, options.exclusive));
  if (fresh) MEMLITH_TRY(log->format());
  MEMLITH_TRY(log->check_first_page());
  MEMLITH_TRY(log->find_end());
  if (options.board != nullptr) log->move_to_board();
  log->stopped_ = options.manual;
  if (log->read_only()) return log;
  log->going_.extents.reserve(kExtentsMax);
  log->going_.sources.reserve(kExtentsMax);
  region.store().collectors().add(*log);
  log->collects_ = true;
  return log;
}

Status AppLog::format() {
  std::byte* const base = region_.address();
  Identity identity{kMagic, kVersion, static_cast<std::uint32_t>(kRingOffset), random_identity(), 0, 0};
  const Store& store = region_.store();
  if (!store.one_file()) identity.store = store.origin() != 0 ? store.origin() : store.log().log_id();
  identity.checksum = sum_of(identity, kMagic);
  Shape shape{round_down(region_.size() - kRingOffset, kUnit), 0, 0};
  shape.checksum = sum_of(shape, identity.log);
  Position position{0, 1, 0};
  position.checksum = sum_of(position, identity.log);
  const EntryHeader mark = end_mark(1, identity.log);
  std::memcpy(base + kIdentityOffset, &identity, sizeof identity);
  std::memcpy(base + kShapeOffset, &shape, sizeof shape);
  std::memcpy(base + kPositionOffset, &position, sizeof position);
  std::memcpy(base + kRingOffset, &mark, sizeof mark);
  Changes changes;
  add(changes, kIdentityOffset, base + kIdentityOffset, kPositionOffset + sizeof position - kIdentityOffset);
  add(changes, kRingOffset, base + kRingOffset, sizeof mark);
  MEMLITH_TRY(region_.store().close_collectors());
  MEMLITH_TRY_ASSIGN(const Lsn end, region_.commit_bytes(changes.extents, changes.sources, true));
  return region_.store().sync(end);
}

Status AppLog::damaged(std::uint64_t offset, std::string_view what) const {
  return fail(Errc::corrupt, Detail::object, "region \"{}\", offset {}: {}; {}", region_.shown_name(), offset, what,
              region_.after_damage(offset));
}

Status AppLog::check_first_page() {
  const auto identity = record_at<Identity>(region_, kIdentityOffset);
  const std::string& name = region_.shown_name();
  if (identity.magic != kMagic) {
    return fail(Errc::incompatible, Detail::object,
                "region \"{}\" holds no application log; open it as what it is, or give the log another name", name);
  }
  if (identity.version != kVersion) {
    return fail(Errc::incompatible, Detail::version,
                "region \"{}\" holds an application log of format {}; this version of memlith reads format {}", name,
                identity.version, kVersion);
  }
  if (identity.checksum != sum_of(identity, kMagic) || identity.ring_offset != kRingOffset) {
    return damaged(kIdentityOffset, "the first bytes of the application log are damaged");
  }
  const Store& store = region_.store();
  if (!store.one_file() && store.origin() != 0 && identity.store != store.origin()) {
    return fail(Errc::incompatible, Detail::object,
                "region \"{}\" of {} holds the application log of another store; restore a store as a whole", name,
                store.path());
  }
  seed_ = identity.log;
  const auto shape = record_at<Shape>(region_, kShapeOffset);
  if (shape.checksum != sum_of(shape, seed_))
    return damaged(kShapeOffset, "the size of the application log is damaged");
  if (shape.capacity < kMarkBytes || shape.capacity > region_.size() - kRingOffset) {
    return damaged(kShapeOffset, "the region was cut: the application log is larger");
  }
  const auto position = record_at<Position>(region_, kPositionOffset);
  if (position.checksum != sum_of(position, seed_) || position.at < shape.base || position.at > kCountMax ||
      position.number == 0 || position.number > kCountMax) {
    return damaged(kPositionOffset, "the read position of the application log is damaged");
  }
  const LockGuard lock(mutex_);
  ring_ = Ring(memory_, shape);
  consumed_ = read_ = position;
  return kOk;
}

Status AppLog::load(const Ring& ring, std::uint64_t from, std::uint64_t to) const {
  Status status = kOk;
  ring.for_each_run(from, to - from, [&](std::uint64_t offset, std::uint64_t run) {
    if (status.ok()) status = region_.load({offset, run});
  });
  return status;
}

Status AppLog::load_to(std::uint64_t position) {
  const std::uint64_t to = std::min(position, loaded_from_ + ring_.capacity());
  if (to <= loaded_to_) return kOk;
  MEMLITH_TRY(load(ring_, loaded_to_, to));
  const std::uint64_t offset = ring_.offset_of(to);  // whose page was loaded
  loaded_to_ = to + std::min(round_up(offset, kPageBytes), kRingOffset + ring_.capacity()) - offset;
  return kOk;
}

Status AppLog::find_end() {
  const LockGuard lock(mutex_);
  loaded_from_ = loaded_to_ = consumed_.at;
  const std::uint64_t limit = consumed_.at + ring_.capacity() - kMarkBytes;
  std::uint64_t at = consumed_.at;
  std::uint64_t number = consumed_.number;
  for (;; ++number) {
    MEMLITH_TRY(load_to(at + kMarkBytes));
    MEMLITH_TRY(load_to(at + std::min(stored_bytes(ring_.header_at(at).bytes), limit - at)));
    const Found found = read_entry(ring_, at, number, limit - at, seed_, content_);
    if (found == Found::damage) {
      return damaged(ring_.offset_of(at), "neither the next entry of the application log nor its end is found");
    }
    if (found == Found::end) break;
    at += stored_bytes(content_.size());
  }
  MEMLITH_ASSERT(at <= limit);  // there is room for the end mark behind what is in use
  appended_ = handed_ = at;
  given_up_ = consumed_.at;
  number_ = number - 1;
  numbers_.begin(number_);
  index_.clear();
  return kOk;
}

// The region's own memory has been read and checked; nothing reads it, or writes to it, from now on.
void AppLog::move_to_board() {
  const LockGuard lock(mutex_);
  const std::byte* const from = std::exchange(memory_, options_.board->region());
  std::memcpy(memory_, from, kRingOffset);
  ring_.for_each_run(consumed_.at, appended_ + kMarkBytes - consumed_.at, [&](std::uint64_t offset, std::uint64_t run) {
    std::memcpy(memory_ + offset, from + offset, run);
  });
  ring_ = Ring(memory_, ring_.shape());
  options_.board->head().append_bytes_max = frame_bytes_max();
  show_numbers();
}

AppLog::~AppLog() {
  (void)stop();
  if (collects_) region_.store().collectors().remove(*this, !options_.manual);
}

Status AppLog::stop() {
  if (stopped_ || read_only()) return kOk;
  const Status done = make_durable(newest());
  stopped_ = !is_refusal(done);
  return done;
}

Status AppLog::need_writable() const {
  if (!read_only()) return kOk;
  return fail(Errc::read_only, Detail::object, "{}: the store was opened read-only; its log can be read",
              region_.store().path());
}

std::uint64_t AppLog::newest() {
  const LockGuard lock(mutex_);
  return number_;
}

std::uint64_t AppLog::durable_number() {
  const std::uint64_t number = numbers_.durable(region_.store().log().durable_lsn());
  if (options_.board != nullptr) options_.board->show_durable(number);
  return number;
}

AppLogReport AppLog::report() {
  const LockGuard lock(mutex_);
  const std::uint64_t used = appended_ - consumed_.at;
  MEMLITH_ASSERT(consumed_.at <= handed_ && used + kMarkBytes <= ring_.capacity());
  return {ring_.capacity(),    ring_.capacity() - kMarkBytes - used, number_, durable_number(), read_.number - 1,
          consumed_.number - 1};
}

// ---- writers ---------------------------------------------------------------------------------------------------

Status AppLog::check_entries(std::span<const Content> given, Entries& entries) const {
  MEMLITH_TRY(check_sizes(given, frame_bytes_max(), entries.bytes));
  entries.sums.reserve(given.size());
  for (const Content& each : given) entries.sums.push_back(content_sum(each, seed_));
  entries.all.assign(given.begin(), given.end());
  return kOk;
}

void AppLog::put(std::uint64_t position, const void* bytes, std::uint64_t count) {
  ring_.put(position, bytes, count);
  ring_.for_each_run(position, count,
                     [this](std::uint64_t offset, std::uint64_t run) { region_.note_copied({offset, run}); });
}

void AppLog::place(const Entries& entries) {
  MEMLITH_ASSERT(has_room(entries.bytes) && entries.sums.size() == entries.all.size());
  const std::uint64_t end = appended_ + entries.bytes;
  for (std::size_t i = 0; i < entries.all.size(); ++i) {
    const Content content = entries.all[i];
    EntryHeader header{number_ + 1, EntryKind::entry, static_cast<std::uint32_t>(content.size()), 0};
    header.checksum = entry_sum(header, entries.sums[i], seed_);
    put(appended_, &header, sizeof header);
    put(appended_ + sizeof header, content.data(), content.size());
    appended_ += stored_bytes(content.size());
    ++number_;
  }
  MEMLITH_ASSERT(appended_ == end);
}

Result<std::uint64_t> AppLog::append(std::span<const Content> given, WhenFull when_full) {
  MEMLITH_TRY(need_writable());
  Entries& entries = of_this_thread<Entries>();
  entries.clear();
  MEMLITH_TRY(check_entries(given, entries));
  for (;;) {
    bool too_much_waits = false;
    {
      const LockGuard lock(mutex_);
      MEMLITH_ASSERT(consumed_.at <= handed_ && handed_ <= appended_);  // only what is in the redo log is consumed
      const std::uint64_t waits = appended_ - handed_;
      const bool room = has_room(entries.bytes);
      too_much_waits = (waits > 0 && waits + entries.bytes > frame_bytes_) || region_.store().collectors().refused() ||
                       (room && !may_wait(waits + entries.bytes + kPageBytes));
      if (!too_much_waits && room) {
        MEMLITH_TRY(load_to(appended_ + entries.bytes + kMarkBytes));
        place(entries);
        note_waiting_commit();
        region_.store().stats()->applog_entries.fetch_add(entries.all.size(), std::memory_order_relaxed);
        return number_;
      }
    }
    if (too_much_waits) {
      MEMLITH_TRY(region_.store().collectors().close(false).status());
    } else {
      MEMLITH_TRY(make_room(entries.bytes, when_full));
    }
  }
}

Status AppLog::no_room(std::uint64_t bytes, std::uint64_t capacity) const {
  return fail(Errc::full, Detail::object,
              "the application log \"{}\" has {} bytes, and no room for {} more; consume entries, or make a larger log",
              region_.shown_name(), capacity, bytes);
}

bool AppLog::waits_for_room(std::span<const Content> entries) {
  std::uint64_t bytes = 0;
  for (const Content& each : entries) bytes += stored_bytes(each.size());
  const LockGuard lock(mutex_);
  return bytes + kMarkBytes <= ring_.capacity() && !has_room(bytes);
}

Status AppLog::make_room(std::uint64_t bytes, WhenFull when_full) {
  MEMLITH_TRY(region_.store().failure());
  if (when_full == WhenFull::grow) return grow(bytes);
  {
    const LockGuard lock(mutex_);
    const std::uint64_t capacity = ring_.capacity();
    if (when_full == WhenFull::fail || bytes + kMarkBytes > capacity) return no_room(bytes, capacity);
  }
  // The reader may wait for what was appended and not written.
  MEMLITH_TRY(write_weak().status());
  const LockGuard lock(mutex_);
  ++writers_wait_;
  const std::uint64_t seen = consumed_.at;
  (void)freed_.wait_for(mutex_, kLookAgainAfter, [&]() MEMLITH_REQUIRES(mutex_) { return consumed_.at != seen; });
  --writers_wait_;
  return kOk;
}

void AppLog::add(Changes& changes, std::uint64_t offset, const void* bytes, std::uint64_t count) const {
  if (count == 0) return;
  changes.extents.push_back({region_.object(), offset, count});
  changes.sources.push_back(static_cast<const std::byte*>(bytes));
}

void AppLog::add_ring(Changes& changes, std::uint64_t from, std::uint64_t to) const {
  MEMLITH_ASSERT(from <= to);
  ring_.for_each_run(from, to - from,
                     [&](std::uint64_t offset, std::uint64_t run) { add(changes, offset, memory_ + offset, run); });
}

// From the caller's copy: writers may append over the mark in memory while the frame is being made.
void AppLog::add_end_mark(Changes& changes, std::uint64_t position, const EntryHeader& mark) const {
  const auto* from = reinterpret_cast<const std::byte*>(&mark);
  ring_.for_each_run(position, sizeof mark, [&](std::uint64_t offset, std::uint64_t run) {
    add(changes, offset, from, run);
    from += run;
  });
}

Result<Lsn> AppLog::hand_over(std::uint64_t number, bool will_sync) {
  // The ticket to wait for, if those entries are in the redo log; 0: they are durable.
  const auto known = [&]() -> std::optional<Lsn> {
    const LockGuard lock(mutex_);
    (void)durable_number();
    if (numbers_.logged() < number) return std::nullopt;
    const Lsn end = numbers_.end_of(number);
    return end == Lsn{0} ? end : std::max(end, dropped_end_);
  };
  Collectors& collectors = region_.store().collectors();
  const LockGuard handing(collectors.mutex());
  if (const auto end = known(); end.has_value()) return *end;
  const auto closed = collectors.close_held(will_sync);
  if (closed.ok()) return *closed;
  const KeptSentence why;
  if (const auto end = known(); end.has_value()) return *end;
  return closed.error();
}

// ---- as a collector --------------------------------------------------------------------------------------------

Result<KeptLock> AppLog::pause() { return part_hold_.holds() ? KeptLock() : KeptLock(mutex_); }

// Entries before `going_to_` do not change until it is released, and the ring's shape only under the mutex of the
// collectors.
void AppLog::set_aside(const Closing& /*closing*/) noexcept {
  mutex_.assert_held();
  going_.extents.clear();
  going_.sources.clear();
  add_waiting(going_, going_mark_);
  MEMLITH_ASSERT(going_.extents.size() <= kExtentsMax && going_.extents.size() == going_.sources.size());
  going_to_ = appended_;
}

Collector::CommitBatch AppLog::first(std::uint64_t /*bytes_max*/) {
  going_size_ = region_.size_to_commit();
  CommitBatch piece{going_.extents, going_.sources, going_size_, 0, 1};
  for (const Extent& extent : going_.extents) piece.bytes += sizeof extent + extent.bytes;
  return piece;
}

bool AppLog::in_log(Lsn end) noexcept {
  region_.note_commit(end);
  if (going_size_.has_value()) region_.note_size_committed(*going_size_);
  const auto held = pause();
  mutex_.assert_held();
  note_handed(going_mark_, going_to_, end);
  return false;
}

std::string AppLog::what_waits() const {
  return fmt::format("the entries up to number {} of the application log \"{}\"", going_mark_.number - 1,
                     region_.shown_name());
}

void AppLog::add_waiting(Changes& changes, EntryHeader& mark) {
  MEMLITH_ASSERT(appended_ - in_use_from() + kMarkBytes <= ring_.capacity());  // the mark overwrites nothing in use
  mark = end_mark(number_ + 1, seed_);
  put(appended_, &mark, sizeof mark);
  add_ring(changes, handed_, appended_);
  add_end_mark(changes, appended_, mark);
}

void AppLog::note_handed(const EntryHeader& mark, std::uint64_t to, Lsn end) {
  MEMLITH_ASSERT(handed_ <= to && to <= appended_ && mark.number <= number_ + 1);
  MEMLITH_ASSERT(end != Lsn{0} && mark.number > numbers_.logged());
  handed_ = to;
  numbers_.add(mark.number - 1, end);
  if (reader_waits_) arrived_.notify_one();
  if (options_.board == nullptr) return;
  options_.board->show_logged(mark.number - 1);
  options_.board->bells().logged.ring();
}

// ---- in a transaction of the store -----------------------------------------------------------------------------

Status AppLog::grow_for(const Entries& entries) {
  if (options_.when_full != WhenFull::grow) return kOk;
  {
    const LockGuard lock(mutex_);
    if (has_room(entries.bytes)) return kOk;
  }
  return grow(entries.bytes);
}

Status AppLog::hold_for(const Entries& entries) {
  MEMLITH_ASSERT(!part_hold_.holds());
  KeptLock held(mutex_);
  mutex_.assert_held();
  if (!has_room(entries.bytes)) return no_room(entries.bytes, ring_.capacity());
  MEMLITH_TRY(load_to(appended_ + entries.bytes + kMarkBytes));
  part_hold_ = std::move(held);
  return kOk;
}

void AppLog::place_held(const Entries& entries, Changes& changes, EntryHeader& mark) {
  MEMLITH_ASSERT(part_hold_.holds());
  mutex_.assert_held();
  place(entries);
  add_waiting(changes, mark);
}

void AppLog::held_in_log(const EntryHeader& mark, Lsn end) {
  mutex_.assert_held();
  note_handed(mark, appended_, end);
  end_hold();
}

Status AppLog::make_durable(std::uint64_t number) {
  MEMLITH_TRY_ASSIGN(const Lsn end, hand_over(number, true));
  // Entries consumed before are durable then, too, whether entries were appended since or not.
  MEMLITH_TRY(region_.store().sync(end != Lsn{0} ? end : region_.newest_commit()));
  return region_.store().failure();
}

Result<Lsn> AppLog::write() {
  const PersistTimer timer;
  MEMLITH_TRY(need_writable());
  MEMLITH_TRY(make_durable(newest()));
  timer.note_applog_write(*region_.store().stats());
  return region_.newest_commit();
}

Result<Lsn> AppLog::begin_write() {
  MEMLITH_TRY_ASSIGN(const Lsn end, hand_over(newest(), true));
  return end != Lsn{0} ? end : region_.newest_commit();
}

Result<Lsn> AppLog::write_weak() {
  MEMLITH_TRY(need_writable());
  MEMLITH_TRY_ASSIGN(const Lsn end, hand_over(newest(), false));
  if (end != Lsn{0}) region_.store().flush_soon(end);
  return end != Lsn{0} ? end : region_.newest_commit();
}

std::uint64_t AppLog::durable() {
  const LockGuard lock(mutex_);
  return durable_number();
}

}  // namespace memlith::core::applog
