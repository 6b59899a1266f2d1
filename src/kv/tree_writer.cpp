// Changes of a tree. Every page that is changed here was found sound before.
#include <algorithm>

#include "kv/tree.hpp"

namespace memlith::core::kv {

namespace {

// The shortest key that is above `left` and not above `right`.
std::string_view separator(std::string_view left, std::string_view right) {
  MEMLITH_ASSERT(left < right);
  std::size_t same = 0;
  while (same < left.size() && same < right.size() && left[same] == right[same]) ++same;
  return right.substr(0, std::min(same + 1, right.size()));
}

// Exactly the bytes that note_page() logs, so that memory is what the log says.
void copy_used(std::byte* target, const std::byte* from, PageNumber self) {
  const PageHeader header = header_of(from);
  MEMLITH_ASSERT(sizeof header + kSlotBytes * header.count <= header.cells_begin && header.cells_begin <= kPageBytes);
  std::memcpy(target, from, sizeof header + kSlotBytes * header.count);
  std::memcpy(target + header.cells_begin, from + header.cells_begin, kPageBytes - header.cells_begin);
  std::memcpy(target, &self, sizeof self);
}

Cell cell_of_write(const Write& write, const OverflowReference& reference, bool overflow) {
  if (!overflow) return {write.key, write.value, false};
  return {write.key, {reinterpret_cast<const char*>(&reference), sizeof reference}, true};
}

bool overflows(const Write& write) {
  return !write.removes && sizeof(CellHeader) + write.key.size() + write.value.size() > kCellBytesMax;
}

}  // namespace

std::uint64_t TreeWriter::overflow_pages_of(const Write& write) {
  return overflows(write) ? pages_of_value(write.value.size()) : 0;
}

std::uint64_t TreeWriter::overflow_pages_in(const Cell& cell) {
  return cell.overflow ? pages_of_value(reference_of(cell).bytes) : 0;
}

std::uint64_t TreeWriter::cell_bytes_of(const Write& write) {
  if (write.removes) return sizeof(CellHeader) + write.key.size();
  return cell_of_write(write, {}, overflows(write)).bytes();
}

Status TreeWriter::descend(std::string_view key, Path& path, To to) {
  PageNumber page = map_;
  path.depth = 0;
  for (std::uint32_t level_above = kLevelsMax;;) {
    MEMLITH_TRY_ASSIGN(const std::byte* const bytes, words_.sound(page));
    const PageHeader header = header_of(bytes);
    if (header.map != map_ || header.level >= level_above ||
        (level_above != kLevelsMax && header.level + 1u != level_above) ||
        header.kind != (header.level == 0 ? PageKind::leaf : PageKind::inner)) {
      return words_.corrupt(page, "it is not the page that its parent names");
    }
    level_above = header.level;
    MEMLITH_ASSERT(path.depth < kLevelsMax);  // levels only fall
    const CellSearch search = to == To::end ? CellSearch{header.count, false, false} : find_cell(bytes, key);
    path.found = search.found;
    if (header.level == 0) {
      path.steps[path.depth++] = {page, search.index};
      // No tree grows so deep. This one, which a file brought, could not be split.
      return path.depth < kLevelsMax ? kOk : words_.corrupt(map_, "its tree has too many levels");
    }
    if (!search.found && search.index == 0) return words_.corrupt(page, "it has no child for the key");
    path.steps[path.depth++] = {page, child_index(search)};
    page = child_in(cell_of(bytes, child_index(search)));
  }
}

Status TreeWriter::check_run(const Cell& cell) const {
  return cell.overflow ? words_.sound_run(reference_of(cell)).status() : kOk;
}

Status TreeWriter::check(const Write& write, const LeafPlace& known, Found& found) {
  LeafPlace place = known;
  if (words_.is_as_found(known)) {
    depth_ = header_of(words_.bytes_of(map_)).level + 1u;
  } else {
    Path path;
    MEMLITH_TRY(descend(write.key, path));
    depth_ = path.depth;
    place = {path.leaf().page, path.leaf().index, 0, path.found};
  }
  const std::byte* const leaf = words_.bytes_of(place.page);
  found = {place.page, used_bytes(leaf), 0, false};
  MEMLITH_ASSERT(found.used <= kRoomBytes);
  if (!place.found) return kOk;
  const Cell cell = cell_of(leaf, place.index);
  found.cell_bytes = cell.bytes();
  if (!cell.overflow) {
    found.in_place = !write.removes && !overflows(write) && cell.value.size() == write.value.size();
    return kOk;
  }
  return check_run(cell);
}

void TreeWriter::make_empty(Pages& pages, PageNumber root) {
  MEMLITH_ASSERT(root > kCatalogue);  // which is made with the kv store, and never again
  format_page(pages.writer.change(root), root, PageKind::leaf, 0, root);
  pages.writer.note(root, 0, sizeof(PageHeader));
}

Status TreeWriter::apply(const Write& write) {
  Path path;
  MEMLITH_TRY(descend(write.key, path));
  if (!write.removes) return put(path, write);
  return remove(path);
}

bool TreeWriter::leaf_takes(const LeafPlace& place, const Write& write, std::uint64_t& used) const {
  std::uint64_t old_bytes = 0;
  if (place.found) {
    const Cell old = cell_of(words_.bytes_of(place.page), place.index);
    if (overflows(write)) return overflow_pages_in(old) == overflow_pages_of(write) && check_run(old).ok();
    if (old.overflow) return false;
    old_bytes = old.bytes() + kSlotBytes;
  }
  if (overflows(write)) return false;
  MEMLITH_ASSERT(old_bytes <= used);
  used -= old_bytes;
  if (write.removes) return used >= kMergeBelowBytes;
  used += cell_of_write(write, {}, false).bytes() + kSlotBytes;
  return used <= kRoomBytes;
}

void TreeWriter::find_again(std::string_view key, LeafPlace& place) const {
  const std::byte* const leaf = words_.bytes_of(place.page);
  const std::uint32_t count = header_of(leaf).count;
  // Mostly keys rise, and there is none behind.
  const bool behind_all = count == 0 || cell_of(leaf, count - 1).key < key;
  const CellSearch found = behind_all ? CellSearch{count, false, false} : find_cell(leaf, key);
  place.index = found.index;
  place.found = found.found;
}

Status TreeWriter::locate(std::string_view key, const LeafPlace* below, LeafPlace& place) {
  if (below != nullptr) {
    place = *below;
    find_again(key, place);
    if (place.at_end || place.index < header_of(words_.bytes_of(place.page)).count) return kOk;
  }
  Path path;
  MEMLITH_TRY(descend(key, path));
  place = {path.leaf().page, path.leaf().index, 0, path.found, in_last_page(path, path.depth - 1)};
  return kOk;
}

Status TreeWriter::apply_at(const LeafPlace& place, const Write& write) {
  Path path;
  path.steps[path.depth++] = {place.page, place.index};
  path.found = place.found;
  if (!write.removes) return put(path, write);
  if (!path.found) return kOk;
  take_out(place.page, place.index);
  writer_.count_records(-1);
  return kOk;
}

void TreeWriter::take_out(PageNumber page, std::uint32_t index) {
  remove_cell(writer_.change(page), index);
  note_slots(page, index);
  words_.tag_removed(page, index);
}

// ---- what is logged of a page

// A page that was laid out anew.
void TreeWriter::note_page(PageNumber page) {
  const PageHeader header = header_of(words_.bytes_of(page));
  MEMLITH_ASSERT(header.self == page && header.cells_begin <= kPageBytes);
  writer_.note(page, 0, sizeof header + kSlotBytes * header.count);
  writer_.note(page, header.cells_begin, kPageBytes - header.cells_begin);
}

// The header, and the slots from `from` on.
void TreeWriter::note_slots(PageNumber page, std::uint32_t from) {
  const std::uint64_t count = header_of(words_.bytes_of(page)).count;
  MEMLITH_ASSERT(from <= count);
  constexpr std::uint64_t kFirst = offsetof(PageHeader, count);
  constexpr std::uint64_t kBytes = offsetof(PageHeader, map) - kFirst;
  const std::uint64_t slots = sizeof(PageHeader) + kSlotBytes * from;
  if (slots - kFirst < sizeof(Extent)) {  // one extent is shorter than two
    writer_.note(page, kFirst, sizeof(PageHeader) + kSlotBytes * count - kFirst);
  } else {
    writer_.note(page, kFirst, kBytes);
    if (count > from) writer_.note(page, slots, kSlotBytes * (count - from));
  }
}

// ---- put

// With the same commit's other writes, a damaged file may have lost the run.
void TreeWriter::free_overflow(const Cell& cell) {
  if (cell.overflow && words_.sound_run(reference_of(cell)).ok()) writer_.free_run(reference_of(cell));
}

Status TreeWriter::put(Path& path, const Write& write) {
  MEMLITH_ASSERT(path.depth > 0 && !write.removes && !write.key.empty());
  const PageNumber leaf = path.leaf().page;
  const bool overflow = overflows(write);
  OverflowReference reference{0, static_cast<std::uint32_t>(write.value.size())};
  if (path.found) {
    const Cell old = cell_of(words_.bytes_of(leaf), path.leaf().index);
    MEMLITH_TRY(check_run(old));
    if (overflow && old.overflow) return replace_run(leaf, old, write.value);
    if (!overflow && !old.overflow && old.value.size() == write.value.size()) {
      write_value(leaf, old, write.value);
      return kOk;
    }
  }
  if (overflow) {
    MEMLITH_TRY_ASSIGN(reference.first, writer_.write_run(write.value));
  }
  if (path.found) {
    free_overflow(cell_of(words_.bytes_of(leaf), path.leaf().index));
    take_out(leaf, path.leaf().index);
  } else {
    writer_.count_records(1);
  }
  return insert(path, path.depth - 1, cell_of_write(write, reference, overflow));
}

// The cell's value is overwritten by another one of the same length.
void TreeWriter::write_value(PageNumber leaf, const Cell& cell, std::string_view value) {
  MEMLITH_ASSERT(cell.value.size() == value.size());
  if (value.empty()) return;
  const auto at =
      static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(cell.value.data()) - words_.bytes_of(leaf));
  MEMLITH_ASSERT(at >= sizeof(PageHeader) && at + value.size() <= kPageBytes);
  std::memcpy(writer_.change(leaf) + at, value.data(), value.size());
  writer_.note(leaf, at, value.size());
}

// A long value instead of another one: in its pages if they suffice, and no snapshot may look at them.
Status TreeWriter::replace_run(PageNumber leaf, const Cell& cell, std::string_view value) {
  const OverflowReference old = reference_of(cell);
  OverflowReference now{old.first, static_cast<std::uint32_t>(value.size())};
  if (writer_.is_own_run(old.first) && pages_of_value(value.size()) <= pages_of_value(old.bytes)) {
    writer_.overwrite_run(old, value);
  } else {
    MEMLITH_TRY_ASSIGN(now.first, writer_.write_run(value));
    writer_.free_run(old);
  }
  if (now.first == old.first && now.bytes == old.bytes) return kOk;
  write_value(leaf, cell, {reinterpret_cast<const char*>(&now), sizeof now});
  return kOk;
}

// Puts the cell into the page if there is room.
void TreeWriter::place(PageNumber page, std::uint32_t index, const Cell& cell) {
  std::byte* const bytes = writer_.change(page);
  if (fits_at_once(bytes, cell.bytes())) {
    insert_cell(bytes, index, cell);
    writer_.note(page, header_of(bytes).cells_begin, cell.bytes());
    note_slots(page, index);
  } else if (const std::uint64_t hole = hole_for(bytes, cell.bytes()); hole != 0) {
    // Room that a split or a removal has left is used again, which logs one cell instead of all that are in the page.
    insert_cell_at(bytes, index, cell, hole);
    writer_.note(page, hole, cell.bytes());
    note_slots(page, index);
  } else {
    compact(bytes);
    insert_cell(bytes, index, cell);
    note_page(page);
  }
  words_.tag_inserted(page, index, cell.key);
}

Status TreeWriter::insert(Path& path, std::uint32_t level_index, const Cell& cell) {
  Path::Step& step = path.steps[level_index];
  MEMLITH_ASSERT(level_index < path.depth && cell.bytes() <= kCellBytesMax);
  if (!fits(words_.bytes_of(step.page), cell.bytes())) return split(path, level_index, cell);
  place(step.page, step.index, cell);
  pages_.runs.note(step.page, step.index);
  return kOk;
}

bool TreeWriter::in_last_page(const Path& path, std::uint32_t level_index) const {
  for (std::uint32_t i = 0; i < level_index; ++i) {
    if (path.steps[i].index + 1u != header_of(words_.bytes_of(path.steps[i].page)).count) return false;
  }
  return true;
}

bool TreeWriter::rightmost(const Path& path, std::uint32_t level_index) const {
  const auto [page, index] = path.steps[level_index];
  return index == header_of(words_.bytes_of(page)).count && in_last_page(path, level_index);
}

// The content of the root moves to a new page, which is the root's only child.
Status TreeWriter::split_root(Path& path) {
  MEMLITH_ASSERT(path.steps[0].page == map_);  // not of apply_at(), whose leaf has room
  MEMLITH_TRY_ASSIGN(const PageNumber child, writer_.allocate());
  std::byte* const target = writer_.change(child);
  std::byte* const root = writer_.change(map_);
  copy_used(target, root, child);
  note_page(child);
  words_.tag_all(child);
  const std::uint8_t level = header_of(root).level;
  format_page(root, map_, PageKind::inner, static_cast<std::uint8_t>(level + 1), map_);
  insert_cell(root, 0, {{}, bytes_of_number(child), false});
  note_page(map_);
  MEMLITH_ASSERT(path.depth < kLevelsMax);
  std::copy_backward(path.steps, path.steps + path.depth, path.steps + path.depth + 1);
  ++path.depth;
  path.steps[0] = {map_, 0};
  path.steps[1].page = child;
  return kOk;
}

// How many of the cells, the new one among them, stay in a page that is split; `page` is as it was. Keys that only rise
// leave full pages behind: at the end of the map, and where a run of them goes on before cells with higher keys. These
// go to the new page then, so that the run fills the page, and the next one.
std::uint32_t TreeWriter::split_at(const Path& path, std::uint32_t level_index, const std::byte* page,
                                   const Cell& cell) const {
  const auto [number, index] = path.steps[level_index];
  const std::uint32_t count = header_of(page).count;
  if (rightmost(path, level_index)) return count;
  const std::uint64_t own = cell.bytes() + kSlotBytes;
  const auto bytes_at = [&](std::uint32_t i) {
    return i == index ? own : cell_of(page, i < index ? i : i - 1).bytes() + kSlotBytes;
  };
  std::uint64_t left = 0;
  std::uint32_t at = 0;
  if (pages_.runs.continues(number, index)) {
    for (; at <= index; ++at) left += bytes_at(at);
    return left <= kRoomBytes ? index + 1 : index;
  }
  const std::uint64_t total = used_bytes(page) + own;
  for (; at < count; ++at) {
    const std::uint64_t bytes = bytes_at(at);
    if (at > 0 && left + bytes / 2 > total / 2) break;
    left += bytes;
  }
  return at;
}

// Splits the page on the path, puts the cell into one of the two, and the new one into the parent.
Status TreeWriter::split(Path& path, std::uint32_t level_index, const Cell& cell) {
  if (level_index == 0) {
    MEMLITH_TRY(split_root(path));
    ++level_index;
  }
  const PageNumber left = path.steps[level_index].page;
  const std::uint32_t index = path.steps[level_index].index;
  alignas(8) std::byte old[kPageBytes];
  std::memcpy(old, words_.bytes_of(left), kPageBytes);
  const PageHeader header = header_of(old);
  // Cells [0, at) of all, the new one among them, stay.
  const auto all = [&](std::uint32_t i) {
    if (i == index) return cell;
    return cell_of(old, i < index ? i : i - 1);
  };
  const std::uint32_t at = split_at(path, level_index, old, cell);
  MEMLITH_ASSERT(at > 0 && at <= header.count);  // neither half is empty
  MEMLITH_TRY_ASSIGN(const PageNumber right, writer_.allocate());
  std::byte* const target = writer_.change(right);
  format_page(target, right, header.kind, header.level, map_);
  const bool inner = header.kind == PageKind::inner;
  const std::string_view between(inner ? all(at).key : separator(all(at - 1).key, all(at).key));
  MEMLITH_ASSERT(!between.empty());  // only the first key of an inner page is
  for (std::uint32_t i = at; i <= header.count; ++i) {
    Cell moved = all(i);
    if (inner && i == at) moved.key = {};
    insert_cell(target, i - at, moved);
  }
  note_page(right);
  words_.tag_all(right);
  const std::uint32_t kept = index < at ? at - 1 : at;  // of the old cells
  MEMLITH_ASSERT(kept <= header.count);
  // Also where all cells stay: what remembers the page has to learn that it ends earlier.
  (void)writer_.change(left);
  if (kept < header.count) cut(left, kept, header.count);
  if (index < at) {
    place(left, index, cell);
    pages_.runs.note(left, index);
  } else {
    pages_.runs.note_moved(left, index, right, index - at);
  }
  // In the parent, behind the page that was split.
  ++path.steps[level_index - 1].index;
  return insert(path, level_index - 1, {between, bytes_of_number(right), false});
}

// ---- remove

Status TreeWriter::remove(Path& path) {
  if (!path.found) return kOk;
  const PageNumber leaf = path.leaf().page;
  free_overflow(cell_of(words_.bytes_of(leaf), path.leaf().index));
  take_out(leaf, path.leaf().index);
  writer_.count_records(-1);
  merge(path, path.depth - 1);
  return kOk;
}

void TreeWriter::merge(Path& path, std::uint32_t level_index) {
  if (level_index == 0) return lower_root();
  const PageNumber page = path.steps[level_index].page;
  const std::uint64_t used = used_bytes(words_.bytes_of(page));
  if (used >= kMergeBelowBytes) return;
  const PageNumber parent = path.steps[level_index - 1].page;
  const std::uint32_t own = path.steps[level_index - 1].index;
  const std::uint32_t count = header_of(words_.bytes_of(parent)).count;
  MEMLITH_ASSERT(own < count);
  for (const bool with_right : {true, false}) {
    if (with_right ? own + 1 >= count : own == 0) continue;
    const std::uint32_t left_cell = with_right ? own : own - 1;
    const PageNumber other = child_in(cell_of(words_.bytes_of(parent), with_right ? own + 1 : own - 1));
    const auto sound = words_.sound(other);
    if (!sound.ok()) continue;  // it is told of when it is needed
    const PageHeader found = header_of(*sound);
    const PageHeader header = header_of(words_.bytes_of(page));
    if (found.kind != header.kind || found.level != header.level || found.map != map_ || other == page) continue;
    // The key between them comes down, in an inner page.
    const std::uint64_t down = header.level > 0 ? cell_of(words_.bytes_of(parent), left_cell + 1).key.size() : 0;
    const std::uint64_t both = used + used_bytes(*sound) + down;
    if (both > kMergedBytesMax && (header.count > 0 || both > kRoomBytes)) continue;
    merge_pages(path, level_index - 1, left_cell);
    return merge(path, level_index - 1);
  }
}

void TreeWriter::merge_pages(Path& path, std::uint32_t parent_index, std::uint32_t left_cell) {
  const PageNumber parent = path.steps[parent_index].page;
  const Cell between = cell_of(words_.bytes_of(parent), left_cell + 1);
  const PageNumber left = child_in(cell_of(words_.bytes_of(parent), left_cell));
  const PageNumber right = child_in(between);
  MEMLITH_ASSERT(left != right && left_cell + 1 < header_of(words_.bytes_of(parent)).count);
  const std::byte* const from = words_.bytes_of(right);
  std::byte* const target = writer_.change(left);
  const std::uint32_t moved = header_of(from).count;
  compact(target);
  for (std::uint32_t i = 0; i < moved; ++i) {
    Cell cell = cell_of(from, i);
    if (header_of(from).level > 0 && i == 0) cell.key = between.key;
    insert_cell(target, header_of(target).count, cell);
  }
  note_page(left);
  words_.tag_all(left);
  writer_.free(right);
  take_out(parent, left_cell + 1);
}

// A root with one child becomes that child.
void TreeWriter::lower_root() {
  for (;;) {
    const PageHeader root = header_of(words_.bytes_of(map_));
    if (root.kind != PageKind::inner || root.count != 1) return;
    const PageNumber child = child_in(cell_of(words_.bytes_of(map_), 0));
    const auto sound = words_.sound(child);
    if (!sound.ok() || header_of(*sound).map != map_ || header_of(*sound).level + 1u != root.level) return;
    MEMLITH_ASSERT(child != map_);
    std::byte* const target = writer_.change(map_);
    copy_used(target, *sound, map_);
    note_page(map_);
    words_.tag_all(map_);
    writer_.free(child);
  }
}

// Drops cells [from, to).
void TreeWriter::cut(PageNumber page, std::uint32_t from, std::uint32_t to) {
  cut_cells(writer_.change(page), from, to);
  note_slots(page, from);
  words_.tag_all(page);
}

}  // namespace memlith::core::kv
