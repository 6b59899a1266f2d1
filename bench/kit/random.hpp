// A small seeded generator (splitmix64), so that a benchmark does the same work in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace memlith::tool {

inline constexpr std::uint64_t kSeed = 20240427;  // of what benchmarks draw

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, bound), bound > 0: the high half of a product, which needs no division.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  // Whole words only: the length is a multiple of 8.
  void fill(std::span<std::byte> target) {
    for (std::size_t i = 0; i + sizeof(std::uint64_t) <= target.size(); i += sizeof(std::uint64_t)) {
      const std::uint64_t word = next();
      std::memcpy(target.data() + i, &word, sizeof word);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace memlith::tool
