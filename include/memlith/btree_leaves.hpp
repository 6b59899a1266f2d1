// memlith: the leaves of memlith/btree.hpp in the heap, and the index of them in ordinary memory. The interface is in
// that header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "memlith/page_memory.hpp"

namespace memlith::detail {

// ---- in the heap -------------------------------------------------------------------------------------------------

struct TreeRoot;
// Followed by the order, a number of a slot for each place, of which the first `count` are in use, in the order of the
// keys; and by the slots. So an element stays where it is as long as the leaf is neither split nor joined.
struct LeafHead {
  std::uint64_t seal;
  TreeRoot* root;
  LeafHead* previous;
  LeafHead* next;
  std::uint16_t count;
  std::uint16_t capacity;
  std::uint32_t bytes;
};
// A tree that has never had an element has none. Only trees of one leaf may have an empty leaf.
struct TreeRoot {
  std::uint64_t seal;
  std::uint64_t stamp;  // another one whenever a leaf comes or goes, made of the one before and of the leaf
  LeafHead* first;
  LeafHead* last;
  std::uint64_t leaves;
};
inline constexpr std::uint64_t kLeafSeal = 0x3166'6165'6c6c'6d;  // "mlleaf1"
inline constexpr std::uint64_t kRootSeal = 0x3165'6572'746c'6d;  // "mltree1"

// How many elements a leaf holds, and where they lie.
struct LeafLayout {
  std::size_t bytes;
  std::size_t capacity;
  std::size_t number_bytes;  // of a slot's number in the order
  std::size_t slots_at;
};
constexpr LeafLayout leaf_layout(std::size_t element_bytes, std::size_t alignment) {
  constexpr std::size_t kElementsMin = 4;
  constexpr std::size_t kNarrowMax = 255;
  const auto slots_at = [&](std::size_t count, std::size_t number_bytes) {
    return (sizeof(LeafHead) + count * number_bytes + alignment - 1) / alignment * alignment;
  };
  const std::size_t least = slots_at(kElementsMin, 1) + kElementsMin * element_bytes;
  const std::size_t bytes = (least + kPageBytes - 1) / kPageBytes * kPageBytes;
  const auto fitting = [&](std::size_t number_bytes) {
    std::size_t count = (bytes - sizeof(LeafHead)) / (element_bytes + number_bytes);
    while (slots_at(count, number_bytes) + count * element_bytes > bytes) --count;
    return count;
  };
  const std::size_t number_bytes = fitting(2) > kNarrowMax ? 2 : 1;
  const std::size_t capacity = number_bytes == 2 ? fitting(2) : std::min(fitting(1), kNarrowMax);
  return {bytes, capacity, number_bytes, slots_at(capacity, number_bytes)};
}

template <class Value>
struct LeafShape {
  static constexpr LeafLayout kLayout = leaf_layout(sizeof(Value), alignof(Value));
  static constexpr std::size_t kBytes = kLayout.bytes;
  static constexpr std::size_t kCapacity = kLayout.capacity;
  using Number = std::conditional_t<kLayout.number_bytes == 2, std::uint16_t, std::uint8_t>;

  struct alignas(kPageBytes) Page {
    std::byte bytes[kBytes];
  };
  static Number* order(LeafHead* leaf) {
    return reinterpret_cast<Number*>(reinterpret_cast<std::byte*>(leaf) + sizeof(LeafHead));
  }
  static Value* slot(LeafHead* leaf, std::size_t number) {
    return reinterpret_cast<Value*>(reinterpret_cast<std::byte*>(leaf) + kLayout.slots_at) + number;
  }
  static Value* at(LeafHead* leaf, std::size_t place) { return slot(leaf, order(leaf)[place]); }
};

// At the element at a place of a leaf, or at the end of the last leaf.
template <class Value, bool kIsConst, class Tree>
class LeafIterator {
 public:
  using iterator_category = std::bidirectional_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using reference = std::conditional_t<kIsConst, const Value&, Value&>;
  using pointer = std::conditional_t<kIsConst, const Value*, Value*>;

  LeafIterator() = default;
  template <bool kOther>
    requires(kIsConst && !kOther)
  LeafIterator(const LeafIterator<Value, kOther, Tree>&
                   other)  // NOLINT(google-explicit-constructor): as the standard's
      : leaf_(other.leaf_), at_(other.at_) {}

  reference operator*() const { return *Shape::at(leaf_, at_); }
  pointer operator->() const { return Shape::at(leaf_, at_); }
  LeafIterator& operator++() {
    if (++at_ == leaf_->count && leaf_->next != nullptr) leaf_ = leaf_->next, at_ = 0;
    return *this;
  }
  LeafIterator operator++(int) {
    const LeafIterator before = *this;
    ++*this;
    return before;
  }
  LeafIterator& operator--() {
    if (at_ == 0) leaf_ = leaf_->previous, at_ = leaf_->count;
    --at_;
    return *this;
  }
  LeafIterator operator--(int) {
    const LeafIterator before = *this;
    --*this;
    return before;
  }
  friend bool operator==(const LeafIterator& a, const LeafIterator& b) { return a.leaf_ == b.leaf_ && a.at_ == b.at_; }

 private:
  friend Tree;
  template <class, bool, class>
  friend class LeafIterator;
  using Shape = LeafShape<Value>;
  LeafIterator(LeafHead* leaf, std::size_t at) : leaf_(leaf), at_(at) {}
  LeafHead* leaf_ = nullptr;
  std::size_t at_ = 0;
};

// ---- eight bytes of a key ----------------------------------------------------------------------------------------

// Numbers that are in no other order than the keys: if one is less, so is its key. Where there are none, 0 of each.
template <class Key, class Compare>
struct Digest {
  static constexpr bool kPlain = std::is_same_v<Compare, std::less<>> || std::is_same_v<Compare, std::less<Key>>;
  template <class Given>
  static constexpr bool kIsText = std::is_same_v<Given, std::string_view> || std::is_same_v<Given, string>;
  template <class Given>
  static constexpr bool kHas =
      kPlain && ((kIsText<Key> && kIsText<Given>) || (std::is_integral_v<Key> && std::is_same_v<Given, Key>));

  template <class Given>
  static std::uint64_t of(const Given& key) {
    if constexpr (!kHas<Given>) {
      return 0;
    } else if constexpr (std::is_integral_v<Given>) {
      constexpr std::uint64_t kSign = std::is_signed_v<Given> ? std::uint64_t{1} << 63 : 0;
      return static_cast<std::uint64_t>(key) ^ kSign;
    } else {
      const std::string_view text(key);
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < sizeof value; ++i) {
        value = value << 8 | (i < text.size() ? static_cast<unsigned char>(text[i]) : 0);
      }
      return value;
    }
  }
};

// ---- the index, in ordinary memory -------------------------------------------------------------------------------

// The leaves in their order, in runs. An entry's digest is not less than that of any key of an earlier leaf, and not
// greater than that of any key of its leaf. The index counts while its stamp is that of the root; and where a search
// ended is held against the keys beside that place, so that an index that is wrong costs time and nothing else.
struct LeafIndex : memlith_derived {
  struct Entry {
    std::uint64_t digest;
    LeafHead* leaf;
  };
  struct Place {
    std::size_t run;
    std::size_t at;
  };
  static constexpr std::size_t kRunMax = 512;

  std::vector<std::vector<Entry>> runs;
  const TreeRoot* root = nullptr;
  std::uint64_t stamp = 0;
  std::uint64_t elements = 0;
  memlith_derived* older = nullptr;  // of which other threads may still have the address

  LeafIndex() : memlith_derived{sizeof(LeafIndex), &LeafIndex::drop_it, nullptr} {}
  ~LeafIndex() {
    if (older != nullptr) older->drop(older);
  }
  LeafIndex(const LeafIndex&) = delete;
  LeafIndex& operator=(const LeafIndex&) = delete;
  static void drop_it(memlith_derived* index) { delete static_cast<LeafIndex*>(index); }

  // The last entry of those for which `before` is true; the first one counts as one.
  template <class Before>
  [[nodiscard]] Place last(const Before& before) const {
    const auto run = std::partition_point(runs.begin() + 1, runs.end(),
                                          [&](const std::vector<Entry>& each) { return before(each.front()); }) -
                     1;
    const auto at = std::partition_point(run->begin() + 1, run->end(), before) - 1;
    return {static_cast<std::size_t>(run - runs.begin()), static_cast<std::size_t>(at - run->begin())};
  }
  [[nodiscard]] LeafHead* leaf(const Place& place) const { return runs[place.run][place.at].leaf; }
  [[nodiscard]] Place behind(const Place& place) const {
    return place.at + 1 < runs[place.run].size() ? Place{place.run, place.at + 1} : Place{place.run + 1, 0};
  }
  void insert_behind(const Place& place, const Entry& entry) {
    std::vector<Entry>& run = runs[place.run];
    run.insert(run.begin() + static_cast<std::ptrdiff_t>(place.at) + 1, entry);
    if (run.size() <= kRunMax) return;
    const auto middle = run.begin() + kRunMax / 2;
    std::vector<Entry> rest(middle, run.end());
    rest.reserve(kRunMax + 1);
    run.erase(middle, run.end());
    runs.insert(runs.begin() + static_cast<std::ptrdiff_t>(place.run) + 1, std::move(rest));
  }
  void erase(const Place& place) {
    std::vector<Entry>& run = runs[place.run];
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(place.at));
    if (run.empty()) runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(place.run));
  }
  void append(const Entry& entry) {
    if (runs.empty() || runs.back().size() >= kRunMax / 2) runs.emplace_back().reserve(kRunMax + 1);
    runs.back().push_back(entry);
  }
};

// ---- verify ------------------------------------------------------------------------------------------------------

// Null, or what is wrong with a leaf by itself. `before`: the leaf that leads to it.
template <class Shape>
const char* wrong_leaf(LeafHead& leaf, const TreeRoot& root, const LeafHead* before) {
  if (leaf.seal != seal_of(&leaf, kLeafSeal) || leaf.root != &root) return "a leaf of a btree was stored over";
  if (leaf.previous != before) return "a leaf of a btree does not lead back to the one before it";
  if (leaf.capacity != Shape::kCapacity || leaf.count > Shape::kCapacity || (leaf.count == 0 && root.leaves != 1)) {
    return "a leaf of a btree has a wrong count";
  }
  bool seen[Shape::kCapacity] = {};
  for (std::size_t i = 0; i < Shape::kCapacity; ++i) {
    const std::size_t number = Shape::order(&leaf)[i];
    if (number >= Shape::kCapacity || std::exchange(seen[number], true)) return "a leaf of a btree has a slot twice";
  }
  return nullptr;
}

// Null, or the place that is not sound, and a sentence about it. `index` may be null.
template <class Element, class Heap, class Compare>
const void* wrong_place(const TreeRoot& root, const LeafIndex* index, const Compare& compare, char* sentence,
                        std::size_t bytes) {
  using Shape = LeafShape<typename Element::type>;
  const auto wrong = [&](const void* place, const char* what) {
    std::snprintf(sentence, bytes, "%s", what);
    return place;
  };
  const auto key = [](LeafHead* leaf, std::size_t at) -> const auto& { return Element::key(*Shape::at(leaf, at)); };
  if (root.seal != seal_of(&root, kRootSeal)) return wrong(&root, "the root of a btree was stored over");
  std::uint64_t elements = 0;
  std::uint64_t leaves = 0;
  LeafHead* before = nullptr;
  for (LeafHead* leaf = root.first; leaf != nullptr; before = leaf, leaf = leaf->next) {
    if (!Heap::has_block(leaf, Shape::kBytes)) {
      return wrong(before == nullptr ? static_cast<const void*>(&root) : before, "a btree leads to what is no leaf");
    }
    if (const char* const what = wrong_leaf<Shape>(*leaf, root, before); what != nullptr) return wrong(leaf, what);
    if (++leaves > root.leaves) return wrong(leaf, "a btree has more leaves than its root says, or a cycle of them");
    if (before != nullptr && !compare(key(before, before->count - std::size_t{1}), key(leaf, 0))) {
      return wrong(leaf, "the leaves of a btree are not in the order of their keys");
    }
    for (std::size_t i = 1; i < leaf->count; ++i) {
      if (!compare(key(leaf, i - 1), key(leaf, i)))
        return wrong(leaf, "the keys in a leaf of a btree are not in order");
    }
    elements += leaf->count;
  }
  if (leaves != root.leaves) return wrong(&root, "a btree has fewer leaves than its root says");
  if (before != root.last) return wrong(&root, "the root of a btree leads to a wrong last leaf");
  if (index == nullptr || index->elements == elements) return nullptr;
  return wrong(&root, "a btree has not as many elements as were counted");
}

}  // namespace memlith::detail
