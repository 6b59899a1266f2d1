// memlith: a hash map and a hash set that are made for pages. Guide: docs/heap.md, "Which container".
//
//   memlith::flat_hash_map<memlith::string, int> words;   // in a heap, as memlith::unordered_map
//
// The elements lie in pages. A page has the elements whose hashes begin with certain bits, and a table of one byte for
// each, by which a search finds the slot. A full page is split in two by one more bit, so that the map grows page by
// page and never all at once; a directory of 8 bytes a page, also in the heap, leads to them. An insertion and an
// erasure store to one page. The number of elements is counted when it is first asked for, and then kept in ordinary
// memory.
//
// The interface is that of std::unordered_map and std::unordered_set, without buckets and load factors, and without
// nodes that can be taken out (extract, merge). Differences:
//  - inserting and erasing invalidate all iterators, references and pointers to elements;
//  - keys and values must move without an exception; an element of more than some 1000 bytes makes pages of more than
//    one page each: let the element own what is long
//  - the hash must be the same in every run, as memlith::hash is. Keys with one hash lie in a chain of pages.
// Exceptions: where an insertion throws, nothing is inserted. THREADS: as the standard's containers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "memlith/heap.hpp"
#include "memlith/page_memory.hpp"

namespace memlith {
namespace detail {

// ---- in the heap -------------------------------------------------------------------------------------------------

struct HashRoot;
// Followed by a byte for each slot (0: free; else some bits of the hash, not 0), and by the slots.
struct BucketHead {
  std::uint64_t seal;
  HashRoot* root;
  BucketHead* more;         // a further page for the same hashes; only where a split would part none of them
  std::uint64_t beginning;  // the bits with which the places of its keys begin, as the highest of the word
  std::uint16_t count;
  std::uint16_t capacity;
  std::uint32_t depth;  // how many bits
};
struct HashRoot {
  std::uint64_t seal;
  BucketHead** directory;  // 2^depth words: a bucket whose depth is less has several
  std::uint32_t depth;
  std::uint32_t unused;
  std::uint64_t pages;
};
inline constexpr std::uint64_t kBucketSeal = 0x3174'6b62'6c6d;       // "mlbkt1"
inline constexpr std::uint64_t kHashRootSeal = 0x3168'7361'686c'6d;  // "mlhash1"

template <class Value>
struct BucketShape {
  static constexpr std::size_t slots_at(std::size_t count) {
    return (sizeof(BucketHead) + count + alignof(Value) - 1) / alignof(Value) * alignof(Value);
  }
  static constexpr std::size_t kElementsMin = 4;
  static constexpr std::size_t kBytes =
      (slots_at(kElementsMin) + kElementsMin * sizeof(Value) + kPageBytes - 1) / kPageBytes * kPageBytes;
  static constexpr std::size_t fitting() {
    std::size_t count = (kBytes - sizeof(BucketHead)) / (sizeof(Value) + 1);
    while (slots_at(count) + count * sizeof(Value) > kBytes) --count;
    return count;
  }
  static constexpr std::size_t kCapacity = fitting();
  static constexpr std::size_t kSlotsAt = slots_at(kCapacity);

  struct alignas(kPageBytes) Page {
    std::byte bytes[kBytes];
  };
  static std::uint8_t* marks(BucketHead* bucket) {
    return reinterpret_cast<std::uint8_t*>(reinterpret_cast<std::byte*>(bucket) + sizeof(BucketHead));
  }
  static Value* slot(BucketHead* bucket, std::size_t number) {
    return reinterpret_cast<Value*>(reinterpret_cast<std::byte*>(bucket) + kSlotsAt) + number;
  }
  // The first slot from `from` on that has the mark; kCapacity if there is none.
  static std::size_t marked(BucketHead* bucket, std::uint8_t mark, std::size_t from) {
    const void* const found = std::memchr(marks(bucket) + from, mark, kCapacity - from);
    return found == nullptr ? kCapacity
                            : static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - marks(bucket));
  }
};

// Where a hash leads: the highest bits choose the page. More hashes lead to low places than to high ones, twice as many
// at the ends, so that pages become full one after the other and not all at about the same time.
struct HashPlace {
  std::uint64_t bits;
  std::uint8_t mark;

  explicit HashPlace(std::uint64_t hash) {
    const std::uint64_t even = scrambled(hash);
    constexpr std::uint64_t kBend = 0x5810'624d'd2f1'a9fb;  // 0.344
    bits = even + high_of(high_of(even, ~even), kBend);
    mark = static_cast<std::uint8_t>(even % 255 + 1);
  }
  [[nodiscard]] std::uint64_t index(std::uint32_t depth) const { return depth == 0 ? 0 : bits >> (64 - depth); }

 private:
  static std::uint64_t high_of(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
  }
};

// In ordinary memory.
struct HashCount : memlith_derived {
  std::uint64_t elements = 0;
  HashRoot* root = nullptr;
  HashCount() : memlith_derived{sizeof(HashCount), &HashCount::drop_it, nullptr} {}
  static void drop_it(memlith_derived* count) { delete static_cast<HashCount*>(count); }
};

// At a slot in use, or at the end: no bucket.
template <class Value, bool kIsConst, class Table>
class BucketIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using reference = std::conditional_t<kIsConst, const Value&, Value&>;
  using pointer = std::conditional_t<kIsConst, const Value*, Value*>;

  BucketIterator() = default;
  template <bool kOther>
    requires(kIsConst && !kOther)
  BucketIterator(const BucketIterator<Value, kOther, Table>& other)  // NOLINT(google-explicit-constructor)
      : bucket_(other.bucket_), slot_(other.slot_) {}

  reference operator*() const { return *Shape::slot(bucket_, slot_); }
  pointer operator->() const { return Shape::slot(bucket_, slot_); }
  BucketIterator& operator++() {
    ++slot_;
    settle();
    return *this;
  }
  BucketIterator operator++(int) {
    const BucketIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const BucketIterator& a, const BucketIterator& b) {
    return a.bucket_ == b.bucket_ && a.slot_ == b.slot_;
  }

 private:
  friend Table;
  template <class, bool, class>
  friend class BucketIterator;
  using Shape = BucketShape<Value>;
  BucketIterator(BucketHead* bucket, std::size_t slot) : bucket_(bucket), slot_(slot) {}

  // On to the next slot in use, from this one on.
  void settle() {
    while (bucket_ != nullptr) {
      const std::uint8_t* const marks = Shape::marks(bucket_);
      while (slot_ < Shape::kCapacity && marks[slot_] == 0) ++slot_;
      if (slot_ < Shape::kCapacity) return;
      bucket_ = Table::behind(bucket_);
      slot_ = 0;
    }
  }
  BucketHead* bucket_ = nullptr;
  std::size_t slot_ = 0;
};

// ---- the table ---------------------------------------------------------------------------------------------------

template <class Key, class Mapped, class Hash, class Equal, class Allocator>
class FlatHash {
  using Element = ElementOf<Key, Mapped>;
  using Value = typename Element::type;
  using Shape = BucketShape<Value>;
  using Heap = HeapOf<Allocator>;
  static_assert(Element::kMovesWell,
                "memlith: keys and values of a flat_hash must move without an exception (std::deque does not). Keep "
                "them in a memlith::unordered_map, or in a vector or list in the element");
  static constexpr bool kIsSet = std::is_void_v<Mapped>;
  static constexpr bool kTransparent = requires {
    typename Hash::is_transparent;
    typename Equal::is_transparent;
  };
  static constexpr std::size_t kCapacity = Shape::kCapacity;

 public:
  using key_type = Key;
  using value_type = Value;
  using hasher = Hash;
  using key_equal = Equal;
  using allocator_type = Allocator;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = Value&;
  using const_reference = const Value&;
  using pointer = Value*;
  using const_pointer = const Value*;
  using iterator = BucketIterator<Value, kIsSet, FlatHash>;
  using const_iterator = BucketIterator<Value, true, FlatHash>;

  FlatHash() = default;
  explicit FlatHash(const Hash& hash, const Equal& equal = Equal(), const Allocator& in = Allocator())
      : allocator_(in), hash_(hash), equal_(equal) {}
  explicit FlatHash(const Allocator& in) : allocator_(in) {}
  template <std::input_iterator Each>
  FlatHash(Each first, Each last, const Allocator& in = Allocator()) : FlatHash(in) {
    insert(first, last);
  }
  FlatHash(std::initializer_list<Value> all, const Allocator& in = Allocator())
      : FlatHash(all.begin(), all.end(), in) {}
  FlatHash(const FlatHash& other)
      : FlatHash(other, std::allocator_traits<Allocator>::select_on_container_copy_construction(other.allocator_)) {}
  FlatHash(const FlatHash& other, const Allocator& in) : FlatHash(other.hash_, other.equal_, in) {
    for (const Value& each : other) insert(each);
  }
  FlatHash(FlatHash&& other) noexcept
      : allocator_(other.allocator_),
        hash_(other.hash_),
        equal_(other.equal_),
        root_(std::exchange(other.root_, nullptr)) {}
  FlatHash(FlatHash&& other, const Allocator& in) : FlatHash(other.hash_, other.equal_, in) {
    if (allocator_ == other.allocator_) {
      swap(other);
      return;
    }
    for (auto at = other.begin(); at != other.end(); ++at) take(*Shape::slot(at.bucket_, at.slot_));
    other.clear();
  }
  ~FlatHash() { clear(); }

  FlatHash& operator=(const FlatHash& other) {
    if (this != &other) {
      FlatHash copy(other, allocator_);
      swap(copy);
    }
    return *this;
  }
  FlatHash& operator=(FlatHash&& other) {
    if (this != &other) {
      FlatHash taken(std::move(other), allocator_);
      swap(taken);
    }
    return *this;
  }
  FlatHash& operator=(std::initializer_list<Value> all) {
    FlatHash made(all, allocator_);
    swap(made);
    return *this;
  }
  void swap(FlatHash& other) noexcept {
    std::swap(hash_, other.hash_);
    std::swap(equal_, other.equal_);
    std::swap(root_, other.root_);
  }
  friend void swap(FlatHash& a, FlatHash& b) noexcept { a.swap(b); }

  [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_; }
  [[nodiscard]] hasher hash_function() const { return hash_; }
  [[nodiscard]] key_equal key_eq() const { return equal_; }

  // ---- all of it, in the order of the pages
  iterator begin() noexcept { return first<iterator>(); }
  const_iterator begin() const noexcept { return first<const_iterator>(); }
  const_iterator cbegin() const noexcept { return begin(); }
  iterator end() noexcept { return {}; }
  const_iterator end() const noexcept { return {}; }
  const_iterator cend() const noexcept { return {}; }

  [[nodiscard]] bool empty() const noexcept { return begin() == end(); }
  // Counted by the first call since the heap was opened, rolled back or followed.
  [[nodiscard]] size_type size() const noexcept {
    if (root_ == nullptr) return 0;
    if (const HashCount* const known = known_count(); known != nullptr) return known->elements;
    std::uint64_t elements = 0;
    for (const BucketHead* each = root_->directory[0]; each != nullptr; each = behind(each)) elements += each->count;
    const typename Heap::OrdinaryMemory ordinary;
    auto* const made = new (std::nothrow) HashCount;
    if (made == nullptr) return elements;
    made->elements = elements;
    made->root = root_;
    if constexpr (kIsPlain) made->check = &FlatHash::check_count;
    if (Heap::set(root_, nullptr, made) != made) delete made;  // another thread's is there, or there can be none
    return elements;
  }
  [[nodiscard]] size_type max_size() const noexcept {
    return static_cast<size_type>(std::numeric_limits<difference_type>::max()) / sizeof(Value);
  }
  void clear() noexcept {
    if (root_ == nullptr || !Heap::is_open(root_)) return;  // memory of a heap that is closed is gone
    forget_count();
    for (BucketHead* bucket = root_->directory[0]; bucket != nullptr;) {
      BucketHead* const next = behind(bucket);
      for (std::size_t slot = 0; slot < kCapacity; ++slot) {
        if (Shape::marks(bucket)[slot] != 0) std::destroy_at(Shape::slot(bucket, slot));
      }
      free_bucket(bucket);
      bucket = next;
    }
    DirectoryAllocator(allocator_).deallocate(root_->directory, std::size_t{1} << root_->depth);
    root_->seal = 0;
    RootAllocator(allocator_).deallocate(std::exchange(root_, nullptr), 1);
  }

  // ---- looking for keys
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  iterator find(const Given& key) {
    const Found found = search(key);
    return iterator(found.bucket, found.slot);
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  const_iterator find(const Given& key) const {
    const Found found = search(key);
    return const_iterator(found.bucket, found.slot);
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  [[nodiscard]] bool contains(const Given& key) const {
    return search(key).bucket != nullptr;
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  [[nodiscard]] size_type count(const Given& key) const {
    return contains(key) ? 1 : 0;
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  std::pair<iterator, iterator> equal_range(const Given& key) {
    const iterator there = find(key);
    return {there, there == end() ? there : std::next(there)};
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  std::pair<const_iterator, const_iterator> equal_range(const Given& key) const {
    const const_iterator there = find(key);
    return {there, there == end() ? there : std::next(there)};
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
    iterator next(at.bucket_, at.slot_);
    ++next;
    std::destroy_at(Shape::slot(at.bucket_, at.slot_));
    Shape::marks(at.bucket_)[at.slot_] = 0;
    --at.bucket_->count;
    counted(-1);
    if (at.bucket_->count == 0) give_back(at.bucket_);
    return next;
  }
  iterator erase(const_iterator first, const_iterator last) {
    while (first != last) first = erase(first);  // a page that is given back had no other element
    return iterator(last.bucket_, last.slot_);
  }
  template <class Given = Key>
    requires(LooksFor<Given, Key, kTransparent> && !std::is_convertible_v<const Given&, const_iterator>)
  size_type erase(const Given& key) {
    const const_iterator there = find(key);
    if (there == end()) return 0;
    erase(there);
    return 1;
  }
  template <class Predicate>
  friend size_type erase_if(FlatHash& table, Predicate predicate) {
    size_type count = 0;
    for (auto at = table.begin(); at != table.end();) {
      if (predicate(*at)) {
        at = table.erase(at);
        ++count;
      } else {
        ++at;
      }
    }
    return count;
  }

  friend bool operator==(const FlatHash& a, const FlatHash& b) {
    if (a.size() != b.size()) return false;
    return std::all_of(a.begin(), a.end(), [&](const Value& each) {
      const const_iterator other = b.find(Element::key(each));
      return other != b.end() && *other == each;
    });
  }

  // Looks at every page: that the directory leads to it and to no other, that each element lies where its hash leads
  // and has the mark for it, and that no key is there twice. Error: CORRUPT - the message names the place.
  // heap.verify() does the same for each table whose size() the process has asked for. No thread may change the table
  // meanwhile.
  [[nodiscard]] Result<void> verify() const {
    char sentence[kSentenceBytes];
    const void* const wrong = root_ == nullptr ? nullptr : wrong_place(*root_, hash_, equal_, sentence);
    if (wrong == nullptr) return {};
    char message[kSentenceBytes + 64];
    std::snprintf(message, sizeof message, "memlith: the hash table is damaged at address %p: %s", wrong, sentence);
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
      const HashPlace place(hash_(it));
      if (root_ == nullptr) plant();
      if (const Found found = search_at(place, it); found.bucket != nullptr) {
        return {iterator(found.bucket, found.slot), false};
      }
      if (BucketHead* const bucket = with_room(place); bucket != nullptr) return {insert_in(bucket, place, make), true};
      // First of all: it may throw, and its arguments may lie in the page that is split.
      Waiting<Element, Allocator> waiting(make);
      BucketHead* bucket = nullptr;
      while ((bucket = with_room(place)) == nullptr) make_room(place);
      return {insert_in(bucket, place, [&](Value* at) { waiting.move_to(at); }), true};
    });
  }

 private:
  template <class, bool, class>
  friend class BucketIterator;
  using RootAllocator = typename std::allocator_traits<Allocator>::template rebind_alloc<HashRoot>;
  using DirectoryAllocator = typename std::allocator_traits<Allocator>::template rebind_alloc<BucketHead*>;
  using PageAllocator = typename std::allocator_traits<Allocator>::template rebind_alloc<typename Shape::Page>;
  static constexpr std::size_t kSentenceBytes = 192;
  static constexpr bool kIsPlain = std::is_empty_v<Hash> && std::is_empty_v<Equal>;
  // A directory has at most so many times as many words as there are pages, in powers of two.
  static constexpr std::uint32_t kSparseMax = 4;
  static constexpr std::uint32_t kDepthMax = 40;
  static constexpr bool kNeverThrows = noexcept(std::declval<const Hash&>()(std::declval<const Key&>()));

  struct Found {
    BucketHead* bucket = nullptr;
    std::size_t slot = 0;
  };

  template <class It>
  It first() const noexcept {
    if (root_ == nullptr) return It();
    It it(root_->directory[0], 0);
    it.settle();
    return it;
  }
  // The page behind this one, in the order of the directory; null: none.
  static BucketHead* behind(const BucketHead* bucket) {
    if (bucket->more != nullptr) return bucket->more;
    const HashRoot& root = *bucket->root;
    const std::uint64_t next = first_word(*bucket, root) + words_of(*bucket, root);
    return next >> root.depth != 0 ? nullptr : root.directory[next];
  }
  static std::uint64_t first_word(const BucketHead& bucket, const HashRoot& root) {
    return root.depth == 0 ? 0 : bucket.beginning >> (64 - root.depth);
  }
  static std::uint64_t words_of(const BucketHead& bucket, const HashRoot& root) {
    return std::uint64_t{1} << (root.depth - bucket.depth);
  }

  // ---- searching

  template <class Given>
  Found search(const Given& key) const {
    if (root_ == nullptr) return {};
    return with_key<Key, kTransparent>(key, [&](const auto& it) { return search_at(HashPlace(hash_(it)), it); });
  }
  template <class Given>
  Found search_at(const HashPlace& place, const Given& key) const {
    for (BucketHead* bucket = root_->directory[place.index(root_->depth)]; bucket != nullptr; bucket = bucket->more) {
      for (std::size_t slot = Shape::marked(bucket, place.mark, 0); slot < kCapacity;
           slot = Shape::marked(bucket, place.mark, slot + 1)) {
        if (equal_(Element::key(*Shape::slot(bucket, slot)), key)) return {bucket, slot};
      }
    }
    return {};
  }

  // ---- the number of elements

  HashCount* known_count() const {
    memlith_derived* const found = Heap::find(root_);
    return found == nullptr || found->struct_size != sizeof(HashCount) ? nullptr : static_cast<HashCount*>(found);
  }
  void counted(int elements) const {
    if (HashCount* const known = known_count(); known != nullptr)
      known->elements += static_cast<std::uint64_t>(elements);
  }
  void forget_count() noexcept {
    memlith_derived* const found = Heap::find(root_);
    if (found == nullptr) return;
    (void)Heap::set(root_, found, nullptr);
    found->drop(found);
  }

  // ---- pages

  BucketHead* new_bucket(std::uint64_t beginning, std::uint32_t depth) {
    auto* const bucket = reinterpret_cast<BucketHead*>(PageAllocator(allocator_).allocate(1));
    *bucket = {seal_of(bucket, kBucketSeal), root_, nullptr, beginning, 0, kCapacity, depth};
    std::memset(Shape::marks(bucket), 0, kCapacity);
    ++root_->pages;
    return bucket;
  }
  void free_bucket(BucketHead* bucket) noexcept {
    --root_->pages;
    bucket->seal = 0;
    PageAllocator(allocator_).deallocate(reinterpret_cast<typename Shape::Page*>(bucket), 1);
  }
  void plant() {
    RootAllocator of_roots(allocator_);
    DirectoryAllocator of_directories(allocator_);
    HashRoot* const root = of_roots.allocate(1);
    *root = {seal_of(root, kHashRootSeal), nullptr, 0, 0, 0};
    root_ = root;
    try {
      root->directory = of_directories.allocate(1);
      root->directory[0] = new_bucket(0, 0);
    } catch (...) {
      if (root->directory != nullptr) of_directories.deallocate(root->directory, 1);
      of_roots.deallocate(std::exchange(root_, nullptr), 1);
      throw;
    }
  }
  BucketHead* with_room(const HashPlace& place) const {
    BucketHead* bucket = root_->directory[place.index(root_->depth)];
    while (bucket != nullptr && bucket->count == kCapacity) bucket = bucket->more;
    return bucket;
  }
  template <class Make>
  iterator insert_in(BucketHead* bucket, const HashPlace& place, const Make& make) {
    const std::size_t slot = Shape::marked(bucket, 0, 0);
    make(Shape::slot(bucket, slot));
    Shape::marks(bucket)[slot] = place.mark;
    ++bucket->count;
    counted(1);
    return iterator(bucket, slot);
  }
  void take(Value& value) {
    if constexpr (kIsSet) {
      insert(std::move(value));
    } else {
      (void)insert_unique(Element::key(value), [&](Value* to) {
        make(to, std::move(const_cast<Key&>(value.first)), std::move(value.second));
      });
    }
  }

  // In a page that is full, and has no further ones with room: a bit more, or a further page.
  void make_room(const HashPlace& place) {
    BucketHead* const bucket = root_->directory[place.index(root_->depth)];
    if (bucket->depth == root_->depth && !deepen()) {
      BucketHead* const more = new_bucket(bucket->beginning, bucket->depth);
      more->more = bucket->more;
      bucket->more = more;
      return;
    }
    split(bucket);
  }
  // Doubles the directory. False: it would be long and lead nowhere, because hashes are alike.
  bool deepen() {
    const std::uint64_t words = std::uint64_t{1} << root_->depth;
    if (root_->depth == kDepthMax || words > root_->pages * kSparseMax) return false;
    DirectoryAllocator of_directories(allocator_);
    BucketHead** const wider = of_directories.allocate(words * 2);
    for (std::uint64_t i = 0; i < words; ++i) wider[2 * i] = wider[2 * i + 1] = root_->directory[i];
    of_directories.deallocate(std::exchange(root_->directory, wider), words);
    ++root_->depth;
    return true;
  }
  // By the next bit. All pages of the chain: to as many new ones as are needed, so that nothing has changed if one
  // cannot be had, or a hash throws.
  void split(BucketHead* bucket) {
    const std::uint64_t bit = std::uint64_t{1} << (63 - bucket->depth);
    BucketHead* const upper = new_bucket(bucket->beginning | bit, bucket->depth + 1);
    BucketHead* last = upper;
    try {
      for (BucketHead* each = bucket; each != nullptr; each = each->more) {
        for (std::size_t slot = 0; !kNeverThrows && slot < kCapacity; ++slot) {
          if (Shape::marks(each)[slot] != 0) (void)hash_(Element::key(*Shape::slot(each, slot)));
        }
        if (each->more != nullptr) last = last->more = new_bucket(upper->beginning, upper->depth);
      }
    } catch (...) {
      free_chain(upper);
      throw;
    }
    BucketHead* to = upper;
    for (BucketHead* each = bucket; each != nullptr; each = each->more) {
      for (std::size_t slot = 0; slot < kCapacity; ++slot) {
        const std::uint8_t mark = Shape::marks(each)[slot];
        if (mark == 0 || (HashPlace(hash_(Element::key(*Shape::slot(each, slot)))).bits & bit) == 0) continue;
        if (to->count == kCapacity) to = to->more;
        relocate<Element>(Shape::slot(each, slot), Shape::slot(to, to->count));
        Shape::marks(to)[to->count++] = mark;
        Shape::marks(each)[slot] = 0;
        --each->count;
      }
      ++each->depth;
    }
    free_chain(std::exchange(to->more, nullptr));
    BucketHead** const words = root_->directory + first_word(*upper, *root_);
    std::fill(words, words + words_of(*upper, *root_), upper);
    while (drop_empty_page(bucket)) {
    }
  }
  void free_chain(BucketHead* bucket) noexcept {
    while (bucket != nullptr) free_bucket(std::exchange(bucket, bucket->more));
  }
  // One of the pages behind the first one.
  bool drop_empty_page(BucketHead* bucket) noexcept {
    for (BucketHead** each = &bucket->more; *each != nullptr; each = &(*each)->more) {
      if ((*each)->count > 0) continue;
      free_bucket(std::exchange(*each, (*each)->more));
      return true;
    }
    return false;
  }
  // A page has no element any more. A further page goes; another one does if the page with which it was one before the
  // split is as deep: that page gets its hashes.
  void give_back(BucketHead* bucket) noexcept {
    BucketHead* const first = root_->directory[first_word(*bucket, *root_)];
    if (bucket != first) {
      (void)drop_empty_page(first);
      return;
    }
    if (bucket->more != nullptr || bucket->depth == 0) return;
    const std::uint64_t bit = std::uint64_t{1} << (64 - bucket->depth);
    BucketHead* const other =
        root_->directory[root_->depth == 0 ? 0 : (bucket->beginning ^ bit) >> (64 - root_->depth)];
    if (other->depth != bucket->depth) return;
    BucketHead** const words = root_->directory + first_word(*bucket, *root_);
    std::fill(words, words + words_of(*bucket, *root_), other);
    for (BucketHead* each = other; each != nullptr; each = each->more) {
      --each->depth;
      each->beginning &= ~bit;
    }
    free_bucket(bucket);
  }

  // ---- verify

  static const void* check_count(const memlith_derived* derived, char* sentence, std::size_t) {
    const auto& count = *static_cast<const HashCount*>(derived);
    return wrong_place(*count.root, Hash(), Equal(), sentence);
  }
  // Null, or the place that is not sound; the sentence has kSentenceBytes at most.
  static const void* wrong_place(const HashRoot& root, const Hash& hash, const Equal& equal, char* sentence) {
    const auto wrong = [&](const void* place, const char* what) {
      std::snprintf(sentence, kSentenceBytes, "%s", what);
      return place;
    };
    if (root.seal != seal_of(&root, kHashRootSeal)) return wrong(&root, "the root of a hash table was stored over");
    if (root.depth > kDepthMax || !Heap::has_block(root.directory, sizeof(BucketHead*) << root.depth)) {
      return wrong(&root, "a hash table has no directory");
    }
    std::uint64_t elements = 0;
    std::uint64_t pages = 0;
    for (std::uint64_t word = 0; word >> root.depth == 0;) {
      BucketHead* const bucket = root.directory[word];
      for (BucketHead* each = bucket; each != nullptr; each = each->more) {
        if (!Heap::has_block(each, Shape::kBytes)) {
          return wrong(each == bucket ? static_cast<const void*>(&root.directory[word]) : bucket,
                       "a hash table leads to what is no page of it");
        }
        if (const char* const what = wrong_bucket(*each, root, word, hash, equal); what != nullptr) {
          return wrong(each, what);
        }
        if (++pages > root.pages) return wrong(each, "a hash table has more pages than its root says, or a cycle");
        elements += each->count;
      }
      for (std::uint64_t i = 0; i < words_of(*bucket, root); ++i) {
        if (root.directory[word + i] != bucket) {
          return wrong(&root.directory[word + i], "the directory of a hash table leads to a wrong page");
        }
      }
      word += words_of(*bucket, root);
    }
    if (pages != root.pages) return wrong(&root, "a hash table has fewer pages than its root says");
    const memlith_derived* const found = Heap::find(&root);
    if (found == nullptr || found->struct_size != sizeof(HashCount) ||
        static_cast<const HashCount*>(found)->elements == elements) {
      return nullptr;
    }
    return wrong(&root, "a hash table has not as many elements as were counted");
  }
  static const char* wrong_bucket(BucketHead& bucket, const HashRoot& root, std::uint64_t word, const Hash& hash,
                                  const Equal& equal) {
    if (bucket.seal != seal_of(&bucket, kBucketSeal) || bucket.root != &root || bucket.capacity != kCapacity) {
      return "a page of a hash table was stored over";
    }
    if (bucket.depth > root.depth || first_word(bucket, root) != word || word % words_of(bucket, root) != 0) {
      return "a page of a hash table lies at a wrong place of the directory";
    }
    std::size_t count = 0;
    for (std::size_t slot = 0; slot < kCapacity; ++slot) {
      const std::uint8_t mark = Shape::marks(&bucket)[slot];
      if (mark == 0) continue;
      ++count;
      const Key& key = Element::key(*Shape::slot(&bucket, slot));
      const HashPlace place(hash(key));
      if (place.mark != mark) return "an element of a hash table has a wrong mark";
      if (bucket.depth > 0 && (place.bits ^ bucket.beginning) >> (64 - bucket.depth) != 0) {
        return "an element of a hash table lies in a page for other hashes";
      }
      for (std::size_t other = Shape::marked(&bucket, mark, slot + 1); other < kCapacity;
           other = Shape::marked(&bucket, mark, other + 1)) {
        if (equal(key, Element::key(*Shape::slot(&bucket, other)))) return "a key is twice in a hash table";
      }
    }
    return count == bucket.count ? nullptr : "a page of a hash table has a wrong count";
  }

  [[no_unique_address]] Allocator allocator_;
  [[no_unique_address]] Hash hash_;
  [[no_unique_address]] Equal equal_;
  HashRoot* root_ = nullptr;
};

}  // namespace detail

// Where the key is a memlith::string, text of the process (a literal, a std::string, a std::string_view) is looked for
// as it is, and a new key is made in the container's own heap, as in memlith::unordered_map.
template <class Key, class T, class Hash = hash<Key>, class Equal = std::equal_to<>>
class flat_hash_map
    : public detail::PageMap<detail::FlatHash<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>, T> {
 public:
  using detail::PageMap<detail::FlatHash<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>, T>::PageMap;
  using detail::PageMap<detail::FlatHash<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>, T>::operator=;
};
template <class Key, class Hash = hash<Key>, class Equal = std::equal_to<>>
class flat_hash_set : public detail::FlatHash<Key, void, Hash, Equal, allocator<Key>> {
 public:
  using detail::FlatHash<Key, void, Hash, Equal, allocator<Key>>::FlatHash;
  using detail::FlatHash<Key, void, Hash, Equal, allocator<Key>>::operator=;
};

}  // namespace memlith
