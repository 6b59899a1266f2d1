// A slow byte-addressable medium, emulated: of the shared mappings of the files in a folder (in /dev/shm), only a cache
// of bounded size is in reach. A load or store elsewhere faults, and is served after a delay by a thread with
// userfaultfd; the page that came first leaves the cache. The fault itself takes microseconds, which the delay does not
// include. Mappings that the program or its libraries make while the medium is slow are slow from their beginning. A
// system call that reads or writes such a file takes the delay for each page, and so does a private mapping, of which
// memlith copies each page at once.
//
// For that, this file defines mmap(2) and others for the program and its libraries. One source of a program includes
// this file, and the program is linked with -rdynamic.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

namespace pmdk_bench {

class SlowMedium {
 public:
  // Once. The medium stays until the program ends, because any thread may be in one of the calls below. Null, with a
  // line that says why, where the kernel refuses, or where the medium would be faster than it should.
  static SlowMedium* over(const std::string& folder, std::uint64_t delay_ns, std::uint64_t cache_bytes) {
    auto* const medium = new SlowMedium(folder, delay_ns, cache_bytes / kPageBytes);
    medium->fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM;
    if (medium->fd_ < 0 || ::ioctl(medium->fd_, UFFDIO_API, &api) != 0) {
      std::fprintf(stderr, "no slow medium: userfaultfd for shared memory: %s (as root, Linux 5.14)\n",
                   std::strerror(errno));
      return nullptr;
    }
    if (!medium->take_mappings()) return nullptr;
    std::thread([medium] { medium->serve(); }).detach();
    the_one_.store(medium);
    if (!medium->is_slow()) return nullptr;
    (void)medium->take_pages();
    return medium;
  }
  SlowMedium(const SlowMedium&) = delete;
  SlowMedium& operator=(const SlowMedium&) = delete;

  // How many pages took the delay since the last call.
  std::uint64_t take_pages() { return served_.exchange(0) + charged_.exchange(0); }

  // Called by the system calls below, after them; `forget` before the mapping goes.
  static void mapped(void* begin, std::uint64_t bytes, int flags, int fd) {
    SlowMedium* const medium = the_one_.load();
    if (medium == nullptr || !medium->has(fd)) return;
    if ((flags & MAP_TYPE) == MAP_PRIVATE) return medium->charge((bytes + kPageBytes - 1) / kPageBytes);
    if (medium->make_slow(reinterpret_cast<std::uint64_t>(begin), bytes)) return;
    std::exit(1);
  }
  static void forget(const void* begin, std::uint64_t bytes) {
    SlowMedium* const medium = the_one_.load();
    if (medium == nullptr) return;
    const auto first = reinterpret_cast<std::uint64_t>(begin);
    const std::lock_guard lock(medium->mutex_);
    std::erase_if(medium->cached_, [&](std::uint64_t page) { return page >= first && page < first + bytes; });
  }
  static ssize_t moved(int fd, off_t offset, ssize_t bytes) {
    SlowMedium* const medium = the_one_.load();
    if (medium == nullptr || bytes <= 0) return bytes;
    const int error = errno;
    const std::uint64_t within = static_cast<std::uint64_t>(offset) % kPageBytes;
    if (medium->has(fd)) medium->charge((within + static_cast<std::uint64_t>(bytes) + kPageBytes - 1) / kPageBytes);
    errno = error;
    return bytes;
  }

 private:
  static constexpr std::uint64_t kPageBytes = 4096;

  SlowMedium(std::string folder, std::uint64_t delay_ns, std::uint64_t pages_max)
      : folder_(std::move(folder)), delay_(delay_ns), pages_max_(std::max<std::uint64_t>(pages_max, 1)) {}

  bool take_mappings() {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) {
      std::uint64_t begin = 0;
      std::uint64_t end = 0;
      char rights[5] = "";
      if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3) continue;
      if (rights[3] != 's' || line.find(" " + folder_ + "/") == std::string::npos) continue;
      if (!make_slow(begin, end - begin)) return false;
      (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // unmaps; the file keeps its bytes
      ++found;
    }
    if (found == 0) std::fprintf(stderr, "no slow medium: no file of %s is mapped\n", folder_.c_str());
    return found > 0;
  }

  bool make_slow(std::uint64_t begin, std::uint64_t bytes) {
    uffdio_register range{};
    range.range = {begin, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
    range.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR;
    if (::ioctl(fd_, UFFDIO_REGISTER, &range) != 0) return std::perror("no slow medium: UFFDIO_REGISTER"), false;
    return true;
  }

  // A mapping that is made now, and a system call of a library, take the delay.
  bool is_slow() {
    const std::string path = folder_ + "/slow";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char bytes[2 * kPageBytes] = "";
    auto* const call = reinterpret_cast<decltype(&::pread)>(::dlsym(RTLD_DEFAULT, "pread"));
    auto* const map = reinterpret_cast<decltype(&::mmap)>(::dlsym(RTLD_DEFAULT, "mmap"));
    bool good = fd >= 0 && ::ftruncate(fd, sizeof bytes) == 0 && call != nullptr && map != nullptr;
    good = good && ::pwrite(fd, bytes, kPageBytes, 0) == kPageBytes && charged_.load() >= 1;  // the other is a hole
    good = good && call(fd, bytes, sizeof bytes, 0) == sizeof bytes && charged_.load() >= 3;
    void* const memory = good ? map(nullptr, sizeof bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    const std::uint64_t before = served_.load();
    if (memory != MAP_FAILED) {
      for (std::uint64_t at = 0; at < sizeof bytes; at += kPageBytes) static_cast<volatile char*>(memory)[at] = 1;
      good = served_.load() >= before + 2;
      ::munmap(memory, sizeof bytes);
    }
    if (fd >= 0) ::close(fd);
    ::unlink(path.c_str());
    if (!good || memory == MAP_FAILED) std::fprintf(stderr, "no slow medium: mappings or system calls are not slow\n");
    return good && memory != MAP_FAILED;
  }

  // True for a file in the folder.
  [[nodiscard]] bool has(int fd) const {
    char name[64];
    char path[PATH_MAX];
    std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t length = fd < 0 ? -1 : ::readlink(name, path, sizeof path);
    const std::size_t folder = folder_.size();
    return length > static_cast<ssize_t>(folder) && std::memcmp(path, folder_.data(), folder) == 0 &&
           path[folder] == '/';
  }

  void wait(std::uint64_t pages) const {
    const auto until = std::chrono::steady_clock::now() + delay_ * pages;
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  void charge(std::uint64_t pages) {
    wait(pages);
    charged_.fetch_add(pages);
  }

  [[noreturn]] void serve() {
    while (true) {
      pollfd waiting{fd_, POLLIN, 0};
      if (::poll(&waiting, 1, -1) <= 0) continue;
      uffd_msg message{};
      const ssize_t bytes = ::syscall(SYS_read, fd_, &message, sizeof message);
      if (bytes != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) continue;
      wait(1);
      const std::uint64_t page = message.arg.pagefault.address / kPageBytes * kPageBytes;
      const std::lock_guard lock(mutex_);
      if (cached_.size() >= pages_max_) {
        (void)::madvise(reinterpret_cast<void*>(cached_.front()), kPageBytes, MADV_DONTNEED);
        cached_.pop_front();
      }
      served_.fetch_add(1);  // before the page is there, so that its user sees the count
      if (!give(page, (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR) != 0)) {
        served_.fetch_sub(1);
        uffdio_range awake{page, kPageBytes};
        (void)::ioctl(fd_, UFFDIO_WAKE, &awake);
        continue;
      }
      cached_.push_back(page);
    }
  }

  // False if the page is there by now, or its mapping is gone.
  bool give(std::uint64_t page, bool is_in_file) const {
    if (is_in_file) {
      uffdio_continue done{};
      done.range = {page, kPageBytes};
      return ::ioctl(fd_, UFFDIO_CONTINUE, &done) == 0;
    }
    uffdio_zeropage made{};
    made.range = {page, kPageBytes};
    return ::ioctl(fd_, UFFDIO_ZEROPAGE, &made) == 0;
  }

  static inline std::atomic<SlowMedium*> the_one_{nullptr};

  const std::string folder_;
  const std::chrono::nanoseconds delay_;
  const std::uint64_t pages_max_;
  int fd_ = -1;
  std::atomic<std::uint64_t> served_{0};
  std::atomic<std::uint64_t> charged_{0};
  std::mutex mutex_;
  std::deque<std::uint64_t> cached_;  // under the mutex, to which the server adds
};

}  // namespace pmdk_bench

extern "C" {

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const got = reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
  if (got != MAP_FAILED && (flags & MAP_ANONYMOUS) == 0) pmdk_bench::SlowMedium::mapped(got, bytes, flags, fd);
  return got;
}
int munmap(void* address, size_t bytes) noexcept {
  pmdk_bench::SlowMedium::forget(address, bytes);
  return static_cast<int>(::syscall(SYS_munmap, address, bytes));
}
ssize_t pread(int fd, void* target, size_t bytes, off_t offset) {
  return pmdk_bench::SlowMedium::moved(fd, offset, ::syscall(SYS_pread64, fd, target, bytes, offset));
}
ssize_t preadv2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  return pmdk_bench::SlowMedium::moved(fd, offset, ::syscall(SYS_preadv2, fd, pieces, count, offset, 0L, flags));
}
ssize_t pwrite(int fd, const void* source, size_t bytes, off_t offset) {
  return pmdk_bench::SlowMedium::moved(fd, offset, ::syscall(SYS_pwrite64, fd, source, bytes, offset));
}
ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  return pmdk_bench::SlowMedium::moved(fd, offset, ::syscall(SYS_pwritev, fd, pieces, count, offset, 0L));
}
ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  return pmdk_bench::SlowMedium::moved(fd, offset, ::syscall(SYS_pwritev2, fd, pieces, count, offset, 0L, flags));
}
ssize_t read(int fd, void* target, size_t bytes) {
  return pmdk_bench::SlowMedium::moved(fd, 0, ::syscall(SYS_read, fd, target, bytes));
}
ssize_t write(int fd, const void* source, size_t bytes) {
  return pmdk_bench::SlowMedium::moved(fd, 0, ::syscall(SYS_write, fd, source, bytes));
}

}  // extern "C"
