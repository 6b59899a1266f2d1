#include "kv/page.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace memlith::core::kv {

namespace {
void set_slot(std::byte* page, std::uint32_t index, std::uint32_t at) {
  MEMLITH_ASSERT(at >= sizeof(PageHeader) && at < kPageBytes);
  const auto value = static_cast<std::uint16_t>(at);
  std::memcpy(page + sizeof(PageHeader) + kSlotBytes * index, &value, sizeof value);
}
void set_header(std::byte* page, const PageHeader& header) { std::memcpy(page, &header, sizeof header); }

// The first eight bytes of a key as a number; zeros follow a shorter key. Keys whose numbers differ have the order of
// the numbers.
std::uint64_t head_of(std::string_view key) {
  std::uint64_t head = 0;
  if (key.size() >= sizeof head) {
    std::memcpy(&head, key.data(), sizeof head);
  } else {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(key.data());
    for (std::size_t i = 0; i < key.size(); ++i) head |= std::uint64_t{bytes[i]} << 8 * i;
  }
  return __builtin_bswap64(head);
}

// The bytes of a page that cells lie in.
class CellBytes {
 public:
  // False: a byte is taken already.
  bool take(std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const std::uint64_t bits = std::min(64 - begin % 64, end - begin);
      const std::uint64_t mask = (~std::uint64_t{0} >> (64 - bits)) << begin % 64;
      if ((words_[begin / 64] & mask) != 0) return false;
      words_[begin / 64] |= mask;
      begin += bits;
    }
    return true;
  }

 private:
  std::array<std::uint64_t, kPageBytes / 64> words_{};
};

std::string_view fault_of_list(const std::byte* page, PageNumber pages) {
  const RemovedHeader list = removed_of(page);
  if (list.count > kRemovedMax || list.next >= pages || list.map == 0 || list.map >= pages) return "it is no list";
  for (std::uint32_t i = 0; i < list.count; ++i) {
    if (removed_at(page, i) <= kCatalogue || removed_at(page, i) >= pages) return "it lists a page that does not exist";
  }
  return {};
}
}  // namespace

CellSearch find_cell(const std::byte* page, std::string_view key) {
  std::uint32_t low = 0;
  std::uint32_t high = count_of(page);
  const std::uint64_t head = head_of(key);
  Cell cell;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (!read_cell(page, middle, cell)) return {0, false, true};
    const std::uint64_t cell_head = head_of(cell.key);
    int order = cell_head < head ? -1 : 1;
    if (cell_head == head) order = cell.key.compare(key);
    if (order == 0) return {middle, true, false};
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {low, false, false};
}

std::string_view fault_of_page(const std::byte* page, PageNumber self, PageNumber pages) {
  const PageHeader header = header_of(page);
  if (header.self != self) return "it carries the number of another page";
  if (header.kind == PageKind::overflow || header.kind == PageKind::free) {
    const RunHeader run = run_of(page);
    const bool is_free = run.kind == PageKind::free;
    if (is_free ? run.size == 0 : run.size > kValueBytesMax) return "its run has no such size";
    if (self + (is_free ? run.size : pages_of_value(run.size)) > pages) return "its run is longer than the kv store";
    if (is_free ? run.next >= pages : run.next != 0) return "its run leads nowhere";
    return {};
  }
  if (header.kind == PageKind::removed) return fault_of_list(page, pages);
  if (header.kind != PageKind::leaf && header.kind != PageKind::inner) return "its kind is unknown";
  const bool inner = header.kind == PageKind::inner;
  if (header.level >= kLevelsMax || inner != (header.level > 0)) return "its level is wrong";
  const std::uint64_t slots_end = sizeof(PageHeader) + kSlotBytes * header.count;
  if (header.cells_begin > kPageBytes || slots_end > header.cells_begin) return "its cells have no room";
  if (header.map == 0 || header.map >= pages) return "it belongs to no map";
  std::uint64_t live = 0;
  CellBytes taken;
  std::string_view before;
  for (std::uint32_t i = 0; i < header.count; ++i) {
    Cell cell;
    if (slot_of(page, i) < header.cells_begin || !read_cell(page, i, cell)) return "a cell lies outside";
    if (cell.key.size() > kKeyBytesMax || cell.bytes() > kCellBytesMax) return "a cell is too large";
    if (i > 0 ? cell.key <= before : cell.key.empty() != inner) return "its keys are not in order";
    if (inner && (cell.overflow || child_in(cell) == 0 || child_in(cell) >= pages)) return "a child does not exist";
    if (cell.overflow && !reference_in(cell).has_value()) return "a reference is damaged";
    // A change of one would change the other, and nothing looks at that again.
    if (!taken.take(slot_of(page, i), slot_of(page, i) + cell.bytes())) return "two cells lie over each other";
    before = cell.key;
    live += cell.bytes();
  }
  if (inner && header.count == 0) return "it has no children";
  if (live + header.garbage != kPageBytes - header.cells_begin) return "its cells do not add up";
  return {};
}

void format_page(std::byte* page, PageNumber self, PageKind kind, std::uint8_t level, PageNumber map) {
  MEMLITH_ASSERT(self != kHeaderPage && map != 0 && level < kLevelsMax);
  MEMLITH_ASSERT(kind == (level == 0 ? PageKind::leaf : PageKind::inner));
  set_header(page, {self, kind, level, 0, static_cast<std::uint16_t>(kPageBytes), 0, map});
}

std::uint64_t used_bytes(const std::byte* page) {
  const PageHeader header = header_of(page);
  MEMLITH_ASSERT(header.cells_begin <= kPageBytes && header.garbage <= kPageBytes - header.cells_begin);
  return kPageBytes - header.cells_begin - header.garbage + kSlotBytes * header.count;
}

void insert_cell(std::byte* page, std::uint32_t index, const Cell& cell) {
  MEMLITH_ASSERT(fits_at_once(page, cell.bytes()));
  insert_cell_at(page, index, cell, header_of(page).cells_begin - cell.bytes());
}

void insert_cell_at(std::byte* page, std::uint32_t index, const Cell& cell, std::uint64_t at) {
  PageHeader header = header_of(page);
  MEMLITH_ASSERT(index <= header.count);
  MEMLITH_ASSERT(cell.bytes() <= kPageBytes && at <= kPageBytes - cell.bytes());
  MEMLITH_ASSERT(at >= sizeof(PageHeader) + kSlotBytes * (header.count + 1u));
  // Directly below all cells, or in bytes of cells that are not in use.
  MEMLITH_ASSERT(at < header.cells_begin ? at + cell.bytes() == header.cells_begin : cell.bytes() <= header.garbage);
  const CellHeader own{static_cast<std::uint16_t>(cell.key.size() | (cell.overflow ? kOverflowFlag : 0)),
                       static_cast<std::uint16_t>(cell.value.size())};
  std::memcpy(page + at, &own, sizeof own);
  if (!cell.key.empty()) std::memcpy(page + at + sizeof own, cell.key.data(), cell.key.size());
  if (!cell.value.empty()) std::memcpy(page + at + sizeof own + cell.key.size(), cell.value.data(), cell.value.size());
  std::byte* const slot = page + sizeof(PageHeader) + kSlotBytes * index;
  std::memmove(slot + kSlotBytes, slot, kSlotBytes * (header.count - index));
  set_slot(page, index, static_cast<std::uint32_t>(at));
  ++header.count;
  if (at < header.cells_begin) {
    header.cells_begin = static_cast<std::uint16_t>(at);
  } else {
    header.garbage = static_cast<std::uint16_t>(header.garbage - cell.bytes());
  }
  set_header(page, header);
}

std::uint64_t hole_for(const std::byte* page, std::uint64_t bytes) {
  const PageHeader header = header_of(page);
  const bool slot_fits = sizeof(PageHeader) + kSlotBytes * (header.count + 1u) <= header.cells_begin;
  if (!slot_fits || header.garbage < bytes || header.count > kHolesCellsMax) return 0;
  std::array<std::pair<std::uint64_t, std::uint64_t>, kHolesCellsMax + 1> used;  // begin and end
  for (std::uint32_t i = 0; i < header.count; ++i) {
    const std::uint64_t begin = slot_of(page, i);
    used[i] = {begin, begin + cell_of(page, i).bytes()};
  }
  used[header.count] = {kPageBytes, kPageBytes};
  std::sort(used.begin(), used.begin() + header.count);
  std::uint64_t best = 0;
  std::uint64_t best_bytes = ~std::uint64_t{0};
  std::uint64_t begin = header.cells_begin;
  for (std::uint32_t i = 0; i <= header.count; ++i) {
    const std::uint64_t room = used[i].first - begin;
    if (room >= bytes && room < best_bytes) {
      best = begin;
      best_bytes = room;
    }
    begin = used[i].second;
  }
  MEMLITH_ASSERT(best == 0 || (best >= header.cells_begin && best + bytes <= kPageBytes));
  return best;
}

void remove_cell(std::byte* page, std::uint32_t index) {
  PageHeader header = header_of(page);
  MEMLITH_ASSERT(index < header.count);
  header.garbage = static_cast<std::uint16_t>(header.garbage + cell_of(page, index).bytes());
  MEMLITH_ASSERT(header.garbage <= kPageBytes - header.cells_begin);
  std::byte* const slot = page + sizeof(PageHeader) + kSlotBytes * index;
  std::memmove(slot, slot + kSlotBytes, kSlotBytes * (header.count - index - 1u));
  --header.count;
  set_header(page, header);
}

void cut_cells(std::byte* page, std::uint32_t from, std::uint32_t to) {
  PageHeader header = header_of(page);
  MEMLITH_ASSERT(from <= to && to <= header.count);
  std::uint64_t dropped = 0;
  for (std::uint32_t i = from; i < to; ++i) dropped += cell_of(page, i).bytes();
  header.garbage = static_cast<std::uint16_t>(header.garbage + dropped);
  MEMLITH_ASSERT(header.garbage <= kPageBytes - header.cells_begin);
  std::byte* const slots = page + sizeof(PageHeader);
  std::memmove(slots + kSlotBytes * from, slots + kSlotBytes * to, kSlotBytes * (header.count - to));
  header.count = static_cast<std::uint16_t>(header.count - (to - from));
  set_header(page, header);
}

void compact(std::byte* page) {
  alignas(8) std::byte old[kPageBytes];
  std::memcpy(old, page, kPageBytes);
  const PageHeader header = header_of(old);
  format_page(page, header.self, header.kind, header.level, header.map);
  for (std::uint32_t i = 0; i < header.count; ++i) insert_cell(page, i, cell_of(old, i));
  MEMLITH_ASSERT(header_of(page).garbage == 0 && used_bytes(page) == used_bytes(old));
}

}  // namespace memlith::core::kv
