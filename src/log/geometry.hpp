// Maps logical offsets to offsets in the file. Floor: log.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/checksum.hpp"
#include "base/units.hpp"
#include "log/format.hpp"

namespace memlith::core {

// The checksum of a header: of every byte before its last field.
template <class Header>
std::uint64_t header_checksum(const Header& header, std::uint64_t seed) {
  static_assert(offsetof(Header, checksum) + sizeof(std::uint64_t) == sizeof(Header));
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)), seed);
}

// Fills the block in front of a segment: a header that says that this slot has the segment.
inline void fill_slot_header(std::span<std::byte> block, std::uint64_t segment, std::uint64_t incarnation,
                             std::uint64_t log_id) {
  MEMLITH_ASSERT(block.size() >= sizeof(SlotHeader));
  SlotHeader header{};
  header.magic = kSlotMagic;
  header.segment = segment;
  header.incarnation = incarnation;
  header.checksum = header_checksum(header, log_id);
  std::memset(block.data(), 0, block.size());
  std::memcpy(block.data(), &header, sizeof header);
}

// Depends on the place, so that a payload written to the wrong place is not accepted, and on the incarnation: where a
// lost frame is written again and torn, the new header must not vouch for the old payload. [workload lines-few]
inline std::uint64_t payload_seed(std::uint64_t log_id, Lsn lsn, std::uint64_t incarnation) {
  constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15;  // far beyond any LSN
  return log_id + lsn.value + incarnation * kStride;
}

// The value that the next frame carries in `previous`: it covers the whole frame, header and payload.
inline std::uint64_t chain_value(const FrameHeader& header, const FrameTrailer& trailer, std::uint64_t log_id) {
  const std::uint64_t both[2] = {header.checksum, trailer.payload_checksum};
  return checksum(std::as_bytes(std::span(both)), log_id);
}

struct LogGeometry {
  std::uint32_t block_bytes = 512;
  std::uint64_t slot_bytes = 0;

  [[nodiscard]] std::uint64_t segment_bytes() const { return slot_bytes - block_bytes; }
  [[nodiscard]] std::uint64_t segment_of(Lsn lsn) const { return lsn.value / segment_bytes(); }
  // One past the last segment that has anything before `end`.
  [[nodiscard]] std::uint64_t segments_until(Lsn end) const {
    return (end.value + segment_bytes() - 1) / segment_bytes();
  }
  [[nodiscard]] std::uint64_t offset_in_segment(Lsn lsn) const { return lsn.value % segment_bytes(); }
  [[nodiscard]] std::uint64_t left_in_segment(Lsn lsn) const { return segment_bytes() - offset_in_segment(lsn); }
  [[nodiscard]] std::uint64_t slot_offset(std::uint32_t slot) const { return kSlotsOffset + slot * slot_bytes; }
  [[nodiscard]] std::uint64_t frame_bytes(std::uint64_t payload_bytes) const {
    return round_up(sizeof(FrameHeader) + payload_bytes + sizeof(FrameTrailer), block_bytes);
  }
};

// Which slot holds which live segment. The live segments are consecutive, so this is a ring.
// Not synchronised; owned by the log, under its mutex.
class SlotMap {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  void reset(std::uint64_t first_segment, std::uint32_t capacity) {
    slots_.assign(capacity, kNone);
    first_ = end_ = first_segment;
  }
  // Makes room for `capacity` slots; keeps the mapping.
  void grow(std::uint32_t capacity) {
    MEMLITH_ASSERT(count() <= slots_.size());
    if (capacity <= slots_.size()) return;
    std::vector<std::uint32_t> bigger(capacity, kNone);
    for (std::uint64_t segment = first_; segment < end_; ++segment) bigger[segment % capacity] = at(segment);
    slots_ = std::move(bigger);
  }
  // Clears the mapping; the next segment is `segment`.
  void restart(std::uint64_t segment) { first_ = end_ = segment; }
  [[nodiscard]] std::uint64_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }  // one past the last mapped segment
  [[nodiscard]] std::uint64_t count() const { return end_ - first_; }
  [[nodiscard]] std::uint32_t at(std::uint64_t segment) const {
    if (segment < first_ || segment >= end_) return kNone;
    return slots_[segment % slots_.size()];
  }
  void append(std::uint32_t slot) {
    MEMLITH_ASSERT(count() < slots_.size() && slot != kNone);
    slots_[end_++ % slots_.size()] = slot;
  }
  // The mapped segment is in this slot now.
  void move(std::uint64_t segment, std::uint32_t slot) {
    MEMLITH_ASSERT(segment >= first_ && segment < end_);
    slots_[segment % slots_.size()] = slot;
  }
  std::uint32_t drop_first() {
    MEMLITH_ASSERT(first_ < end_);
    return slots_[first_++ % slots_.size()];
  }

 private:
  std::vector<std::uint32_t> slots_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace memlith::core
