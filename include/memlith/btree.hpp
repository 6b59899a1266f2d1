// memlith: an ordered map and an ordered set that are made for pages. Guide: docs/heap.md, "Which container".
//
//   memlith::btree_map<memlith::string, int> words;   // in a heap, as memlith::map
//
// The elements lie in leaves of one page each, which form a list in the order of the keys. A change stores to one leaf,
// and to a second one and the root when a leaf is split or two are joined; a memlith::map stores to a page for each
// node that it relinks. The way from a key to its leaf is an index in ordinary memory. The index is never persisted:
// the first search after the heap was opened, rolled back or followed makes it of the leaves, about a microsecond
// for each.
//
// The interface is that of std::map and std::set, without nodes that can be taken out (extract, merge). Differences:
//  - inserting and erasing invalidate all iterators, references and pointers to elements, as those of a vector;
//  - keys and values must move without an exception; an element of more than some 1000 bytes makes leaves of more than
//    one page: let the element own what is long (memlith::string, memlith::vector).
// Exceptions: where an insertion throws, nothing is inserted. THREADS: as the standard's containers.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "memlith/btree_leaves.hpp"
#include "memlith/heap.hpp"
#include "memlith/page_memory.hpp"

namespace memlith {
namespace detail {

// ---- the tree ----------------------------------------------------------------------------------------------------

template <class Key, class Mapped, class Compare, class Allocator>
class Btree {
  using Element = ElementOf<Key, Mapped>;
  using Value = typename Element::type;
  using Shape = LeafShape<Value>;
  using Number = typename Shape::Number;
  using Heap = HeapOf<Allocator>;
  using OrdinaryMemory = typename Heap::OrdinaryMemory;
  static_assert(Element::kMovesWell,
                "memlith: keys and values of a btree must move without an exception (std::deque does not). Keep them "
                "in a memlith::map, or in a vector or list in the element");
  static constexpr bool kIsSet = std::is_void_v<Mapped>;
  static constexpr bool kTransparent = requires { typename Compare::is_transparent; };
  static constexpr std::size_t kCapacity = Shape::kCapacity;

 public:
  using key_type = Key;
  using value_type = Value;
  using key_compare = Compare;
  using allocator_type = Allocator;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = Value&;
  using const_reference = const Value&;
  using pointer = Value*;
  using const_pointer = const Value*;
  using iterator = LeafIterator<Value, kIsSet, Btree>;
  using const_iterator = LeafIterator<Value, true, Btree>;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;
  class value_compare {
   public:
    explicit value_compare(Compare compare) : compare_(std::move(compare)) {}
    bool operator()(const Value& a, const Value& b) const { return compare_(Element::key(a), Element::key(b)); }

   private:
    Compare compare_;
  };

  Btree() = default;
  explicit Btree(const Compare& compare, const Allocator& in = Allocator()) : allocator_(in), compare_(compare) {}
  explicit Btree(const Allocator& in) : allocator_(in) {}
  template <std::input_iterator Each>
  Btree(Each first, Each last, const Compare& compare = Compare(), const Allocator& in = Allocator())
      : Btree(compare, in) {
    insert(first, last);
  }
  template <std::input_iterator Each>
  Btree(Each first, Each last, const Allocator& in) : Btree(first, last, Compare(), in) {}
  Btree(std::initializer_list<Value> all, const Compare& compare = Compare(), const Allocator& in = Allocator())
      : Btree(all.begin(), all.end(), compare, in) {}
  Btree(std::initializer_list<Value> all, const Allocator& in) : Btree(all, Compare(), in) {}
  Btree(const Btree& other)
      : Btree(other, std::allocator_traits<Allocator>::select_on_container_copy_construction(other.allocator_)) {}
  Btree(const Btree& other, const Allocator& in) : Btree(other.compare_, in) {
    for (const Value& each : other) append([&](Value* at) { make(at, each); });
  }
  Btree(Btree&& other) noexcept
      : allocator_(other.allocator_), compare_(other.compare_), root_(std::exchange(other.root_, nullptr)) {}
  Btree(Btree&& other, const Allocator& in) : Btree(other.compare_, in) { take_all(other); }
  ~Btree() { clear(); }

  Btree& operator=(const Btree& other) {
    if (this != &other) {
      Btree copy(other, allocator_);
      swap(copy);
    }
    return *this;
  }
  Btree& operator=(Btree&& other) {
    if (this != &other) {
      Btree taken(std::move(other), allocator_);
      swap(taken);
    }
    return *this;
  }
  Btree& operator=(std::initializer_list<Value> all) {
    Btree made(all, compare_, allocator_);
    swap(made);
    return *this;
  }
  void swap(Btree& other) noexcept {
    std::swap(compare_, other.compare_);
    std::swap(root_, other.root_);
  }
  friend void swap(Btree& a, Btree& b) noexcept { a.swap(b); }

  [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_; }
  [[nodiscard]] key_compare key_comp() const { return compare_; }
  [[nodiscard]] value_compare value_comp() const { return value_compare(compare_); }

  // ---- all of it
  iterator begin() noexcept { return root_ == nullptr ? iterator() : iterator(root_->first, 0); }
  const_iterator begin() const noexcept {
    return root_ == nullptr ? const_iterator() : const_iterator(root_->first, 0);
  }
  const_iterator cbegin() const noexcept { return begin(); }
  iterator end() noexcept { return root_ == nullptr ? iterator() : iterator(root_->last, root_->last->count); }
  const_iterator end() const noexcept {
    return root_ == nullptr ? const_iterator() : const_iterator(root_->last, root_->last->count);
  }
  const_iterator cend() const noexcept { return end(); }
  reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
  const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
  const_reverse_iterator crbegin() const noexcept { return rbegin(); }
  reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
  const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }
  const_reverse_iterator crend() const noexcept { return rend(); }

  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr || root_->first->count == 0; }
  // The index has the number: the first call makes the index, if no search has.
  [[nodiscard]] size_type size() const noexcept {
    if (root_ == nullptr) return 0;
    if (root_->leaves == 1) return root_->first->count;
    if (const LeafIndex* const all = index(nullptr); all != nullptr) return all->elements;
    size_type count = 0;
    for (const LeafHead* leaf = root_->first; leaf != nullptr; leaf = leaf->next) count += leaf->count;
    return count;
  }
  [[nodiscard]] size_type max_size() const noexcept {
    return static_cast<size_type>(std::numeric_limits<difference_type>::max()) / sizeof(Value);
  }
  void clear() noexcept {
    if (root_ == nullptr || !Heap::is_open(root_)) return;  // memory of a heap that is closed is gone
    drop_index();
    for (LeafHead* leaf = root_->first; leaf != nullptr;) {
      for (std::size_t i = 0; i < leaf->count; ++i) std::destroy_at(Shape::at(leaf, i));
      LeafHead* const next = leaf->next;
      free_leaf(leaf);
      leaf = next;
    }
    root_->seal = 0;
    RootAllocator(allocator_).deallocate(std::exchange(root_, nullptr), 1);
  }

  // ---- looking for keys
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  iterator find(const Given& key) {
    return mine(place_of(key));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  const_iterator find(const Given& key) const {
    return yours(place_of(key));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  [[nodiscard]] bool contains(const Given& key) const {
    return find(key) != end();
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  [[nodiscard]] size_type count(const Given& key) const {
    const auto [first, last] = equal_range(key);
    return static_cast<size_type>(std::distance(first, last));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  iterator lower_bound(const Given& key) {
    return mine(bound(key, true));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  const_iterator lower_bound(const Given& key) const {
    return yours(bound(key, true));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  iterator upper_bound(const Given& key) {
    return mine(bound(key, false));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  const_iterator upper_bound(const Given& key) const {
    return yours(bound(key, false));
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  std::pair<iterator, iterator> equal_range(const Given& key) {
    return {lower_bound(key), upper_bound(key)};
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  std::pair<const_iterator, const_iterator> equal_range(const Given& key) const {
    return {lower_bound(key), upper_bound(key)};
  }

  // ---- inserting. A hint is taken and not needed.
  template <class... Arguments>
  std::pair<iterator, bool> emplace(Arguments&&... arguments) {
    Waiting<Element, Allocator> waiting([&](Value* at) { make(at, std::forward<Arguments>(arguments)...); });
    return insert_unique(Element::key(*waiting), [&](Value* at) { waiting.move_to(at); });
  }
  template <class... Arguments>
  iterator emplace_hint(const_iterator, Arguments&&... arguments) {
    return emplace(std::forward<Arguments>(arguments)...).first;
  }
  std::pair<iterator, bool> insert(const Value& value) {
    return insert_unique(Element::key(value), [&](Value* at) { make(at, value); });
  }
  std::pair<iterator, bool> insert(Value&& value) {
    return insert_unique(Element::key(value), [&](Value* at) { make(at, std::move(value)); });
  }
  template <class Given>
    requires(std::is_constructible_v<Value, Given &&> && !std::is_same_v<std::remove_cvref_t<Given>, Value>)
  std::pair<iterator, bool> insert(Given&& value) {
    if constexpr (kIsSet && kTransparent && is_text_for_v<Key, std::remove_cvref_t<Given>>) {
      return insert_unique(value, [&](Value* at) { make(at, std::string_view(value)); });
    } else {
      return emplace(std::forward<Given>(value));
    }
  }
  template <class Given>
    requires std::is_constructible_v<Value, Given&&>
  iterator insert(const_iterator, Given&& value) {
    return insert(std::forward<Given>(value)).first;
  }
  template <std::input_iterator Each>
  void insert(Each first, Each last) {
    for (; first != last; ++first) insert(*first);
  }
  void insert(std::initializer_list<Value> all) { insert(all.begin(), all.end()); }

  // ---- erasing
  iterator erase(const_iterator at) {
    LeafHead* const leaf = at.leaf_;
    Number* const order = Shape::order(leaf);
    std::destroy_at(Shape::at(leaf, at.at_));
    std::rotate(order + at.at_, order + at.at_ + 1, order + leaf->count);
    --leaf->count;
    counted(-1);
    if (root_->leaves == 1 || leaf->count >= kCapacity / 4) return mine({leaf, at.at_});
    return mine(joined({leaf, at.at_}));
  }
  iterator erase(const_iterator first, const_iterator last) {
    auto left = std::distance(first, last);  // `last` does not stay valid
    iterator at(first.leaf_, first.at_);
    for (; left > 0; --left) at = erase(const_iterator(at));
    return at;
  }
  template <class Given = Key>
    requires(LooksFor<Given, Key, kTransparent> && !std::is_convertible_v<const Given&, const_iterator>)
  size_type erase(const Given& key) {
    const auto [first, last] = equal_range(key);
    const auto count = static_cast<size_type>(std::distance(first, last));
    erase(first, last);
    return count;
  }
  template <class Predicate>
  friend size_type erase_if(Btree& tree, Predicate predicate) {
    size_type count = 0;
    for (auto at = tree.begin(); at != tree.end();) {
      if (predicate(*at)) {
        at = tree.erase(at);
        ++count;
      } else {
        ++at;
      }
    }
    return count;
  }

  friend bool operator==(const Btree& a, const Btree& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  friend auto operator<=>(const Btree& a, const Btree& b)
    requires std::three_way_comparable<Value>
  {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

  // Looks at every leaf: that its links, its counts and its order are sound, that keys ascend, and that the index has
  // what the leaves have. Error: CORRUPT - the message names the place. heap.verify() does the same for each tree of
  // several leaves that the process has searched. No thread may change the tree meanwhile.
  [[nodiscard]] Result<void> verify() const {
    char sentence[kSentenceBytes];
    const void* const wrong =
        root_ == nullptr ? nullptr
                         : wrong_place<Element, Heap>(*root_, known_index(), compare_, sentence, sizeof sentence);
    if (wrong == nullptr) return {};
    char message[kSentenceBytes + 64];
    std::snprintf(message, sizeof message, "memlith: the btree is damaged at address %p: %s", wrong, sentence);
    return Error(MEMLITH_CORRUPT, message);
  }

 protected:
  static constexpr bool kTakesText = kTransparent;
  template <class... Arguments>
  void make(Value* at, Arguments&&... arguments) {
    std::allocator_traits<Allocator>::construct(allocator_, at, std::forward<Arguments>(arguments)...);
  }
  // `key` may be other text than a key. `make` makes the element, and may throw.
  template <class Given, class Make>
  std::pair<iterator, bool> insert_unique(const Given& key, const Make& make) {
    return with_key<Key, kTransparent>(key, [&](const auto& it) -> std::pair<iterator, bool> {
      if (root_ == nullptr) plant();
      const Place place = seek(it, [&](const Key& each) { return compare_(each, it); });
      const iterator there = mine(place);
      if (there != end() && !compare_(it, Element::key(*there))) return {there, false};
      return {insert_at(place, make), true};
    });
  }

 private:
  using RootAllocator = typename std::allocator_traits<Allocator>::template rebind_alloc<TreeRoot>;
  using LeafAllocator = typename std::allocator_traits<Allocator>::template rebind_alloc<typename Shape::Page>;
  static constexpr std::size_t kSentenceBytes = 192;

  // Between elements: in front of the element at that place in the leaf, or at the end of the leaf.
  struct Place {
    LeafHead* leaf;
    std::size_t at;
  };
  using Index = LeafIndex;

  static iterator mine(const Place& place) {
    return at_end(place) ? iterator(place.leaf->next, 0) : iterator(place.leaf, place.at);
  }
  static const_iterator yours(const Place& place) {
    return at_end(place) ? const_iterator(place.leaf->next, 0) : const_iterator(place.leaf, place.at);
  }
  static bool at_end(const Place& place) {
    return place.leaf != nullptr && place.at == place.leaf->count && place.leaf->next != nullptr;
  }
  static const Key& key_at(LeafHead* leaf, std::size_t at) { return Element::key(*Shape::at(leaf, at)); }
  static const Key& first_key(LeafHead* leaf) { return key_at(leaf, 0); }
  static const Key& last_key(LeafHead* leaf) { return key_at(leaf, leaf->count - std::size_t{1}); }

  // ---- searching

  template <class Given>
  Place bound(const Given& key, bool lower) const {
    if (root_ == nullptr) return {nullptr, 0};
    return with_key<Key, kTransparent>(key, [&](const auto& it) {
      if (lower) return seek(it, [&](const Key& each) { return compare_(each, it); });
      return seek(it, [&](const Key& each) { return !compare_(it, each); });
    });
  }
  template <class Given>
  Place place_of(const Given& key) const {
    if (root_ == nullptr) return {nullptr, 0};
    return with_key<Key, kTransparent>(key, [&](const auto& it) -> Place {
      const const_iterator there = yours(seek(it, [&](const Key& each) { return compare_(each, it); }));
      if (there == end() || compare_(it, Element::key(*there))) return {root_->last, root_->last->count};
      return {there.leaf_, there.at_};
    });
  }

  // The place behind all elements whose keys are `before`, which is a matter of the key's order.
  template <class Given, class Before>
  Place seek(const Given& key, const Before& before) const {
    const Index* wrong = nullptr;
    for (int attempt = 0;; ++attempt) {
      const Index* const all = root_->leaves == 1 ? nullptr : index(wrong);
      const Place place = place_in(all == nullptr ? leaf_by_leaf(before) : leaf_by_index(*all, key, before), before);
      if (is_between(place, before) || all == nullptr || attempt == 1) return place;
      wrong = all;
    }
  }
  template <class Before>
  LeafHead* leaf_by_leaf(const Before& before) const {
    LeafHead* leaf = root_->first;
    while (leaf->next != nullptr && before(first_key(leaf->next))) leaf = leaf->next;
    return leaf;
  }
  template <class Given, class Before>
  static LeafHead* leaf_by_index(const Index& all, const Given& key, const Before& before) {
    return all.leaf(entry_before(all, key, before));
  }
  template <class Given, class Before>
  static LeafIndex::Place entry_before(const Index& all, const Given& key, const Before& before) {
    const std::uint64_t digest = Digest<Key, Compare>::of(key);
    return all.last([&](const LeafIndex::Entry& entry) {
      if constexpr (Digest<Key, Compare>::template kHas<Given>) {
        if (entry.digest != digest) return entry.digest < digest;
      }
      return entry.leaf->count > 0 && before(first_key(entry.leaf));  // a leaf that is being joined may be empty
    });
  }
  template <class Before>
  static Place place_in(LeafHead* leaf, const Before& before) {
    std::size_t low = 0;
    for (std::size_t high = leaf->count; low < high;) {
      const std::size_t middle = (low + high) / 2;
      if (before(key_at(leaf, middle))) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return {leaf, low};
  }
  // False: the index has led to another leaf.
  template <class Before>
  static bool is_between(const Place& place, const Before& before) {
    LeafHead* const leaf = place.leaf;
    if (place.at == 0 && leaf->previous != nullptr && !before(last_key(leaf->previous))) return false;
    return place.at < leaf->count || leaf->next == nullptr || !before(first_key(leaf->next));
  }

  // ---- the index

  // The index as it is, if it is that of the leaves.
  Index* known_index() const {
    memlith_derived* const found = Heap::find(root_);
    if (found == nullptr || found->struct_size != sizeof(Index)) return nullptr;
    auto* const all = static_cast<Index*>(found);
    return all->stamp == root_->stamp ? all : nullptr;
  }
  // The index, made anew where there is none, or `wrong`. Null: there can be none.
  Index* index(const Index* wrong) const noexcept {
    Index* const known = known_index();
    if (known != nullptr && known != wrong) return known;
    const OrdinaryMemory ordinary;
    memlith_derived* const old = Heap::find(root_);
    std::unique_ptr<Index> made;
    try {
      made = std::make_unique<Index>();
      if constexpr (std::is_empty_v<Compare>) made->check = &Btree::check_index;
      made->stamp = root_->stamp;
      std::uint64_t left = root_->leaves;
      for (LeafHead* leaf = root_->first; leaf != nullptr && left > 0; leaf = leaf->next, --left) {
        made->append({Digest<Key, Compare>::of(first_key(leaf)), leaf});
        made->elements += leaf->count;
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    made->root = root_;
    made->older = old;
    memlith_derived* const there = Heap::set(root_, old, made.get());
    if (there == made.get()) return made.release();
    made->older = nullptr;
    return known_index();  // another thread's
  }
  void drop_index() noexcept {
    memlith_derived* const found = Heap::find(root_);
    if (found == nullptr) return;
    (void)Heap::set(root_, found, nullptr);
    found->drop(found);
  }
  void counted(int elements) {
    if (root_->leaves == 1) return;
    if (Index* const all = known_index(); all != nullptr) all->elements += static_cast<std::uint64_t>(elements);
  }

  // A leaf comes or goes: `change` changes the index likewise; it may fail, and the index is made anew then.
  template <class Change>
  void leaves_changed(Index* all, const LeafHead* leaf, const Change& change) noexcept {
    const auto place = scrambled(reinterpret_cast<std::uintptr_t>(leaf->previous) + root_->leaves);
    root_->stamp = scrambled(root_->stamp ^ place ^ reinterpret_cast<std::uintptr_t>(leaf));
    if (all == nullptr) return;
    try {
      const OrdinaryMemory ordinary;
      if (root_->leaves > 1 && change(*all)) {
        all->stamp = root_->stamp;
        return;
      }
    } catch (...) {  // of a comparison, or for lack of memory
    }
    drop_index();
  }
  template <class Given>
  LeafIndex::Place entry_of(const Index& all, const Given& key) const {
    return entry_before(all, key, [&](const Key& each) { return !compare_(key, each); });
  }

  // ---- leaves

  LeafHead* new_leaf() {
    auto* const leaf = reinterpret_cast<LeafHead*>(LeafAllocator(allocator_).allocate(1));
    *leaf = {seal_of(leaf, kLeafSeal), root_, nullptr, nullptr, 0, kCapacity, Shape::kBytes};
    for (std::size_t i = 0; i < kCapacity; ++i) Shape::order(leaf)[i] = static_cast<Number>(i);
    return leaf;
  }
  void free_leaf(LeafHead* leaf) noexcept {
    LeafAllocator(allocator_).deallocate(reinterpret_cast<typename Shape::Page*>(leaf), 1);
  }
  void plant() {
    RootAllocator of_roots(allocator_);
    TreeRoot* const root = of_roots.allocate(1);
    *root = {seal_of(root, kRootSeal), 0, nullptr, nullptr, 1};
    root_ = root;
    try {
      root->first = root->last = new_leaf();
    } catch (...) {
      of_roots.deallocate(std::exchange(root_, nullptr), 1);
      throw;
    }
  }

  template <class Make>
  void insert_here(LeafHead* leaf, std::size_t at, const Make& make) {
    Number* const order = Shape::order(leaf);
    make(Shape::at(leaf, leaf->count));
    std::rotate(order + at, order + leaf->count, order + leaf->count + 1);
    ++leaf->count;
  }
  template <class Make>
  iterator insert_at(Place place, const Make& make) {
    if (place.leaf->count < kCapacity) {
      insert_here(place.leaf, place.at, make);
    } else {
      // First of all: it may throw, and its arguments may lie in the leaf.
      Waiting<Element, Allocator> waiting(make);
      place = split(place);
      insert_here(place.leaf, place.at, [&](Value* at) { waiting.move_to(at); });
      if (place.leaf->count == 1) link_behind(place.leaf->previous, place.leaf);
    }
    counted(1);
    return iterator(place.leaf, place.at);
  }
  template <class Make>
  void append(const Make& make) {
    if (root_ == nullptr) plant();
    (void)insert_at({root_->last, root_->last->count}, make);
  }
  // Makes room in a full leaf. Behind the last element, the room is a leaf that is linked when it has an element, so
  // that the leaves of elements that come in their order are full.
  Place split(const Place& place) {
    LeafHead* const leaf = place.leaf;
    LeafHead* const fresh = new_leaf();
    if (leaf->next == nullptr && place.at == leaf->count) {
      fresh->previous = leaf;
      return {fresh, 0};
    }
    const std::size_t stay = kCapacity / 2;
    move_elements(leaf, stay, kCapacity - stay, fresh, 0);
    link_behind(leaf, fresh);
    return place.at <= stay ? Place{leaf, place.at} : Place{fresh, place.at - stay};
  }
  // `count` elements, which are the last or all of `from`, to the place in `to`.
  static void move_elements(LeafHead* from, std::size_t first, std::size_t count, LeafHead* to,
                            std::size_t at) noexcept {
    Number* const order = Shape::order(to);
    std::rotate(order + at, order + to->count, order + to->count + count);
    for (std::size_t i = 0; i < count; ++i) relocate<Element>(Shape::at(from, first + i), Shape::at(to, at + i));
    from->count = static_cast<std::uint16_t>(from->count - count);
    to->count = static_cast<std::uint16_t>(to->count + count);
  }
  void link_behind(LeafHead* leaf, LeafHead* fresh) noexcept {
    Index* const all = known_index();
    fresh->previous = leaf;
    fresh->next = leaf->next;
    (leaf->next == nullptr ? root_->last : leaf->next->previous) = fresh;
    leaf->next = fresh;
    ++root_->leaves;
    leaves_changed(all, fresh, [&](Index& index) {
      const LeafIndex::Place place = entry_of(index, first_key(leaf));
      if (index.leaf(place) != leaf) return false;
      index.insert_behind(place, {Digest<Key, Compare>::of(first_key(fresh)), fresh});
      return true;
    });
  }
  // The leaf has no elements, and is not the only one.
  void unlink(LeafHead* leaf) noexcept {
    Index* const all = known_index();
    (leaf->previous == nullptr ? root_->first : leaf->previous->next) = leaf->next;
    (leaf->next == nullptr ? root_->last : leaf->next->previous) = leaf->previous;
    --root_->leaves;
    leaves_changed(all, leaf, [&](Index& index) {
      const LeafIndex::Place place =
          leaf->previous == nullptr ? LeafIndex::Place{0, 0} : index.behind(entry_of(index, first_key(leaf->previous)));
      if (place.run >= index.runs.size() || index.leaf(place) != leaf) return false;
      index.erase(place);
      return true;
    });
    leaf->seal = 0;
    free_leaf(leaf);
  }
  // A leaf that has few elements is joined with one beside it, if there is room. Returns where the place is then.
  Place joined(Place place) noexcept {
    LeafHead* const leaf = place.leaf;
    if (leaf->count == 0) {
      LeafHead* const next = leaf->next;
      LeafHead* const previous = leaf->previous;
      unlink(leaf);
      return next != nullptr ? Place{next, 0} : Place{previous, previous->count};
    }
    const auto fits = [&](const LeafHead* other) {
      return other != nullptr && std::size_t{other->count} + leaf->count <= kCapacity - kCapacity / 4;
    };
    LeafHead* const left = fits(leaf->next) ? leaf : fits(leaf->previous) ? leaf->previous : nullptr;
    if (left == nullptr) return place;
    LeafHead* const right = left->next;
    if (place.leaf == right) place.at += left->count;
    if (left->count < right->count) {
      move_elements(left, 0, left->count, right, 0);
      unlink(left);
      return {right, place.at};
    }
    move_elements(right, 0, right->count, left, left->count);
    unlink(right);
    return {left, place.at};
  }
  void take_all(Btree& other) {
    if (allocator_ == other.allocator_) {
      swap(other);
      return;
    }
    for (auto at = other.begin(); at != other.end(); ++at) {
      Value* const from = Shape::at(at.leaf_, at.at_);
      if constexpr (kIsSet) {
        append([&](Value* to) { make(to, std::move(*from)); });
      } else {
        append([&](Value* to) { make(to, std::move(const_cast<Key&>(from->first)), std::move(from->second)); });
      }
    }
    other.clear();
  }

  // ---- verify

  static const void* check_index(const memlith_derived* derived, char* sentence, std::size_t bytes) {
    const auto* const all = static_cast<const Index*>(derived);
    if (all->stamp != all->root->stamp) return nullptr;  // it does not count
    return wrong_place<Element, Heap>(*all->root, all, Compare(), sentence, bytes);
  }
  [[no_unique_address]] Allocator allocator_;
  [[no_unique_address]] Compare compare_;
  TreeRoot* root_ = nullptr;
};

}  // namespace detail

// Where the key is a memlith::string, text of the process (a literal, a std::string, a std::string_view) is looked for
// as it is, and a new key is made in the container's own heap, as in memlith::map.
template <class Key, class T, class Compare = std::less<>>
class btree_map : public detail::PageMap<detail::Btree<Key, T, Compare, allocator<std::pair<const Key, T>>>, T> {
 public:
  using detail::PageMap<detail::Btree<Key, T, Compare, allocator<std::pair<const Key, T>>>, T>::PageMap;
  using detail::PageMap<detail::Btree<Key, T, Compare, allocator<std::pair<const Key, T>>>, T>::operator=;
};
template <class Key, class Compare = std::less<>>
class btree_set : public detail::Btree<Key, void, Compare, allocator<Key>> {
 public:
  using detail::Btree<Key, void, Compare, allocator<Key>>::Btree;
  using detail::Btree<Key, void, Compare, allocator<Key>>::operator=;
};

}  // namespace memlith
