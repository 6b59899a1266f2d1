#include <algorithm>
#include <memory>
#include <optional>

#include "kv/tree.hpp"

namespace memlith::core::kv {

Status TreeReader::check_map() {
  const auto none = [this] {
    return fail(Errc::invalid, Detail::kv,
                "region \"{}\": there is no map number {}; memlith_kv_map_open tells the "
                "number of a map",
                pages_.words.name(), map_);
  };
  if (map_ <= kHeaderPage || map_ >= pages_.words.count()) return none();
  const Pages::Reading reading(pages_);
  for (;;) {
    MEMLITH_TRY_ASSIGN(const PageView root, pages_.look(map_, view_));
    const bool is_root = pages_.is_of_tree(root, map_);
    if (!pages_.words.confirmed(root)) continue;
    if (!is_root) return none();
    return kOk;
  }
}

Result<bool> TreeReader::descend(const std::string_view* key, PageView& page, Leaf* fences, bool before, Way* way,
                                 std::uint32_t lowest) {
  MEMLITH_TRY_ASSIGN(PageView at, pages_.look(map_, view_));
  if (fences != nullptr) fences->has_lower = fences->has_upper = false;
  for (std::uint32_t level_above = kLevelsMax;;) {
    const PageHeader header = header_of(at.bytes);
    const bool expected = pages_.is_of_tree(at, map_) && header.level < level_above &&
                          (level_above == kLevelsMax || header.level + 1u == level_above) &&
                          header.kind == (header.level == 0 ? PageKind::leaf : PageKind::inner);
    if (!expected) {
      if (!pages_.words.confirmed(at)) return false;
      return pages_.words.corrupt(at.page, "it is not the page that its parent names");
    }
    if (header.level <= lowest) {
      page = std::move(at);
      return true;
    }
    level_above = header.level;
    const std::uint32_t count = count_of(at.bytes);
    CellSearch search{count, false, false};
    if (key != nullptr) search = find_cell(at.bytes, *key);
    if (before) search.found = false;
    Cell cell;
    const bool sound = !search.broken && count > 0 && (search.found || search.index > 0) &&
                       read_cell(at.bytes, child_index(search), cell);
    const std::uint32_t index = sound ? child_index(search) : 0;
    const PageNumber child = sound ? child_in(cell) : 0;
    if (sound && way != nullptr) way->steps[way->depth++] = {index, count};
    bool between = true;  // the key lies in the leaf's range, so that a walk from leaf to leaf gets on
    if (sound && fences != nullptr) {
      if (index > 0) {
        between = key == nullptr || (before ? cell.key < *key : cell.key <= *key);
        fences->lower.assign(cell.key);
        fences->has_lower = true;
      }
      Cell next;
      if (index + 1 < count && read_cell(at.bytes, index + 1, next)) {
        between = between && (key == nullptr || (before ? next.key >= *key : next.key > *key));
        fences->upper.assign(next.key);
        fences->has_upper = true;
      }
    }
    if (sound) pages_.words.fetch_early(child);
    if (!pages_.words.confirmed(at)) return false;
    if (!sound) return pages_.words.corrupt(at.page, "it has no child for the key");
    if (!between) return pages_.words.corrupt(at.page, "its keys are not in order");
    auto below = pages_.look(child, view_);
    // The parent may have changed before the child's word was read: the child may be another page by then.
    if (!pages_.words.confirmed(at)) return false;
    if (!below.ok()) return below.error();
    at = std::move(*below);
  }
}

Status TreeReader::find(std::string_view key, LeafPlace& place, bool looks_for_end) {
  const Pages::Reading reading(pages_);
  for (;;) {
    PageView leaf;
    std::optional<Way> way;
    if (looks_for_end) way.emplace();
    MEMLITH_TRY_ASSIGN(const bool reached, descend(&key, leaf, nullptr, false, way.has_value() ? &*way : nullptr));
    if (!reached) continue;
    const CellSearch found = pages_.words.find_in(leaf, key);
    if (!pages_.words.confirmed(leaf)) continue;
    if (found.broken) return pages_.words.corrupt(leaf.page, "a cell lies outside");
    const auto is_last = [](const Way::Step& step) { return step.index + 1 == step.count; };
    const bool at_end = way.has_value() && std::all_of(way->steps, way->steps + way->depth, is_last);
    place = {leaf.page, found.index, leaf.word, found.found, at_end};
    return kOk;
  }
}

// A key between two that the leaf holds, or would hold, belongs there, too. A key behind all of them does in the last
// leaf: another leaf comes behind it by a split, which changes it.
bool TreeReader::find_behind(const LeafPlace& below, std::string_view key, LeafPlace& place) {
  const Pages::Reading reading(pages_);
  const Words& words = pages_.words;
  const PageView leaf{words.bytes_of(below.page), below.page, below.word, PageUse::own, false, false};
  const CellSearch found = words.find_in(leaf, key);
  const bool inside = !found.broken && (below.at_end || found.index < count_of(leaf.bytes));
  if (!inside || !words.confirmed(leaf)) return false;
  place = {leaf.page, found.index, leaf.word, found.found, below.at_end};
  return true;
}

Status TreeReader::find_way(const std::string_view* key, Way& way) {
  const Pages::Reading reading(pages_);
  for (;;) {
    way = {};
    PageView leaf;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(key, leaf, nullptr, false, &way));
    if (!reached) continue;
    const std::uint32_t count = count_of(leaf.bytes);
    const CellSearch search = key == nullptr ? CellSearch{count, false, false} : pages_.words.find_in(leaf, *key);
    bool sound = true;
    for (std::uint32_t i = 0; sound && i < count; ++i) {
      if (i == search.index) way.leaf_bytes_before = way.leaf_bytes;
      Cell cell;
      sound = read_cell(leaf.bytes, i, cell);
      if (!sound) break;
      const auto reference = reference_in(cell);
      way.leaf_bytes += cell.key.size() + (reference.has_value() ? reference->bytes : cell.value.size());
    }
    if (search.index == count) way.leaf_bytes_before = way.leaf_bytes;
    if (!pages_.words.confirmed(leaf)) continue;
    if (!sound || search.broken) return pages_.words.corrupt(leaf.page, "a cell lies outside");
    way.steps[way.depth++] = {search.index, count};
    way.leaf = leaf.page;
    return kOk;
  }
}

Status TreeReader::load_leaf(const std::string_view* key, Leaf& leaf, bool before) {
  const Pages::Reading reading(pages_);
  for (;;) {
    leaf.detached = pages_.words.detached();
    PageView view;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(key, view, &leaf, before));
    if (!reached) continue;
    if (take(view, leaf)) return kOk;
  }
}

// False: the page has changed meanwhile.
bool TreeReader::take(const PageView& view, Leaf& leaf) const {
  leaf.bytes = view.stays ? view.bytes : leaf.copy;
  if (!view.stays) std::memcpy(leaf.copy, view.bytes, kPageBytes);
  leaf.page = view.page;
  leaf.word = view.word;
  leaf.stays = view.stays;
  return pages_.words.confirmed(view);
}

// From leaf to leaf, of each of which but the first and the last only the number of its records is read.
Result<std::uint64_t> TreeReader::count(const KeyRange& range) {
  const Pages::Reading reading(pages_);
  const auto fences = std::make_unique<Leaf>();
  std::uint64_t found = 0;
  std::string bound(range.low);
  for (bool first = true;;) {
    const std::string_view key = bound;
    PageView leaf;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(&key, leaf, fences.get()));
    if (!reached) continue;
    const bool last = !fences->has_upper || (range.has_high && fences->upper >= range.high);
    CellSearch begin{0, false, false};
    CellSearch end{count_of(leaf.bytes), false, false};
    if (first) begin = find_cell(leaf.bytes, range.low);
    if (last && range.has_high) end = find_cell(leaf.bytes, range.high);
    if (!pages_.words.confirmed(leaf)) continue;
    if (begin.broken || end.broken) return pages_.words.corrupt(leaf.page, "a cell lies outside");
    found += end.index - std::min(begin.index, end.index);
    if (last) return found;
    first = false;
    bound = fences->upper;
  }
}

Status TreeReader::load_parent(std::string_view key, Leaf& parent) {
  for (;;) {
    PageView view;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(&key, view, &parent, false, nullptr, 1));
    if (!reached) continue;
    if (take(view, parent)) return kOk;
  }
}

Status TreeReader::load_child(PageNumber page, Leaf& leaf) {
  for (;;) {
    MEMLITH_TRY_ASSIGN(const PageView view, pages_.look(page, view_));
    const bool is_of_tree = pages_.is_of_tree(view, map_);
    if (!take(view, leaf)) continue;
    if (is_of_tree && header_of(leaf.bytes).level == 0) return kOk;
    return pages_.words.corrupt(page, "it is not the page that its parent names");
  }
}

Status skip_or_fail(const Skip& skip, const Status& why, std::string_view from, std::optional<std::string_view> to) {
  if (why.ok() || !skip || (why.category != Errc::corrupt && why.category != Errc::io)) return why;
  skip(from, to, why);
  return kOk;
}

namespace {
// Records of a leaf from which on fetching its 64 lines ahead costs less than waiting for those that are read.
constexpr std::uint32_t kDenseLeaf = 12;
}  // namespace

// A parent leads to all its leaves, so that not each of them is looked for from the root.
Status TreeReader::for_each_leaf(std::string_view from, const VisitLeaf& visit, const Skip& skip) {
  MEMLITH_ASSERT(view_ != kNewest);
  Leaf parent;
  Leaf leaf;
  const auto load = [this](auto&& what) {
    const Pages::Reading reading(pages_);
    return what();
  };
  for (std::string bound(from);;) {
    const Status found = load([&] { return load_parent(bound, parent); });
    // The parent of a page that cannot be read knows where the next one begins; a damaged parent may not.
    const bool goes_on = parent.has_upper && parent.upper > bound;
    if (!found.ok()) {
      MEMLITH_TRY(skip_or_fail(skip, found, bound, goes_on ? std::optional(parent.upper) : std::nullopt));
      if (!goes_on) return kOk;
      bound = parent.upper;
      continue;
    }
    if (header_of(parent.bytes).level == 0) return visit(parent.bytes).status();
    const std::uint32_t count = count_of(parent.bytes);
    const std::uint32_t first = child_index(find_cell(parent.bytes, bound));
    for (std::uint32_t i = first; i < count; ++i) {
      const Cell cell = cell_of(parent.bytes, i);
      const Status read = load([&] { return load_child(child_in(cell), leaf); });
      if (!read.ok()) {
        std::optional<std::string_view> to;
        if (i + 1 < count) to = cell_of(parent.bytes, i + 1).key;
        if (i + 1 == count && parent.has_upper) to = parent.upper;
        MEMLITH_TRY(skip_or_fail(skip, read, std::max<std::string_view>(cell.key, bound), to));
        continue;
      }
      const bool dense = count_of(leaf.bytes) >= kDenseLeaf;
      if (dense && i == first) pages_.words.fetch_whole(leaf.page);
      if (i + 1 < count) {
        const PageNumber next = child_in(cell_of(parent.bytes, i + 1));
        dense ? pages_.words.fetch_whole(next) : pages_.words.fetch_early(next);
      }
      MEMLITH_TRY_ASSIGN(const bool more, visit(leaf.bytes));
      if (!more) return kOk;
    }
    if (!parent.has_upper) return kOk;
    bound = parent.upper;
  }
}

// No commit changes the run, or uses its pages again, as long as the snapshot is active.
Result<std::string_view> TreeReader::view_of(const OverflowReference& reference) {
  MEMLITH_ASSERT(view_ != kNewest);
  Words& words = pages_.words;
  if (!lies_within(reference, words.count())) return words.corrupt(reference.first, "a value does not lie there");
  if (words.word(reference.first) == 0) MEMLITH_TRY(words.check(reference.first));  // which loads it
  return words.value_of(reference);
}

// A commit that changes a run, or frees it, changes the word of its first page.
Result<bool> TreeReader::copy_of(const OverflowReference& reference, char* target) {
  MEMLITH_ASSERT(view_ == kNewest);
  Words& words = pages_.words;
  if (!lies_within(reference, words.count())) return words.corrupt(reference.first, "a value does not lie there");
  const Pages::Reading reading(pages_);
  MEMLITH_TRY_ASSIGN(const PageView first, pages_.look(reference.first, view_));
  const RunHeader run = run_of(first.bytes);
  const bool sound = run.self == reference.first && run.kind == PageKind::overflow && run.size == reference.bytes;
  if (sound) std::memcpy(target, words.value_of(reference).data(), reference.bytes);
  if (!words.confirmed(first)) return false;
  if (sound) return true;
  return words.corrupt(reference.first, "it does not hold the value that it should");
}

}  // namespace memlith::core::kv
