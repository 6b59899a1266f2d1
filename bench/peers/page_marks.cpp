#include "page_marks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "memlith/memlith.h"

// Definitions that the kernel headers of Debian 12 lack.
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef PAGEMAP_SCAN
struct page_region {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct pm_scan_arg {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t vec;
  std::uint64_t vec_len;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WRITTEN (1 << 1)
#define PM_SCAN_WP_MATCHING (1 << 0)
#define PM_SCAN_CHECK_WPASYNC (1 << 1)
#endif

namespace memlith::tool {

std::uint64_t kernel_page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

Result<SmallPages> SmallPages::make(std::uint64_t bytes) {
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return errno_failure(errno, fmt::format("no memory for {} bytes", bytes));
  SmallPages pages({static_cast<std::byte*>(mapping), bytes});
  (void)::madvise(mapping, bytes, MADV_NOHUGEPAGE);  // refused by kernels that have none
  std::memset(mapping, 1, bytes);
  return pages;
}

SmallPages::~SmallPages() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

Result<PageMarks> PageMarks::over(std::span<std::byte> memory, MarkedBy by) {
  const bool handler = by == MarkedBy::handler;
  PageMarks made(memory, static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)),
                 handler ? -1 : ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                 static_cast<std::uint64_t>(handler ? UFFD_FEATURE_SIGBUS : UFFD_FEATURE_WP_ASYNC);
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()};
  range.mode = UFFDIO_REGISTER_MODE_WP;
  if (made.marks_ < 0 || ::ioctl(made.marks_, UFFDIO_API, &api) != 0 ||
      ::ioctl(made.marks_, UFFDIO_REGISTER, &range) != 0 || (!handler && made.scans_ < 0)) {
    return tool_failure(MEMLITH_UNSUPPORTED,
                        fmt::format("userfaultfd {} is not allowed or not in this kernel: {}",
                                    handler ? "with SIGBUS" : "with WP_ASYNC (Linux 6.7)", std::strerror(errno)));
  }
  return made;
}

PageMarks::~PageMarks() {
  if (marks_ >= 0) ::close(marks_);
  if (scans_ >= 0) ::close(scans_);
}

bool PageMarks::protect(const std::byte* begin, std::uint64_t bytes, bool protect) const {
  uffdio_writeprotect range{};
  range.range = {reinterpret_cast<std::uintptr_t>(begin), bytes};
  range.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
  return ::ioctl(marks_, UFFDIO_WRITEPROTECT, &range) == 0;
}

MaybeFailure PageMarks::take_written(std::vector<Range>& written) const {
  std::array<page_region, 512> found{};
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  pm_scan_arg scan{};
  scan.size = sizeof scan;
  scan.flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC;
  scan.start = base;
  scan.end = base + memory_.size();
  scan.vec = reinterpret_cast<std::uintptr_t>(found.data());
  scan.vec_len = found.size();
  scan.category_mask = PAGE_IS_WRITTEN;
  scan.return_mask = PAGE_IS_WRITTEN;
  for (; scan.start < scan.end; scan.start = scan.walk_end) {
    const int count = ::ioctl(scans_, PAGEMAP_SCAN, &scan);
    if (count < 0) return errno_failure(errno, "searching for pages that were stored to");
    for (const page_region& each : std::span(found).first(static_cast<std::size_t>(count))) {
      written.push_back({each.start - base, each.end - each.start});
    }
  }
  return {};
}

}  // namespace memlith::tool
