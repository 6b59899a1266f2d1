// SIGNAL CONTEXT: everything below handle_fault() runs inside a signal handler. No allocation, no locks but the spinning
// one of the region, no trace, and errno is kept. mprotect(2) is not on POSIX's list of async-signal-safe functions, but
// on Linux it is a bare system call.
#include "region/trackers/fault_handler.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <mutex>

#include "base/units.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kRegionsMax = 256;
ProtectedRegion g_regions[kRegionsMax];
struct sigaction g_previous{};

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
    for (ProtectedRegion& region : g_regions) {
      const std::uintptr_t end = region.end.load(std::memory_order_acquire);
      const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
      if (end == 0 || address < begin || address >= end) continue;
      acquire(region);
      const std::uintptr_t page = address & ~(kPageBytes - 1);
      bool made = ::mprotect(reinterpret_cast<void*>(page), kPageBytes, PROT_READ | PROT_WRITE) == 0;
      if (made) {
        region.dirty[(page - begin) / kPageBytes].store(1, std::memory_order_relaxed);
      } else {
        // Too many separate stretches for the kernel (vm.max_map_count). The whole region in one needs none of its own;
        // the next persist then captures all of it, which is slow, and right.
        made = ::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
        for (std::uintptr_t i = 0; made && i < (end - begin) / kPageBytes; ++i) {
          region.dirty[i].store(1, std::memory_order_relaxed);
        }
      }
      release(region);
      if (!made) break;
      errno = saved_errno;
      return;
    }
  }
  pass_on(signal, info, context);
  errno = saved_errno;
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
  });
  if (error != 0) return fail_errno(error, Detail::tracker, "cannot catch SIGSEGV");
  return kOk;
}

}  // namespace

void acquire(ProtectedRegion& region) {
  for (int tries = 0; region.busy.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries > 100) ::sched_yield();
  }
}

void release(ProtectedRegion& region) { region.busy.store(false, std::memory_order_release); }

Result<ProtectedRegion*> claim_protected_region(std::byte* base, std::uint64_t bytes,
                                                std::atomic<std::uint8_t>* dirty) {
  MEMLITH_TRY(install_handler());
  static std::mutex claiming;
  const std::lock_guard lock(claiming);
  for (ProtectedRegion& region : g_regions) {
    if (region.end.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    region.dirty = dirty;
    region.begin.store(begin, std::memory_order_relaxed);
    region.end.store(begin + bytes, std::memory_order_release);
    return &region;
  }
  return fail(Errc::unsupported, Detail::tracker, "at most {} regions can be tracked by mprotect at a time",
              kRegionsMax);
}

void release_protected_region(ProtectedRegion* region) { region->end.store(0, std::memory_order_release); }

}  // namespace memlith::core
