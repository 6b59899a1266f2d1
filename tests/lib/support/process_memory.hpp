// This process's memory, descriptors and threads.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace memlith::test {

// A line of /proc/self/status, in KiB or as a count.
inline std::uint64_t of_this_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t value = 0;
    if (word == name + ":" && status >> value) return value;
  }
  return 0;
}
inline std::uint64_t resident_bytes() { return of_this_process("VmRSS") * 1024; }
inline std::uint64_t anonymous_bytes() { return of_this_process("RssAnon") * 1024; }
// The private bytes of mappings of the files below a folder, beside the bytes of the files.
inline std::uint64_t copied_bytes_below(const std::string& folder) {
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t kib = 0;
  bool wanted = false;
  for (std::string line; std::getline(maps, line);) {
    const std::string word = line.substr(0, line.find(' '));
    if (!word.ends_with(':')) wanted = line.find(folder + "/") != line.npos;  // addresses and path of the next mapping
    if (wanted && word == "Anonymous:") kib += std::stoull(line.substr(word.size()));
  }
  return kib * 1024;
}
inline std::uint64_t thread_count() { return of_this_process("Threads"); }
// The same, when threads that were joined have left the kernel's count as well, which they do a moment later.
inline std::uint64_t thread_count_down_to(std::uint64_t wanted) {
  for (int i = 0; i < 10'000 && thread_count() > wanted; ++i) ::usleep(1000);
  return thread_count();
}

inline std::uint64_t descriptor_count() {
  std::uint64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count - 1;  // without the one that lists them
}

// Pages of 4 KiB of the process's own that lie in [begin, begin + bytes): not the file's.
inline std::uint64_t own_pages(const void* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kPresent = 1ull << 63;
  constexpr std::uint64_t kOfFile = 1ull << 61;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> entries(bytes / page_bytes);
  // In one piece: the kernel refuses to read a part of an entry.
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const std::size_t wanted = entries.size() * sizeof(std::uint64_t);
  const ssize_t got = ::pread(pagemap, entries.data(), wanted,
                              static_cast<off_t>(reinterpret_cast<std::uintptr_t>(begin) / page_bytes * 8));
  ::close(pagemap);
  if (got != static_cast<ssize_t>(wanted)) return ~std::uint64_t{0};  // which no test expects
  const auto own = std::count_if(entries.begin(), entries.end(),
                                 [](std::uint64_t entry) { return (entry & kPresent) != 0 && (entry & kOfFile) == 0; });
  return static_cast<std::uint64_t>(own) * (page_bytes / 4096);
}

}  // namespace memlith::test
