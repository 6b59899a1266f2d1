#include "device/dax.hpp"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/host.hpp"
#include "base/pages.hpp"
#include "base/units.hpp"
#include "device/line_store.hpp"
#include "device/lines.hpp"
#include "device/medium.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kPieceBytesMin = 64 * kMiB;
constexpr std::uint64_t kPresentPages = 64;  // made present at a time

class MappedLines {
 public:
  explicit MappedLines(std::byte* base) : base_(base) {}
  void stream(std::uint64_t offset, const std::byte* line) { store_line(base_ + offset, line); }
  void read(std::uint64_t offset, std::byte* line) { std::memcpy(line, base_ + offset, kLineBytes); }
  void fence() { fence_lines(); }

 private:
  std::byte* base_;
};

}  // namespace

bool is_in_memory(int fd) { return file_system_of(fd).medium == Medium::memory; }

bool is_byte_addressable(int fd) {
  struct statx info{};
  const bool told = ::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &info) == 0;
  return kHasLineStores && (is_in_memory(fd) || (told && (info.stx_attributes & STATX_ATTR_DAX) != 0));
}

Result<std::unique_ptr<DaxMapping>> DaxMapping::open(int fd, const std::string& path) {
  if (!kHasLineStores) {
    return fail(Errc::unsupported, Detail::open,
                "{}: direct access (DAX) was requested, which memlith has for x86-64 and arm64; let memlith choose "
                "(MEMLITH_IO_AUTO)",
                path);
  }
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
  // MAP_SYNC: when a store to a page is possible, the page's place in the file is durable, so that no system call is
  // needed behind the store.
  for (const int flags : {MAP_SHARED_VALIDATE | MAP_SYNC, MAP_SHARED}) {
    if (flags == MAP_SHARED && !is_in_memory(fd)) break;
    auto mapping = std::unique_ptr<DaxMapping>(new DaxMapping(fd, path, flags));
    const auto window = mapping->window_for(static_cast<std::uint64_t>(info.st_size));
    if (window.ok()) return mapping;
    if (window.error().os_errno != EOPNOTSUPP && window.error().os_errno != EINVAL) return window.error();
  }
  return fail(Errc::unsupported, Detail::open,
              "{}: direct access (DAX) was requested, but this file system maps no persistent memory (MAP_SYNC), and "
              "is no tmpfs that could stand for it; mount an fsdax file system, or let memlith choose "
              "(MEMLITH_IO_AUTO)",
              path);
}

DaxMapping::~DaxMapping() {
  for (const auto& window : windows_) (void)::munmap(window->base, window->bytes);
}

Result<DaxMapping::Window*> DaxMapping::window_for(std::uint64_t end) {
  if (Window* const newest = newest_.load(std::memory_order_acquire); newest != nullptr && end <= newest->bytes) {
    return newest;
  }
  const LockGuard lock(mutex_);
  Window* const before = newest_.load(std::memory_order_relaxed);
  if (before != nullptr && end <= before->bytes) return before;
  const std::uint64_t bytes =
      round_up(std::max({end, kPieceBytesMin, before == nullptr ? 0 : 2 * before->bytes}), host_page_bytes());
  auto window = std::make_unique<Window>();
  void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags_, fd_, 0);
  if (got == MAP_FAILED) return fail_errno(errno, Detail::mapping, "{}: cannot map {} bytes of it", path_, bytes);
  (void)::madvise(got, bytes, MADV_DONTFORK);  // a hint: children have no use for it
  window->base = static_cast<std::byte*>(got);
  window->bytes = bytes;
  window->present.reset(new (std::nothrow) std::atomic<bool>[bytes / kPageBytes]());
  if (window->present == nullptr) {
    (void)::munmap(got, bytes);
    return fail_errno(ENOMEM, Detail::mapping, "{}: cannot map {} bytes of it", path_, bytes);
  }
  Window* const result = window.get();
  windows_.push_back(std::move(window));
  newest_.store(result, std::memory_order_release);
  return result;
}

// A store to a page that the file system has no memory for would raise SIGBUS; the kernel is asked first.
Status DaxMapping::make_present(Window& window, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t last = (end + kPageBytes - 1) / kPageBytes;
  for (std::uint64_t page = round_down(begin, host_page_bytes()) / kPageBytes; page < last; ++page) {
    if (window.present[page].load(std::memory_order_relaxed)) continue;
    struct stat info{};
    if (::fstat(fd_, &info) != 0) return fail_errno(errno, Detail::write, "{}: cannot determine its size", path_);
    const std::uint64_t pages = round_up(static_cast<std::uint64_t>(info.st_size), kPageBytes) / kPageBytes;
    const std::uint64_t until = std::max(std::min(page + kPresentPages, pages), last);
    const std::uint64_t bytes = (until - page) * kPageBytes;
    int result = 0;
    do {
      result = ::madvise(window.base + page * kPageBytes, bytes, MADV_POPULATE_WRITE);
      if (result != 0 && errno == EINVAL) {  // before Linux 5.14
        result =
            ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(page * kPageBytes), static_cast<off_t>(bytes));
      }
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    if (result != 0) {
      return fail_errno(errno == EFAULT ? ENOSPC : errno, Detail::write,
                        "{}: the file system gives no memory for the pages at offset {}", path_, page * kPageBytes);
    }
    for (; page < until; ++page) window.present[page].store(true, std::memory_order_relaxed);
  }
  return kOk;
}

Status DaxMapping::write(std::uint64_t offset, std::span<const iovec> pieces) {
  std::uint64_t end = offset;
  for (const iovec& each : pieces) end += each.iov_len;
  if (end == offset) return kOk;
  MEMLITH_TRY_ASSIGN(Window* const window, window_for(end));
  MEMLITH_TRY(make_present(*window, offset, end));
  MappedLines lines(window->base);
  LineWriter writer(lines, offset);
  for (const iovec& each : pieces) writer.put({static_cast<const std::byte*>(each.iov_base), each.iov_len});
  writer.finish();
  return kOk;
}

void DaxMapping::forget(std::uint64_t begin, std::uint64_t end) {
  const LockGuard lock(mutex_);
  for (const auto& window : windows_) {
    const std::uint64_t last = std::min(round_up(std::min(end, window->bytes), kPageBytes), window->bytes) / kPageBytes;
    for (std::uint64_t page = begin / kPageBytes; page < last; ++page) {
      window->present[page].store(false, std::memory_order_relaxed);
    }
  }
}

}  // namespace memlith::core
