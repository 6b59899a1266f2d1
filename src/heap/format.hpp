// The content of a heap's region; docs/heap.md draws it. Floor: heap.
//
// The region is cut into segments of 1 MiB. The heap's header lies at the beginning of the region, and behind it the
// segment table: one word a segment, for as many segments as the heap may have. A heap that is given a larger limit
// than its table has room for moves the table to segments of its own. A segment whose pages are handed out has a
// segment header: two bytes a page, which say where runs of pages begin, and one bit a block for the blocks of slabs. A
// block of 240 pages or more spans whole segments and needs no segment header; what is left of its last segment has one
// behind the block.
//
// Everything else (which slabs have room, which pages are free, what is largest) is derived from these in memory, when
// a segment is first used, and never stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.hpp"
#include "heap/size_class.hpp"
#include "store/format.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kSegmentBytes = 1 * kMiB;
inline constexpr std::uint32_t kSegmentPages = kSegmentBytes / kPageBytes;
inline constexpr std::uint64_t kHeapBytesMax = 4096 * kGiB;

// Zero in a region that was just created: no heap yet.
inline constexpr std::uint64_t kHeapMagic = 0x3170616568'6c6d;  // "mlheap1"
inline constexpr std::uint32_t kHeapVersion = 1;

// Behind the first bytes of the region, which are the store's: the in-use header.
inline constexpr std::uint64_t kHeapHeaderOffset = kInUseHeaderBytes;
struct HeapHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_pages;   // of header and segment table, as the heap was made
  std::uint64_t address;        // of the region
  std::uint64_t reserve_bytes;  // what the region may grow to
  std::uint64_t segments_max;
  std::uint64_t check;  // of the fields above, and of table_offset

  std::uint64_t names_first;  // offset of the newest name record; 0: none
  std::uint64_t names_count;
  std::uint64_t table_offset;  // of the segment table, where that was moved; 0: it lies behind this page
};
static_assert(sizeof(HeapHeader) == 72);
inline constexpr std::uint64_t kHeapHeaderEnd = kHeapHeaderOffset + sizeof(HeapHeader);
inline constexpr std::uint64_t kSegmentTableOffset = kPageBytes;

enum class SegmentKind : std::uint8_t {
  unused = 0,
  headed = 1,     // has a segment header
  huge = 2,       // a block begins here, of `pages` pages
  huge_rest = 3,  // the inside of one
  table = 4,      // the inside of the heap's header, or of a segment table that was moved
};

// A word of the segment table. All zeros: unused.
struct SegmentEntry {
  SegmentKind kind;
  std::uint8_t header_page;  // headed: where its header lies
  std::uint16_t check;       // of the other fields and the segment's number; an entry is not believed without it
  std::uint32_t pages;
};
static_assert(sizeof(SegmentEntry) == 8);

inline constexpr std::uint64_t kSegmentMagic = 0x676573'6c6d;  // "mlseg"
inline constexpr std::uint32_t kSegmentHeaderPages = 3;

// The use of a page. The low byte is the kind, the high byte the number of pages. Zero: nothing; the page is free, or
// inside the run that the last non-zero word before it began.
enum PageKind : std::uint8_t {
  kPageNone = 0,
  kPageSlab = 1,  // to kPageSlab + kClasses - 1
  kPageExtent = 0xe0,
  kPageHugeEnd = 0xe1,  // the last pages of a block that began in an earlier segment
  kPageHeader = 0xe2,   // of this segment
  kPageTable = 0xe3,    // the last pages of the heap's header
};
using PageWord = std::uint16_t;
constexpr PageWord page_word(std::uint32_t kind, std::uint32_t pages) {
  return static_cast<PageWord>(kind | pages << 8);
}

struct SegmentHeader {
  std::uint64_t magic;
  std::uint64_t number;
  std::uint64_t zeros[6];
  PageWord pages[kSegmentPages];
  std::byte unused[kPageBytes - 64 - kSegmentPages * sizeof(PageWord)];
  // Four words a page; those of a slab's pages follow each other, and bit i of them is the slab's block i. Zero outside
  // of slabs.
  std::uint64_t blocks[kSegmentPages][4];
};
static_assert(sizeof(SegmentHeader) == kSegmentHeaderPages * kPageBytes);

constexpr std::uint64_t segments_for(std::uint64_t reserve_bytes) {
  return (reserve_bytes + kSegmentBytes - 1) / kSegmentBytes;
}

constexpr std::uint32_t segment_of(std::uint64_t offset) { return static_cast<std::uint32_t>(offset / kSegmentBytes); }
constexpr std::uint32_t page_in_segment(std::uint64_t offset) {
  return static_cast<std::uint32_t>(offset / kPageBytes % kSegmentPages);
}

// From so many pages on a block has segments of its own.
inline constexpr std::uint32_t kHugePagesMin = 240;

// One named object. Lies in a block of the heap, followed by the name and the name of the type.
struct NameRecord {
  std::uint64_t next;      // offset of the next record, 0 behind the last
  std::uint64_t previous;  // offset of the record before, 0 for the first
  std::uint64_t object;    // offset
  std::uint64_t size;      // of the type, and what else makes it the same type
  std::uint32_t alignment;
  std::uint32_t layout;
  std::uint16_t name_bytes;
  std::uint16_t type_bytes;
  std::uint32_t zero;
  std::uint64_t check;  // of all fields from `object` on, and the two names
};
static_assert(sizeof(NameRecord) == 56);
inline constexpr std::uint64_t kObjectNameBytesMax = 255;
inline constexpr std::uint64_t kTypeNameBytesMax = 1023;

}  // namespace memlith::core
