// Keys and values of all suites.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "kit/random.hpp"
#include "memlith/kv.h"

namespace memlith::tool {

inline constexpr std::uint64_t kTextKeyBytes = 16;
inline constexpr std::uint64_t kNumberKeyBytes = 8;
inline constexpr std::uint64_t kBatchRecords = 1000;  // of a transaction, and of a sample, of filling

// 16 bytes, in no order of the numbers.
inline std::string scattered_key(std::uint64_t number) { return fmt::format("{:016x}", Random(number + 1).next()); }
// 16 bytes, in the order of the numbers.
inline std::string decimal_key(std::uint64_t number) { return fmt::format("{:016}", number); }
// 8 bytes, in the order of the numbers.
inline std::string number_key(std::uint64_t number) {
  unsigned char key[kNumberKeyBytes];
  memlith_kv_key_of_u64(number, key);
  return {reinterpret_cast<const char*>(key), sizeof key};
}

// Values of a given number of random bytes. A suite uses `at` or `numbered`.
class Values {
 public:
  explicit Values(std::uint64_t bytes) : bytes_(bytes) {
    pool_.resize((bytes + 7) / 8 * 8 + kSpread * sizeof(std::uint64_t));
    Random(kSeed).fill(std::as_writable_bytes(std::span(pool_)));
  }
  // One of 512 values.
  [[nodiscard]] std::string_view at(std::uint64_t place) const {
    return std::string_view(pool_).substr(place % kSpread * sizeof(std::uint64_t), bytes_);
  }
  // Begins with the number, and goes on as all others do; at least 8 bytes. Valid until the next call.
  std::string_view numbered(std::uint64_t number) {
    std::memcpy(pool_.data(), &number, sizeof number);
    return at(0);
  }

 private:
  static constexpr std::uint64_t kSpread = 512;
  std::uint64_t bytes_;
  std::string pool_;
};

}  // namespace memlith::tool
