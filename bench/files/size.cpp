// memlith-files-size: what a mapped file of any size takes: memory and disk space, when it is opened, and while it is
// changed.
//
//   memlith-files-size FILE CHANGES EACH
//
// Maps the file whole by memlith_mmap, stores 8 bytes to each of CHANGES random pages, and commits after every EACH of
// them. Then unmaps the file and reads the changes back. Prints one JSON object. Memory is that of the process, without
// pages that the kernel can read again from the file: private and shared memory, and the tables of the pages.
#include <fcntl.h>
#include <memlith/files.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <unordered_map>

namespace {

constexpr std::uint64_t kPageBytes = 4096;

int fail(const char* what) {
  const int error = errno;
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  std::fprintf(stderr, "%s: %s %s\n", what, std::strerror(error), text);
  return 1;
}

std::uint64_t memory_kib() {
  std::ifstream status("/proc/self/status");
  std::uint64_t sum = 0;
  for (std::string line; std::getline(status, line);) {
    for (const char* const name : {"RssAnon:", "RssShmem:", "VmPTE:"}) {
      if (line.starts_with(name)) sum += std::strtoull(line.c_str() + std::strlen(name), nullptr, 10);
    }
  }
  return sum;
}

std::uint64_t disk_kib(const char* path) {
  struct stat seen{};
  return ::stat(path, &seen) == 0 ? static_cast<std::uint64_t>(seen.st_blocks) / 2 : 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return std::fprintf(stderr, "usage: memlith-files-size FILE CHANGES EACH\n"), 2;
  const std::uint64_t changes = std::strtoull(words[2], nullptr, 10);
  const std::uint64_t each = std::max<std::uint64_t>(std::strtoull(words[3], nullptr, 10), 1);
  const int fd = ::open(words[1], O_RDWR | O_CLOEXEC);
  struct stat seen{};
  if (fd < 0 || ::fstat(fd, &seen) != 0) return fail(words[1]);
  const auto bytes = static_cast<std::uint64_t>(seen.st_size);
  const std::uint64_t disk_before = disk_kib(words[1]);
  const std::uint64_t memory_before = memory_kib();
  const auto begin = std::chrono::steady_clock::now();
  void* const got = memlith_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return fail("memlith_mmap");
  const std::chrono::duration<double, std::milli> opening = std::chrono::steady_clock::now() - begin;
  const std::uint64_t memory_opened = memory_kib() - memory_before;
  const std::uint64_t disk_opened = disk_kib(words[1]) - disk_before;

  auto* const data = static_cast<char*>(got);
  std::unordered_map<std::uint64_t, std::uint64_t> expected;
  std::uint64_t memory_most = memory_opened;
  std::mt19937_64 random(bytes);
  for (std::uint64_t i = 0; i < changes; ++i) {
    const std::uint64_t page = random() % (bytes / kPageBytes);
    const std::uint64_t value = i + 1;
    std::memcpy(data + page * kPageBytes + 8, &value, sizeof value);
    expected[page] = value;
    if ((i + 1) % each != 0 && i + 1 != changes) continue;
    memory_most = std::max(memory_most, memory_kib() - memory_before);
    if (memlith_msync(data, bytes, MS_SYNC) != 0) return fail("memlith_msync");
  }
  if (memlith_munmap(data, bytes) != 0) return fail("memlith_munmap");
  std::uint64_t wrong = 0;
  for (const auto& [page, value] : expected) {
    std::uint64_t found = 0;
    const auto offset = static_cast<off_t>(page * kPageBytes + 8);
    if (::pread(fd, &found, sizeof found, offset) != sizeof found || found != value) ++wrong;
  }
  ::close(fd);
  std::printf(
      "{\"file_bytes\": %llu, \"opening_ms\": %.2f, \"memory_opened_kib\": %llu, \"disk_opened_kib\": %llu, "
      "\"changes\": %llu, \"memory_most_kib\": %llu, \"disk_kib\": %llu, \"wrong\": %llu}\n",
      static_cast<unsigned long long>(bytes), opening.count(), static_cast<unsigned long long>(memory_opened),
      static_cast<unsigned long long>(disk_opened), static_cast<unsigned long long>(changes),
      static_cast<unsigned long long>(memory_most), static_cast<unsigned long long>(disk_kib(words[1])),
      static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
