// SIGNAL CONTEXT: everything below handle_fault() runs inside a signal handler. No allocation, no locks but the
// spinning one of the region, no trace, and errno is kept. mprotect(2), mremap(2) and ioctl(2) are not on POSIX's list
// of async-signal-safe functions, but on Linux they are bare system calls.
#include "region/trackers/fault_handler.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "base/process.hpp"
#include "region/trackers/store_steps.hpp"
#include "region/trackers/userfaultfd.hpp"

namespace memlith::core {

namespace {

// The handler walks the table without a lock: entries never move, and a linked group of entries is never removed.
struct FaultRegionGroup {
  static constexpr std::size_t kRegions = 256;
  FaultRegion regions[kRegions];
  std::atomic<FaultRegionGroup*> next{nullptr};  // release in claim_fault_region(), acquire in the handler
};
FaultRegionGroup g_regions;
struct sigaction g_previous_segv{};
struct sigaction g_previous_bus{};
std::atomic<bool> g_spent_segv{false};  // SA_RESETHAND: the handler was called already
std::atomic<bool> g_spent_bus{false};

constexpr SignalSet kAllSignals = ~(bit_of(SIGKILL) | bit_of(SIGSTOP));

// Returns the signals that were blocked before.
SignalSet block_signals(SignalSet signals) {
  SignalSet before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals, &before, sizeof signals);
  return before;
}

void release(FaultRegion& region) { region.busy.store(false, std::memory_order_release); }

// If another thread held a region during a fork, the child lacks that thread, and the region would never be released.
// The inherited userfaultfd belongs to the parent: its calls act on the parent's memory. Pages that were read-only for
// a moment would stay read-only forever.
void let_go_in_child(FaultRegion& region) {
  release(region);
  const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
  const std::uintptr_t end = region.end.load(std::memory_order_relaxed);
  if (end == 0) return;
  if (region.pages != nullptr) {
    region.pages->uffd = -1;
  } else if (region.shut) {
    region.shut = ::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0;
  }
}

// Checked at each use, because not every way of forking calls the handlers of pthread_atfork(3), and the program's own
// handlers may store to a region before memlith's handlers run.
void make_own(FaultRegion& region) {
  const std::uint64_t own = 2 * process_mark();
  std::uint64_t seen = region.process.load(std::memory_order_acquire);
  if (seen == own) return;
  if (seen != own + 1 && region.process.compare_exchange_strong(seen, own + 1, std::memory_order_acquire)) {
    let_go_in_child(region);
    region.process.store(own, std::memory_order_release);
  }
  // Waits for another thread of the child.
  while (region.process.load(std::memory_order_acquire) != own) ::sched_yield();
}

void acquire(FaultRegion& region) {
  make_own(region);
  for (int tries = 0; region.busy.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries > 100) ::sched_yield();
  }
}

// Handles a signal that does not concern a region as the kernel would have done with the handler that was installed
// before. tools/memlith.gdb knows the function by its name.
[[gnu::noinline]] void pass_on_fault(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = signal == SIGBUS ? g_previous_bus : g_previous_segv;
  std::atomic<bool>& spent = signal == SIGBUS ? g_spent_bus : g_spent_segv;
  const bool handled = previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN;
  const bool once = (previous.sa_flags & SA_RESETHAND) != 0;
  if (handled && !(once && spent.exchange(true, std::memory_order_relaxed))) {
    SignalSet mask = 0;
    SignalSet interrupted = 0;
    std::memcpy(&mask, &previous.sa_mask, sizeof mask);
    std::memcpy(&interrupted, &static_cast<const ucontext_t*>(context)->uc_sigmask, sizeof interrupted);
    if ((previous.sa_flags & SA_NODEFER) == 0) mask |= bit_of(signal);
    block_signals(interrupted | mask);
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(signal, info, context);
    } else {
      previous.sa_handler(signal);
    }
    block_signals(kAllSignals);
    return;
  }
  const bool sent = info->si_code <= 0;  // by kill(2) and similar calls
  if (sent && previous.sa_handler == SIG_IGN) return;
  // No other handler: the fault strikes again, now with the default action, and the core dump shows the right place.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (sent) (void)::raise(signal);  // strikes when signals are unblocked
}

// A SIGBUS from a page that is not adopted is genuine (a file that was cut short), unless another thread released the
// chunk's memory after the signal was raised. In that case the store succeeds, or faults differently, when it is tried
// again. Likewise a SIGSEGV from a region that is open to stores, unless the region was shut for a release. (Two such
// signals with a served store or a release in between are unrelated.)
struct Strike {
  std::uintptr_t address;
  std::uint64_t releases;
};
[[gnu::tls_model("initial-exec")]] thread_local Strike t_last_strike{};

// Under busy.
bool struck_twice(const FaultRegion& region, std::uintptr_t address) {
  const bool again = t_last_strike.address == address && t_last_strike.releases == region.releases;
  t_last_strike = again ? Strike{} : Strike{address, region.releases};
  return again;
}

bool lies_in(const FaultRegion& region, std::uintptr_t address) {
  const std::uintptr_t end = region.end.load(std::memory_order_acquire);
  return end != 0 && address >= region.begin.load(std::memory_order_relaxed) && address < end;
}

// True if the fault can have been a store. A read or a jump that was taken for a store would fault forever.
bool may_be_store([[maybe_unused]] const void* context, [[maybe_unused]] std::uintptr_t address) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;  // bit of a page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#elif defined(__aarch64__)
  // The kernel's records behind the registers; one has what the processor says of the fault.
  constexpr std::uint64_t kDataAbort = 0x24;
  constexpr std::uint64_t kWrite = 1 << 6;
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  _aarch64_ctx head{};
  for (std::size_t at = 0; at + sizeof(esr_context) <= sizeof machine.__reserved; at += head.size) {
    std::memcpy(&head, machine.__reserved + at, sizeof head);
    if (head.magic == 0 || head.size < sizeof head) break;
    if (head.magic != ESR_MAGIC) continue;
    esr_context record{};
    std::memcpy(&record, machine.__reserved + at, sizeof record);
    return record.esr >> 26 == kDataAbort && (record.esr & kWrite) != 0;
  }
  return machine.pc != address;
#else
  return true;
#endif
}

// False: the fault is no store to a region, or the kernel refuses to make the page writable.
bool let_store(int signal, std::uintptr_t address, void* context) {
  for (FaultRegionGroup* group = &g_regions; group != nullptr; group = group->next.load(std::memory_order_acquire)) {
    for (FaultRegion& region : group->regions) {
      if (!lies_in(region, address)) continue;
      acquire(region);
      if (!lies_in(region, address)) {  // the entry belonged to another region before
        release(region);
        continue;
      }
      const std::uint64_t page = (address - region.begin.load(std::memory_order_relaxed)) / kPageBytes;
      bool made = false;
      bool watched = false;
      if (region.pages == nullptr) {
        // A page that a release could not make writable again may be writable by now.
        void* const place = reinterpret_cast<void*>(round_down(address, host_page_bytes()));
        made = signal == SIGSEGV && (region.shut ? ::mprotect(place, host_page_bytes(), PROT_READ | PROT_WRITE) == 0
                                                 : !struck_twice(region, address));
      } else if (signal == SIGBUS && !region.pages->adopted(page)) {
        made = !struck_twice(region, address);
      } else {
        const ThreadNumber thread = this_thread_number();
        watched = region.pages->watched != nullptr;
        if (watched) note_store(*region.pages, page, thread, address % kPageBytes, code_of(context));
        made = take_stored_page(region, page, thread);
        t_last_strike = {};
      }
      release(region);
      if (made && watched) step_store(region, page, context);
      return made;
    }
  }
  return false;
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // The kernel has blocked all signals, but a handler of the program that passes on to this one may run with signals
  // unblocked. A signal handler that stored to the region now would wait for this thread forever. (Only a system call
  // tells which signals are blocked: a handler that ends with this call has been left before, so the stack is as the
  // kernel made it.)
  const SignalSet before = block_signals(kAllSignals);
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool ours =
      signal == SIGBUS ? info->si_code == BUS_ADRERR : info->si_code == SEGV_ACCERR && may_be_store(context, address);
  if (!ours || !let_store(signal, address, context)) pass_on_fault(signal, info, context);
  if (before != kAllSignals) block_signals(before);
  errno = saved_errno;
}

Status install_handler() {
  static std::once_flag once;
  static int error = 0;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // No signal handler of the program that stores to the region may run in between.
    std::memset(&action.sa_mask, 0xff, sizeof action.sa_mask);
    (void)process_mark();  // creates its page, which is impossible in the handler
    order_forks_before_handler();
    const std::lock_guard lock(installing_handlers());
    // The old handler is read first: another thread may fault before the call that installs memlith's handler returns.
    if (::sigaction(SIGSEGV, nullptr, &g_previous_segv) != 0) error = errno;
    if (::sigaction(SIGBUS, nullptr, &g_previous_bus) != 0) error = errno;
    if (::sigaction(SIGSEGV, &action, nullptr) != 0) error = errno;
    if (::sigaction(SIGBUS, &action, nullptr) != 0) error = errno;
  });
  if (error != 0) return fail_errno(error, Detail::tracker, "cannot catch SIGSEGV and SIGBUS");
  return kOk;
}

void mark(FaultPages& pages, std::uint64_t number, PageMark mark) {
  pages.marks[number] = mark;
  pages.opened[number].store(1, std::memory_order_relaxed);
  pages.dirty[pages.dirty_count++] = static_cast<std::uint32_t>(number);
}

// With its twin, unless the page is being captured.
void mark_clean(FaultPages& pages, std::uint64_t page, ThreadNumber thread) {
  const bool captured = pages.marks[page].twin == kNoTwinNow;
  mark(pages, page, {thread, captured ? 0 : copy_twin(pages, pages.base + page * kPageBytes)});
}

// Makes units writable that were stored to or prepared. If the kernel refuses, a store to such a unit faults once more.
void let_marked_be_stored_to(const FaultPages& pages, std::uint64_t chunk) {
  const auto is_marked = [](PageMark each) { return each.thread != 0; };
  for (std::uint64_t page = chunk * kChunkPages; page < (chunk + 1) * kChunkPages; page += pages.unit) {
    const PageMark* const first = pages.marks + page;
    if (std::all_of(first, first + pages.unit, is_marked)) (void)set_writable(pages, page, page + pages.unit, true);
  }
}

// If the process reaches its limit of addresses (RLIMIT_AS), mremap(2) notices only after it has unmapped the chunk's
// place.
bool room_for_chunk() {
  void* const trial = ::mmap(nullptr, kChunkBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return trial != MAP_FAILED && ::munmap(trial, kChunkBytes) == 0;
}

// Moves a chunk that lies completely in the region. Whatever fails, the content of the pages stays, and stores to them
// still fault.
void adopt(FaultPages& pages, std::uint64_t chunk) {
  MEMLITH_ASSERT((chunk + 1) * kChunkBytes <= pages.bytes && pages.chunks[chunk] < kRefused);
  std::byte* const place = pages.base + chunk * kChunkBytes;
  std::byte* const made = pages.mirror + chunk * kChunkBytes;
  std::uint8_t& state = pages.chunks[chunk];
  state = kRefused;
  // Dirty pages are writable; from here on, stores to them fault, too, and wait in the handler.
  if (::mprotect(place, kChunkBytes, PROT_READ) != 0) return;
  if (!room_for_chunk() || !copy_pages(pages.uffd, made, place, kChunkBytes) ||
      ::mremap(made, kChunkBytes, kChunkBytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place) == MAP_FAILED) {
    (void)::madvise(made, kChunkBytes, MADV_DONTNEED);
    return let_marked_be_stored_to(pages, chunk);
  }
  if (register_range(pages.uffd, place, kChunkBytes, UFFDIO_REGISTER_MODE_WP) &&
      write_protect(pages.uffd, place, kChunkBytes, true)) {
    state = kAdopted;
    let_marked_be_stored_to(pages, chunk);
    if (::mprotect(place, kChunkBytes, PROT_READ | PROT_WRITE) == 0) return;
  }
  (void)unregister_range(pages.uffd, place, kChunkBytes);
  state = kAnonymous;
  let_marked_be_stored_to(pages, chunk);
}

// The kernel may be storing to a prepared page; moving the page meanwhile would lose these bytes.
bool has_prepared(const FaultPages& pages, std::uint64_t chunk) {
  if (pages.prepared_count == 0) return false;
  const std::uint8_t* const first = pages.prepared + chunk * kChunkPages;
  return std::any_of(first, first + kChunkPages, [](std::uint8_t each) { return each != 0; });
}

// A page of the chunk was stored to or is about to be.
void count_store(FaultPages& pages, std::uint64_t chunk) {
  if (pages.uffd < 0 || (chunk + 1) * kChunkBytes > pages.bytes || pages.chunks[chunk] >= kAdoptAfter) return;
  if (!has_prepared(pages, chunk) && ++pages.chunks[chunk] == kAdoptAfter) adopt(pages, chunk);
}

// True if all pages of the chunk shall become writable. Pages that are being captured have no twins now.
bool has_pattern(const FaultPages& pages, std::uint64_t chunk) {
  if (!pages.opens_neighbours || pages.stored[chunk] < kPatternPages) return false;
  if ((chunk + 1) * kChunkBytes > pages.bytes) return false;
  if (pages.twins_max - pages.next_twin + pages.free_count < kChunkPages) return false;
  const PageMark* const first = pages.marks + chunk * kChunkPages;
  return std::none_of(first, first + kChunkPages, [](PageMark each) { return each.twin == kNoTwinNow; });
}

}  // namespace

std::uint64_t FaultPages::same_kind_until(std::uint64_t first, std::uint64_t end) const {
  MEMLITH_ASSERT(first < end);
  const bool kind = adopted(first);
  std::uint64_t at = std::min((first / kChunkPages + 1) * kChunkPages, end);
  while (at < end && adopted(at) == kind) at = std::min(at + kChunkPages, end);
  return at;
}

// The page is protected, so no thread changes it meanwhile. A separate function, so that ThreadSanitizer's suppressions
// can name it.
[[gnu::noinline]] std::uint32_t copy_twin(FaultPages& pages, const std::byte* page) {
  std::uint32_t index = 0;
  if (pages.free_count > 0) {
    index = pages.free_twins[--pages.free_count];
  } else if (pages.next_twin < pages.twins_max) {
    index = pages.next_twin++;
  } else {
    return 0;
  }
  MEMLITH_ASSERT(index < pages.next_twin && pages.next_twin <= pages.twins_max);
  std::memcpy(pages.twins + std::uint64_t{index} * kPageBytes, page, kPageBytes);
  return index + 1;
}

bool set_writable(const FaultPages& pages, std::uint64_t first, std::uint64_t end, bool writable) {
  first = round_down(first, pages.unit);
  end = round_up(end, pages.unit);
  while (first < end) {
    const std::uint64_t next = pages.same_kind_until(first, end);
    std::byte* const at = pages.base + first * kPageBytes;
    const std::uint64_t bytes = (next - first) * kPageBytes;
    if (pages.adopted(first) && pages.uffd >= 0) {
      if (!write_protect(pages.uffd, at, bytes, !writable)) return false;
    } else if (writable || !pages.adopted(first)) {
      if (::mprotect(at, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) != 0) return false;
    }
    first = next;
  }
  return true;
}

void mark_neighbours(FaultPages& pages, std::uint64_t first, std::uint64_t end, ThreadNumber thread) {
  if (pages.unit == 1) return;
  for (std::uint64_t page = round_down(first, pages.unit); page < round_up(end, pages.unit); ++page) {
    if ((page < first || page >= end) && pages.marks[page].thread == 0) mark_clean(pages, page, thread);
  }
}

void mark_for(FaultPages& pages, std::uint64_t begin, std::uint64_t end, ThreadNumber thread) {
  for (std::uint64_t page = begin / kPageBytes; page < end / kPageBytes; ++page) {
    PageMark& mark = pages.marks[page];
    if (mark.thread != 0 && mark.thread < kLeftOpen) mark.thread = thread;
    if (pages.watched != nullptr) pages.watched[page] = {};
  }
}

void copy_to_twins(FaultPages& pages, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t next = 0; begin < end; begin = next) {
    next = std::min(round_down(begin, kPageBytes) + kPageBytes, end);
    const PageMark mark = pages.marks[begin / kPageBytes];
    if (mark.thread == 0 || mark.twin == 0) continue;
    std::byte* const twin = pages.twins + std::uint64_t{mark.twin - 1} * kPageBytes;
    std::memcpy(twin + begin % kPageBytes, pages.base + begin, next - begin);
  }
}

bool take_pages(FaultRegion& region, std::uint64_t first, std::uint64_t end, ThreadNumber thread) {
  FaultPages& pages = *region.pages;
  mark_neighbours(pages, first, end, thread);
  for (std::uint64_t page = first, next = 0; page < end; page = next) {
    const std::uint64_t chunk = page / kChunkPages;
    bool any = false;
    for (next = std::min((chunk + 1) * kChunkPages, end); page < next; ++page) {
      if (pages.marks[page].thread != 0) continue;
      mark_clean(pages, page, thread);
      any = true;
    }
    if (any) count_store(pages, chunk);
  }
  if (set_writable(pages, first, end, true)) return true;
  // The process has too many mappings (vm.max_map_count). Making the whole region writable needs no further mapping,
  // but then it is unknown which thread stores where, and the next persist of process scope captures all of it: slow,
  // but correct. If the kernel refused the call half-way, some pages are writable, and it is unknown which.
  const bool made = ::mprotect(pages.base, pages.bytes, PROT_READ | PROT_WRITE) == 0;
  for (std::uint64_t i = 0; i < pages.bytes / kPageBytes; ++i) {
    if (pages.marks[i].thread != 0 || pages.adopted(i)) continue;
    mark(pages, i, {kUnknownThread, 0});
    ++pages.unknown_count;
  }
  return made;
}

// Held while the handler is installed, and by each fork(2).
std::mutex& installing_handlers() {
  static auto* const mutex = new std::mutex;  // never destroyed: a thread may fork while the process ends
  return *mutex;
}

bool take_stored_page(FaultRegion& region, std::uint64_t page, ThreadNumber thread) {
  const FaultPages& pages = *region.pages;
  const std::uint64_t chunk = page / kChunkPages;
  if (pages.marks[page].thread != 0 || !has_pattern(pages, chunk)) return take_pages(region, page, page + 1, thread);
  return take_pages(region, chunk * kChunkPages, (chunk + 1) * kChunkPages, thread);
}

void order_forks_before_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork([] { installing_handlers().lock(); }, [] { installing_handlers().unlock(); },
                     [] { installing_handlers().unlock(); });
  });
}

void note_store(FaultPages& pages, std::uint64_t page, ThreadNumber thread, std::uint64_t offset, std::uintptr_t code) {
  WatchedPage& watched = pages.watched[page];
  const ThreadNumber owner = pages.marks[page].thread;
  const StorePlace place{code, static_cast<std::uint32_t>(::gettid()), static_cast<std::uint32_t>(offset)};
  if (owner == 0) {
    watched = {place, {}, false};
  } else if (owner < kLeftOpen && owner != thread && watched.second.thread == 0) {
    watched.second = place;
  }
}

void protect_watched_page(FaultRegion& region, std::uint64_t page) {
  acquire(region);
  FaultPages* const pages = region.end.load(std::memory_order_relaxed) != 0 ? region.pages : nullptr;
  if (pages != nullptr && pages->watched != nullptr && pages->prepared[page] == 0 &&
      pages->marks[page].thread < kLeftOpen) {
    (void)set_writable(*pages, page, page + 1, false);
  }
  release(region);
}

FaultHold::FaultHold(FaultRegion& region) : region_(region), signals_(block_signals(kAllSignals)) { acquire(region_); }

FaultHold::~FaultHold() {
  release(region_);
  block_signals(signals_);
}

namespace {
// One at a time. Null: no memory.
FaultRegion* free_entry() {
  for (FaultRegionGroup* group = &g_regions;;) {
    for (FaultRegion& region : group->regions) {
      if (region.end.load(std::memory_order_relaxed) == 0) return &region;
    }
    FaultRegionGroup* next = group->next.load(std::memory_order_relaxed);
    if (next == nullptr) {
      next = new (std::nothrow) FaultRegionGroup;
      if (next == nullptr) return nullptr;
      // Release: a handler that sees the group sees its entries empty.
      group->next.store(next, std::memory_order_release);
    }
    group = next;
  }
}
}  // namespace

Result<FaultRegion*> claim_fault_region(std::byte* base, std::uint64_t bytes, FaultPages* pages) {
  MEMLITH_TRY(install_handler());
  static std::mutex claiming;
  const std::lock_guard lock(claiming);
  FaultRegion* const region = free_entry();
  if (region == nullptr) return fail(Errc::no_memory, Detail::tracker, "no memory to track one more region by faults");
  const FaultHold hold(*region);  // a handler may still be looking at the entry's former region
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  region->pages = pages;
  region->shut = false;
  region->begin.store(begin, std::memory_order_relaxed);
  region->end.store(begin + bytes, std::memory_order_release);
  return region;
}

void release_fault_region(FaultRegion* region) {
  const FaultHold hold(*region);
  region->end.store(0, std::memory_order_release);
}

}  // namespace memlith::core
