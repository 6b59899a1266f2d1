// With MEMLITH_TEST_PAGE_BYTES, the tests of a program run as under a kernel with pages as large: 16 or 64 KiB, which
// arm64 has. The calls of this file take the place of the C library's. They refuse what is not at the beginning of such
// a page, round lengths up, place memory at the beginning of one, and find whole pages written (PAGEMAP_SCAN), as that
// kernel does. For userfaultfd, region/trackers/userfaultfd.hpp asserts that whole pages are asked for.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/host.hpp"
#include "region/kernel_abi.hpp"

namespace {

using memlith::core::round_up;

const std::uint64_t g_page_bytes = [] {
  const char* const given = std::getenv("MEMLITH_TEST_PAGE_BYTES");
  const auto own = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (given == nullptr) return own;
  const std::uint64_t bytes = std::strtoull(given, nullptr, 10);
  memlith::core::assume_host_pages(bytes);
  return bytes;
}();

std::uint64_t page_bytes() { return g_page_bytes == 0 ? 4096 : g_page_bytes; }  // 0: before this file was initialized

bool is_page(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % page_bytes() == 0; }

void* map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

// Addresses that are taken, from the beginning of a page on.
void* take_addresses(std::size_t bytes) {
  const std::size_t all = bytes + page_bytes();
  void* const got = map(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return got;
  const auto begin = reinterpret_cast<std::uintptr_t>(got);
  const std::uintptr_t at = round_up(begin, page_bytes());
  if (at > begin) ::syscall(SYS_munmap, begin, at - begin);
  if (begin + all > at + bytes) ::syscall(SYS_munmap, at + bytes, begin + all - at - bytes);
  return reinterpret_cast<void*>(at);
}

// The page with the end of a file can be used up to its own end. Here the part behind the end is memory of its own.
// When that is dropped, what the file has there by then is copied.
struct Behind {
  std::byte* at;
  std::size_t bytes;
  int fd;  // another description of the file
  off_t offset;
};
std::mutex g_mutex;
std::vector<Behind>& all_behind() {
  static auto* const all = new std::vector<Behind>;
  return *all;
}

std::uint64_t small_pages_of(int fd) {
  struct stat seen{};
  return ::fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode) ? round_up(static_cast<std::uint64_t>(seen.st_size), 4096)
                                                          : 0;
}

void fill_last_page(std::byte* at, std::size_t bytes, int protection, int fd, off_t offset) {
  const std::uint64_t end_of_file = small_pages_of(fd);
  const auto from = static_cast<std::uint64_t>(offset);
  if (end_of_file <= from) return;
  const std::uint64_t there = end_of_file - from;
  const std::uint64_t end = std::min<std::uint64_t>(round_up(there, page_bytes()), bytes);
  if (there >= end) return;
  map(at + there, end - there, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  const int own = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
  const std::lock_guard lock(g_mutex);
  all_behind().push_back({at + there, end - there, own, static_cast<off_t>(end_of_file)});
}

void forget_behind(const std::byte* at, std::size_t bytes) {
  const std::lock_guard lock(g_mutex);
  std::erase_if(all_behind(), [&](const Behind& each) {
    const bool gone = each.at >= at && each.at < at + bytes;
    if (gone) ::close(each.fd);
    return gone;
  });
}

void show_files_again(const std::byte* at, std::size_t bytes) {
  const std::lock_guard lock(g_mutex);
  for (const Behind& each : all_behind()) {
    if (each.at < at || each.at >= at + bytes) continue;
    std::vector<std::byte> shown(each.bytes);
    const ssize_t got = ::pread(each.fd, shown.data(), shown.size(), each.offset);
    if (got <= 0 || memlith::core::is_zero(std::span(shown).first(static_cast<std::size_t>(got)))) continue;
    const int memory = ::open("/proc/self/mem", O_WRONLY | O_CLOEXEC);  // the page may be protected
    (void)!::pwrite(memory, shown.data(), static_cast<std::size_t>(got),
                    static_cast<off_t>(reinterpret_cast<std::uintptr_t>(each.at)));
    ::close(memory);
  }
}

int refuse() {
  errno = EINVAL;
  return -1;
}

int scan_pages(int fd, pm_scan_arg* scan) { return static_cast<int>(::syscall(SYS_ioctl, fd, PAGEMAP_SCAN, scan)); }

// Found ranges are rounded up to whole pages, whose marks go with the ones that were found.
int scan(int fd, pm_scan_arg* scan) {
  if (scan->start % page_bytes() != 0) return refuse();
  int count = scan_pages(fd, scan);
  if (count <= 0 || page_bytes() == 4096) return count;
  auto* const found = reinterpret_cast<page_region*>(scan->vec);
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const page_region whole{found[i].start / page_bytes() * page_bytes(), round_up(found[i].end, page_bytes()),
                            found[i].categories};
    if ((scan->flags & PM_SCAN_WP_MATCHING) != 0) {
      page_region ignored[16];
      pm_scan_arg rest = *scan;
      rest.start = whole.start;
      rest.end = whole.end;
      rest.vec = reinterpret_cast<std::uintptr_t>(ignored);
      rest.vec_len = std::size(ignored);
      while (rest.start < rest.end && scan_pages(fd, &rest) >= 0) rest.start = rest.walk_end;
    }
    if (kept > 0 && whole.start <= found[kept - 1].end) {
      found[kept - 1].end = std::max(found[kept - 1].end, whole.end);
    } else {
      found[kept++] = whole;
    }
  }
  scan->walk_end = std::min(round_up(scan->walk_end, page_bytes()), scan->end);
  return kept;
}

}  // namespace

extern "C" {

int ioctl(int fd, unsigned long request, ...) noexcept {
  std::va_list more;
  va_start(more, request);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (request == PAGEMAP_SCAN) return scan(fd, static_cast<pm_scan_arg*>(argument));
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (page_bytes() == 4096) return map(address, bytes, protection, flags, fd, offset);
  const bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  if ((fixed && !is_page(address)) || static_cast<std::uint64_t>(offset) % page_bytes() != 0) {
    refuse();
    return MAP_FAILED;
  }
  bytes = round_up(bytes, page_bytes());
  if (bytes > 0 && !fixed) {
    address = take_addresses(bytes);
    if (address == MAP_FAILED) return address;
    flags |= MAP_FIXED;
  }
  void* const got = map(address, bytes, protection, flags, fd, offset);
  if (got == MAP_FAILED && !fixed) {
    const int error = errno;
    ::syscall(SYS_munmap, address, bytes);
    errno = error;
  }
  if (got != MAP_FAILED) forget_behind(static_cast<std::byte*>(got), bytes);
  if (got != MAP_FAILED) fill_last_page(static_cast<std::byte*>(got), bytes, protection, fd, offset);
  return got;
}

int munmap(void* address, std::size_t bytes) noexcept {
  if (!is_page(address)) return refuse();
  if (page_bytes() != 4096) forget_behind(static_cast<std::byte*>(address), bytes);
  return static_cast<int>(::syscall(SYS_munmap, address, round_up(bytes, page_bytes())));
}

int mprotect(void* address, std::size_t bytes, int protection) noexcept {
  if (!is_page(address)) return refuse();
  return static_cast<int>(::syscall(SYS_mprotect, address, round_up(bytes, page_bytes()), protection));
}

int madvise(void* address, std::size_t bytes, int advice) noexcept {
  if (!is_page(address)) return refuse();
  const auto done = static_cast<int>(::syscall(SYS_madvise, address, round_up(bytes, page_bytes()), advice));
  if (done == 0 && page_bytes() != 4096 && advice == MADV_DONTNEED) {
    show_files_again(static_cast<std::byte*>(address), bytes);
  }
  return done;
}

int msync(void* address, std::size_t bytes, int flags) {
  if (!is_page(address)) return refuse();
  return static_cast<int>(::syscall(SYS_msync, address, round_up(bytes, page_bytes()), flags));
}

void* mremap(void* address, std::size_t old_bytes, std::size_t bytes, int flags, ...) noexcept {
  std::va_list more;
  va_start(more, flags);
  void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  old_bytes = round_up(old_bytes, page_bytes());
  bytes = round_up(bytes, page_bytes());
  const bool moves = page_bytes() != 4096 && (flags & (MREMAP_MAYMOVE | MREMAP_FIXED)) == MREMAP_MAYMOVE;
  if (moves) {
    wanted = take_addresses(bytes);
    flags |= MREMAP_FIXED;
  }
  if (!is_page(address) || wanted == MAP_FAILED || !is_page(wanted)) {
    refuse();
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mremap, address, old_bytes, bytes, flags, wanted));
}

}  // extern "C"
