// A slow byte-addressable medium, emulated: of the shared mappings of the files in a folder (in /dev/shm), only a cache
// of bounded size is in reach. A load or store elsewhere faults, and is served after a delay by a thread with
// userfaultfd; the page that came first leaves the cache. The fault itself takes microseconds, which the delay does not
// include. Only the mappings are slow that are there when it begins: what is mapped later, and what is read or written
// by a system call, is as fast as memory, which favours memlith.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace pmdk_bench {

class SlowMedium {
 public:
  // Null, with a line that says why, where the kernel refuses. What is mapped later is not slow.
  static std::unique_ptr<SlowMedium> over(const std::string& folder, std::uint64_t delay_ns,
                                          std::uint64_t cache_bytes) {
    auto medium = std::unique_ptr<SlowMedium>(new SlowMedium(delay_ns, cache_bytes / kPageBytes));
    medium->fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_MINOR_SHMEM;
    if (medium->fd_ < 0 || ::ioctl(medium->fd_, UFFDIO_API, &api) != 0) {
      std::fprintf(stderr, "no slow medium: userfaultfd for shared memory: %s (as root, Linux 5.14)\n",
                   std::strerror(errno));
      return nullptr;
    }
    if (!medium->take_mappings(folder)) return nullptr;
    medium->server_ = std::thread([self = medium.get()] { self->serve(); });
    return medium;
  }
  ~SlowMedium() {
    stop_.store(true);
    if (server_.joinable()) server_.join();
    if (fd_ >= 0) ::close(fd_);
    std::fprintf(stderr, "slow medium: %" PRIu64 " pages served\n", served_);
  }
  SlowMedium(const SlowMedium&) = delete;
  SlowMedium& operator=(const SlowMedium&) = delete;

 private:
  static constexpr std::uint64_t kPageBytes = 4096;

  SlowMedium(std::uint64_t delay_ns, std::uint64_t pages_max) : delay_(delay_ns), pages_max_(pages_max) {}

  bool take_mappings(const std::string& folder) {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) {
      std::uint64_t begin = 0;
      std::uint64_t end = 0;
      char rights[5] = "";
      if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3) continue;
      if (rights[3] != 's' || line.find(" " + folder + "/") == std::string::npos) continue;
      uffdio_register range{};
      range.range = {begin, end - begin};
      range.mode = UFFDIO_REGISTER_MODE_MINOR;
      if (::ioctl(fd_, UFFDIO_REGISTER, &range) != 0) return std::perror("no slow medium: UFFDIO_REGISTER"), false;
      (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // unmaps; the file keeps its bytes
      ++found;
    }
    if (found == 0) std::fprintf(stderr, "no slow medium: no file of %s is mapped\n", folder.c_str());
    return found > 0;
  }

  void serve() {
    while (!stop_.load()) {
      pollfd waiting{fd_, POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      uffd_msg message{};
      if (::read(fd_, &message, sizeof message) != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) continue;
      const auto until = std::chrono::steady_clock::now() + delay_;
      while (std::chrono::steady_clock::now() < until) {
      }
      const std::uint64_t page = message.arg.pagefault.address / kPageBytes * kPageBytes;
      if (cached_.size() >= pages_max_) {
        (void)::madvise(reinterpret_cast<void*>(cached_.front()), kPageBytes, MADV_DONTNEED);
        cached_.pop_front();
      }
      uffdio_continue done{};
      done.range = {page, kPageBytes};
      if (::ioctl(fd_, UFFDIO_CONTINUE, &done) == 0) {
        cached_.push_back(page);
        ++served_;
      } else {
        uffdio_range awake{page, kPageBytes};
        (void)::ioctl(fd_, UFFDIO_WAKE, &awake);
      }
    }
  }

  const std::chrono::nanoseconds delay_;
  const std::uint64_t pages_max_;
  int fd_ = -1;
  std::uint64_t served_ = 0;  // the server's, until it has ended
  std::deque<std::uint64_t> cached_;
  std::thread server_;
  std::atomic<bool> stop_{false};
};

}  // namespace pmdk_bench
