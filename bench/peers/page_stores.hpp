// The pages that a round changes, and the stores to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "kit/random.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

// Random pages, or one run of pages from a random start.
enum class PageOrder : std::uint8_t { random, sequential };

class ChosenPages {
 public:
  ChosenPages(std::uint64_t pages, PageOrder order) : random_(pages), run_(order == PageOrder::sequential ? pages : 0) {
    std::iota(run_.begin(), run_.end(), 0u);
  }

  // `count` distinct pages; valid until the next call.
  std::span<const std::uint32_t> choose(Random& random, std::uint64_t count) {
    if (run_.empty()) return random_.choose(random, count);
    return std::span(run_).subspan(random.below(run_.size() - count + 1), count);
  }
  [[nodiscard]] bool sequential() const { return !run_.empty(); }

 private:
  RandomPages random_;
  std::vector<std::uint32_t> run_;  // every page in order; empty if pages are random
};

// Stores of random bytes to pages of memory. One thread.
class PageStores {
 public:
  // In the first `pages` pages from `base` on; `bytes_per_page` is at most a page.
  PageStores(std::byte* base, std::uint64_t pages, std::uint64_t bytes_per_page, PageOrder order)
      : base_(base), bytes_per_page_(bytes_per_page), pages_(pages, order), random_(kSeed), source_(kSourceBytes) {
    random_.fill(source_);
  }

  // Draws the places and the bytes of the next store().
  void choose(std::uint64_t count) {
    targets_.clear();
    sources_.clear();
    for (const std::uint64_t page : pages_.choose(random_, count)) {
      const std::uint64_t words = (kPageBytes - bytes_per_page_) / kWordBytes + 1;
      targets_.push_back(base_ + page * kPageBytes + random_.below(words) * kWordBytes);
      sources_.push_back(source_.data() + random_.below((kSourceBytes - kPageBytes) / kWordBytes) * kWordBytes);
    }
  }
  void store() const {
    for (std::size_t i = 0; i < targets_.size(); ++i) std::memcpy(targets_[i], sources_[i], bytes_per_page_);
  }
  [[nodiscard]] std::span<std::byte* const> targets() const { return targets_; }
  [[nodiscard]] std::uint64_t bytes_per_page() const { return bytes_per_page_; }

 private:
  static constexpr std::uint64_t kSourceBytes = 64 * 1024;  // stays in a core's cache
  static constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

  std::byte* base_;
  std::uint64_t bytes_per_page_;
  ChosenPages pages_;
  Random random_;
  std::vector<std::byte> source_;
  std::vector<std::byte*> targets_;
  std::vector<const std::byte*> sources_;
};

}  // namespace memlith::tool
