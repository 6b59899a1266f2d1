// Reading and consuming entries.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "applog/applog.hpp"
#include "base/no_throw.hpp"

namespace memlith::core::applog {

namespace {
constexpr std::uint64_t kWaitMsMax = 365ull * 24 * 3600 * 1000;  // as good as for ever, and no clock overflows
constexpr std::uint64_t kGivenUpBytes = 64 * kKiB;
}  // namespace

Result<bool> AppLog::copy_next(Entry& entry) {
  MEMLITH_ASSERT(consumed_.at <= read_.at && read_.at <= handed_);
  const std::uint64_t bytes_max = appended_ - read_.at;
  if (read_entry(ring_, read_.at, read_.number, bytes_max, seed_, content_) != Found::entry) {
    return damaged(ring_.offset_of(read_.at), "an entry of the application log is damaged");
  }
  entry = {read_.number, content_};
  read_.at += stored_bytes(content_.size());
  ++read_.number;
  return true;
}

void AppLog::view_moved() {
  std::uint64_t next = 0;
  {
    const LockGuard lock(mutex_);
    next = read_.number;
  }
  const Status followed = no_throw([this]() -> Status {
    MEMLITH_TRY(check_first_page());
    return find_end();
  });
  if (!followed.ok()) return not_followed_.keep(followed);
  not_followed_.forget();
  const LockGuard lock(mutex_);
  while (read_.number < next && read_.number <= number_) {
    read_.at += stored_bytes(ring_.header_at(read_.at).bytes);
    ++read_.number;
  }
}

Result<bool> AppLog::read(std::uint64_t wait_ms, Entry& entry) {
  if (!not_followed_.ok()) return not_followed_.tell();
  MEMLITH_TRY(region_.store().check_homes());
  const auto until = SteadyClock::now() + std::chrono::milliseconds(std::min(wait_ms, kWaitMsMax));
  for (;;) {
    Lsn soon;
    {
      const LockGuard lock(mutex_);
      if (read_.number <= durable_number()) return copy_next(entry);
      if (wait_ms == 0) return false;
      if (read_.number > numbers_.logged()) {
        const auto handed = [this]() MEMLITH_REQUIRES(mutex_) { return numbers_.logged() >= read_.number; };
        const auto now = SteadyClock::now();
        reader_waits_ = true;
        const bool more = now < until && arrived_.wait_for(mutex_, until - now, handed);
        reader_waits_ = false;
        if (!more) return false;
        (void)durable_number();
      }
      soon = numbers_.oldest_end();
    }
    // Together with the writer's flush, if it has one under way.
    if (soon != Lsn{0}) MEMLITH_TRY(region_.store().sync(soon));
  }
}

void AppLog::rewind() {
  const LockGuard lock(mutex_);
  read_ = consumed_;
}

// ---- consume ---------------------------------------------------------------------------------------------------

Result<Position> AppLog::position_behind(std::uint64_t number) {
  if (number >= read_.number) {
    return fail(Errc::invalid, Detail::argument, "entry {} was not read; the newest that was read is {}", number,
                read_.number - 1);
  }
  Position position = consumed_;
  while (position.number <= number) {
    position.at += stored_bytes(ring_.header_at(position.at).bytes);
    ++position.number;
  }
  position.checksum = sum_of(position, seed_);
  return position;
}

Result<Position> AppLog::position_of(std::uint64_t number) {
  const LockGuard lock(mutex_);
  return position_behind(number);
}

// A piece at a time, because checkpoints look at each.
void AppLog::give_up(std::uint64_t before, Lsn end) {
  if (before - given_up_ < std::min(kGivenUpBytes, ring_.capacity() / 8)) return;
  // ORDER given-up-before-reuse: not what an appended entry, or the mark behind it, lies on again. A frame before the
  // commit may have that. [mutant applog_reused_given_up]
  const std::uint64_t in_use = appended_ + sizeof(EntryHeader);
  const std::uint64_t from = std::max(given_up_, in_use - std::min(in_use, ring_.capacity()));
  given_up_ = before;
  if (from >= before) return;
  ring_.for_each_run(from, before - from, [&](std::uint64_t offset, std::uint64_t run) {
    region_.store().note_dead({region_.object(), offset, run}, end);
  });
}

void AppLog::move_consumed(const Position& position, Lsn end) {
  std::memcpy(memory_ + kPositionOffset, &position, sizeof position);
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(position.at <= handed_);
  // ORDER shown-before-reuse: readers of other processes are told before the bytes are written over, or what they copy
  // meanwhile is no entry. [mutant applog_consumed_not_shown]
  if (options_.board != nullptr) options_.board->show_consumed(position.number - 1);
  consumed_ = position;
  dropped_end_ = std::max(dropped_end_, end);
  give_up(position.at, end);
  if (read_.number < position.number) read_ = position;
  tell_freed();
}

void AppLog::tell_freed() {
  if (writers_wait_ > 0) freed_.notify_all();
  if (options_.board != nullptr) options_.board->bells().freed.ring();
}

Status AppLog::consume(std::uint64_t number) {
  MEMLITH_TRY(need_writable());
  Position position{};
  {
    const LockGuard lock(mutex_);
    MEMLITH_TRY_ASSIGN(position, position_behind(number));
    if (position.at == consumed_.at) return kOk;
  }
  Changes changes;
  add(changes, kPositionOffset, &position, sizeof position);
  MEMLITH_TRY(region_.store().close_collectors());
  MEMLITH_TRY_ASSIGN(const Lsn end, region_.commit_bytes(changes.extents, changes.sources, false));
  move_consumed(position, end);
  region_.store().flush_soon(end);
  return kOk;
}

// ---- growth ----------------------------------------------------------------------------------------------------

// Called without room for `bytes`, which may have become free meanwhile.
Status AppLog::grow(std::uint64_t bytes) {
  Collectors& collectors = region_.store().collectors();
  const LockGuard handing(collectors.mutex());
  // Entries that were set aside, and refused, lie where the ring has it now.
  if (collectors.refused()) MEMLITH_TRY(collectors.close_held(false).status());
  std::uint64_t wanted = 0;
  const std::uint64_t most = round_down(region_.reserve() - kRingOffset, kPageBytes);
  {
    const LockGuard lock(mutex_);
    const std::uint64_t released = consumed_.at;
    const std::uint64_t needed = appended_ - released + bytes + sizeof(EntryHeader);
    if (needed <= ring_.capacity()) return kOk;
    // Bytes before the wrap keep their places, so that there has to be room behind them for those after it.
    const std::uint64_t lap = released - (ring_.offset_of(released) - kRingOffset);
    const std::uint64_t least = std::max(appended_ - lap + sizeof(EntryHeader), needed);
    wanted = std::min(round_up(std::max(least, 2 * ring_.capacity()), kPageBytes), most);
    if (wanted < least) {
      return fail(Errc::full, Detail::object,
                  "the application log \"{}\" has {} bytes, no room for {} more, and may grow to {}; consume entries, "
                  "or make a log with a larger max_size",
                  region_.shown_name(), ring_.capacity(), bytes, most);
    }
  }
  MEMLITH_TRY(region_.grow(kRingOffset + wanted));
  const LockGuard lock(mutex_);
  return move_to_larger(wanted);
}

// The bytes after the wrap move behind those before it; one frame has them and the new shape.
Status AppLog::move_to_larger(std::uint64_t capacity) {
  const std::uint64_t released = consumed_.at;
  const std::uint64_t lap = released - (ring_.offset_of(released) - kRingOffset);
  const std::uint64_t wrap = lap + ring_.capacity();
  if (appended_ - lap + sizeof(EntryHeader) > capacity) return kOk;  // others appended meanwhile: it is tried again
  MEMLITH_ASSERT(capacity > ring_.capacity() && kRingOffset + capacity <= region_.size());
  MEMLITH_ASSERT(lap <= released && released <= wrap);
  Shape shape{capacity, lap, 0};
  shape.checksum = sum_of(shape, seed_);
  const Ring larger(memory_, shape);
  MEMLITH_TRY(load(larger, released, appended_ + sizeof(EntryHeader)));
  Changes changes;
  const EntryHeader mark = end_mark(numbers_.logged() + 1, seed_);
  const Board::Changing changing(options_.board.get());
  if (appended_ > wrap) {
    std::memmove(memory_ + larger.offset_of(wrap), memory_ + kRingOffset, appended_ - wrap);
    if (handed_ > wrap) add(changes, larger.offset_of(wrap), memory_ + larger.offset_of(wrap), handed_ - wrap);
  }
  if (handed_ == appended_) larger.put(handed_, &mark, sizeof mark);
  add(changes, larger.offset_of(handed_), &mark, sizeof mark);
  add(changes, kShapeOffset, &shape, sizeof shape);
  MEMLITH_TRY(region_.commit_bytes(changes.extents, changes.sources, false).status());
  std::memcpy(memory_ + kShapeOffset, &shape, sizeof shape);
  ring_ = larger;
  given_up_ = loaded_from_ = released;
  loaded_to_ = appended_ + sizeof(EntryHeader);
  return kOk;
}

}  // namespace memlith::core::applog
