#include "heap_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "heap_life.hpp"
#include "memlith/btree.hpp"
#include "memlith/flat_hash.hpp"

namespace memlith::detail {

// The laboratory has the engine without the C interface.
template <class T>
struct HeapOf<lab::InHeap<T>> {
  struct OrdinaryMemory {
    OrdinaryMemory() {}
    ~OrdinaryMemory() {}
  };
  static memlith_derived* find(const void* address) {
    return reinterpret_cast<memlith_derived*>(lab::containers_heap->derived().find(address));
  }
  static memlith_derived* set(const void* address, memlith_derived* old, memlith_derived* made) {
    return reinterpret_cast<memlith_derived*>(lab::containers_heap->derived()
                                                  .set(address, reinterpret_cast<core::Derived*>(old),
                                                       reinterpret_cast<core::Derived*>(made)));
  }
  static bool is_open(const void*) { return true; }
  static bool has_block(const void* address, std::size_t bytes) {
    const auto found = lab::containers_heap->arenas().block_bytes(address);
    return found.ok() && *found >= bytes;
  }
};

}  // namespace memlith::detail

namespace memlith::lab {

namespace {

// As long that pages are split and joined with few elements.
struct Wide {
  std::uint32_t value = 0;
  std::array<std::uint32_t, 50> filling{};
};

using Element = std::pair<const std::uint32_t, Wide>;
using Tree = detail::PageMap<detail::Btree<std::uint32_t, Wide, std::less<>, InHeap<Element>>, Wide>;
using Table = detail::PageMap<
    detail::FlatHash<std::uint32_t, Wide, memlith::hash<std::uint32_t>, std::equal_to<>, InHeap<Element>>, Wide>;

static_assert(sizeof(Tree) == sizeof(void*) && sizeof(Table) == sizeof(void*));

Tree& tree_of(const void* place) { return *static_cast<Tree*>(const_cast<void*>(place)); }
Table& table_of(const void* place) { return *static_cast<Table*>(const_cast<void*>(place)); }

std::uint32_t value_of(const std::uint32_t& value) { return value; }
std::uint32_t value_of(const Wide& value) { return value.value; }
void set(std::uint32_t& target, std::uint32_t value) { target = value; }
void set(Wide& target, std::uint32_t value) {
  target.value = value;
  target.filling.fill(value * 7);
}

constexpr std::uint32_t kKeys = 64;
constexpr std::uint32_t kRun = 12;

template <class Map>
void change_map(Map& map, std::uint64_t draw) {
  const auto key = static_cast<std::uint32_t>(draw / 16 % kKeys);
  const auto value = static_cast<std::uint32_t>(draw / 1024 % 9000);
  const auto last = std::min(key + kRun, kKeys);
  switch (draw % 8) {
    case 0:
    case 1:
    case 2: set(map[key], value); break;
    case 3:
      for (std::uint32_t each = key; each < last; ++each) set(map[each], value + each);
      break;
    case 4:
    case 5: map.erase(key); break;
    case 6:
      for (std::uint32_t each = key; each < last; ++each) map.erase(each);
      break;
    default:
      if (const auto there = map.find(key); there != map.end()) set(there->second, value);
  }
}

template <class Map>
void take(const Map& map, std::map<std::uint32_t, std::uint32_t>& all) {
  for (const auto& [key, value] : map) all[key] = value_of(value);
}

template <class Map>
std::string text_of_map(const Map& map) {
  std::map<std::uint32_t, std::uint32_t> all;
  take(map, all);
  std::string text = fmt::format("{}", map.size());
  for (const auto& [key, value] : all) {
    const auto there = map.find(key);
    text += fmt::format(" {}={}{}", key, value, there == map.end() || value_of(there->second) != value ? "?" : "");
  }
  return text;
}

}  // namespace

void PagesModel::change(std::uint64_t draw) { change_map((draw >> 40) % 2 == 0 ? tree : table, draw); }

std::string PagesModel::text() const { return text_of_map(tree) + "|" + text_of_map(table); }

PagesInHeap::PagesInHeap() {
  new (tree_) Tree;
  new (table_) Table;
}

PagesInHeap::~PagesInHeap() {
  std::destroy_at(&tree_of(tree_));
  std::destroy_at(&table_of(table_));
}

void PagesInHeap::change(std::uint64_t draw) {
  if ((draw >> 40) % 2 == 0) {
    change_map(tree_of(tree_), draw);
  } else {
    change_map(table_of(table_), draw);
  }
}

std::string PagesInHeap::text() const { return text_of_map(tree_of(tree_)) + "|" + text_of_map(table_of(table_)); }

std::uint64_t PagesInHeap::blocks() const {
  const auto* const tree = static_cast<const detail::TreeRoot*>(tree_[0]);
  const auto* const table = static_cast<const detail::HashRoot*>(table_[0]);
  return (tree == nullptr ? 0 : 1 + tree->leaves) + (table == nullptr ? 0 : 2 + table->pages);
}

PagesModel PagesInHeap::model() const {
  PagesModel model;
  take(tree_of(tree_), model.tree);
  take(table_of(table_), model.table);
  return model;
}

}  // namespace memlith::lab
