#include "region/store_lists.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <thread>

#include "base/process.hpp"
#include "base/units.hpp"
#include "region/range_pile.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kRing = 1024;
constexpr std::uint64_t kSpare = 256;  // for signal handlers that interrupt the emptying of the ring
constexpr std::uint64_t kSettled = ~std::uint64_t{0};
constexpr std::uint32_t kNested = 8;  // atomic accesses of signal handlers that interrupted each other

// The calling thread in this process. A child that inherits a lock of another thread does not find that holder alive.
std::uint64_t myself() { return process_mark() << 32 | this_thread_number(); }

// A lock of which its holder knows that it holds it, so that a signal handler never waits for the code it interrupted.
class Holder {
 public:
  [[nodiscard]] bool is_mine() const { return holder_.load(std::memory_order_relaxed) == myself(); }
  void lock() {
    const std::uint64_t mine = myself();
    for (int tries = 0;; ++tries) {
      std::uint64_t seen = holder_.load(std::memory_order_relaxed);
      // A holder of another process was lost in a fork.
      const bool is_free = seen == 0 || seen >> 32 != mine >> 32;
      // Pairs with unlock().
      if (is_free && holder_.compare_exchange_weak(seen, mine, std::memory_order_acquire)) return;
      if (tries > 100) std::this_thread::yield();
    }
  }
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::uint64_t> holder_{0};
};

class Hold {
 public:
  explicit Hold(Holder& holder) : holder_(holder) { holder_.lock(); }
  ~Hold() { holder_.unlock(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Holder& holder_;
};

// The end is written before the begin when a slot is filled, and cleared before the begin when it is emptied: a begin
// that is not 0 has its end.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // release by the owner pairs with acquire by the taker
  std::atomic<std::uintptr_t> end{0};
};

enum class Use : std::uint32_t { idle, owned, ended };

struct List {
  // Written by the owner and its signal handlers.
  alignas(64) std::atomic<std::uint64_t> pushed{0};  // slots that were ever claimed; pairs with drain()
  std::atomic<std::uint32_t> atomics{0};             // accesses between begin and end; pairs with add_atomics()
  std::array<Slot, kNested> atomic_at;
  std::atomic<std::uint64_t> open{kSettled};  // slots from this one on may be announcements; pairs with drain()
  std::atomic<bool> overflow{false};          // release by the owner pairs with acquire in drain()
  // Written under `holder`.
  alignas(64) std::atomic<std::uint64_t> taken{0};  // slots before this one were taken; pairs with is_taken()
  std::atomic<std::uint64_t> emptied{0};  // slots before this one may be filled again; pairs with used_slots()
  Holder holder;
  bool held = false;  // by the Taking that is under way; under g_takers
  RangePile pile;
  RangePile announced;                    // taken, and to be taken again
  std::uint64_t announced_at = kSettled;  // `open` when they were taken
  std::atomic<ThreadNumber> thread{0};
  std::atomic<Use> use{Use::idle};  // acquire by the next owner pairs with release when the list has become empty
  List* next = nullptr;             // constant once the list is in the chain
  std::array<Slot, kRing> ring;

  Slot& slot(std::uint64_t number) { return ring[number % kRing]; }
};

[[gnu::tls_model("initial-exec")]] thread_local List* t_list = nullptr;
std::atomic<List*> g_lists{nullptr};      // never removed from; release by the adder pairs with acquire by readers
std::atomic<bool> g_owners_fence{false};  // the kernel has no membarrier
std::atomic<bool> g_has_key{false};       // release by the maker pairs with acquire by users
pthread_key_t g_key{};                    // its value is the thread's list
Holder g_takers;                          // one takes at a time

// Under g_takers. Never destroyed: destructors of statics store and persist, too.
struct Watched {
  std::vector<StoredRange> regions;
  std::vector<TrackedAddresses*> cells;
  TrackedAddresses addresses;
};
Watched& watched() {
  static Watched& made = *new Watched;
  return made;
}

// One instruction each, so that no signal handler runs in the middle. No other thread writes these words, so that no
// bus lock is needed. On arm64 it may be a pair of instructions, which a handler in between makes fail and try again.
std::uint64_t claim_slot(std::atomic<std::uint64_t>& pushed) {
#if defined(__x86_64__)
  std::uint64_t number = 1;
  asm volatile("xaddq %0, %1" : "+r"(number), "+m"(reinterpret_cast<std::uint64_t&>(pushed)) : : "memory", "cc");
  return number;
#else
  return pushed.fetch_add(1);
#endif
}
bool widen(std::atomic<std::uintptr_t>& end, std::uintptr_t from, std::uintptr_t to) {
#if defined(__x86_64__)
  bool done = false;
  asm volatile("cmpxchgq %3, %1"
               : "=@ccz"(done), "+m"(reinterpret_cast<std::uintptr_t&>(end)), "+a"(from)
               : "r"(to)
               : "memory", "cc");
  return done;
#else
  return end.compare_exchange_strong(from, to);
#endif
}

// Between a store of the owner and its look at `taken`, if the kernel has no barrier for other threads.
void owner_fence() {
  if (g_owners_fence.load(std::memory_order_relaxed)) std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

int membarrier(int command) { return static_cast<int>(::syscall(SYS_membarrier, command, 0, 0)); }

// On return every running thread of the process has seen what this thread wrote before, and the other way round. False:
// the kernel refuses it since this process was forked or sandboxed; from now on owners have fences of their own.
bool barrier_of_all_threads() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (g_owners_fence.load(std::memory_order_relaxed)) return true;
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return true;
  // A forked child has to register again.
  (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return true;
  g_owners_fence.store(true, std::memory_order_seq_cst);
  return false;
}

bool is_taken(const List& list, std::uint64_t number) {
  owner_fence();
  return list.taken.load(std::memory_order_acquire) > number;
}

// Empties the slots [from, to), which are taken, into the pile. Under the list's holder. A slot that the owner claimed
// and has not filled is left out: the owner sees that the slot is taken, and adds its range again.
void drain(List& list, std::uint64_t from, std::uint64_t to) {
  MEMLITH_ASSERT(from <= to);
  // Looked at after `pushed`: the owner opens before it claims a slot for an announcement.
  const std::uint64_t open = list.open.load(std::memory_order_acquire);
  if (open != list.announced_at) {
    // The owner has settled since: what it had announced is taken a last time.
    list.pile.add_all(list.announced);
    list.announced.clear();
    list.announced_at = open;
  }
  for (std::uint64_t number = from; number < to; ++number) {
    Slot& slot = list.slot(number);
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin != 0) {
      const StoredRange range{begin, slot.end.load(std::memory_order_relaxed)};
      list.pile.add(range);
      if (number >= open) list.announced.add(range);
    }
    slot.end.store(0, std::memory_order_relaxed);
    slot.begin.store(0, std::memory_order_release);
  }
  list.emptied.store(to, std::memory_order_release);
  if (list.overflow.exchange(false, std::memory_order_acquire)) {
    list.pile.everything();
    if (open != kSettled) list.announced.everything();
  }
}

// The owner empties its own ring; false in a signal handler that interrupted another emptying of it.
bool spill(List& list) {
  if (list.holder.is_mine()) return false;
  const Hold hold(list.holder);
  const std::uint64_t from = list.taken.load(std::memory_order_relaxed);
  const std::uint64_t to = list.pushed.load(std::memory_order_relaxed);
  list.taken.store(to, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // or a handler that widens a slot may not see that it is taken
  drain(list, from, to);
  list.pile.prepare(kRing);
  return true;
}

// False if the slot was taken while it was filled: then the range may have been missed.
[[gnu::always_inline]] inline bool fill_slot(List& list, StoredRange range) {
  const std::uint64_t number = claim_slot(list.pushed);
  Slot& slot = list.slot(number);
  slot.end.store(range.end, std::memory_order_relaxed);
  slot.begin.store(range.begin, std::memory_order_release);
  return !is_taken(list, number);
}
std::uint64_t used_slots(const List& list) {
  return list.pushed.load(std::memory_order_relaxed) - list.emptied.load(std::memory_order_acquire);
}

// Stores of threads that found no memory for a list. Belongs to every thread.
List g_unlisted;

void end_list(void* value) {
  auto* const list = static_cast<List*>(value);
  t_list = nullptr;  // a later destructor of this thread that stores makes another list
  list->open.store(kSettled, std::memory_order_relaxed);
  list->use.store(Use::ended, std::memory_order_release);
}

List* own(List* list) {
  list->thread.store(this_thread_number(), std::memory_order_relaxed);
  t_list = list;
  if (g_has_key.load(std::memory_order_acquire)) (void)::pthread_setspecific(g_key, list);
  return list;
}

[[gnu::noinline]] List* make_list() {
  for (List* list = g_lists.load(std::memory_order_acquire); list != nullptr; list = list->next) {
    Use idle = Use::idle;
    if (list->use.compare_exchange_strong(idle, Use::owned, std::memory_order_acquire)) return own(list);
  }
  void* const memory =
      ::mmap(nullptr, sizeof(List), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  List* const list = new (memory) List;
  list->use.store(Use::owned, std::memory_order_relaxed);
  list->next = g_lists.load(std::memory_order_relaxed);
  while (!g_lists.compare_exchange_weak(list->next, list, std::memory_order_release)) {
  }
  return own(list);
}

List& list_of_this_thread() {
  List* list = t_list;
  if (list == nullptr) list = make_list();
  return list != nullptr ? *list : g_unlisted;
}

// Takes the stores of atomic accesses that are under way. Comes before the look at `pushed`: an access that has ended
// by then is in the ring.
void add_atomics(List& list) {
  const std::uint32_t count = std::min(list.atomics.load(std::memory_order_acquire), kNested);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Slot& at = list.atomic_at[i];
    const std::uintptr_t begin = at.begin.load(std::memory_order_acquire);
    // Acquire: if this is the end of a later access, the one that has begun here has ended and is in the ring.
    if (begin != 0) list.pile.add({begin, at.end.load(std::memory_order_acquire)});
  }
}

// Holds the lists of a thread, or all, with their ranges in their piles.
class Taking {
 public:
  explicit Taking(ThreadNumber thread) : thread_(thread) {
    const ThreadNumber self = this_thread_number();
    settle_stores();
    // The program may know of another thread's store by a relaxed load.
    std::atomic_thread_fence(std::memory_order_acquire);
    hold(g_unlisted);
    take_all_at_once();
    bool others = false;
    each([&](List& list) {
      // Acquire: if its thread has ended, all of its slots are filled.
      others = others || (list.use.load(std::memory_order_acquire) == Use::owned &&
                          list.thread.load(std::memory_order_relaxed) != self);
    });
    std::atomic_signal_fence(std::memory_order_seq_cst);  // as in spill()
    const bool is_missing_some = others && !barrier_of_all_threads();
    each([&](List& list) {
      list.pile.add_all(list.announced);
      drain(list, list.emptied.load(std::memory_order_relaxed), list.taken.load(std::memory_order_relaxed));
      if (is_missing_some) list.pile.everything();
    });
  }
  ~Taking() {
    each([](List& list) {
      list.held = false;
      list.pile.prepare(list.pile.is_empty() ? 0 : kRing);
      if (&list != &g_unlisted && list.use.load(std::memory_order_acquire) == Use::ended && list.pile.is_empty() &&
          list.pushed.load(std::memory_order_relaxed) == list.taken.load(std::memory_order_relaxed)) {
        list.atomics.store(0, std::memory_order_relaxed);
        list.holder.unlock();
        list.use.store(Use::idle, std::memory_order_release);
      } else {
        list.holder.unlock();
      }
    });
  }
  Taking(const Taking&) = delete;
  Taking& operator=(const Taking&) = delete;

  template <class Act>
  void each(Act&& act) {
    for (List* list = first_; list != nullptr; list = list->next) {
      if (list->held) act(*list);
    }
    act(g_unlisted);
  }

 private:
  static void hold(List& list) {
    list.holder.lock();
    list.held = true;
  }
  void hold_new_lists() {
    List* const newest = g_lists.load(std::memory_order_acquire);
    for (List* list = newest; list != first_; list = list->next) {
      if (is_wanted(*list)) hold(*list);
    }
    first_ = newest;
  }
  // ORDER all-rings-at-once: a store that another thread has seen before it stored is taken with that thread's store,
  // or before. No list has moved, and none has come, between two looks that find the same. That comes to an end: no
  // thread empties a ring meanwhile, and the owner of a full one waits. [test
  // StoreLists.TakeNoStoreWithoutTheOneBeforeIt]
  void take_all_at_once() {
    const List* newest = nullptr;
    std::uint64_t before = 0;
    for (bool is_first = true;; is_first = false) {
      hold_new_lists();
      std::uint64_t sum = 0;  // no count ever falls
      each([&](List& list) {
        add_atomics(list);
        const std::uint64_t to = list.pushed.load(std::memory_order_acquire);
        list.taken.store(to, std::memory_order_relaxed);
        sum += to;
      });
      if (!is_first && sum == before && first_ == newest) return;
      before = sum;
      newest = first_;
    }
  }
  // An idle list may get another thread at any time, so this is asked once, when the list is held.
  [[nodiscard]] bool is_wanted(const List& list) const {
    return thread_ == kAllThreads || list.thread.load(std::memory_order_relaxed) == thread_;
  }

  List* first_ = nullptr;
  ThreadNumber thread_;
};

// A loop that stores to consecutive elements, or to the same element again, makes one range. One comparison tells
// whether the range begins within the last one: with two, of which the first goes either way for scattered stores,
// the processor would wait for the address in every second call. An end of 0, of a slot that is being emptied, may
// pass; then the slot is taken. Slots before `from` are left as they are.
[[gnu::always_inline]] inline bool joins_last(List& list, std::uint64_t from, StoredRange range) {
  const std::uint64_t pushed = list.pushed.load(std::memory_order_relaxed);
  if (pushed <= from) return false;
  Slot& last = list.slot(pushed - 1);
  const std::uintptr_t begin = last.begin.load(std::memory_order_relaxed);
  const std::uintptr_t end = last.end.load(std::memory_order_relaxed);
  return range.begin - begin <= end - begin && (range.end <= end || widen(last.end, end, range.end)) &&
         !is_taken(list, pushed - 1);
}

// The rare part of record_store(). Apart from it, so that the usual way keeps no registers.
[[gnu::noinline, gnu::cold]] void record_slowly(StoredRange range) {
  List& list = list_of_this_thread();
  if (&list == &g_unlisted) return list.overflow.store(true, std::memory_order_release);
  do {
    const std::uint64_t used = used_slots(list);
    if (used >= kRing - kSpare && !spill(list) && used >= kRing - kNested) {
      return list.overflow.store(true, std::memory_order_release);
    }
  } while (!fill_slot(list, range));
}

void write_cell(TrackedAddresses* cell) {
  std::atomic_ref(cell->low).store(watched().addresses.low, std::memory_order_release);
  std::atomic_ref(cell->high).store(watched().addresses.high, std::memory_order_release);
}

}  // namespace

void record_store(std::uintptr_t begin, std::uintptr_t end) noexcept {
  List* const list = t_list;
  if (list == nullptr) return record_slowly({begin, end});
  if (joins_last(*list, 0, {begin, end})) return;
  if (used_slots(*list) >= kRing - kSpare || !fill_slot(*list, {begin, end})) record_slowly({begin, end});
}

void announce_store(std::uintptr_t begin, std::uintptr_t end) noexcept {
  List& list = list_of_this_thread();
  const std::uint64_t open = list.open.load(std::memory_order_relaxed);
  if (open == kSettled) {
    // The list of threads that have none stays open.
    const bool is_own = &list != &g_unlisted;
    list.open.store(is_own ? list.pushed.load(std::memory_order_relaxed) : 0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  } else if (joins_last(list, open, {begin, end})) {
    return;
  }
  if (&list == &g_unlisted || used_slots(list) >= kRing - kSpare || !fill_slot(list, {begin, end})) {
    record_slowly({begin, end});
  }
}

void settle_stores() noexcept {
  if (List* const list = t_list; list != nullptr) list->open.store(kSettled, std::memory_order_release);
}

void begin_atomic_store(std::uintptr_t begin, std::uintptr_t end) noexcept {
  List& list = list_of_this_thread();
  if (&list == &g_unlisted) return list.overflow.store(true, std::memory_order_release);
  // Counted first, so that a signal handler that runs now takes another slot.
  const std::uint32_t depth = list.atomics.load(std::memory_order_relaxed);
  list.atomics.store(depth + 1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  Slot& at = list.atomic_at[std::min(depth, kNested - 1)];
  const bool shared = depth >= kNested - 1;
  at.end.store(shared ? std::max(at.end.load(std::memory_order_relaxed), end) : end, std::memory_order_release);
  const std::uintptr_t least = at.begin.load(std::memory_order_relaxed);
  at.begin.store(shared && least != 0 ? std::min(least, begin) : begin, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
}

void end_atomic_store(std::uintptr_t begin, std::uintptr_t end, bool stored) noexcept {
  if (stored) record_store(begin, end);
  List& list = list_of_this_thread();
  const std::uint32_t depth = list.atomics.load(std::memory_order_relaxed);
  if (depth > 0) list.atomics.store(depth - 1, std::memory_order_release);
}

Status take_stores(ThreadNumber thread, StoredRange memory, std::vector<StoredBy>& taken) {
  const Hold one(g_takers);
  Taking taking(thread);
  std::uint64_t count = 0;
  taking.each([&count](const List& list) { count += list.pile.count(); });
  taken.reserve(taken.size() + count);
  taking.each([&](List& list) {
    list.pile.take(memory, list.thread.load(std::memory_order_relaxed), taken);
    if (!list.pile.is_everything()) return;
    list.pile.nothing_else();
    for (const StoredRange& other : watched().regions) {
      if (other.begin != memory.begin) list.pile.add(other);
    }
  });
  return kOk;
}

void add_tracked_addresses(TrackedAddresses* cell) noexcept {
  const Hold one(g_takers);
  watched().cells.push_back(cell);
  write_cell(cell);
}

void remove_tracked_addresses(TrackedAddresses* cell) noexcept {
  const Hold one(g_takers);
  std::erase(watched().cells, cell);
}

Status watch_stores(StoredRange memory) {
  const Hold one(g_takers);
  watched().regions.push_back(memory);
  if (!g_has_key.load(std::memory_order_relaxed)) {
    if (const int error = ::pthread_key_create(&g_key, end_list); error != 0) {
      watched().regions.pop_back();
      return fail_errno(error, Detail::tracker, "cannot tell when threads end");
    }
    g_has_key.store(true, std::memory_order_release);
  }
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) g_owners_fence.store(true);
  watched().addresses.low = std::min(watched().addresses.low, memory.begin - kTrackedMargin);
  watched().addresses.high = std::max(watched().addresses.high, memory.end + kTrackedMargin);
  for (TrackedAddresses* const cell : watched().cells) write_cell(cell);
  return kOk;
}

void unwatch_stores(StoredRange memory) noexcept {
  const Hold one(g_takers);
  std::erase_if(watched().regions, [memory](StoredRange each) { return each.begin == memory.begin; });
  {
    Taking taking(kAllThreads);
    taking.each([memory](List& list) { list.pile.drop(memory), list.announced.drop(memory); });
  }
  if (!watched().regions.empty()) return;
  watched().addresses = {};
  for (TrackedAddresses* const cell : watched().cells) write_cell(cell);
}

}  // namespace memlith::core
