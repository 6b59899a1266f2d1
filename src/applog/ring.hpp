// The ring of an application log in memory: where a position lies, and entries in it. Floor: applog.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "applog/format.hpp"
#include "base/assert.hpp"

namespace memlith::core::applog {

// The checked part of a record of the first page, or of an entry's header: everything before its field `checksum`.
template <class Record>
std::uint64_t sum_of(const Record& record, std::uint64_t seed);
std::uint64_t content_sum(std::span<const std::byte> content, std::uint64_t seed);
// The header is complete but for its checksum.
std::uint64_t entry_sum(const EntryHeader& header, std::uint64_t content_sum, std::uint64_t seed);

// Threads: those of its owner.
class Ring {
 public:
  Ring() = default;
  Ring(std::byte* base, const Shape& shape) : base_(base), shape_(shape) {}

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::uint64_t capacity() const { return shape_.capacity; }
  // In the region.
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t position) const {
    return kRingOffset + (position - shape_.base) % shape_.capacity;
  }
  // Calls `act(offset in the region, bytes)` for the one or two runs of bytes from `position` on.
  template <class Act>
  void for_each_run(std::uint64_t position, std::uint64_t bytes, Act&& act) const {
    MEMLITH_ASSERT(bytes <= shape_.capacity);
    while (bytes > 0) {
      const std::uint64_t offset = offset_of(position);
      const std::uint64_t run = bytes_before_wrap(offset) < bytes ? bytes_before_wrap(offset) : bytes;
      act(offset, run);
      position += run;
      bytes -= run;
    }
  }
  void put(std::uint64_t position, const void* bytes, std::uint64_t count) const;
  void get(std::uint64_t position, void* target, std::uint64_t count) const;
  [[nodiscard]] EntryHeader header_at(std::uint64_t position) const;

 private:
  [[nodiscard]] std::uint64_t bytes_before_wrap(std::uint64_t offset) const {
    return kRingOffset + shape_.capacity - offset;
  }
  std::byte* base_ = nullptr;  // of the region
  Shape shape_{};
};

// The ring is not yet trusted: the entry or end mark at `position` is read into `content`, and checked.
enum class Found : std::uint8_t { entry, end, damage };
Found read_entry(const Ring& ring, std::uint64_t position, std::uint64_t number, std::uint64_t bytes_max,
                 std::uint64_t seed, std::vector<std::byte>& content);
EntryHeader end_mark(std::uint64_t number, std::uint64_t seed);

}  // namespace memlith::core::applog
