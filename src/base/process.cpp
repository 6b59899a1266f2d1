#include "base/process.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "base/units.hpp"

namespace memlith::core {

std::atomic<ProcessMark*> g_process_mark{nullptr};

namespace {

std::atomic<bool> g_refused{false};  // the kernel has no such pages
// A child inherits it, so the child's number differs from its ancestors' numbers.
std::atomic<std::uint64_t> g_last_number{0};

// Without a lock, because a child might inherit the lock while it is held.
ProcessMark* make_mark() {
  void* const page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  ProcessMark* expected = nullptr;
  if (::madvise(page, kPageBytes, MADV_WIPEONFORK) == 0 &&
      g_process_mark.compare_exchange_strong(expected, static_cast<ProcessMark*>(page))) {
    return static_cast<ProcessMark*>(page);  // which is all zeros, as a mark is
  }
  ::munmap(page, kPageBytes);
  return expected;  // another thread's mark, or none
}

}  // namespace

std::uint64_t make_process_mark() {
  ProcessMark* mark = g_process_mark.load(std::memory_order_acquire);
  if (mark == nullptr && !g_refused.load(std::memory_order_relaxed)) {
    mark = make_mark();
    if (mark == nullptr) g_refused.store(true, std::memory_order_relaxed);
  }
  if (mark == nullptr) return static_cast<std::uint64_t>(::getpid());
  if (const std::uint64_t number = mark->load(std::memory_order_relaxed); number != 0) return number;
  std::uint64_t number = 0;
  const std::uint64_t fresh = g_last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  return mark->compare_exchange_strong(number, fresh) ? fresh : number;
}

}  // namespace memlith::core
