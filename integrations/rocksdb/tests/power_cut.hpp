// A disk whose power is cut at a chosen operation, for one test file of a program that is linked with --wrap=pwritev,
// --wrap=pwritev2 and --wrap=fdatasync. The library's own calls go through these, not those of librocksdb.so.
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace {

// Writes and flushes that the disk makes before its power is cut. Each write that was not flushed by then is kept or
// lost by itself. Negative: the power is never cut.
std::atomic<int> operations_left{-1};
std::uint64_t cut_seed = 0;

struct Unflushed {
  std::string path;
  off_t offset;
  std::string before;
};
std::mutex unflushed_mutex;
std::vector<Unflushed>& unflushed() {
  static auto* const all = new std::vector<Unflushed>;
  return *all;
}

std::string path_of(int file) {
  char path[4096];
  const ssize_t bytes = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

[[noreturn]] void cut_the_power() {
  std::mt19937_64 random(cut_seed);
  for (auto lost = unflushed().rbegin(); lost != unflushed().rend(); ++lost) {
    if (random() % 2 == 0) continue;
    const int file = ::open(lost->path.c_str(), O_WRONLY | O_CLOEXEC);
    if (::pwrite(file, lost->before.data(), lost->before.size(), lost->offset) < 0) ::_exit(8);
    ::close(file);
  }
  ::_exit(7);
}

void operate() {
  if (operations_left.load() >= 0 && operations_left.fetch_sub(1) == 0) cut_the_power();
}

}  // namespace

extern "C" {
ssize_t __real_pwritev(int file, const iovec* pieces, int count, off_t offset);
int __real_fdatasync(int file);
ssize_t __wrap_pwritev(int file, const iovec* pieces, int count, off_t offset) {
  if (operations_left.load() < 0) return __real_pwritev(file, pieces, count, offset);
  const std::lock_guard lock(unflushed_mutex);
  operate();
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  const int same = ::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC);
  std::string before(bytes, '\0');
  if (::pread(same, before.data(), bytes, offset) < 0) ::_exit(9);
  ::close(same);
  unflushed().push_back({path_of(file), offset, std::move(before)});
  return __real_pwritev(file, pieces, count, offset);
}
// Forced to the medium by itself, where the disk has forced unit access.
ssize_t __real_pwritev2(int file, const iovec* pieces, int count, off_t offset, int flags);
ssize_t __wrap_pwritev2(int file, const iovec* pieces, int count, off_t offset, int flags) {
  if (operations_left.load() >= 0) {
    const std::lock_guard lock(unflushed_mutex);
    operate();
  }
  return __real_pwritev2(file, pieces, count, offset, flags);
}
int __wrap_fdatasync(int file) {
  if (operations_left.load() < 0) return __real_fdatasync(file);
  const std::lock_guard lock(unflushed_mutex);
  operate();
  const std::string path = path_of(file);
  std::erase_if(unflushed(), [&](const Unflushed& each) { return each.path == path; });
  return __real_fdatasync(file);
}
}
