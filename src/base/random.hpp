// A small seeded generator (splitmix64) and system entropy for identities. Floor: base.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace memlith::core {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t state_;
};

// A random number that identifies a store; never 0.
inline std::uint64_t random_identity() {
  std::uint64_t value = 0;
  while (value == 0) {
    if (::getrandom(&value, sizeof value, 0) != sizeof value) value = 0;
  }
  return value;
}

}  // namespace memlith::core
