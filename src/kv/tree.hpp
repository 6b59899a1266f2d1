// The B+-trees of a kv store: changing one, under the writer's mutex, and reading one beside a writer. Floor: kv.
//
// The root of a tree keeps its page for ever: when it is full, its content moves to two new pages.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kv/pages.hpp"

namespace memlith::core::kv {

// One change of a map.
struct Write {
  std::string_view key;
  std::string_view value;
  bool removes = false;
};

// Where a key is, or belongs, in a leaf that had `word` then.
struct LeafPlace {
  PageNumber page = 0;
  std::uint32_t index = 0;
  std::uint64_t word = 0;
  bool found = false;
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
    std::uint64_t overflow_pages = 0;
    bool in_place = false;  // the write changes the bytes of the value, and nothing else
  };
  // Reads every page that apply() of this write will need.
  Status check(const Write& write, Found& found) MEMLITH_REQUIRES(writing);
  // Counts of the tree, as the last check() found them.
  [[nodiscard]] std::uint32_t depth() const { return depth_; }
  // True if the leaf is still what it was, and the write changes this page alone: no split, no merge, no long value.
  [[nodiscard]] bool leaf_takes(const LeafPlace& place, const Write& write) const MEMLITH_REQUIRES(writing);
  void apply_at(const LeafPlace& place, const Write& write) MEMLITH_REQUIRES(writing);
  // There is room (pages_needed()), and check() was ok. Errors: corrupt - other writes of the commit have changed a
  // page that a damaged file has in two places.
  Status apply(const Write& write) MEMLITH_REQUIRES(writing);
  // Puts records behind all that are there, in the order of their keys. There is room (append_needs()), and check_end()
  // was ok. Errors: as apply().
  Status append(std::span<const Write> writes) MEMLITH_REQUIRES(writing);
  // Like check(). `last`: the last key of the map, empty if there is none; valid until a page changes.
  Status check_end(std::string_view& last) MEMLITH_REQUIRES(writing);
  struct Needs {
    std::uint64_t pages = 0;
    std::uint64_t log_bytes = 0;
  };
  [[nodiscard]] Needs append_needs(std::span<const Write> writes) const;  // after check_end()
  // Frees the last pages of an unused tree: `pages` at most, but for some levels. `done`: there is none left.
  // After an error, those that could be freed were.
  Status prune(std::uint64_t pages, bool& done) MEMLITH_REQUIRES(writing);
  // The least number of pages with which prune() frees any.
  Result<std::uint64_t> prune_needs() MEMLITH_REQUIRES(writing);
  static void make_empty(Pages& pages, PageNumber root) MEMLITH_REQUIRES(writing);

  // At most so many new pages for so many splits of leaves, by writes that bring so many bytes.
  static std::uint64_t pages_needed(std::uint64_t splits, std::uint64_t cell_bytes, std::uint64_t pages_now,
                                    std::uint64_t depth);
  static std::uint64_t overflow_pages_of(const Write& write);
  static std::uint64_t cell_bytes_of(const Write& write);

 private:
  enum class To : std::uint8_t { key, end };
  Status descend(std::string_view key, Path& path, To to = To::key) MEMLITH_REQUIRES(writing);
  Status check_chain(const Cell& cell) MEMLITH_REQUIRES(writing);
  void put(Path& path, const Write& write) MEMLITH_REQUIRES(writing);
  void remove(Path& path) MEMLITH_REQUIRES(writing);
  void insert(Path& path, std::uint32_t level_index, const Cell& cell) MEMLITH_REQUIRES(writing);
  void split(Path& path, std::uint32_t level_index, const Cell& cell) MEMLITH_REQUIRES(writing);
  [[nodiscard]] std::uint32_t split_at(const Path& path, std::uint32_t level_index, const std::byte* page,
                                       const Cell& cell) const MEMLITH_REQUIRES(writing);
  void split_root(Path& path) MEMLITH_REQUIRES(writing);
  void place(PageNumber page, std::uint32_t index, const Cell& cell) MEMLITH_REQUIRES(writing);
  void merge(Path& path, std::uint32_t level_index) MEMLITH_REQUIRES(writing);
  void merge_pages(Path& path, std::uint32_t parent_index, std::uint32_t left_cell) MEMLITH_REQUIRES(writing);
  void lower_root() MEMLITH_REQUIRES(writing);
  void take_out(PageNumber page, std::uint32_t index) MEMLITH_REQUIRES(writing);
  void cut(PageNumber page, std::uint32_t kept) MEMLITH_REQUIRES(writing);
  void note_page(PageNumber page) MEMLITH_REQUIRES(writing);
  void note_slots(PageNumber page, std::uint32_t from) MEMLITH_REQUIRES(writing);
  PageNumber write_overflow(std::string_view value) MEMLITH_REQUIRES(writing);
  void free_overflow(const Cell& cell) MEMLITH_REQUIRES(writing);
  [[nodiscard]] bool rightmost(const Path& path, std::uint32_t level_index) const MEMLITH_REQUIRES(writing);

  Pages& pages_;
  Words& words_;
  Writer& writer_;
  PageNumber map_;
  std::uint32_t depth_ = 0;
};

// How often the writes of a commit, which come in the order of maps and keys, may split leaves.
class SplitCount {
 public:
  void add(const Write& write, const TreeWriter::Found& found);
  [[nodiscard]] std::uint64_t most();

 private:
  void close_leaf();
  PageNumber leaf_ = 0;
  std::uint64_t used_ = 0;  // of that leaf, as it is
  std::uint64_t growth_ = 0;
  std::uint64_t puts_in_leaf_ = 0;
  std::uint64_t puts_ = 0;
  std::uint64_t removals_ = 0;
  std::uint64_t splits_ = 0;
};

// ---- reading

class TreeReader {
 public:
  TreeReader(Pages& pages, PageNumber map, Stamp view) : pages_(pages), map_(map), view_(view) {}

  // Invalid if there is no such map.
  Status check_map();
  // True if there is the record; its value is appended to `value`, which may be null.
  template <class Take>
  Result<bool> get(std::string_view key, Take&& take);

  // Where the key is, or belongs.
  Status find(std::string_view key, LeafPlace& place);

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

  // A copy of the leaf that holds `key`, or would; of the last leaf if `key` is null; and the keys between which it
  // lies.
  struct Leaf {
    alignas(8) std::byte bytes[kPageBytes];
    PageNumber page = 0;
    std::uint64_t word = 0;
    bool from_copy = false;
    bool has_lower = false;  // the leaf holds the keys from `lower`, inclusive, to `upper`, exclusive
    bool has_upper = false;
    std::string lower;
    std::string upper;
  };
  // `before`: the leaf of the keys below `key`, which is the lower bound of a leaf.
  Status load_leaf(const std::string_view* key, Leaf& leaf, bool before = false);
  // Calls visit(a copy of the leaf) for the leaf that holds `from`, or would, and for those behind it, in their order,
  // until it says false or fails. Of a snapshot only: its pages lead to each other, whatever commits change.
  using VisitLeaf = std::function<Result<bool>(const std::byte* leaf)>;
  Status for_each_leaf(std::string_view from, const VisitLeaf& visit);
  // The leaf is still what was copied.
  [[nodiscard]] bool unchanged(const Leaf& leaf) const {
    return leaf.from_copy || pages_.words.word(leaf.page) == leaf.word;
  }
  // Copies the value of an overflow cell to `target`, which has reference.bytes bytes. False: the pages changed
  // meanwhile.
  Result<bool> read_overflow(const OverflowReference& reference, char* target);

 private:
  // Descends to the leaf; `leaf` is not confirmed yet. False: begin again.
  // `lowest`: the level of the page that is wanted; a lower one is the root.
  Result<bool> descend(const std::string_view* key, PageView& page, Leaf* fences, bool before = false,
                       Way* way = nullptr, std::uint32_t lowest = 0);
  Status load_parent(std::string_view key, Leaf& parent);
  Status load_child(PageNumber page, Leaf& leaf);

  Pages& pages_;
  PageNumber map_;
  Stamp view_;
};

// Calls take(value, overflow reference or null) with bytes that may be torn, and once more until they were whole.
template <class Take>
Result<bool> TreeReader::get(std::string_view key, Take&& take) {
  const Pages::Reading reading(pages_);
  for (;;) {
    PageView leaf;
    MEMLITH_TRY_ASSIGN(const bool reached, descend(&key, leaf, nullptr));
    if (!reached) continue;
    const CellSearch search = pages_.words.find_in(leaf, key);
    Cell cell;
    const bool sound = !search.broken && (!search.found || read_cell(leaf.bytes, search.index, cell));
    if (sound && search.found) take(cell);
    if (!pages_.words.confirmed(leaf)) continue;
    if (!sound) return pages_.words.corrupt(leaf.page, "a cell lies outside");
    return search.found;
  }
}

}  // namespace memlith::core::kv
