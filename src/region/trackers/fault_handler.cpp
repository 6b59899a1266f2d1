// SIGNAL CONTEXT: everything below handle_fault() runs inside a signal handler. No allocation, no locks but the spinning
// one of the region, no trace, and errno is kept. mprotect(2) is not on POSIX's list of async-signal-safe functions, but
// on Linux it is a bare system call.
#include "region/trackers/fault_handler.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/units.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kRegionsMax = 256;
FaultRegion g_regions[kRegionsMax];
struct sigaction g_previous{};

void acquire(FaultRegion& region) {
  for (int tries = 0; region.busy.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries > 100) ::sched_yield();
  }
}

void release(FaultRegion& region) { region.busy.store(false, std::memory_order_release); }

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0 && g_previous.sa_sigaction != nullptr) {
    g_previous.sa_sigaction(signal, info, context);
    return;
  }
  if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
    return;
  }
  // Nobody else wants it: the fault strikes again, now with the default action, and the core dump shows the right place.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGSEGV, &standard, nullptr);
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (info->si_code == SEGV_ACCERR) {
    for (FaultRegion& region : g_regions) {
      const std::uintptr_t end = region.end.load(std::memory_order_acquire);
      const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
      if (end == 0 || address < begin || address >= end) continue;
      acquire(region);
      const bool made =
          region.pages == nullptr || take_page(region, address & ~std::uintptr_t{kPageBytes - 1}, this_thread_number());
      release(region);
      if (!made) break;
      errno = saved_errno;
      return;
    }
  }
  pass_on(signal, info, context);
  errno = saved_errno;
}

// A fork that happened while another thread held a region leaves the child without that thread, and nobody to let go.
void let_go_in_child() {
  for (FaultRegion& region : g_regions) release(region);
}

Status install_handler() {
  static std::once_flag once;
  static int error = 0;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigfillset(&action.sa_mask);  // a handler of the program's own that stores to the region must not come between
    if (::sigaction(SIGSEGV, &action, &g_previous) != 0) error = errno;
    ::pthread_atfork(nullptr, nullptr, let_go_in_child);
  });
  if (error != 0) return fail_errno(error, Detail::tracker, "cannot catch SIGSEGV");
  return kOk;
}

// The page is protected, so nobody changes it meanwhile. A function of its own in stack traces: ThreadSanitizer cannot know that.
[[gnu::noinline]] std::uint32_t copy_twin(FaultPages& pages, const std::byte* page) {
  std::uint32_t index = 0;
  if (pages.free_count > 0) {
    index = pages.free_twins[--pages.free_count];
  } else if (pages.next_twin < pages.twins_max) {
    index = pages.next_twin++;
  } else {
    return 0;
  }
  std::memcpy(pages.twins + std::uint64_t{index} * kPageBytes, page, kPageBytes);
  return index + 1;
}

void mark(FaultPages& pages, std::uint64_t number, PageMark mark) {
  pages.marks[number] = mark;
  pages.dirty[pages.dirty_count++] = static_cast<std::uint32_t>(number);
}

}  // namespace

bool take_page(FaultRegion& region, std::uintptr_t page, ThreadNumber thread) {
  FaultPages& pages = *region.pages;
  const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
  const std::uint64_t number = (page - begin) / kPageBytes;
  if (pages.marks[number].thread == 0) {
    const bool captured = pages.marks[number].twin == kNoTwinNow;
    mark(pages, number, {thread, captured ? 0 : copy_twin(pages, reinterpret_cast<const std::byte*>(page))});
  }
  if (::mprotect(reinterpret_cast<void*>(page), kPageBytes, PROT_READ | PROT_WRITE) == 0) return true;
  // Too many separate stretches for the kernel (vm.max_map_count). The whole region in one needs none of its own; but who
  // stores where is not known any more, and the next persist of the process captures all of it, which is slow, and right.
  const std::uintptr_t end = region.end.load(std::memory_order_relaxed);
  if (::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  for (std::uint64_t i = 0; i < (end - begin) / kPageBytes; ++i) {
    if (pages.marks[i].thread != 0) continue;
    mark(pages, i, {kUnknownThread, 0});
    ++pages.unknown_count;
  }
  return true;
}

FaultHold::FaultHold(FaultRegion& region) : region_(region) {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &signals_);
  acquire(region_);
}

FaultHold::~FaultHold() {
  release(region_);
  ::pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

Result<FaultRegion*> claim_fault_region(std::byte* base, std::uint64_t bytes, FaultPages* pages) {
  MEMLITH_TRY(install_handler());
  static std::mutex claiming;
  const std::lock_guard lock(claiming);
  for (FaultRegion& region : g_regions) {
    if (region.end.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    region.pages = pages;
    region.begin.store(begin, std::memory_order_relaxed);
    region.end.store(begin + bytes, std::memory_order_release);
    return &region;
  }
  return fail(Errc::unsupported, Detail::tracker, "at most {} regions can be tracked by faults at a time", kRegionsMax);
}

void release_fault_region(FaultRegion* region) { region->end.store(0, std::memory_order_release); }

}  // namespace memlith::core
