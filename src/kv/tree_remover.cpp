// Ranges and maps that go as whole subtrees, and the list of their pages, which are freed in steps. Floor: kv.
//
// The commit that removes changes the pages along the two ends of the range. What lies between goes to the list, by the
// number of the uppermost page. A page of the list is one that an inner page was before: it needs no room. The records
// below count until their leaf is freed.
#include <algorithm>
#include <cstring>

#include "kv/tree.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kFreedPageLogBytes = 64;  // at most
constexpr std::uint64_t kLaidOutLogBytes = kPageBytes + 64;
}  // namespace

// ---- the list --------------------------------------------------------------------------------------------------

Result<const std::byte*> TreeWriter::own_page(PageNumber page) {
  MEMLITH_TRY_ASSIGN(const std::byte* const bytes, words_.sound(page));
  const PageHeader header = header_of(bytes);
  if (header.map == map_ && (header.kind == PageKind::leaf || header.kind == PageKind::inner)) return bytes;
  return words_.corrupt(page, "it is not the page that its parent names");
}

// How many pages of this map the first page of the list takes.
std::uint32_t TreeWriter::room_in_list() const {
  const PageNumber first = writer_.header().removing;
  if (first == 0) return 0;
  const RemovedHeader list = removed_of(words_.bytes_of(first));
  return list.kind == PageKind::removed && list.map == map_ ? kRemovedMax - list.count : 0;
}

// The children [from, to) of a page, as it was.
void TreeWriter::add_to_list(const std::byte* parent, std::uint32_t from, std::uint32_t to) {
  const PageNumber first = writer_.header().removing;
  std::byte* const bytes = writer_.change(first);
  RemovedHeader list = removed_of(bytes);
  MEMLITH_ASSERT(list.kind == PageKind::removed && list.count + (to - from) <= kRemovedMax);
  const std::uint64_t begin = sizeof list + sizeof(PageNumber) * list.count;
  std::uint64_t end = begin;
  for (std::uint32_t i = from; i < to; ++i, end += sizeof(PageNumber)) {
    const PageNumber child = child_in(cell_of(parent, i));
    std::memcpy(bytes + end, &child, sizeof child);
  }
  list.count = static_cast<std::uint16_t>(list.count + (to - from));
  std::memcpy(bytes, &list, sizeof list);
  writer_.note(first, 0, sizeof list);
  writer_.note(first, begin, end - begin);
}

// An empty page becomes the first of the list.
void TreeWriter::make_list(PageNumber page) {
  const RemovedHeader list{page, PageKind::removed, 0, 0, writer_.header().removing, map_};
  std::memcpy(writer_.change(page), &list, sizeof list);
  writer_.note(page, 0, sizeof list);
  writer_.note_removing(page);
}

// A subtree to which nothing leads, and for whose root the list has no room. An inner page becomes a page of the list.
// A leaf is freed; one with values that have pages of their own, which are freed, becomes a page of the list, because
// those behind it may have such values, too.
Status TreeWriter::take_apart(PageNumber page) {
  MEMLITH_TRY_ASSIGN(const std::byte* const bytes, own_page(page));
  const PageHeader header = header_of(bytes);
  alignas(8) std::byte old[kPageBytes];
  if (header.kind == PageKind::inner) {
    std::memcpy(old, bytes, kPageBytes);
    const bool has_room = header.count <= room_in_list();
    has_room ? writer_.free(page) : make_list(page);
    add_to_list(old, 0, header.count);
    return kOk;
  }
  bool has_values = false;
  for (std::uint32_t i = 0; i < header.count; ++i) {
    const Cell cell = cell_of(bytes, i);
    if (!cell.overflow) continue;
    MEMLITH_TRY(check_run(cell));
    free_overflow(cell);
    has_values = true;
  }
  writer_.count_records(-std::int64_t{header.count});
  has_values ? make_list(page) : writer_.free(page);
  return kOk;
}

std::uint64_t TreeWriter::overflow_pages_in_all(const std::byte* leaf) {
  std::uint64_t pages = 0;
  for (std::uint32_t i = 0; i < header_of(leaf).count; ++i) pages += overflow_pages_in(cell_of(leaf, i));
  return pages;
}

Result<std::uint64_t> TreeWriter::remove_all_needs() {
  MEMLITH_TRY_ASSIGN(const std::byte* const bytes, own_page(map_));
  return header_of(bytes).kind == PageKind::inner ? 1 : 1 + overflow_pages_in_all(bytes);
}

// ---- a range ---------------------------------------------------------------------------------------------------

Result<TreeWriter::Parts> TreeWriter::parts_of(const KeyRange& range) {
  Path low;
  Path high;
  MEMLITH_TRY(descend(range.low, low));
  MEMLITH_TRY(range.has_high ? descend(range.high, high) : descend({}, high, To::end));
  depth_ = low.depth;
  if (low.depth != high.depth) return words_.corrupt(map_, "its tree has branches of several heights");
  std::uint32_t parting = 0;  // the level at which the ways part
  while (parting + 1 < depth_ && low.steps[parting].index == high.steps[parting].index) ++parting;
  Parts parts;
  const auto add = [&](PageNumber page, std::uint32_t from, std::uint32_t to) {
    if (from < to) parts.push_back({page, from, to});
  };
  for (std::uint32_t level = depth_; --level > parting;) {
    const bool leaf = level + 1 == depth_;
    const Path::Step& left = low.steps[level];
    if (left.page == high.steps[level].page) return words_.corrupt(left.page, "two pages lead to it");
    add(left.page, left.index + (leaf ? 0 : 1), header_of(words_.bytes_of(left.page)).count);
    add(high.steps[level].page, 0, high.steps[level].index);
  }
  const Path::Step& both = low.steps[parting];
  add(both.page, both.index + (parting + 1 == depth_ ? 0 : 1), high.steps[parting].index);
  return parts;
}

Result<std::uint64_t> TreeWriter::range_needs(const KeyRange& range) {
  MEMLITH_TRY_ASSIGN(const Parts parts, parts_of(range));
  std::uint64_t bytes = sizeof(StoreHeader);
  std::uint64_t freed = 0;
  bool small = false;  // a page may be merged
  for (const auto& [page, from, to] : parts) {
    const std::byte* const cells = words_.bytes_of(page);
    bytes += kLaidOutLogBytes;
    if (header_of(cells).level == 0) {
      std::uint64_t kept = used_bytes(cells);
      for (std::uint32_t i = from; i < to; ++i) {
        const Cell cell = cell_of(cells, i);
        kept -= cell.bytes() + kSlotBytes;
        freed += overflow_pages_in(cell);
      }
      small = small || kept < kMergeBelowBytes;
      continue;
    }
    small = true;
    bytes += kLaidOutLogBytes + sizeof(PageNumber) * (to - from);
    for (std::uint32_t i = from; header_of(cells).level == 1 && i < to; ++i, ++freed) {
      MEMLITH_TRY_ASSIGN(const std::byte* const leaf, own_page(child_in(cell_of(cells, i))));
      const std::uint64_t values = overflow_pages_in_all(leaf);
      freed += values;
      if (values > 0) break;
    }
  }
  return bytes + freed * kFreedPageLogBytes + (small ? 4 * depth_ * kLaidOutLogBytes : 0);
}

Status TreeWriter::drop_records(const Part& part) {
  const std::byte* const leaf = words_.bytes_of(part.page);
  for (std::uint32_t i = part.from; i < part.to; ++i) {
    const Cell cell = cell_of(leaf, i);
    MEMLITH_TRY(check_run(cell));
    free_overflow(cell);
  }
  writer_.count_records(-std::int64_t{part.to - part.from});
  cut(part.page, part.from, part.to);
  return kOk;
}

Status TreeWriter::drop_children(const Part& part) {
  alignas(8) std::byte old[kPageBytes];
  std::memcpy(old, words_.bytes_of(part.page), kPageBytes);
  for (std::uint32_t i = part.from; i < part.to;) {
    const std::uint32_t taken = std::min(part.to - i, room_in_list());
    if (taken > 0) {
      add_to_list(old, i, i + taken);
      i += taken;
      continue;
    }
    const PageNumber child = child_in(cell_of(old, i++));
    MEMLITH_TRY_ASSIGN(const std::byte* const bytes, own_page(child));
    if (header_of(bytes).level + 1u != header_of(old).level) {
      return words_.corrupt(child, "its level does not follow its parent's");
    }
    MEMLITH_TRY(take_apart(child));
  }
  std::byte* const bytes = writer_.change(part.page);
  cut_cells(bytes, part.from, part.to);
  if (part.from > 0) {
    note_slots(part.page, part.from);
    return kOk;
  }
  // The first key of an inner page is empty.
  const PageNumber first = child_in(cell_of(bytes, 0));
  remove_cell(bytes, 0);
  place(part.page, 0, {{}, bytes_of_number(first), false});
  return kOk;
}

// The pages along an end of the range may be small now. From the root downwards, so that each finds its neighbours.
Status TreeWriter::mend_way(const KeyRange& range, bool to_high) {
  Path path;
  const auto go = [&]() MEMLITH_REQUIRES(writing) {
    if (to_high && !range.has_high) return descend({}, path, To::end);
    return descend(to_high ? range.high : range.low, path);
  };
  MEMLITH_TRY(go());
  for (std::uint32_t height = path.depth - 1; height-- > 0;) {
    if (height + 1 < path.depth) merge(path, path.depth - 1 - height);
    MEMLITH_TRY(go());
  }
  lower_root();
  return kOk;
}

Status TreeWriter::remove_range(const KeyRange& range) {
  MEMLITH_TRY_ASSIGN(const Parts parts, parts_of(range));
  if (parts.empty()) return kOk;
  for (const Part& each : parts) {
    MEMLITH_TRY(header_of(words_.bytes_of(each.page)).level == 0 ? drop_records(each) : drop_children(each));
  }
  words_.note_detached();
  MEMLITH_TRY(mend_way(range, false));
  return mend_way(range, true);
}

// ---- freeing ---------------------------------------------------------------------------------------------------

Status RemovedList::free_some(std::uint64_t pages) {
  Status status = kOk;
  for (std::uint64_t freed = 0; freed < pages && pages_.writer.header().removing != 0;) {
    const Status done = free_next(pages, freed);
    if (status.ok()) status = done;
  }
  return status;
}

std::uint64_t RemovedList::least() {
  const KeptSentence sentence;  // free_next() finds what is damaged, and tells
  const PageNumber first = pages_.writer.header().removing;
  if (first == 0 || !pages_.words.sound(first).ok()) return 1;
  const RemovedHeader list = removed_of(pages_.words.bytes_of(first));
  if (list.kind != PageKind::removed || list.count == 0) return 1;
  const PageNumber page = removed_at(pages_.words.bytes_of(first), list.count - 1u);
  const auto bytes = TreeWriter(pages_, list.map).own_page(page);
  if (!bytes.ok() || header_of(*bytes).kind != PageKind::leaf) return 1;
  for (std::uint32_t i = header_of(*bytes).count; i-- > 0;) {
    if (const Cell cell = cell_of(*bytes, i); cell.overflow) return 1 + TreeWriter::overflow_pages_in(cell);
  }
  return 1;
}

// Nothing leads on from here.
Status RemovedList::give_up_list(Status why) {
  pages_.writer.note_removing(0);
  return why;
}

void RemovedList::take_last(PageNumber page) {
  std::byte* const bytes = pages_.writer.change(page);
  RemovedHeader list = removed_of(bytes);
  MEMLITH_ASSERT(list.kind == PageKind::removed && list.count > 0);
  --list.count;
  std::memcpy(bytes, &list, sizeof list);
  pages_.writer.note(page, 0, sizeof list);
}

Status RemovedList::free_next(std::uint64_t pages, std::uint64_t& freed) {
  const PageNumber first = pages_.writer.header().removing;
  const auto sound = pages_.words.sound(first);
  if (!sound.ok()) return give_up_list(sound.error());
  const RemovedHeader list = removed_of(*sound);
  if (list.kind != PageKind::removed) {
    return give_up_list(pages_.words.corrupt(first, "it is in the list of what was removed, and no page of it"));
  }
  ++freed;
  if (list.count == 0) {
    pages_.writer.note_removing(list.next);
    pages_.writer.free(first);
    return kOk;
  }
  const PageNumber page = removed_at(*sound, list.count - 1u);
  if (list.count > 1) pages_.words.fetch_early(removed_at(*sound, list.count - 2u));
  TreeWriter tree(pages_, list.map);
  const auto bytes = tree.own_page(page);
  if (bytes.ok() && header_of(*bytes).kind == PageKind::leaf) return free_leaf(tree, page, pages, freed);
  take_last(first);
  return bytes.ok() ? tree.take_apart(page) : bytes.error();
}

// A leaf whose values have many pages stays in the list, with those records that are left.
Status RemovedList::free_leaf(TreeWriter& tree, PageNumber leaf, std::uint64_t pages, std::uint64_t& freed) {
  const std::byte* const bytes = pages_.words.bytes_of(leaf);
  const std::uint32_t count = header_of(bytes).count;
  Status status = kOk;
  std::uint32_t kept = count;
  for (; kept > 0; --kept) {
    const Cell cell = cell_of(bytes, kept - 1);
    if (!cell.overflow) continue;
    const std::uint64_t own = TreeWriter::overflow_pages_in(cell);
    if (freed > 1 && freed + own > pages) break;
    const Status sound = tree.check_run(cell);
    if (!sound.ok()) {
      status = sound;
      continue;
    }
    tree.free_overflow(cell);
    freed += own;
  }
  pages_.writer.count_records(std::int64_t{kept} - count);
  if (kept > 0) {
    if (kept < count) tree.cut(leaf, kept, count);
    freed = std::max(freed, pages);
    return status;
  }
  take_last(pages_.writer.header().removing);
  pages_.writer.free(leaf);
  return status;
}

}  // namespace memlith::core::kv
