#include "region/page_difference.hpp"

#include <array>
#include <atomic>
#include <cstring>

namespace memlith::core {

namespace {

constexpr std::uint64_t kExtentCost =
    16;  // what a further extent takes in the log; an unchanged gap up to that is logged too
constexpr std::uint64_t kWholeFrom = kPageBytes * 3 / 4;
constexpr std::uint64_t kStepBytes = 64;

constexpr std::uint64_t kStepWords = kStepBytes / sizeof(std::uint64_t);

using Step = std::array<std::uint64_t, kStepWords>;

// A step of the page as it is now, read once. ORDER read-once: memcmp() reads a byte that differed again for its result,
// and says "equal" if another thread has changed the byte meanwhile; all other stores to the page were then missed.
// [test PageDifference.SeesStoresBesideAThreadThatStores]
Step read_once(const std::byte* page) {
  Step step;
  std::memcpy(step.data(), page, kStepBytes);
  std::atomic_signal_fence(std::memory_order_acq_rel);  // so that the compiler reads nothing again
  return step;
}

// Makes of each word its difference. Returns whether there is any.
bool subtract(Step& step, const std::byte* before) {
  std::uint64_t any = 0;
  Step other;
  std::memcpy(other.data(), before, kStepBytes);
  for (std::uint64_t i = 0; i < kStepWords; ++i) any |= step[i] ^= other[i];
  return any != 0;
}

}  // namespace

[[gnu::noinline]] bool equals_twin(const std::byte* page, const std::byte* twin) {
  for (std::uint64_t at = 0; at < kPageBytes; at += kStepBytes) {
    Step step = read_once(page + at);
    if (subtract(step, twin + at)) return false;
  }
  return true;
}

[[gnu::noinline]] void copy_twin(std::byte* target, const std::byte* page) { std::memcpy(target, page, kPageBytes); }

// A separate function, so that ThreadSanitizer's suppressions can name it.
[[gnu::noinline]] void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset,
                                      std::vector<Range>& ranges) {
  const std::size_t first = ranges.size();
  std::uint64_t cost = 0;
  for (std::uint64_t step = 0; step < kPageBytes; step += kStepBytes) {
    Step difference = read_once(page + step);
    if (!subtract(difference, before + step)) continue;
    for (std::uint64_t i = 0; i < kStepWords; ++i) {
      if (difference[i] == 0) continue;
      const std::uint64_t begin = offset + step + i * sizeof(std::uint64_t);
      const std::uint64_t end = begin + sizeof(std::uint64_t);
      if (ranges.size() > first && begin - (ranges.back().offset + ranges.back().bytes) <= kExtentCost) {
        cost += end - (ranges.back().offset + ranges.back().bytes);
        ranges.back().bytes = end - ranges.back().offset;
      } else {
        cost += kExtentCost + (end - begin);
        ranges.push_back({begin, end - begin});
      }
    }
    if (cost > kWholeFrom) {
      ranges.resize(first);
      ranges.push_back({offset, kPageBytes});
      return;
    }
  }
}

}  // namespace memlith::core
