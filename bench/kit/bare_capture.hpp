// The least that any program can do which makes scattered changes durable by copying them: no log, no tracker, no
// locks.
//
// Plain memory, as much as a region has and in pages of the same size, is stored to as a region is. Timed is what
// follows: the changed bytes are copied in order of their addresses, the copy is checksummed once (XXH3), written with
// one write and flushed. What memlith takes longer than this is memlith's own; what this takes longer than raw is the
// price of copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/failure.hpp"
#include "random.hpp"
#include "raw_device.hpp"
#include "workload.hpp"

namespace memlith::tool {

class BareCapture {
 public:
  // Writes by `writer`, whose rounds are of shape.bytes() and which outlives it.
  static Result<BareCapture> create(RawWriter& writer, std::uint64_t region_mib, const RoundShape& shape,
                                    std::uint64_t seed);

  // One round. The time is that of copy, checksum, write and flush.
  [[nodiscard]] MaybeFailure round(std::uint64_t& elapsed_ns);

 private:
  // Taken in turn: what was just handed to the device is slower to store to.
  static constexpr std::size_t kBuffers = 4;

  BareCapture(RawWriter& writer, std::unique_ptr<std::byte[]> memory, std::uint64_t region_bytes, HugeBuffer buffers,
              const RoundShape& shape, std::uint64_t seed);

  RawWriter* writer_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* base_;  // its first whole page
  HugeBuffer buffers_;
  RoundShape shape_;
  Random random_;
  RandomPages pages_;
  std::vector<std::byte*> changed_;
  std::vector<std::byte> source_;
  std::uint64_t rounds_ = 0;
};

}  // namespace memlith::tool
