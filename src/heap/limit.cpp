// The limit of a heap, and its segment table, which has an entry for each segment up to there. A heap whose table
// has no room for a larger limit gets another one, in segments behind all others; nothing else in the heap moves.
//
// All of it is memory of the region: one persist makes the larger limit durable, and the table that goes with it.
#include <cstring>

#include "base/bytes.hpp"
#include "heap/checks.hpp"
#include "heap/heap.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kEntriesInPage = kPageBytes / sizeof(SegmentEntry);
constexpr std::uint64_t kEntriesInSegment = kSegmentBytes / sizeof(SegmentEntry);

std::uint32_t table_segments_for(std::uint64_t segments) {
  return static_cast<std::uint32_t>((segments + kEntriesInSegment - 1) / kEntriesInSegment);
}

}  // namespace

// ---- the table -------------------------------------------------------------------------------------------------

std::uint32_t Heap::table_first() const { return static_cast<std::uint32_t>(header_->table_offset / kSegmentBytes); }

std::uint32_t Heap::table_segments() const {
  return header_->table_offset == 0 ? 0 : table_segments_for(header_->segments_max);
}

bool Heap::is_in_table(std::uint32_t segment) const {
  const bool moved = segment >= table_first() && segment - table_first() < table_segments();
  return moved || segment < header_extent(header_->header_pages).segments;
}

std::uint64_t Heap::table_room() const {
  return header_->table_offset == 0 ? (header_->header_pages - 1) * kEntriesInPage
                                    : table_segments() * kEntriesInSegment;
}

// By the header, which was checked.
void Heap::find_table() {
  const std::uint64_t offset = header_->table_offset == 0 ? kSegmentTableOffset : header_->table_offset;
  table_ = reinterpret_cast<SegmentEntry*>(base_ + offset);
  if (header_->segments_max <= loaded_count_) return;
  // No segment is loaded when this is called.
  loaded_ = std::make_unique<Atomic<Segment*>[]>(header_->segments_max);
  loaded_count_ = header_->segments_max;
}

// ---- a larger limit --------------------------------------------------------------------------------------------

// Durable on ok. When the heap is opened: no segment is loaded, and no other thread knows the heap.
Status Heap::raise_limit(std::uint64_t reserve_bytes) {
  const std::uint64_t reserve = round_up(reserve_bytes, kPageBytes);
  if (reserve <= header_->reserve_bytes) return kOk;
  MEMLITH_ASSERT(reserve <= region_.reserve());
  if (segments_for(reserve) > table_room()) MEMLITH_TRY(move_table(reserve));
  header_->reserve_bytes = reserve;
  header_->segments_max = segments_for(reserve);
  header_->check = header_check(*header_);
  wrote(header_, sizeof *header_);
  find_table();
  Region* const region = &region_;
  return Region::persist({&region, 1}, Scope::process);
}

Status Heap::move_table(std::uint64_t reserve_bytes) {
  const std::uint32_t first = segment_count();
  const std::uint32_t count = table_segments_for(segments_for(reserve_bytes));
  const std::uint64_t size = (std::uint64_t{first} + count) * kSegmentBytes;
  if (size > reserve_bytes) {
    return fail(Errc::invalid, Detail::argument,
                "{}: it has {} bytes and may grow to {}; for a larger max_size it needs {} more for its own "
                "structures: ask for {} or more",
                place(), region_.size(), header_->reserve_bytes, count * kSegmentBytes, size);
  }
  MEMLITH_TRY(region_.grow(size));
  std::byte* const moved = base_ + first * kSegmentBytes;
  // Bytes that are zero already are not stored to, so that a fresh page stays a clean one.
  for (std::byte* page = moved; page < base_ + size; page += kPageBytes) {
    if (is_zero({page, kPageBytes})) continue;
    std::memset(page, 0, kPageBytes);
    wrote(page, kPageBytes);
  }
  std::memcpy(moved, table_, first * sizeof(SegmentEntry));
  wrote(moved, first * sizeof(SegmentEntry));
  table_ = reinterpret_cast<SegmentEntry*>(moved);
  for (std::uint32_t i = 0; i < table_segments(); ++i) {
    set_entry(table_first() + i, SegmentKind::unused, 0, 0);
  }
  for (std::uint32_t i = 0; i < count; ++i) set_entry(first + i, SegmentKind::table, 0, 0);
  header_->table_offset = first * kSegmentBytes;
  return kOk;
}

}  // namespace memlith::core
