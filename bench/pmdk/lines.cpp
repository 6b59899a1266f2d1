// How to write lines to byte-addressable memory, for `bench pmdk lines`: lines FILE. Stores past the cache against
// stores to the cache and clwb, by size; and a commit of a payload and a header with one fence (checksums tell whether
// it is whole) against two (the header is stored when the payload is durable). Prints JSON, a line for each.
#include <cpuid.h>
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::uint64_t kFileBytes = 64u << 20;  // much more than the cache
constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kSizes[] = {64, 128, 256, 512, 1024, 4096, 16384, 65536};

void stream(char* target, const char* source, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at)));
  }
}
__attribute__((target("clwb"))) void write_back(char* target, const char* source, std::uint64_t bytes) {
  std::memcpy(target, source, bytes);
  for (std::uint64_t at = 0; at < bytes; at += kLine) _mm_clwb(target + at);
}
bool has_clwb() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 24 & 1) != 0;
}

// A checksum that costs about what the engine's does: 8 bytes in each step.
std::uint64_t sum(const char* bytes, std::uint64_t count) {
  std::uint64_t result = count;
  for (std::uint64_t at = 0; at < count; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    result = (result ^ word) * 0x9e3779b97f4a7c15u;
  }
  return result;
}

template <class Act>
void measure(const char* side, const char* what, std::uint64_t bytes, const Act& act) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t rounds = std::min<std::uint64_t>(100'000, (256u << 20) / bytes);
  std::vector<double> times(rounds);
  std::uint64_t offset = 0;
  const auto begin = Clock::now();
  auto before = begin;
  for (double& each : times) {
    act(offset);
    const auto now = Clock::now();
    each = std::chrono::duration<double, std::micro>(now - before).count();
    before = now;
    offset += bytes + kLine;
    if (offset + bytes + kLine > kFileBytes) offset = 0;
  }
  const double seconds = std::chrono::duration<double>(before - begin).count();
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"suite\": \"lines\", \"side\": \"%s\", \"workload\": \"%s %llu B\", \"durability\": \"fence\", \"threads\": "
      "1, \"ops_per_s\": %.0f, \"p50_us\": %.4f, \"p99_us\": %.4f, \"p999_us\": %.4f}\n",
      side, what, static_cast<unsigned long long>(bytes), static_cast<double>(rounds) / seconds, times[rounds / 2],
      times[rounds * 99 / 100], times[rounds * 999 / 1000]);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return std::fprintf(stderr, "lines FILE\n"), 2;
  const int fd = ::open(words[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, kFileBytes) != 0) return std::perror(words[1]), 1;
  void* const got = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return std::perror("mmap"), 1;
  char* const file = static_cast<char*>(got);
  std::memset(file, 1, kFileBytes);
  const std::vector<char> source(65536, 2);
  const bool clwb = has_clwb();
  if (!clwb) std::fprintf(stderr, "this processor has no clwb\n");
  for (const std::uint64_t bytes : kSizes) {
    measure("past the cache", "write", bytes, [&](std::uint64_t at) {
      stream(file + at, source.data(), bytes);
      _mm_sfence();
    });
    if (!clwb) continue;
    measure("clwb", "write", bytes, [&](std::uint64_t at) {
      write_back(file + at, source.data(), bytes);
      _mm_sfence();
    });
  }
  for (const std::uint64_t bytes : kSizes) {
    measure("one fence and a checksum", "commit", bytes, [&](std::uint64_t at) {
      alignas(kLine) std::uint64_t header[8] = {at, sum(source.data(), bytes)};
      stream(file + at, reinterpret_cast<const char*>(header), kLine);
      stream(file + at + kLine, source.data(), bytes);
      _mm_sfence();
    });
    measure("two fences", "commit", bytes, [&](std::uint64_t at) {
      alignas(kLine) std::uint64_t header[8] = {at, bytes};
      stream(file + at + kLine, source.data(), bytes);
      _mm_sfence();
      stream(file + at, reinterpret_cast<const char*>(header), kLine);
      _mm_sfence();
    });
    measure("two fences and a checksum", "commit", bytes, [&](std::uint64_t at) {
      alignas(kLine) std::uint64_t header[8] = {at, sum(source.data(), bytes)};
      stream(file + at + kLine, source.data(), bytes);
      _mm_sfence();
      stream(file + at, reinterpret_cast<const char*>(header), kLine);
      _mm_sfence();
    });
  }
  return 0;
}
