// memlith: an allocator for the containers of the standard library, and their names with it. Guide: docs/heap.md.
//
//   memlith::map<memlith::string, memlith::vector<int>>    // std::map, std::basic_string and std::vector, in a heap
//
// Pointers in a heap are ordinary pointers, because a heap lies at the same address in every run. Each container keeps
// to one heap:
//  - a container that lies in a heap allocates in that heap;
//  - a container elsewhere (on the stack, for one, as a temporary) allocates in the heap that it was given, else in the
//    current heap of the thread: the one named with memlith::use_heap, or the only one that is open.
// Therefore memory of a container with this allocator is always memory of a heap, and containers can be moved into one.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memlith/heap.h"
#include "memlith/memlith.hpp"

#ifndef __cpp_exceptions
#error "memlith: compile without -fno-exceptions: a container throws where the heap is full. memlith.hpp does without"
#endif

namespace memlith {

// The exception that the allocator's allocate() throws. what() is the sentence; code() is a code of memlith.h.
class heap_error : public std::bad_alloc {
 public:
  explicit heap_error(std::int32_t code) noexcept : code_(code) { memlith_last_error(text_, sizeof text_); }
  heap_error(std::int32_t code, const char* text) noexcept : code_(code) {
    std::snprintf(text_, sizeof text_, "%s", text);
  }
  [[nodiscard]] const char* what() const noexcept override { return text_; }
  [[nodiscard]] std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
  char text_[512] = "";
};

namespace detail {

inline void* allocate_in(memlith_heap* heap, std::size_t bytes, std::size_t alignment) {
  if (heap == nullptr) {
    throw heap_error(MEMLITH_INVALID,
                     "memlith: a container outside of a heap has to allocate, and no heap is named: none is open, or "
                     "more than one. Pass the heap's allocator, or name the heap with memlith::use_heap");
  }
  void* block = nullptr;
  if (const std::int32_t code = memlith_heap_allocate(heap, bytes, alignment, &block); code != MEMLITH_OK) {
    throw heap_error(code);
  }
  return block;
}

// A block of a heap that is closed is gone with the heap. A block that is none, or was freed before, is a mistake of
// the program that would spoil what is persisted next: the program ends.
inline void free_in_heap(void* block) noexcept {
  memlith_heap* const heap = memlith_heap_of(block);
  if (heap == nullptr) return;
  if (memlith_category(memlith_heap_free(heap, block)) != MEMLITH_INVALID) return;
  char text[512];
  memlith_last_error(text, sizeof text);
  std::fprintf(stderr, "memlith: %s\n", text);
  std::abort();
}

}  // namespace detail

template <class T = std::byte>
class allocator {
 public:
  using value_type = T;

  // See the head of this file.
  allocator() noexcept : heap_base_(base_of(this)) {}
  explicit allocator(memlith_heap* heap) noexcept : heap_base_(base(heap)) {}
  allocator(const allocator& other) noexcept : heap_base_(other.heap_base_) { choose_heap(); }
  template <class U>
  allocator(const allocator<U>& other) noexcept
      : heap_base_(other.heap_base()) {  // NOLINT(google-explicit-constructor)
    choose_heap();
  }
  allocator& operator=(const allocator&) = default;
  ~allocator() = default;

  [[nodiscard]] T* allocate(std::size_t count) {
    static_assert(alignof(T) <= 4096, "memlith: a heap aligns to 4096 bytes at most");
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    choose_heap();
    memlith_heap* const heap = heap_base_ != nullptr ? memlith_heap_of(heap_base_) : memlith_heap_current();
    return static_cast<T*>(detail::allocate_in(heap, count * sizeof(T), alignof(T)));
  }
  void deallocate(T* block, std::size_t) noexcept { detail::free_in_heap(block); }

  // Elements that take an allocator get this one, so that what they own lies in the same heap.
  template <class U, class... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    // Boost's unordered containers construct nodes, whose elements come here after that.
    constexpr bool kIsNode = requires(U& node) { node.next_; };
    if constexpr (!kIsNode) detail::require_persistable<U>();
    std::uninitialized_construct_using_allocator(place, *this, std::forward<Arguments>(arguments)...);
  }

  // A copy of a container belongs to where the copy lies, not to where the original does.
  [[nodiscard]] allocator select_on_container_copy_construction() const noexcept { return allocator(); }

  [[nodiscard]] const void* heap_base() const noexcept { return heap_base_; }
  template <class U>
  friend bool operator==(const allocator& a, const allocator<U>& b) noexcept {
    return chosen(a.heap_base()) == chosen(b.heap_base());
  }

 private:
  static const void* base(memlith_heap* heap) noexcept { return memlith_region_address(memlith_heap_region(heap)); }
  static const void* base_of(const void* address) noexcept { return base(memlith_heap_of(address)); }
  static const void* chosen(const void* heap_base) noexcept {
    return heap_base != nullptr ? heap_base : base(memlith_heap_current());
  }
  // A container is often given an allocator that was made on the stack; the place where the container lies says which
  // heap is meant.
  void choose_heap() noexcept {
    if (heap_base_ == nullptr) heap_base_ = base_of(this);
  }

  const void* heap_base_;  // of the region; null: the current heap, when it is needed
};

// For unordered containers: the same value in every run and with every standard library, and strings by what they hold.
template <class T>
struct hash {
  using is_transparent = void;
  template <class Key>
  std::size_t operator()(const Key& key) const noexcept {
    if constexpr (std::is_convertible_v<const Key&, std::string_view>) {
      return static_cast<std::size_t>(detail::text_number(std::string_view(key)));
    } else {
      static_assert(std::is_integral_v<Key> || std::is_enum_v<Key> || std::is_pointer_v<Key>,
                    "memlith: pass a hash of your own for keys of this type, one that is the same in every run");
      std::uint64_t value = 0;
      if constexpr (std::is_pointer_v<Key>) {
        value = reinterpret_cast<std::uintptr_t>(key);
      } else {
        value = static_cast<std::uint64_t>(key);
      }
      value = (value ^ value >> 32) * 0x9e3779b97f4a7c15;
      return static_cast<std::size_t>(value ^ value >> 29);
    }
  }
};

// std::basic_string in a heap. A string of the process becomes one where a heap's is wanted (as a key, as an argument),
// and the other way round; both copy the bytes.
class string : public std::basic_string<char, std::char_traits<char>, allocator<char>> {
  using Base = std::basic_string<char, std::char_traits<char>, allocator<char>>;
  template <class Other>
  using ElsewhereString = std::basic_string<char, std::char_traits<char>, Other>;

 public:
  using Base::Base;
  using Base::operator=;
  string() = default;
  string(const string&) = default;
  string(string&&) = default;
  string& operator=(const string&) = default;
  string& operator=(string&&) = default;
  ~string() = default;
  string(const string& other, const allocator<char>& in) : Base(other, in) {}
  string(string&& other, const allocator<char>& in) : Base(std::move(other), in) {}
  // NOLINTBEGIN(google-explicit-constructor): conversions
  string(const Base& other) : Base(other) {}  // results of operator+ and substr()
  string(Base&& other) noexcept : Base(std::move(other)) {}
  template <class Other>
    requires(!std::is_same_v<Other, allocator<char>>)
  string(const ElsewhereString<Other>& other, const allocator<char>& in = allocator<char>())
      : Base(other.data(), other.size(), in) {}
  operator std::string() const { return std::string(data(), size()); }
  // NOLINTEND(google-explicit-constructor)
};
template <class T>
using vector = std::vector<T, allocator<T>>;
template <class T>
using deque = std::deque<T, allocator<T>>;
template <class T>
using list = std::list<T, allocator<T>>;
template <class T>
using forward_list = std::forward_list<T, allocator<T>>;
namespace detail {

// Text of the process, such as a literal, where a memlith::string is the key: the containers below look for the text
// itself, and make the key in their own heap, where the standard's would make a string for the call, in the current
// heap, which may be another one or none.
template <class Key, class Text>
inline constexpr bool is_text_for_v =
    std::is_same_v<Key, string> && std::is_convertible_v<const Text&, std::string_view> &&
    !std::is_base_of_v<string, Text>;
template <class Container>
concept FindsByText =
    requires(const Container& container, std::string_view text) { container.find(text); } &&
    (requires(const Container& container, const typename Container::key_type& key, std::string_view text) {
      container.key_comp()(key, text);
      container.key_comp()(text, key);
    } || requires(const Container& container, const typename Container::key_type& key, std::string_view text) {
      container.hash_function()(text);
      container.key_eq()(key, text);
    });

// The common part of the maps and sets.
template <class Standard>
class Keyed : public Standard {
 public:
  using Standard::erase;
  using Standard::Standard;
  using Standard::operator=;

  template <class Text>
    requires(is_text_for_v<typename Standard::key_type, Text> && FindsByText<Standard>)
  typename Standard::size_type erase(const Text& key) {
    const auto [first, last] = this->equal_range(std::string_view(key));
    const auto count = static_cast<typename Standard::size_type>(std::distance(first, last));
    Standard::erase(first, last);
    return count;
  }
};

template <class Standard>
class KeyedMap : public Keyed<Standard> {
  template <class Text>
  static constexpr bool kIsText = is_text_for_v<typename Standard::key_type, Text> && FindsByText<Standard>;
  using Mapped = typename Standard::mapped_type;

 public:
  using Keyed<Standard>::Keyed;
  using Keyed<Standard>::operator=;
  using Standard::at;
  using Standard::insert_or_assign;
  using Standard::try_emplace;
  using Standard::operator[];

  template <class Text>
    requires(kIsText<Text>)
  Mapped& operator[](const Text& key) {
    return try_emplace(key).first->second;
  }
  template <class Text>
    requires(kIsText<Text>)
  Mapped& at(const Text& key) {
    return found(*this, key)->second;
  }
  template <class Text>
    requires(kIsText<Text>)
  const Mapped& at(const Text& key) const {
    return found(*this, key)->second;
  }
  template <class Text, class... Arguments>
    requires(kIsText<Text>)
  std::pair<typename Standard::iterator, bool> try_emplace(const Text& key, Arguments&&... arguments) {
    const std::string_view text(key);
    const auto key_and_value = [&](auto emplace) {
      return emplace(std::piecewise_construct, std::forward_as_tuple(text),
                     std::forward_as_tuple(std::forward<Arguments>(arguments)...));
    };
    if constexpr (requires { this->lower_bound(text); }) {
      const auto place = this->lower_bound(text);
      if (place != this->end() && !this->key_comp()(text, place->first)) return {place, false};
      return {key_and_value([&](auto&&... all) { return this->emplace_hint(place, std::move(all)...); }), true};
    } else {
      if (const auto there = this->find(text); there != this->end()) return {there, false};
      return key_and_value([&](auto&&... all) { return this->emplace(std::move(all)...); });
    }
  }
  template <class Text, class Value>
    requires(kIsText<Text>)
  std::pair<typename Standard::iterator, bool> insert_or_assign(const Text& key, Value&& value) {
    const auto result = try_emplace(key, std::forward<Value>(value));
    if (!result.second) result.first->second = std::forward<Value>(value);
    return result;
  }

 private:
  template <class Map>
  static auto found(Map& map, std::string_view key) {
    const auto there = map.find(key);
    if (there == map.end()) throw std::out_of_range("memlith: the map has no such key");
    return there;
  }
};

template <class Standard>
class KeyedSet : public Keyed<Standard> {
 public:
  using Keyed<Standard>::Keyed;
  using Keyed<Standard>::operator=;
  using Standard::insert;

  template <class Text>
    requires(is_text_for_v<typename Standard::key_type, Text> && FindsByText<Standard>)
  auto insert(const Text& key) {
    return this->emplace(std::string_view(key));
  }
};

}  // namespace detail

// The standard's containers that find keys. Where the key is a memlith::string, and what is given is other text (a
// literal, a std::string, a std::string_view), operator[], at, try_emplace, insert_or_assign, erase and a set's insert
// look for the text itself, and make a new key in the container's own heap. So they need no current heap.
template <class Key, class T, class Compare = std::less<>>
class map : public detail::KeyedMap<std::map<Key, T, Compare, allocator<std::pair<const Key, T>>>> {
 public:
  using detail::KeyedMap<std::map<Key, T, Compare, allocator<std::pair<const Key, T>>>>::KeyedMap;
  using detail::KeyedMap<std::map<Key, T, Compare, allocator<std::pair<const Key, T>>>>::operator=;
};
template <class Key, class T, class Compare = std::less<>>
class multimap : public detail::Keyed<std::multimap<Key, T, Compare, allocator<std::pair<const Key, T>>>> {
 public:
  using detail::Keyed<std::multimap<Key, T, Compare, allocator<std::pair<const Key, T>>>>::Keyed;
  using detail::Keyed<std::multimap<Key, T, Compare, allocator<std::pair<const Key, T>>>>::operator=;
};
template <class Key, class Compare = std::less<>>
class set : public detail::KeyedSet<std::set<Key, Compare, allocator<Key>>> {
 public:
  using detail::KeyedSet<std::set<Key, Compare, allocator<Key>>>::KeyedSet;
  using detail::KeyedSet<std::set<Key, Compare, allocator<Key>>>::operator=;
};
template <class Key, class Compare = std::less<>>
class multiset : public detail::KeyedSet<std::multiset<Key, Compare, allocator<Key>>> {
 public:
  using detail::KeyedSet<std::multiset<Key, Compare, allocator<Key>>>::KeyedSet;
  using detail::KeyedSet<std::multiset<Key, Compare, allocator<Key>>>::operator=;
};
template <class Key, class T, class Hash = hash<Key>, class Equal = std::equal_to<>>
class unordered_map
    : public detail::KeyedMap<std::unordered_map<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>> {
 public:
  using detail::KeyedMap<std::unordered_map<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>>::KeyedMap;
  using detail::KeyedMap<std::unordered_map<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>>::operator=;
};
template <class Key, class T, class Hash = hash<Key>, class Equal = std::equal_to<>>
class unordered_multimap
    : public detail::Keyed<std::unordered_multimap<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>> {
 public:
  using detail::Keyed<std::unordered_multimap<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>>::Keyed;
  using detail::Keyed<std::unordered_multimap<Key, T, Hash, Equal, allocator<std::pair<const Key, T>>>>::operator=;
};
template <class Key, class Hash = hash<Key>, class Equal = std::equal_to<>>
class unordered_set : public detail::KeyedSet<std::unordered_set<Key, Hash, Equal, allocator<Key>>> {
 public:
  using detail::KeyedSet<std::unordered_set<Key, Hash, Equal, allocator<Key>>>::KeyedSet;
  using detail::KeyedSet<std::unordered_set<Key, Hash, Equal, allocator<Key>>>::operator=;
};
template <class Key, class Hash = hash<Key>, class Equal = std::equal_to<>>
class unordered_multiset : public detail::KeyedSet<std::unordered_multiset<Key, Hash, Equal, allocator<Key>>> {
 public:
  using detail::KeyedSet<std::unordered_multiset<Key, Hash, Equal, allocator<Key>>>::KeyedSet;
  using detail::KeyedSet<std::unordered_multiset<Key, Hash, Equal, allocator<Key>>>::operator=;
};

// A string of a heap beside one of the process: they compare, also as keys (`map.find(std::string("a"))`).
template <class Other>
  requires(!std::is_same_v<Other, allocator<char>>)
bool operator==(const string& one, const std::basic_string<char, std::char_traits<char>, Other>& other) noexcept {
  return std::string_view(one) == std::string_view(other);
}
template <class Other>
  requires(!std::is_same_v<Other, allocator<char>>)
std::strong_ordering operator<=>(const string& one,
                                 const std::basic_string<char, std::char_traits<char>, Other>& other) noexcept {
  return std::string_view(one) <=> std::string_view(other);
}

// Types that may live in a heap: containers with the heap's allocator, of the standard library, of Boost or another
// one, whose elements may; and what is made of such. Comparisons and hashes that have no state are not looked at; a
// pointer to a function, or a std::function, is refused there too.
namespace detail {
template <class T>
void is_allocator(const allocator<T>* allocator);
// Or made of one, as those of some containers are.
template <class T>
inline constexpr bool is_heap_allocator_v = requires(T* pointer) { is_allocator(pointer); };

template <class Part>
constexpr bool may_be_argument() {
  if constexpr (is_heap_allocator_v<Part> || !std::is_object_v<Part> || !requires { sizeof(Part); }) {
    return true;
  } else {
    return std::is_empty_v<Part> || persistable_or_open<Part>();
  }
}
template <class... Part>
constexpr bool all_arguments(Arguments<Part...>) {
  return (may_be_argument<Part>() && ...);
}
}  // namespace detail

template <class T>
  requires(detail::is_heap_allocator_v<typename T::allocator_type> && requires { typename T::value_type; })
struct is_persistable<T> : std::bool_constant<detail::persistable_or_open<typename T::value_type>() &&
                                              detail::all_arguments(typename detail::arguments_of<T>::type())> {};
template <class T>  // a pair of the standard library, or of Boost
  requires requires(T& pair) {
    requires std::is_same_v<decltype(pair.first), typename T::first_type>;
    requires std::is_same_v<decltype(pair.second), typename T::second_type>;
  }
struct is_persistable<T> : std::bool_constant<detail::persistable_or_open<typename T::first_type>() &&
                                              detail::persistable_or_open<typename T::second_type>()> {};
template <class... T>
struct is_persistable<std::tuple<T...>> : std::bool_constant<(detail::persistable_or_open<T>() && ...)> {};
template <class T>
struct is_persistable<std::optional<T>> : is_persistable<T> {};
template <class T, std::size_t kCount>
struct is_persistable<std::array<T, kCount>> : is_persistable<T> {};

}  // namespace memlith

// These point to a table in the program while they are empty.
namespace boost::unordered {
template <class Key, class T, class Hash, class Equal, class Allocator>
class unordered_flat_map;
template <class Key, class Hash, class Equal, class Allocator>
class unordered_flat_set;
template <class Key, class T, class Hash, class Equal, class Allocator>
class unordered_node_map;
template <class Key, class Hash, class Equal, class Allocator>
class unordered_node_set;
}  // namespace boost::unordered
namespace memlith {
template <class K, class T, class H, class E, class A>
struct is_persistable<boost::unordered::unordered_flat_map<K, T, H, E, A>> : std::false_type {};
template <class K, class H, class E, class A>
struct is_persistable<boost::unordered::unordered_flat_set<K, H, E, A>> : std::false_type {};
template <class K, class T, class H, class E, class A>
struct is_persistable<boost::unordered::unordered_node_map<K, T, H, E, A>> : std::false_type {};
template <class K, class H, class E, class A>
struct is_persistable<boost::unordered::unordered_node_set<K, H, E, A>> : std::false_type {};
}  // namespace memlith
