#include "shared/control.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include "shared/step.hpp"

namespace memlith::core::shared {

namespace {

// A waiter looks this often whether the keeper still lives.
constexpr auto kLook = std::chrono::milliseconds(20);

bool make_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  if (::pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    ::pthread_mutex_init(&mutex, &attributes) == 0;
  ::pthread_mutexattr_destroy(&attributes);
  return made;
}

bool overlap(const RangeEntry& entry, Range range) {
  return entry.offset < range.offset + range.bytes && range.offset < entry.offset + entry.bytes;
}

bool is_of(const RangeEntry& entry, Owner owner) {
  return entry.client == owner.client && (owner.tx == kEveryTx || entry.tx == owner.tx);
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* time) {
  return ::syscall(SYS_futex, &word, operation, value, time, nullptr, 0);
}

}  // namespace

class Control::Lock {
 public:
  explicit Lock(ControlSegment& segment) : segment_(segment) {
    const int error = ::pthread_mutex_lock(&segment.mutex);
    if (error == EOWNERDEAD) {
      MEMLITH_ASSERT(::pthread_mutex_consistent(&segment.mutex) == 0);
    } else {
      MEMLITH_ASSERT(error == 0);
    }
  }
  ~Lock() { ::pthread_mutex_unlock(&segment_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  ControlSegment& segment_;
};

Control::~Control() {
  if (lives_) {
    end();
    ::pthread_mutex_unlock(&segment_->keeper_life);
  }
  if (segment_ != nullptr) ::munmap(segment_, sizeof(ControlSegment));
}

Result<Descriptor> Control::make() {
  Descriptor memory(above_standard(::memfd_create("memlith-control", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  // A client that cut the memory would end the others.
  if (memory.get() < 0 || ::ftruncate(memory.get(), sizeof(ControlSegment)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, Detail::mapping, "cannot make the memory that the processes of a shared region share");
  }
  Control control;
  MEMLITH_TRY(control.map(memory.get()));
  if (!make_mutex(control.segment_->mutex) || !make_mutex(control.segment_->keeper_life)) {
    return fail(Errc::unsupported, Detail::mapping, "this system has no mutexes that processes can share");
  }
  return memory;
}

Status Control::map(int descriptor) {
  MEMLITH_ASSERT(segment_ == nullptr);
  void* const mapped =
      ::mmap(nullptr, sizeof(ControlSegment), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, Detail::mapping, "cannot map the memory of a shared region");
  ::madvise(mapped, sizeof(ControlSegment), MADV_DONTFORK);
  segment_ = static_cast<ControlSegment*>(mapped);
  return kOk;
}

Status Control::live() {
  MEMLITH_ASSERT(segment_ != nullptr && !lives_);
  lives_ = ::pthread_mutex_lock(&segment_->keeper_life) == 0;
  if (lives_) return kOk;
  return fail(Errc::unsupported, Detail::mapping, "this system has no mutexes that processes can share");
}

void Control::end() const {
  std::uint32_t lives = 0;
  segment_->ended.compare_exchange_strong(lives, kEnded);
}

// The mutex of a thread that has ended can be locked.
bool Control::has_keeper() const {
  if (segment_->ended.load(std::memory_order_relaxed) != 0) return false;
  const int error = ::pthread_mutex_trylock(&segment_->keeper_life);
  if (error == EBUSY) return true;
  end();
  if (error == 0 || error == EOWNERDEAD) ::pthread_mutex_unlock(&segment_->keeper_life);
  return false;
}

// Whatever a client wrote there, the result is an entry that exists.
std::uint32_t Control::used() const { return std::min(segment_->used, kRangesMax); }

std::vector<Range> Control::collect(Owner owner) const {
  std::vector<Range> ranges;
  const Lock lock(*segment_);
  for (std::uint32_t i = 0; i < used(); ++i) {
    const RangeEntry& entry = segment_->range[i];
    if (entry.state.load(std::memory_order_acquire) == RangeState::held && is_of(entry, owner)) {
      ranges.push_back({entry.offset, entry.bytes});
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
    entry.bytes = wish.range.bytes;
    entry.order = ++segment_->orders;
  }
  wish.entry = free;
  MEMLITH_SHARED_STEP();
  entry.state.store(state, std::memory_order_release);
  MEMLITH_SHARED_STEP();
}

Control::Taken Control::try_to_take(Wish& wish) {
  const Lock lock(*segment_);
  MEMLITH_SHARED_STEP();
  std::uint32_t free = used();
  bool has_way = true;
  for (std::uint32_t i = 0; i < used(); ++i) {
    const RangeEntry& entry = segment_->range[i];
    const RangeState state = entry.state.load(std::memory_order_acquire);
    if (state == RangeState::free) {
      free = std::min(free, i);
    } else if (!is_of(entry, wish.owner) && overlap(entry, wish.range)) {
      const bool is_earlier = wish.entry == kRangesMax || entry.order < segment_->range[wish.entry].order;
      if (state == RangeState::held || (wish.is_first && is_earlier)) has_way = false;
    }
  }
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
    const Lock lock(*segment_);
    segment_->range[wish.entry].state.store(RangeState::free, std::memory_order_release);
  }
  wake();
}

// Ok: there is time to try again.
Status Control::failed(const Wish& wish, Taken taken, Time until) const {
  if (taken == Taken::no_entry) {
    return fail(Errc::full, Detail::object,
                "{} ranges are held in this region, which is as many as can be; commit or abort, and take fewer and "
                "larger ranges",
                kRangesMax);
  }
  if (std::chrono::steady_clock::now() >= until) {
    return fail(Errc::conflict, Detail::object,
                "another transaction has some of the {} bytes at offset {}, and did not end in time; abort this "
                "transaction and begin it again",
                wish.range.bytes, wish.range.offset);
  }
  if (!has_keeper()) return fail(Errc::poisoned, Detail::object, "the keeper has ended");
  return kOk;
}

Status Control::take(Owner owner, Range range, Time until, bool is_first) {
  MEMLITH_ASSERT(segment_ != nullptr && range.bytes > 0);
  Wish wish{owner, range, is_first};
  for (;;) {
    const std::uint32_t seen = segment_->released.load();
    const Taken taken = try_to_take(wish);
    if (taken == Taken::yes) return kOk;
    if (const Status status = failed(wish, taken, until); !status.ok()) {
      withdraw(wish);
      return status;
    }
    wait_for_release(seen, until);
  }
}

void Control::wait_for_release(std::uint32_t seen, Time until) {
  const auto rest = std::min<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), kLook);
  if (rest.count() <= 0) return;
  MEMLITH_ASSERT(rest < std::chrono::seconds(1));  // the kernel refuses more nanoseconds
  const timespec time{0, static_cast<long>(rest.count())};
  segment_->waiting.fetch_add(1);  // seq_cst; pairs with the load in wake()
  MEMLITH_SHARED_STEP();
  futex(segment_->released, FUTEX_WAIT, seen, &time);
  segment_->waiting.fetch_sub(1);
}

void Control::release(Owner owner) {
  {
    const Lock lock(*segment_);
    std::uint32_t end = 0;
    for (std::uint32_t i = 0; i < used(); ++i) {
      RangeEntry& entry = segment_->range[i];
      if (entry.state.load(std::memory_order_acquire) == RangeState::free) continue;
      if (is_of(entry, owner)) {
        entry.state.store(RangeState::free, std::memory_order_release);
        MEMLITH_SHARED_STEP();
      } else {
        end = i + 1;
      }
    }
    MEMLITH_ASSERT(end <= kRangesMax);
    segment_->used = end;
  }
  wake();
}

void Control::wake() {
  segment_->released.fetch_add(1);  // seq_cst; pairs with the addition to `waiting`
  if (segment_->waiting.load() > 0) futex(segment_->released, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace memlith::core::shared
