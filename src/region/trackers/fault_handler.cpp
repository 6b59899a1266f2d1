// SIGNAL CONTEXT: everything below handle_fault() runs inside a signal handler. No allocation, no locks but the spinning
// one of the region, no trace, and errno is kept. mprotect(2), mremap(2) and ioctl(2) are not on POSIX's list of
// async-signal-safe functions, but on Linux they are bare system calls.
#include "region/trackers/fault_handler.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "region/trackers/userfaultfd.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kRegionsMax = 256;
FaultRegion g_regions[kRegionsMax];
struct sigaction g_previous_segv{};
struct sigaction g_previous_bus{};

void acquire(FaultRegion& region) {
  for (int tries = 0; region.busy.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries > 100) ::sched_yield();
  }
}

void release(FaultRegion& region) { region.busy.store(false, std::memory_order_release); }

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = signal == SIGBUS ? g_previous_bus : g_previous_segv;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
    return;
  }
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
    return;
  }
  // Nobody else wants it: the fault strikes again, now with the default action, and the core dump shows the right place.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
}

// A SIGBUS from a page that is not adopted is a real one, from a file that was cut short, unless another thread gave the
// chunk's memory back after the signal was raised. Then the store succeeds or faults otherwise when it is tried once more.
bool struck_twice(std::uintptr_t address) {
  [[gnu::tls_model("initial-exec")]] thread_local std::uintptr_t last = 0;
  const bool again = last == address;
  last = again ? 0 : address;
  return again;
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (signal == SIGBUS ? info->si_code == BUS_ADRERR : info->si_code == SEGV_ACCERR) {
    for (FaultRegion& region : g_regions) {
      const std::uintptr_t end = region.end.load(std::memory_order_acquire);
      const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
      if (end == 0 || address < begin || address >= end) continue;
      acquire(region);
      bool made = false;
      if (signal == SIGBUS && (region.pages == nullptr || !region.pages->adopted((address - begin) / kPageBytes))) {
        made = region.pages != nullptr && !struck_twice(address);
      } else {
        made = region.pages == nullptr || take_page(region, (address - begin) / kPageBytes, this_thread_number());
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

// A fork that happened while another thread held a region leaves the child without that thread, and nobody to let go. And the
// userfaultfd that it inherited is the parent's: what is asked of it happens in the parent's memory.
void let_go_in_child() {
  for (FaultRegion& region : g_regions) {
    release(region);
    if (region.end.load(std::memory_order_relaxed) != 0 && region.pages != nullptr) region.pages->uffd = -1;
  }
}

Status install_handler() {
  static std::once_flag once;
  static int error = 0;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigfillset(&action.sa_mask);  // a handler of the program's own that stores to the region must not come between
    if (::sigaction(SIGSEGV, &action, &g_previous_segv) != 0) error = errno;
    if (::sigaction(SIGBUS, &action, &g_previous_bus) != 0) error = errno;
    ::pthread_atfork(nullptr, nullptr, let_go_in_child);
  });
  if (error != 0) return fail_errno(error, Detail::tracker, "cannot catch SIGSEGV and SIGBUS");
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

// Moves a chunk that lies in the region whole. Whatever fails, what the pages hold stays, and stores to them go on faulting.
void adopt(FaultPages& pages, std::uint64_t chunk) {
  std::byte* const place = pages.base + chunk * kChunkBytes;
  std::byte* const made = pages.mirror + chunk * kChunkBytes;
  std::uint8_t& state = pages.chunks[chunk];
  state = kRefused;
  // Pages that were stored to are writable; from here on those stores fault, too, and wait for us.
  if (::mprotect(place, kChunkBytes, PROT_READ) != 0) return;
  if (!copy_pages(pages.uffd, made, place, kChunkBytes) ||
      ::mremap(made, kChunkBytes, kChunkBytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place) == MAP_FAILED) {
    (void)::madvise(made, kChunkBytes, MADV_DONTNEED);
    return;
  }
  state = kAnonymous;
  if (register_range(pages.uffd, place, kChunkBytes, UFFDIO_REGISTER_MODE_WP) &&
      write_protect(pages.uffd, place, kChunkBytes, true) &&
      ::mprotect(place, kChunkBytes, PROT_READ | PROT_WRITE) == 0) {
    state = kAdopted;
  } else {
    unregister_range(pages.uffd, place, kChunkBytes);
  }
}

}  // namespace

std::uint64_t FaultPages::same_kind_until(std::uint64_t first, std::uint64_t end) const {
  const bool kind = adopted(first);
  std::uint64_t at = std::min((first / kChunkPages + 1) * kChunkPages, end);
  while (at < end && adopted(at) == kind) at = std::min(at + kChunkPages, end);
  return at;
}

bool set_writable(const FaultPages& pages, std::uint64_t first, std::uint64_t end, bool writable) {
  while (first < end) {
    const std::uint64_t next = pages.same_kind_until(first, end);
    std::byte* const at = pages.base + first * kPageBytes;
    const std::uint64_t bytes = (next - first) * kPageBytes;
    if (pages.adopted(first)) {
      if (pages.uffd >= 0 && !write_protect(pages.uffd, at, bytes, !writable)) return false;
    } else {
      if (::mprotect(at, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) != 0) return false;
    }
    first = next;
  }
  return true;
}

bool take_page(FaultRegion& region, std::uint64_t page, ThreadNumber thread) {
  FaultPages& pages = *region.pages;
  if (pages.marks[page].thread == 0) {
    const bool captured = pages.marks[page].twin == kNoTwinNow;
    mark(pages, page, {thread, captured ? 0 : copy_twin(pages, pages.base + page * kPageBytes)});
    const std::uint64_t chunk = page / kChunkPages;
    const bool movable = pages.uffd >= 0 && (chunk + 1) * kChunkBytes <= pages.bytes;
    if (movable && pages.chunks[chunk] < kAdoptAfter && ++pages.chunks[chunk] == kAdoptAfter) adopt(pages, chunk);
  }
  if (set_writable(pages, page, page + 1, true)) return true;
  // Too many separate stretches for the kernel (vm.max_map_count). The whole region in one needs none of its own; but who
  // stores where is not known any more, and the next persist of the process captures all of it, which is slow, and right.
  if (::mprotect(pages.base, pages.bytes, PROT_READ | PROT_WRITE) != 0) return false;
  for (std::uint64_t i = 0; i < pages.bytes / kPageBytes; ++i) {
    if (pages.marks[i].thread != 0 || pages.adopted(i)) continue;
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
