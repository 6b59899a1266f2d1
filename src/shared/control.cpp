#include "shared/control.hpp"

#include <algorithm>

namespace memlith::core::shared {

namespace {

// A waiter looks this often whether the keeper still lives.
constexpr auto kLook = std::chrono::milliseconds(20);

bool overlap(const RangeEntry& entry, Range range) {
  return entry.offset < range.offset + range.bytes && range.offset < entry.offset + entry.bytes.load();
}

bool is_of(const RangeEntry& entry, Owner owner) {
  return entry.client == owner.client && (owner.tx == kEveryTx || entry.tx == owner.tx);
}

}  // namespace

Control::~Control() {
  if (keeps_ && segment_) end();
}

Result<Control> Control::make() {
  MEMLITH_TRY_ASSIGN(auto segment,
                     shm::Segment<ControlSegment>::make("memlith-control", false, [](auto&) { return kOk; }));
  Control control(std::move(segment));
  MEMLITH_TRY_ASSIGN(control.self_, control.segment_.join());
  control.segment_->keeper.store(control.self_.id());
  control.keeps_ = true;
  return control;
}

Result<Control> Control::map(Descriptor memory) {
  MEMLITH_TRY_ASSIGN(auto segment, shm::Segment<ControlSegment>::map(std::move(memory), false));
  Control control(std::move(segment));
  MEMLITH_TRY_ASSIGN(control.self_, control.segment_.join());
  return control;
}

void Control::end() const {
  std::uint32_t lives = 0;
  segment_->ended.compare_exchange_strong(lives, kEnded);
}

bool Control::has_keeper() const {
  if (segment_->ended.load(std::memory_order_relaxed) != 0) return false;
  if (self_.lives(segment_->keeper.load(std::memory_order_relaxed))) return true;
  end();
  return false;
}

// Whatever a client wrote there, the result is an entry that exists.
std::uint32_t Control::used() const { return std::min(segment_->used, kRangesMax); }

std::vector<Range> Control::collect(Owner owner) const {
  std::vector<Range> ranges;
  const shm::RobustLock lock(segment_->mutex, self_);
  for (std::uint32_t i = 0; i < used(); ++i) {
    const RangeEntry& entry = segment_->range[i];
    if (entry.state.load(std::memory_order_acquire) == RangeState::held && is_of(entry, owner)) {
      ranges.push_back({entry.offset, entry.bytes.load()});
    }
  }
  return ranges;
}

// Writes the entry, which was free or is the wish's own. It counts from its last store on.
void Control::enter(Wish& wish, std::uint32_t free, RangeState state) {
  if (free == kRangesMax) return;
  MEMLITH_ASSERT(free < kRangesMax && state != RangeState::free);
  MEMLITH_ASSERT(wish.entry == free || wish.entry == kRangesMax);  // an owner wants a range in one entry
  RangeEntry& entry = segment_->range[free];
  if (wish.entry != free) {
    segment_->used = std::max(used(), free + 1);
    entry.client = wish.owner.client;
    entry.tx = wish.owner.tx;
    entry.offset = wish.range.offset;
    entry.bytes.store(wish.range.bytes, std::memory_order_release);
    entry.order = ++segment_->orders;
  }
  wish.entry = free;
  entry.state.store(state, std::memory_order_release);
}

// A process that dies between the two stores leaves the range in two entries, which is as well.
void Control::lengthen(const Wish& wish, std::uint32_t before) {
  RangeEntry& entry = segment_->range[before];
  entry.bytes.store(entry.bytes.load() + wish.range.bytes, std::memory_order_release);
  if (wish.entry != kRangesMax) segment_->range[wish.entry].state.store(RangeState::free, std::memory_order_release);
}

Control::Taken Control::try_to_take(Wish& wish) {
  const shm::RobustLock lock(segment_->mutex, self_);
  std::uint32_t free = used();
  std::uint32_t before = kRangesMax;  // the range that this one makes longer
  bool has_way = true;
  for (std::uint32_t i = 0; i < used(); ++i) {
    const RangeEntry& entry = segment_->range[i];
    const RangeState state = entry.state.load(std::memory_order_acquire);
    if (state == RangeState::free) {
      free = std::min(free, i);
    } else if (is_of(entry, wish.owner)) {
      if (state == RangeState::held && entry.offset + entry.bytes.load() == wish.range.offset) before = i;
    } else if (overlap(entry, wish.range)) {
      const bool is_earlier = wish.entry == kRangesMax || entry.order < segment_->range[wish.entry].order;
      if (state == RangeState::held || (wish.is_first && is_earlier)) has_way = false;
    }
  }
  if (has_way && before != kRangesMax) return lengthen(wish, before), Taken::yes;
  const std::uint32_t place = wish.entry != kRangesMax ? wish.entry : free;
  MEMLITH_ASSERT(place <= kRangesMax);
  if (has_way && place == kRangesMax) return Taken::no_entry;
  if (has_way || wish.entry == kRangesMax) enter(wish, place, has_way ? RangeState::held : RangeState::wanted);
  MEMLITH_ASSERT(!has_way || wish.entry < kRangesMax);
  return has_way ? Taken::yes : Taken::no;
}

// Others may have waited for this one to pass.
void Control::withdraw(const Wish& wish) {
  if (wish.entry == kRangesMax) return;
  MEMLITH_ASSERT(wish.entry < kRangesMax);
  {
    const shm::RobustLock lock(segment_->mutex, self_);
    segment_->range[wish.entry].state.store(RangeState::free, std::memory_order_release);
  }
  segment_->released.ring();
}

// Ok: there is time to try again.
Status Control::failed(const Wish& wish, Taken taken, Time until) const {
  if (taken == Taken::no_entry) {
    return fail(Errc::full, Detail::object,
                "{} ranges are held in this region, which is as many as can be; commit or abort, and take fewer and "
                "larger ranges",
                kRangesMax);
  }
  if (SteadyClock::now() >= until) {
    return fail(Errc::conflict, Detail::object,
                "another transaction has some of the {} bytes at offset {}, and did not end in time; abort this "
                "transaction and begin it again",
                wish.range.bytes, wish.range.offset);
  }
  if (!has_keeper()) return fail(Errc::poisoned, Detail::object, "the keeper has ended");
  return kOk;
}

Status Control::take(Owner owner, Range range, Time until, bool is_first) {
  MEMLITH_ASSERT(segment_ && range.bytes > 0);
  Wish wish{owner, range, is_first};
  for (;;) {
    const std::uint32_t seen = segment_->released.ticket();
    const Taken taken = try_to_take(wish);
    if (taken == Taken::yes) return kOk;
    if (const Status status = failed(wish, taken, until); !status.ok()) {
      withdraw(wish);
      return status;
    }
    segment_->released.wait(seen, std::min<std::chrono::nanoseconds>(until - SteadyClock::now(), kLook));
  }
}

void Control::release(Owner owner) {
  {
    const shm::RobustLock lock(segment_->mutex, self_);
    std::uint32_t end = 0;
    for (std::uint32_t i = 0; i < used(); ++i) {
      RangeEntry& entry = segment_->range[i];
      if (entry.state.load(std::memory_order_acquire) == RangeState::free) continue;
      if (is_of(entry, owner)) {
        entry.state.store(RangeState::free, std::memory_order_release);
      } else {
        end = i + 1;
      }
    }
    MEMLITH_ASSERT(end <= kRangesMax);
    segment_->used = end;
  }
  segment_->released.ring();
}

}  // namespace memlith::core::shared
