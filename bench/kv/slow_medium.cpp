#include "slow_medium.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

std::atomic<std::uint64_t> g_delay_us{0};

void wait_for_the_medium() {
  const std::uint64_t us = g_delay_us.load(std::memory_order_relaxed);
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

ssize_t write_at(int descriptor, const void* bytes, std::size_t count, off_t offset) {
  const bool slow = g_delay_us.load(std::memory_order_relaxed) > 0;
  if (slow && (::fcntl(descriptor, F_GETFL) & O_DSYNC) != 0) wait_for_the_medium();
  return ::syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}

}  // namespace

extern "C" {

int fdatasync(int descriptor) {
  wait_for_the_medium();
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

int fsync(int descriptor) {
  wait_for_the_medium();
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int msync(void* address, std::size_t bytes, int flags) {
  if ((flags & MS_SYNC) != 0) wait_for_the_medium();
  return static_cast<int>(::syscall(SYS_msync, address, bytes, flags));
}

ssize_t pwrite(int descriptor, const void* bytes, std::size_t count, off_t offset) {
  return write_at(descriptor, bytes, count, offset);
}

ssize_t pwrite64(int descriptor, const void* bytes, std::size_t count, off_t offset) {
  return write_at(descriptor, bytes, count, offset);
}

}  // extern "C"

namespace memlith::tool {

void slow_flushes_down(std::uint64_t us) { g_delay_us = us; }

}  // namespace memlith::tool
