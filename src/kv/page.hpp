// The pages of a kv store, as they lie in the region. Floor: kv.
//
// A leaf or an inner page has a header, places of its cells in the order of the keys, free room, and cells, which are
// added from the end downwards. A change of a record changes the bytes of one cell, or adds one; only when the free
// room is used up is the page laid out anew.
// An inner page's cells hold the number of a child; the first one has an empty key, which stands for everything before
// the second.
// A value that is too long for a cell lies in a run of pages: a header in the first of them, then the value in one
// piece. Free pages form runs, too, each of which names the next one.
//
// Every function here works on any bytes that passed fault_of_page(), and the ones for readers on any bytes at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/status.hpp"
#include "base/units.hpp"
#include "store/format.hpp"

namespace memlith::core::kv {

using PageNumber = std::uint32_t;

// As a value in a tree.
inline std::string_view bytes_of_number(const PageNumber& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

inline constexpr std::uint64_t kMagic = 0x766b68746c6d656d;  // "memlthkv"
inline constexpr std::uint32_t kVersion = 2;
inline constexpr PageNumber kHeaderPage = 0;
inline constexpr PageNumber kCatalogue = 1;  // the map of maps: name to number, which is the number of its root page
inline constexpr std::uint64_t kKeyBytesMax = 1024;
inline constexpr std::uint64_t kValueBytesMax = 16 * kMiB;
inline constexpr std::uint32_t kLevelsMax = 24;

// In page 0, behind the first bytes of the region, which are the store's: the in-use header.
inline constexpr std::uint64_t kHeaderOffset = kInUseHeaderBytes;
struct StoreHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t page_bytes;
  std::uint32_t pages;      // in use and free, page 0 included; the region may be longer
  std::uint32_t free_head;  // the first page of the first free run; 0: none
  std::uint32_t free_pages;
  std::uint32_t removing;  // the first page of the list of what was removed and has pages left; 0: there is nothing
  std::uint64_t commits;   // the number of the newest commit that this state holds
  std::uint64_t records;   // of all maps
};
static_assert(sizeof(StoreHeader) == 48);

enum class PageKind : std::uint8_t { none = 0, leaf = 1, inner = 2, overflow = 3, free = 4, removed = 5 };

struct PageHeader {
  PageNumber self;
  PageKind kind;
  std::uint8_t level;         // 0: leaf
  std::uint16_t count;        // cells
  std::uint16_t cells_begin;  // of the lowest cell
  std::uint16_t garbage;      // bytes of cells that are not in use
  PageNumber map;             // the root of the tree to which the page belongs
};
static_assert(sizeof(PageHeader) == 16);

// The first bytes of a run of overflow pages or free pages. The other pages of the run have no header.
struct RunHeader {
  PageNumber self;
  PageKind kind;
  std::uint8_t level;   // 0
  std::uint16_t count;  // 0
  PageNumber next;      // of free pages: the first page of the next run, 0 in the last one; else 0
  std::uint32_t size;   // of free pages: how many; else: bytes of the value, which follows
};
static_assert(sizeof(RunHeader) == 16);

// A page of the list of what was removed: the numbers of pages of one map follow, each with all that lies below it.
// Nothing else leads to these pages.
struct RemovedHeader {
  PageNumber self;
  PageKind kind;
  std::uint8_t level;
  std::uint16_t count;
  PageNumber next;  // 0: the last
  PageNumber map;
};
static_assert(sizeof(RemovedHeader) == 16);
inline constexpr std::uint32_t kRemovedMax = (kPageBytes - sizeof(RemovedHeader)) / sizeof(PageNumber);

// The number of pages of a run for a value of that length.
inline constexpr std::uint64_t pages_of_value(std::uint64_t bytes) {
  return (sizeof(RunHeader) + bytes + kPageBytes - 1) / kPageBytes;
}

struct CellHeader {
  std::uint16_t key_bytes;    // kOverflowFlag: the value is in a run of pages, and the cell has a reference to it
  std::uint16_t value_bytes;  // in the cell
};
inline constexpr std::uint16_t kOverflowFlag = 0x8000;
inline constexpr std::uint64_t kSlotBytes = 2;
inline constexpr std::uint64_t kRoomBytes = kPageBytes - sizeof(PageHeader);
inline constexpr std::uint64_t kCellBytesMax = 1300;  // header, key and value: three of them fit a page

struct OverflowReference {
  PageNumber first;
  std::uint32_t bytes;
};

// A cell; its bytes lie in the page.
struct Cell {
  std::string_view key;
  std::string_view value;  // the reference, of an overflow
  bool overflow = false;
  [[nodiscard]] std::uint64_t bytes() const { return sizeof(CellHeader) + key.size() + value.size(); }
};

template <class T>
T load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline PageHeader header_of(const std::byte* page) { return load_as<PageHeader>(page); }
inline RunHeader run_of(const std::byte* page) { return load_as<RunHeader>(page); }
inline RemovedHeader removed_of(const std::byte* page) { return load_as<RemovedHeader>(page); }
inline PageNumber removed_at(const std::byte* page, std::uint32_t index) {
  return load_as<PageNumber>(page + sizeof(RemovedHeader) + sizeof(PageNumber) * index);
}

inline std::uint32_t slot_of(const std::byte* page, std::uint32_t index) {
  return load_as<std::uint16_t>(page + sizeof(PageHeader) + kSlotBytes * index);
}

// Nothing if the bytes are no cell. For readers beside a writer.
inline bool read_cell(const std::byte* page, std::uint32_t index, Cell& cell) {
  const std::uint32_t at = slot_of(page, index);
  if (at < sizeof(PageHeader) || at > kPageBytes - sizeof(CellHeader)) return false;
  const auto header = load_as<CellHeader>(page + at);
  const std::uint32_t key_bytes = header.key_bytes & ~kOverflowFlag;
  if (at + sizeof(CellHeader) + key_bytes + header.value_bytes > kPageBytes) return false;
  const auto* const text = reinterpret_cast<const char*>(page + at + sizeof(CellHeader));
  cell = {{text, key_bytes}, {text + key_bytes, header.value_bytes}, (header.key_bytes & kOverflowFlag) != 0};
  return true;
}

// For a page that was checked.
inline Cell cell_of(const std::byte* page, std::uint32_t index) {
  Cell cell;
  const bool good = read_cell(page, index, cell);
  MEMLITH_ASSERT(good);
  return cell;
}

// Nothing if the cell has none.
inline std::optional<OverflowReference> reference_in(const Cell& cell) {
  if (!cell.overflow || cell.value.size() != sizeof(OverflowReference)) return std::nullopt;
  return load_as<OverflowReference>(reinterpret_cast<const std::byte*>(cell.value.data()));
}
// In a checked page.
inline OverflowReference reference_of(const Cell& cell) {
  const auto reference = reference_in(cell);
  MEMLITH_ASSERT(reference.has_value());
  return *reference;
}
// True if the run lies behind the catalogue and ends within the region.
inline bool lies_within(const OverflowReference& reference, PageNumber pages) {
  return reference.first > kCatalogue && reference.bytes <= kValueBytesMax &&
         reference.first + pages_of_value(reference.bytes) <= pages;
}

inline PageNumber child_in(const Cell& cell) {
  PageNumber child = 0;
  if (cell.value.size() == sizeof child) std::memcpy(&child, cell.value.data(), sizeof child);
  return child;
}

inline std::uint32_t count_of(const std::byte* page) {
  const std::uint32_t count = header_of(page).count;
  return count <= kRoomBytes / kSlotBytes ? count : 0;
}

inline std::uint64_t hash_of_key(std::string_view key) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = key.size();
  const char* at = key.data();
  std::size_t left = key.size();
  for (; left >= sizeof hash; at += sizeof hash, left -= sizeof hash) {
    hash = (hash ^ load_as<std::uint64_t>(reinterpret_cast<const std::byte*>(at))) * kOdd;
    hash ^= hash >> 32;
  }
  std::uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, at, left);
  return (hash ^ rest) * kOdd;
}
// A byte of it, for a leaf.
inline std::uint8_t tag_of(std::string_view key) { return static_cast<std::uint8_t>(hash_of_key(key) >> 56); }

// The first cell whose key is not less than `key`, and whether it is equal. `broken`: the bytes are no page.
struct CellSearch {
  std::uint32_t index = 0;
  bool found = false;
  bool broken = false;
};
CellSearch find_cell(const std::byte* page, std::string_view key);
// The cell of an inner page whose child holds `key`.
inline std::uint32_t child_index(const CellSearch& search) { return search.found ? search.index : search.index - 1; }

// Structure and order of a page of a tree. Empty: it is sound; otherwise what is wrong.
std::string_view fault_of_page(const std::byte* page, PageNumber self, PageNumber pages);

// ---- changes

void format_page(std::byte* page, PageNumber self, PageKind kind, std::uint8_t level, PageNumber map);

// Bytes in use by cells and their slots.
std::uint64_t used_bytes(const std::byte* page);
inline bool fits(const std::byte* page, std::uint64_t cell_bytes) {
  return used_bytes(page) + cell_bytes + kSlotBytes <= kRoomBytes;
}
inline bool fits_at_once(const std::byte* page, std::uint64_t cell_bytes) {
  const PageHeader header = header_of(page);
  return sizeof(PageHeader) + kSlotBytes * (header.count + 1u) + cell_bytes <= header.cells_begin;
}
// Puts the cell at `index`; it fits at once.
void insert_cell(std::byte* page, std::uint32_t index, const Cell& cell);
// The same, at that place: one from hole_for(), or below all cells.
void insert_cell_at(std::byte* page, std::uint32_t index, const Cell& cell, std::uint64_t at);
// A place between the cells for another one of so many bytes, where its slot has room, too; the tightest there is.
// 0: there is none, or it is not looked for, because the page has so many cells that compacting it pays.
std::uint64_t hole_for(const std::byte* page, std::uint64_t bytes);
inline constexpr std::uint32_t kHolesCellsMax = 64;
void remove_cell(std::byte* page, std::uint32_t index);
// Drops cells [from, to).
void cut_cells(std::byte* page, std::uint32_t from, std::uint32_t to);
// Lays the page out anew, without garbage.
void compact(std::byte* page);

}  // namespace memlith::core::kv
