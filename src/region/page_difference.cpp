#include "region/page_difference.hpp"

#include <cstring>

namespace memlith::core {

namespace {

constexpr std::uint64_t kExtentCost =
    16;  // what a further extent takes in the log; an unchanged gap up to that is logged too
constexpr std::uint64_t kWholeFrom = kPageBytes * 3 / 4;
constexpr std::uint64_t kStepBytes = 64;

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

[[gnu::noinline]] bool equals_twin(const std::byte* page, const std::byte* twin) {
  return std::memcmp(page, twin, kPageBytes) == 0;
}

[[gnu::noinline]] void copy_twin(std::byte* target, const std::byte* page) { std::memcpy(target, page, kPageBytes); }

// Other threads may store to the page meanwhile; their stores make the page dirty again. A separate function, so that
// ThreadSanitizer's suppressions can name it.
[[gnu::noinline]] void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset,
                                      std::vector<Range>& ranges) {
  const std::size_t first = ranges.size();
  std::uint64_t cost = 0;
  for (std::uint64_t step = 0; step < kPageBytes; step += kStepBytes) {
    if (std::memcmp(page + step, before + step, kStepBytes) == 0) continue;
    for (std::uint64_t at = step; at < step + kStepBytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t change = word_at(page + at) ^ word_at(before + at);
      if (change == 0) continue;
      const std::uint64_t begin = offset + at + static_cast<std::uint64_t>(__builtin_ctzll(change)) / 8;
      const std::uint64_t end = offset + at + 8 - static_cast<std::uint64_t>(__builtin_clzll(change)) / 8;
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
