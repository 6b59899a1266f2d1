// XXH3, 64 bits, seeded. Floor: base.
//
// The seed is the identity of the log, so that a frame of another store is never taken for one of ours.
// The AVX2 version gives the same values and is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace memlith::core {

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed);

// The same value, computed in parts; for frames that are too large for one buffer.
class StreamingChecksum {
 public:
  StreamingChecksum();
  ~StreamingChecksum();
  StreamingChecksum(const StreamingChecksum&) = delete;
  StreamingChecksum& operator=(const StreamingChecksum&) = delete;

  void reset(std::uint64_t seed);
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace memlith::core
