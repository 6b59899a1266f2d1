// The B+-trees of a kv store: changing one, under the writer's mutex, and reading one beside a writer. Floor: kv.
//
// The root of a tree keeps its page for ever: when it is full, its content moves to two new pages.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv/pages.hpp"
#include "kv/ranges.hpp"

namespace memlith::core::kv {

// One change of a map.
struct Write {
  std::string_view key;
  std::string_view value;
  bool removes = false;
};

// The way from the root to a leaf: in each page the cell that was taken, in the leaf the place of the key.
struct Path {
  struct Step {
    PageNumber page = 0;
    std::uint32_t index = 0;
  };
  Step steps[kLevelsMax];
  std::uint32_t depth = 0;
  bool found = false;
  [[nodiscard]] Step& leaf() { return steps[depth - 1]; }
};

// ---- changing

class TreeWriter {
 public:
  TreeWriter(Pages& pages, PageNumber map) : pages_(pages), words_(pages.words), writer_(pages.writer), map_(map) {}

  // Where a write belongs, and what is there.
  struct Found {
    PageNumber leaf = 0;
    std::uint64_t used = 0;        // bytes of the leaf
    std::uint64_t cell_bytes = 0;  // of the record; 0: there is none
    bool in_place = false;         // the write changes the bytes of the value, and nothing else
  };
  // Reads every page that apply() of this write will need. `known`: where its key was found, maybe some time ago.
  Status check(const Write& write, const LeafPlace& known, Found& found) MEMLITH_REQUIRES(writing);
  // Counts of the tree, as the last check() found them.
  [[nodiscard]] std::uint32_t depth() const { return depth_; }
  // True if the write changes the leaf alone, or a long value in its pages: no split, no merge. `used`: bytes of the
  // leaf before the write; behind it, if it is true.
  [[nodiscard]] bool leaf_takes(const LeafPlace& place, const Write& write, std::uint64_t& used) const
      MEMLITH_REQUIRES(writing);
  // For a place of which leaf_takes() was true.
  Status apply_at(const LeafPlace& place, const Write& write) MEMLITH_REQUIRES(writing);
  // The index of the place, in a leaf in which cells have come and gone since.
  void find_again(std::string_view key, LeafPlace& place) const MEMLITH_REQUIRES(writing);
  // Where the key belongs, in the middle of a commit. `below`, which may be null: the place of a key below, in a leaf
  // that has its keys still. Errors: as apply().
  Status locate(std::string_view key, const LeafPlace* below, LeafPlace& place) MEMLITH_REQUIRES(writing);
  // There is room (pages_needed()), and check() was ok. Errors: corrupt - other writes of the commit have changed a
  // page that a damaged file has in two places; no_space - for a long value.
  Status apply(const Write& write) MEMLITH_REQUIRES(writing);
  // Puts records behind all that are there, in the order of their keys. There is room (append_needs()), and check_end()
  // was ok. Errors: as apply().
  Status append(std::span<const Write> writes) MEMLITH_REQUIRES(writing);
  // Like check(). `last`: the last key of the map, empty if there is none; valid until a page changes.
  Status check_end(std::string_view& last) MEMLITH_REQUIRES(writing);
  struct Needs {
    Writer::Need room;
    std::uint64_t log_bytes = 0;
  };
  [[nodiscard]] Needs append_needs(std::span<const Write> writes) const;  // after check_end()
  // The most that remove_range() leaves for the log. It needs no new pages. Errors: corrupt.
  Result<std::uint64_t> range_needs(const KeyRange& range) MEMLITH_REQUIRES(writing);
  // Takes the records with low <= key < high out of the tree. Pages that have no others go as they are, with all that
  // lies below them, to the list of what was removed; some are freed at once. Errors: corrupt, and the commit must be
  // undone.
  Status remove_range(const KeyRange& range) MEMLITH_REQUIRES(writing);
  // All of the tree goes in this way, its root too. Errors: corrupt - nothing has changed.
  Status remove_all() MEMLITH_REQUIRES(writing) { return take_apart(map_); }
  // The most pages that remove_all() frees.
  Result<std::uint64_t> remove_all_needs() MEMLITH_REQUIRES(writing);
  static void make_empty(Pages& pages, PageNumber root) MEMLITH_REQUIRES(writing);

  // At most so many new pages for so many splits of leaves, by writes that bring so many bytes.
  static std::uint64_t pages_needed(std::uint64_t splits, std::uint64_t cell_bytes, std::uint64_t pages_now,
                                    std::uint64_t depth);
  static std::uint64_t overflow_pages_of(const Write& write);
  static std::uint64_t cell_bytes_of(const Write& write);

 private:
  // Pages this empty are merged with a neighbour, if both together leave room for some more.
  static constexpr std::uint64_t kMergeBelowBytes = kRoomBytes / 4;
  static constexpr std::uint64_t kMergedBytesMax = kRoomBytes * 3 / 4;
  static std::uint64_t overflow_pages_in(const Cell& cell);
  static std::uint64_t overflow_pages_in_all(const std::byte* leaf);
  enum class To : std::uint8_t { key, end };
  Status descend(std::string_view key, Path& path, To to = To::key) MEMLITH_REQUIRES(writing);
  Status check_run(const Cell& cell) const MEMLITH_REQUIRES(writing);
  Status put(Path& path, const Write& write) MEMLITH_REQUIRES(writing);
  void write_value(PageNumber leaf, const Cell& cell, std::string_view value) MEMLITH_REQUIRES(writing);
  Status replace_run(PageNumber leaf, const Cell& cell, std::string_view value) MEMLITH_REQUIRES(writing);
  Status remove(Path& path) MEMLITH_REQUIRES(writing);
  Status insert(Path& path, std::uint32_t level_index, const Cell& cell) MEMLITH_REQUIRES(writing);
  Status split(Path& path, std::uint32_t level_index, const Cell& cell) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::uint32_t split_at(const Path& path, std::uint32_t level_index, const std::byte* page,
                                       const Cell& cell) const MEMLITH_REQUIRES(writing);
  Status split_root(Path& path) MEMLITH_REQUIRES(writing);
  void place(PageNumber page, std::uint32_t index, const Cell& cell) MEMLITH_REQUIRES(writing);
  void merge(Path& path, std::uint32_t level_index) MEMLITH_REQUIRES(writing);
  void merge_pages(Path& path, std::uint32_t parent_index, std::uint32_t left_cell) MEMLITH_REQUIRES(writing);
  void lower_root() MEMLITH_REQUIRES(writing);
  void take_out(PageNumber page, std::uint32_t index) MEMLITH_REQUIRES(writing);
  void cut(PageNumber page, std::uint32_t from, std::uint32_t to) MEMLITH_REQUIRES(writing);
  void note_page(PageNumber page) MEMLITH_REQUIRES(writing);
  void note_slots(PageNumber page, std::uint32_t from) MEMLITH_REQUIRES(writing);
  void free_overflow(const Cell& cell) MEMLITH_REQUIRES(writing);
  // The page at that level is the last one there; and what comes into it is its last cell.
  [[nodiscard]] bool in_last_page(const Path& path, std::uint32_t level_index) const MEMLITH_REQUIRES(writing);
  [[nodiscard]] bool rightmost(const Path& path, std::uint32_t level_index) const MEMLITH_REQUIRES(writing);

  // ---- what was removed (kv/tree_remover.cpp)
  friend class RemovedList;
  // Cells of a page that a range covers.
  struct Part {
    PageNumber page = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };
  using Parts = std::vector<Part>;  // those of leaves come first
  Result<Parts> parts_of(const KeyRange& range) MEMLITH_REQUIRES(writing);
  Result<const std::byte*> own_page(PageNumber page) MEMLITH_REQUIRES(writing);
  Status drop_records(const Part& part) MEMLITH_REQUIRES(writing);
  Status drop_children(const Part& part) MEMLITH_REQUIRES(writing);
  Status mend_way(const KeyRange& range, bool to_high) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::uint32_t room_in_list() const MEMLITH_REQUIRES(writing);
  void add_to_list(const std::byte* parent, std::uint32_t from, std::uint32_t to) MEMLITH_REQUIRES(writing);
  void make_list(PageNumber page) MEMLITH_REQUIRES(writing);
  Status take_apart(PageNumber page) MEMLITH_REQUIRES(writing);

  Pages& pages_;
  Words& words_;
  Writer& writer_;
  PageNumber map_;
  std::uint32_t depth_ = 0;
};

// The list of what was removed.
class RemovedList {
 public:
  explicit RemovedList(Pages& pages) : pages_(pages) {}
  // Frees `pages` of it, or some more. What is damaged is left out, and stays lost. Errors: corrupt - that happened.
  Status free_some(std::uint64_t pages) MEMLITH_REQUIRES(writing);
  // The least number of pages that free_some() frees at a time. They are sound, or it is 1.
  std::uint64_t least() MEMLITH_REQUIRES(writing);

 private:
  Status free_next(std::uint64_t pages, std::uint64_t& freed) MEMLITH_REQUIRES(writing);
  Status free_leaf(TreeWriter& tree, PageNumber leaf, std::uint64_t pages, std::uint64_t& freed)
      MEMLITH_REQUIRES(writing);
  Status give_up_list(Status why) MEMLITH_REQUIRES(writing);
  void take_last(PageNumber page) MEMLITH_REQUIRES(writing);

  Pages& pages_;
};

// How often the writes of a commit, which come in the order of maps and keys, may split leaves.
class SplitCount {
 public:
  void add(const Write& write, const TreeWriter::Found& found);
  // The writes may meet in other leaves than were found, because ranges go before.
  void expect_any_leaves() { any_leaves_ = true; }
  [[nodiscard]] std::uint64_t most();

 private:
  void close_leaf();
  bool any_leaves_ = false;
  PageNumber leaf_ = 0;
  std::uint64_t used_ = 0;  // of that leaf, as it is
  std::uint64_t growth_ = 0;
  std::uint64_t puts_in_leaf_ = 0;
  std::uint64_t puts_ = 0;
  std::uint64_t removals_ = 0;
  std::uint64_t splits_ = 0;
};

// ---- reading

// Told of records with from <= key < to, or, without `to`, up to the last, of which none or not all can be read: a page
// is damaged, or the disk does not give it back. The message is `why`'s.
using Skip = std::function<void(std::string_view from, std::optional<std::string_view> to, const Status& why)>;
// Ok: they are passed over, and `skip`, if there is one, was told.
Status skip_or_fail(const Skip& skip, const Status& why, std::string_view from, std::optional<std::string_view> to);

class TreeReader {
 public:
  TreeReader(Pages& pages, PageNumber map, Stamp view) : pages_(pages), map_(map), view_(view) {}

  // Invalid if there is no such map.
  Status check_map();
  // True if there is the record. `place`, which may be null: where it is, or belongs.
  template <class Take>
  Result<bool> get(std::string_view key, Take&& take, LeafPlace* place = nullptr);

  // Where the key is, or belongs. With `looks_for_end`, it is known whether that is in the last leaf.
  Status find(std::string_view key, LeafPlace& place, bool looks_for_end = false);
  // The same without the way from the root, if the place of a key below, which is locked, tells. False: it does not.
  bool find_behind(const LeafPlace& below, std::string_view key, LeafPlace& place);

  // The way to a key, or without a key to the end of the map: of each page the index of the child, in the leaf that of
  // the key, and how many there are.
  struct Way {
    struct Step {
      std::uint32_t index = 0;
      std::uint32_t count = 0;
    };
    Step steps[kLevelsMax];
    std::uint32_t depth = 0;
    PageNumber leaf = 0;
    std::uint64_t leaf_bytes = 0;         // of the keys and values of the leaf
    std::uint64_t leaf_bytes_before = 0;  // of those before the key
  };
  Status find_way(const std::string_view* key, Way& way);

  // The leaf that holds `key`, or would; the last leaf if `key` is null; and the keys between which it lies. A leaf
  // that does not stay was copied.
  struct Leaf {
    Leaf() = default;
    Leaf(const Leaf&) = delete;
    Leaf& operator=(const Leaf&) = delete;
    const std::byte* bytes = nullptr;
    alignas(8) std::byte copy[kPageBytes];
    PageNumber page = 0;
    std::uint64_t word = 0;
    std::uint64_t detached = 0;  // of Words, before
    bool stays = false;          // as long as the snapshot is active
    bool has_lower = false;      // the leaf holds the keys from `lower`, inclusive, to `upper`, exclusive
    bool has_upper = false;
    std::string lower;
    std::string upper;
  };
  // `before`: the leaf of the keys below `key`, which is the lower bound of a leaf.
  Status load_leaf(const std::string_view* key, Leaf& leaf, bool before = false);
  // Calls visit(leaf) for the leaf that holds `from`, or would, and for those behind it, in their order,
  // until it says false or fails. Of a snapshot only: its pages lead to each other, whatever commits change. With
  // `skip`, pages that cannot be read are passed over.
  using VisitLeaf = std::function<Result<bool>(const std::byte* leaf)>;
  Status for_each_leaf(std::string_view from, const VisitLeaf& visit, const Skip& skip);
  // The records with low <= key < high. Commits that change others change the tree meanwhile, as they will.
  Result<std::uint64_t> count(const KeyRange& range);
  // The leaf is still what was copied.
  [[nodiscard]] bool unchanged(const Leaf& leaf) const {
    return leaf.stays || (pages_.words.word(leaf.page) == leaf.word && pages_.words.detached() == leaf.detached);
  }
  // A long value of a snapshot, where it lies; valid as long as the snapshot is active. Errors: corrupt, io.
  Result<std::string_view> view_of(const OverflowReference& reference);
  // Copies a long value of the newest state to `target`, which has reference.bytes bytes. False: it changed meanwhile.
  Result<bool> copy_of(const OverflowReference& reference, char* target);

 private:
  // Descends to the leaf; `leaf` is not confirmed yet. False: begin again.
  // `lowest`: the level of the page that is wanted; a lower one is the root.
  Result<bool> descend(const std::string_view* key, PageView& page, Leaf* fences, bool before = false,
                       Way* way = nullptr, std::uint32_t lowest = 0);
  Status load_parent(std::string_view key, Leaf& parent);
  Status load_child(PageNumber page, Leaf& leaf);
  bool take(const PageView& view, Leaf& leaf) const;

  Pages& pages_;
  PageNumber map_;
  Stamp view_;
};

// Calls take(cell, whether its bytes stay) with bytes that may be torn, and once more until they were whole.
template <class Take>
Result<bool> TreeReader::get(std::string_view key, Take&& take, LeafPlace* place) {
  const Pages::Reading reading(pages_);
  for (;;) {
    PageView leaf;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(&key, leaf, nullptr));
    if (!reached) continue;
    const CellSearch search = pages_.words.find_in(leaf, key);
    Cell cell;
    const bool sound = !search.broken && (!search.found || read_cell(leaf.bytes, search.index, cell));
    if (sound && search.found) take(cell, leaf.stays);
    if (!pages_.words.confirmed(leaf)) continue;
    if (!sound) return pages_.words.corrupt(leaf.page, "a cell lies outside");
    if (place != nullptr) *place = {leaf.page, search.index, leaf.word, search.found};
    return search.found;
  }
}

}  // namespace memlith::core::kv
