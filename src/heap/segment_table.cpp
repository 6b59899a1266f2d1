#include "heap/segment_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.hpp"
#include "heap/checks.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kEntriesInPage = kPageBytes / sizeof(SegmentEntry);
constexpr std::uint64_t kEntriesInSegment = kSegmentBytes / sizeof(SegmentEntry);

std::uint32_t table_segments_for(std::uint64_t segments) {
  return static_cast<std::uint32_t>((segments + kEntriesInSegment - 1) / kEntriesInSegment);
}

}  // namespace

// ---- where it lies ---------------------------------------------------------------------------------------------

std::uint32_t header_pages_for(std::uint64_t reserve_bytes) {
  const std::uint64_t table_bytes = segments_for(reserve_bytes) * sizeof(SegmentEntry);
  return static_cast<std::uint32_t>(1 + round_up(table_bytes, kPageBytes) / kPageBytes);
}

HeaderExtent header_extent(std::uint32_t header_pages) {
  HeaderExtent extent{header_pages / kSegmentPages, header_pages % kSegmentPages};
  if (extent.pages + kSegmentHeaderPages > kSegmentPages) extent = {extent.segments + 1, 0};
  return extent;
}

std::uint64_t size_with_header(std::uint32_t header_pages) {
  const HeaderExtent extent = header_extent(header_pages);
  return extent.segments * kSegmentBytes + (extent.pages + kSegmentHeaderPages + 1) * kPageBytes;
}

SegmentTable::SegmentTable(const HeapMemory& memory)
    : memory_(memory), table_(reinterpret_cast<SegmentEntry*>(memory.base() + kSegmentTableOffset)) {}

Status SegmentTable::check_place() const {
  const HeapHeader& header = memory_.header();
  const std::uint64_t size = memory_.region().size();
  const std::uint32_t pages = header_pages_for(header.reserve_bytes);
  const bool moved = header.table_offset != 0;
  if (header.reserve_bytes > kHeapBytesMax || header.segments_max != segments_for(header.reserve_bytes) ||
      header.table_offset % kSegmentBytes != 0 || header.header_pages < 2 ||
      (moved ? header.header_pages > pages : header.header_pages != pages)) {
    return memory_.corrupt(kHeapHeaderOffset, "the heap's header does not fit itself");
  }
  if (size > header.reserve_bytes || size < size_with_header(header.header_pages)) {
    return memory_.corrupt(0, fmt::format("the region has {} bytes, which does not fit a heap of at most {}", size,
                                          header.reserve_bytes));
  }
  if (moved && (header.table_offset > size || segments_of_table() * kSegmentBytes > size - header.table_offset)) {
    return memory_.corrupt(kHeapHeaderOffset,
                           fmt::format("the segment table lies at offset {} of {}", header.table_offset, size));
  }
  return kOk;
}

std::uint32_t SegmentTable::first_of_table() const {
  return static_cast<std::uint32_t>(memory_.header().table_offset / kSegmentBytes);
}

std::uint32_t SegmentTable::segments_of_table() const {
  return memory_.header().table_offset == 0 ? 0 : table_segments_for(memory_.header().segments_max);
}

bool SegmentTable::is_in_table(std::uint32_t segment) const {
  const bool moved = segment >= first_of_table() && segment - first_of_table() < segments_of_table();
  return moved || segment < header_extent(memory_.header().header_pages).segments;
}

std::uint64_t SegmentTable::room() const {
  return memory_.header().table_offset == 0 ? (memory_.header().header_pages - 1) * kEntriesInPage
                                            : segments_of_table() * kEntriesInSegment;
}

void SegmentTable::find() {
  const std::uint64_t offset = memory_.header().table_offset;
  table_ = reinterpret_cast<SegmentEntry*>(memory_.base() + (offset == 0 ? kSegmentTableOffset : offset));
}

// ---- entries ---------------------------------------------------------------------------------------------------

bool SegmentTable::entry_fits(std::uint32_t segment) const {
  const SegmentEntry& entry = table_[segment];
  if (entry.kind == SegmentKind::unused) return std::bit_cast<std::uint64_t>(entry) == 0;
  return entry.kind <= SegmentKind::table && entry.check == entry_check(segment, entry);
}

void SegmentTable::set(std::uint32_t segment, SegmentKind kind, std::uint32_t header_page, std::uint32_t pages) {
  MEMLITH_ASSERT(std::uint64_t{segment} * kSegmentBytes < memory_.region().reserve());
  MEMLITH_ASSERT(header_page + kSegmentHeaderPages <= kSegmentPages);
  MEMLITH_ASSERT(header_page == 0 || kind == SegmentKind::headed);
  MEMLITH_ASSERT(kind == SegmentKind::huge ? pages >= kSegmentPages : pages == 0);
  SegmentEntry entry{kind, static_cast<std::uint8_t>(header_page), 0, pages};
  if (kind != SegmentKind::unused) entry.check = entry_check(segment, entry);
  memory_.put(table_[segment], entry);
  if (kind == SegmentKind::unused) unused_from_ = std::min(unused_from_, segment);
}

Status SegmentTable::check() const {
  const std::uint32_t count = memory_.segment_count();
  std::uint32_t inside = 0;  // of a block of whole segments: the number of segments behind it
  for (std::uint32_t number = 0; number < count; ++number) {
    const std::uint64_t offset = kSegmentTableOffset + number * sizeof(SegmentEntry);
    const SegmentEntry& entry = table_[number];
    if (!entry_fits(number)) {
      return memory_.corrupt(offset, fmt::format("the entry of segment {} does not fit its checksum", number));
    }
    if ((entry.kind == SegmentKind::huge_rest) != (inside > 0)) {
      return memory_.corrupt(offset, fmt::format("segment {} is {} a large block", number,
                                                 inside > 0 ? "missing in" : "inside of no"));
    }
    if (inside > 0) --inside;
    if (entry.kind == SegmentKind::huge) {
      MEMLITH_TRY(check_huge(number));
      inside = entry.pages / kSegmentPages - 1;
    }
    if (entry.kind == SegmentKind::headed && entry.header_page + kSegmentHeaderPages > memory_.pages_in(number)) {
      return memory_.corrupt(offset, fmt::format("the header of segment {} lies beyond its end", number));
    }
    if (is_in_table(number) != (entry.kind == SegmentKind::table)) {
      return memory_.corrupt(offset, fmt::format("segment {} does not belong to the heap's header, or does", number));
    }
  }
  return kOk;
}

Status SegmentTable::check_huge(std::uint32_t segment) const {
  const std::uint64_t offset = kSegmentTableOffset + segment * sizeof(SegmentEntry);
  const SegmentEntry& entry = table_[segment];
  const std::uint32_t whole = entry.pages / kSegmentPages;
  const std::uint32_t tail = entry.pages % kSegmentPages;
  if (whole == 0 || segment * kSegmentBytes + entry.pages * kPageBytes > memory_.region().size()) {
    return memory_.corrupt(offset, fmt::format("the large block in segment {} has {} pages", segment, entry.pages));
  }
  const SegmentEntry& last = table_[tail == 0 ? segment : segment + whole];
  if (tail > 0 && (last.kind != SegmentKind::headed || last.header_page != tail)) {
    return memory_.corrupt(offset,
                           fmt::format("the large block in segment {} does not end where segment {} begins to be used",
                                       segment, segment + whole));
  }
  return kOk;
}

// ---- unused segments -------------------------------------------------------------------------------------------

std::uint32_t SegmentTable::first_unused() {
  const std::uint32_t count = memory_.segment_count();
  while (unused_from_ < count && !is_unused(unused_from_)) ++unused_from_;
  return unused_from_;
}

std::uint32_t SegmentTable::find_unused(std::uint32_t whole, std::uint32_t tail_pages) const {
  MEMLITH_ASSERT(whole > 0 && tail_pages + kSegmentHeaderPages <= kSegmentPages);
  const std::uint32_t count = memory_.segment_count();
  std::uint32_t run = 0;
  for (std::uint32_t number = unused_from_; number < count; ++number) {
    const bool unused = is_unused(number);
    if (unused && run >= whole && memory_.pages_in(number) >= tail_pages + kSegmentHeaderPages) return number - whole;
    run = unused && memory_.pages_in(number) == kSegmentPages ? run + 1 : 0;
    if (tail_pages == 0 && run == whole) return number + 1 - whole;
  }
  return kNone;
}

// ---- a larger limit --------------------------------------------------------------------------------------------

Status SegmentTable::raise_limit(std::uint64_t reserve) {
  HeapHeader& header = memory_.header();
  MEMLITH_ASSERT(reserve > header.reserve_bytes && reserve <= memory_.region().reserve());
  if (segments_for(reserve) > room()) MEMLITH_TRY(move(reserve));
  header.reserve_bytes = reserve;
  header.segments_max = segments_for(reserve);
  header.check = header_check(header);
  memory_.wrote(&header, sizeof header);
  return kOk;
}

Status SegmentTable::move(std::uint64_t reserve_bytes) {
  Region& region = memory_.region();
  const std::uint32_t first = memory_.segment_count();
  const std::uint32_t count = table_segments_for(segments_for(reserve_bytes));
  const std::uint64_t size = (std::uint64_t{first} + count) * kSegmentBytes;
  if (size > reserve_bytes) {
    return fail(Errc::invalid, Detail::argument,
                "{}: it has {} bytes and may grow to {}; for a larger max_size it needs {} more for its own "
                "structures: ask for {} or more",
                memory_.shown(), region.size(), memory_.header().reserve_bytes, count * kSegmentBytes, size);
  }
  MEMLITH_TRY(region.grow(size));
  std::byte* const moved = memory_.page_at(first, 0);
  // Bytes that are zero already are not stored to, so that a fresh page stays a clean one.
  for (std::byte* page = moved; page < memory_.base() + size; page += kPageBytes) {
    if (is_zero({page, kPageBytes})) continue;
    std::memset(page, 0, kPageBytes);
    memory_.wrote(page, kPageBytes);
  }
  std::memcpy(moved, table_, first * sizeof(SegmentEntry));
  memory_.wrote(moved, first * sizeof(SegmentEntry));
  table_ = reinterpret_cast<SegmentEntry*>(moved);
  for (std::uint32_t i = 0; i < segments_of_table(); ++i) set(first_of_table() + i, SegmentKind::unused);
  for (std::uint32_t i = 0; i < count; ++i) set(first + i, SegmentKind::table);
  memory_.header().table_offset = first * kSegmentBytes;
  return kOk;
}

}  // namespace memlith::core
