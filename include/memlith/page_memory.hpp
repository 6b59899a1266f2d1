// memlith: what the containers that are made for pages (memlith/btree.hpp, memlith/flat_hash.hpp) have in common. Their
// interface is in those headers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "memlith/allocator.hpp"
#include "memlith/derived.h"

namespace memlith::detail {

inline constexpr std::size_t kPageBytes = 4096;

// The calls of such a container to the heap behind its allocator.
template <class Allocator>
struct HeapOf;
template <class T>
struct HeapOf<allocator<T>> {
  // While one lives, plain `new` of this thread is the process's, whatever heap is named (libmemlith_new).
  struct OrdinaryMemory {
    OrdinaryMemory() : before(memlith_heap_use(nullptr)) {}
    ~OrdinaryMemory() { (void)memlith_heap_use(before); }
    OrdinaryMemory(const OrdinaryMemory&) = delete;
    OrdinaryMemory& operator=(const OrdinaryMemory&) = delete;
    memlith_heap* const before;
  };
  static memlith_derived* find(const void* address) { return memlith_derived_find(address); }
  static memlith_derived* set(const void* address, memlith_derived* old, memlith_derived* made) {
    return memlith_derived_set(address, old, made);
  }
  static bool is_open(const void* address) { return memlith_heap_of(address) != nullptr; }
  static bool has_block(const void* address, std::size_t bytes) {
    std::uint64_t found = 0;
    memlith_heap* const heap = memlith_heap_of(address);
    return heap != nullptr && memlith_heap_block_bytes(heap, address, &found) == MEMLITH_OK && found >= bytes;
  }
};

// The first word of a block that a container made, which no copy of the block has.
inline std::uint64_t seal_of(const void* block, std::uint64_t kind) {
  return kind ^ reinterpret_cast<std::uintptr_t>(block) * 0x9e3779b97f4a7c15;
}

constexpr std::uint64_t scrambled(std::uint64_t value) {
  value = (value ^ value >> 32) * 0xd6e8feb86659fd93;
  value = (value ^ value >> 32) * 0xd6e8feb86659fd93;
  return value ^ value >> 32;
}

// ---- elements: of a map, a pair of the key and what it leads to; of a set, the key -----------------------------

template <class Key, class Mapped>
struct ElementOf {
  using type = std::pair<const Key, Mapped>;
  static constexpr bool kMovesWell =
      std::is_nothrow_move_constructible_v<Key> && std::is_nothrow_move_constructible_v<Mapped>;
  static const Key& key(const type& element) { return element.first; }
  static void move(type* from, type* to) noexcept {
    ::new (static_cast<void*>(to)) type(std::move(const_cast<Key&>(from->first)), std::move(from->second));
  }
};
template <class Key>
struct ElementOf<Key, void> {
  using type = Key;
  static constexpr bool kMovesWell = std::is_nothrow_move_constructible_v<Key>;
  static const Key& key(const type& element) { return element; }
  static void move(type* from, type* to) noexcept { ::new (static_cast<void*>(to)) type(std::move(*from)); }
};
template <class Element>
void relocate(typename Element::type* from, typename Element::type* to) noexcept {
  Element::move(from, to);
  std::destroy_at(from);
}

// An element that is made before it is known where it will lie. In ordinary memory; what it owns lies in the heap.
template <class Element, class Allocator>
class Waiting {
 public:
  template <class Make>
  explicit Waiting(const Make& make) {
    make(place());
  }
  ~Waiting() { std::destroy_at(place()); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  const typename Element::type& operator*() { return *place(); }
  void move_to(typename Element::type* to) noexcept { Element::move(place(), to); }

 private:
  typename Element::type* place() { return reinterpret_cast<typename Element::type*>(bytes_); }
  alignas(typename Element::type) std::byte bytes_[sizeof(typename Element::type)];
};

// ---- keys that are looked for ------------------------------------------------------------------------------------

// Calls `use` with what the comparison takes in place of the key: text as it is, the key as it is, or a key made of it.
template <class Key, bool kTransparent, class Given, class Use>
decltype(auto) with_key(const Given& given, const Use& use) {
  if constexpr (kTransparent && is_text_for_v<Key, Given>) {
    return use(std::string_view(given));
  } else if constexpr (kTransparent || std::is_same_v<Given, Key>) {
    return use(given);
  } else {
    const Key key = static_cast<Key>(given);
    return use(key);
  }
}
template <class Given, class Key, bool kTransparent>
concept LooksFor = kTransparent || std::is_convertible_v<const Given&, Key>;

// ---- maps -------------------------------------------------------------------------------------------------------

// A map's calls beside those of a set. Base: the tree or the table.
template <class Base, class T>
class PageMap : public Base {
  using Key = typename Base::key_type;
  static constexpr bool kTransparent = Base::kTakesText;
  template <class Given>
  static constexpr bool kIsKey = std::is_same_v<std::remove_cvref_t<Given>, Key> ||
                                 (kTransparent && is_text_for_v<Key, std::remove_cvref_t<Given>>);

 public:
  using Base::Base;
  using Base::operator=;
  using mapped_type = T;
  using typename Base::iterator;
  using typename Base::value_type;

  T& operator[](const Key& key) { return try_emplace(key).first->second; }
  T& operator[](Key&& key) { return try_emplace(std::move(key)).first->second; }
  template <class Text>
    requires(kTransparent && is_text_for_v<Key, Text>)
  T& operator[](const Text& text) {
    return try_emplace(text).first->second;
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  T& at(const Given& key) {
    return found(*this, key)->second;
  }
  template <class Given = Key>
    requires LooksFor<Given, Key, kTransparent>
  const T& at(const Given& key) const {
    return found(*this, key)->second;
  }

  // `key` may be other text where the key is a memlith::string: the key is made of it in the map's heap, if need be.
  template <class Given = Key, class... Arguments>
    requires(kIsKey<Given> || std::is_convertible_v<Given &&, Key>)
  std::pair<iterator, bool> try_emplace(Given&& key, Arguments&&... arguments) {
    if constexpr (kIsKey<Given>) {
      return this->insert_unique(key, [&](value_type* at) {
        if constexpr (is_text_for_v<Key, std::remove_cvref_t<Given>>) {
          this->make(at, std::piecewise_construct, std::forward_as_tuple(std::string_view(key)),
                     std::forward_as_tuple(std::forward<Arguments>(arguments)...));
        } else {
          this->make(at, std::piecewise_construct, std::forward_as_tuple(std::forward<Given>(key)),
                     std::forward_as_tuple(std::forward<Arguments>(arguments)...));
        }
      });
    } else {
      return try_emplace(Key(std::forward<Given>(key)), std::forward<Arguments>(arguments)...);
    }
  }
  template <class Given = Key, class Value>
  std::pair<iterator, bool> insert_or_assign(Given&& key, Value&& value) {
    const auto result = try_emplace(std::forward<Given>(key), std::forward<Value>(value));
    if (!result.second) result.first->second = std::forward<Value>(value);
    return result;
  }

  // A key and a value: nothing is made where the key is there.
  using Base::emplace;
  template <class Given, class Value>
    requires(kIsKey<Given> && std::is_constructible_v<T, Value &&>)
  std::pair<iterator, bool> emplace(Given&& key, Value&& value) {
    return try_emplace(std::forward<Given>(key), std::forward<Value>(value));
  }

 private:
  template <class Map, class Given>
  static auto found(Map& map, const Given& key) {
    const auto there = map.find(key);
    if (there == map.end()) throw std::out_of_range("memlith: the map has no such key");
    return there;
  }
};

}  // namespace memlith::detail
