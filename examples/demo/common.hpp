// Shared by the parts of the demo: results, the clock, a checksum.
//
// Errors are memlith's own: a category and a sentence. Nothing here throws.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "memlith/memlith.hpp"

namespace demo {

template <class T>
using Result = memlith::Result<T>;
using memlith::Error;

// "what: the reason that errno gives". Call it before anything else can change errno.
inline Error error_of_errno(std::string_view what) {
  return Error(MEMLITH_IO, std::string(what) + ": " + std::strerror(errno));
}

inline Error error_saying(std::string sentence) { return Error(MEMLITH_INVALID, std::move(sentence)); }

inline std::uint64_t now_ns() {
  using std::chrono::nanoseconds;
  return static_cast<std::uint64_t>(std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now()
                                                                                .time_since_epoch())
                                        .count());
}

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// FNV-1a, 64 bits: distinguishes texts and indexes; not secure against attacks.
class Checksum {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    }
  }
  // The length goes first, so that ("ab", "c") and ("a", "bc") differ.
  void add_text(std::string_view text) {
    add_number(text.size());
    add(text);
  }
  void add_number(std::uint64_t number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    add({bytes, sizeof bytes});
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace demo
