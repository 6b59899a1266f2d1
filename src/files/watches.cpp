#include "files/watches.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "base/host.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"

namespace memlith::core {

namespace {
constexpr std::size_t kRangesPerScan = 512;
}  // namespace

// Belongs to one process. A forked child gets another: its parent's descriptors are of the parent's memory, and a
// thread that the child does not have may hold the mutex.
struct Watches::Registry {
  std::uint64_t process = 0;
  Mutex mutex;
  std::weak_ptr<Marks> shared MEMLITH_GUARDED_BY(mutex);
};

Watches::Registry& Watches::registry() {
  static std::atomic<Registry*> latest{nullptr};
  Registry* found = latest.load(std::memory_order_acquire);  // pairs with the exchange below
  while (found == nullptr || found->process != process_mark()) {
    auto made = std::make_unique<Registry>();
    made->process = process_mark();
    // The parent's object stays as it is.
    if (latest.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) found = made.release();
  }
  return *found;
}

Result<std::shared_ptr<Watches::Marks>> Watches::marks_of_process() {
  Registry& own = registry();
  const LockGuard lock(own.mutex);
  if (std::shared_ptr<Marks> shared = own.shared.lock()) return shared;
  MEMLITH_TRY(probe_scan());
  MEMLITH_TRY_ASSIGN(FileDescriptor uffd, open_userfaultfd(UFFD_FEATURE_WP_ASYNC, kWpAsync));
  Descriptor pagemap(above_standard(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)));
  if (pagemap.get() < 0) return fail_errno(errno, Detail::tracker, "cannot open /proc/self/pagemap");
  auto made = std::make_shared<Marks>(Marks{std::move(uffd), std::move(pagemap)});
  own.shared = made;
  return made;
}

Result<std::unique_ptr<Watches>> Watches::make() {
  MEMLITH_TRY_ASSIGN(std::shared_ptr<Marks> marks, marks_of_process());
  MEMLITH_ASSERT(marks != nullptr && marks->uffd.get() >= 0);
  return std::unique_ptr<Watches>(new Watches(std::move(marks)));
}

Status Watches::add(std::byte* address, std::uint64_t bytes, std::uint64_t offset, std::uint64_t size_bytes) {
  const Watch watch{reinterpret_cast<std::uintptr_t>(address), round_up(bytes, host_page_bytes()), offset};
  watches_.reserve(watches_.size() + 1);
  if (!register_range(marks_->uffd.get(), address, watch.bytes, UFFDIO_REGISTER_MODE_WP)) {
    return fail_errno(errno, Detail::tracker, "userfaultfd refuses the {} bytes at {}", watch.bytes,
                      static_cast<const void*>(address));
  }
  std::vector<Range> ignored;  // pages count as written until they were protected once
  MEMLITH_TRY(scan(watch, size_bytes, ignored).status());
  watches_.push_back(watch);
  return kOk;
}

Status Watches::remove(const std::byte* address, std::uint64_t bytes, std::uint64_t size_bytes,
                       std::vector<Range>& written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + round_up(bytes, host_page_bytes());
  watches_.reserve(watches_.size() + 1);  // a watch may fall into two
  for (std::size_t i = 0; i < watches_.size();) {
    const Watch whole = watches_[i];
    const std::uintptr_t from = std::max(begin, whole.begin);
    const std::uintptr_t until = std::min(end, whole.begin + whole.bytes);
    if (from >= until) {
      ++i;
      continue;
    }
    const Watch part{from, until - from, whole.offset + (from - whole.begin)};
    MEMLITH_TRY_ASSIGN(const bool known, scan(part, size_bytes, written));
    (void)known;  // a mapping that was replaced was given up by the program
    unregister_range(marks_->uffd.get(), reinterpret_cast<const std::byte*>(from), part.bytes);
    watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
    if (whole.begin < from) watches_.push_back({whole.begin, from - whole.begin, whole.offset});
    const std::uint64_t behind = whole.begin + whole.bytes - until;
    MEMLITH_ASSERT((from - whole.begin) + part.bytes + behind == whole.bytes);
    if (behind > 0) watches_.push_back({until, behind, part.offset + part.bytes});
  }
  return kOk;
}

Result<bool> Watches::collect(std::uint64_t size_bytes, std::vector<Range>& written) {
  bool all_known = true;
  for (std::size_t i = 0; i < watches_.size();) {
    MEMLITH_TRY_ASSIGN(const bool known, scan(watches_[i], size_bytes, written));
    if (known) {
      ++i;
    } else {
      watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    all_known = all_known && known;
  }
  return all_known;
}

// False if the addresses are not a watched mapping any more.
Result<bool> Watches::scan(const Watch& watch, std::uint64_t size_bytes, std::vector<Range>& written) {
  const std::uint64_t end_of_file = round_up(size_bytes, host_page_bytes());
  if (watch.offset >= end_of_file) return true;
  std::array<page_region, kRangesPerScan> found;
  pm_scan_arg scan{};
  scan.size = sizeof scan;
  scan.flags = PM_SCAN_CHECK_WPASYNC | PM_SCAN_WP_MATCHING;
  scan.start = watch.begin;
  scan.end = watch.begin + std::min(watch.bytes, end_of_file - watch.offset);
  scan.vec = reinterpret_cast<std::uintptr_t>(found.data());
  scan.vec_len = found.size();
  scan.category_mask = PAGE_IS_WRITTEN;
  scan.return_mask = PAGE_IS_WRITTEN;
  while (scan.start < scan.end) {
    // Allocate first: once the kernel has reset its marks, the pages are known only here.
    if (written.capacity() - written.size() < kRangesPerScan) {
      written.reserve(std::max(2 * written.capacity(), written.size() + kRangesPerScan));
    }
    const int count = ::ioctl(marks_->pagemap.get(), PAGEMAP_SCAN, &scan);
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EPERM || errno == ENOMEM || errno == EFAULT) return false;
      return fail_errno(errno, Detail::tracker, "cannot scan the mapping at {:#x} for written pages", watch.begin);
    }
    MEMLITH_ASSERT(static_cast<std::size_t>(count) <= found.size());
    for (int i = 0; i < count; ++i) {
      const page_region& pages = found[static_cast<std::size_t>(i)];
      written.push_back({watch.offset + (pages.start - watch.begin), pages.end - pages.start});
    }
    scan.start = scan.walk_end;
  }
  return true;
}

}  // namespace memlith::core
