#include "region/page_difference.hpp"

#include <cstring>

namespace memlith::core {

namespace {

constexpr std::uint64_t kExtentCost = 16;  // of a further extent in the log; an unchanged gap up to that is logged
constexpr std::uint64_t kWholeFrom = kPageBytes * 3 / 4;
constexpr std::uint64_t kStepBytes = 64;

// Two words, which one instruction reads.
typedef std::uint64_t Words __attribute__((vector_size(16), may_alias));

// The difference of a step of the page, as it is now, and the step before.
struct Step {
  // ORDER read-once: memcmp() reads a byte that differed again for its result, and says "equal" if another thread
  // has changed the byte back meanwhile; all other stores to the page were then missed. So each word is read once,
  // which volatile promises. [test PageDifference.SeesStoresBesideAThreadThatStores]
  Step(const std::byte* page, const std::byte* before)
      : Step(as<const volatile Words>(page), as<const Words>(before)) {}
  Step(const volatile Words* now, const Words* before)
      : words{now[0] ^ before[0], now[1] ^ before[1], now[2] ^ before[2], now[3] ^ before[3]} {}
  [[nodiscard]] bool any() const {
    const Words all = (words[0] | words[1]) | (words[2] | words[3]);
    return (all[0] | all[1]) != 0;
  }
  [[nodiscard]] std::uint64_t word(std::uint64_t index) const { return words[index / 2][index % 2]; }

  template <class To>
  static To* as(const std::byte* bytes) {
    return reinterpret_cast<To*>(bytes);
  }

  Words words[kStepBytes / sizeof(Words)];
};

}  // namespace

bool differ_only_there(const std::byte* page, const std::byte* before, std::uint64_t offset,
                       std::span<const Range> differences) {
  std::uint64_t at = 0;  // up to here the pages are equal, or differ as they may
  for (const Range& range : differences) {
    const std::uint64_t begin = range.offset - offset;
    if (begin < at || begin + range.bytes > kPageBytes || std::memcmp(page + at, before + at, begin - at) != 0) {
      return false;
    }
    at = begin + range.bytes;
  }
  return std::memcmp(page + at, before + at, kPageBytes - at) == 0;
}

[[gnu::noinline]] bool equals_twin(const std::byte* page, const std::byte* twin) {
  for (std::uint64_t at = 0; at < kPageBytes; at += kStepBytes) {
    if (Step(page + at, twin + at).any()) return false;
  }
  return true;
}

[[gnu::noinline]] void copy_twin(std::byte* target, const std::byte* page) { std::memcpy(target, page, kPageBytes); }

// A separate function, so that ThreadSanitizer's suppressions can name it.
[[gnu::noinline]] void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset,
                                      Exactness exactness, std::vector<Range>& ranges) {
  const std::size_t first = ranges.size();
  std::uint64_t cost = 0;
  for (std::uint64_t step = 0; step < kPageBytes; step += kStepBytes) {
    const Step difference(page + step, before + step);
    if (!difference.any()) continue;
    for (std::uint64_t i = 0; i < kStepBytes / sizeof(std::uint64_t); ++i) {
      const std::uint64_t change = difference.word(i);
      if (change == 0) continue;
      std::uint64_t begin = offset + step + i * sizeof change;
      std::uint64_t end = begin + sizeof change;
      if (exactness == Exactness::bytes) {
        begin += static_cast<std::uint64_t>(__builtin_ctzll(change)) / 8;
        end -= static_cast<std::uint64_t>(__builtin_clzll(change)) / 8;
      }
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
  MEMLITH_ASSERT(ranges.size() == first ||
                 (ranges[first].offset >= offset && ranges.back().offset + ranges.back().bytes <= offset + kPageBytes));
}

}  // namespace memlith::core
