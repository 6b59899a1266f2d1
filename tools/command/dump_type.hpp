// Types of objects in heaps, as far as their stored names describe them: where their parts lie.
//
// The layouts are those of libstdc++, whose names other standard libraries do not have, and of memlith/btree.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "memlith/btree_leaves.hpp"

namespace memlith::tool {

struct HeapType {
  enum class Kind : std::uint8_t {
    boolean,
    signed_number,
    unsigned_number,
    floating,
    text,      // memlith::string
    vector,    // of parts[0]
    list,      // likewise
    tree,      // a set of parts[0], or a map of pairs
    btree,     // likewise, of memlith/btree.hpp
    optional,  // of parts[0]
    array,     // `count` of parts[0]
    record     // parts at `offsets`: a pair or a struct
  };
  Kind kind = Kind::boolean;
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;
  std::uint64_t count = 0;
  bool repeats_keys = false;  // a tree: multimap, multiset
  bool is_map = false;
  std::vector<HeapType> parts;
  std::vector<std::uint64_t> offsets;

  [[nodiscard]] const HeapType& element() const { return parts.front(); }
};

// Takes a name as a heap keeps it, "_ZTS8Notebook {_ZTSi, _ZTSd}". Nothing if it does not describe the type.
std::optional<HeapType> type_of_name(std::string_view name);

// As libstdc++ has them.
struct HeapText {
  const void* heap_base;
  char* bytes;  // `here`, if they fit
  std::uint64_t size;
  union {
    char here[16];
    std::uint64_t capacity;
  };
};
struct HeapVector {
  const void* heap_base;
  char* begin;
  char* end;
  char* end_of_room;
};
struct HeapBtree {
  const void* heap_base;
  detail::TreeRoot* root;
};
struct HeapListNode {
  HeapListNode* next;
  HeapListNode* previous;
};
struct HeapList {
  const void* heap_base;
  HeapListNode ends;
  std::uint64_t size;
};

// Where the content of a node begins that has a head of so many bytes.
constexpr std::uint64_t content_offset(const HeapType& content, std::uint64_t head_bytes) {
  return (head_bytes + content.alignment - 1) / content.alignment * content.alignment;
}

}  // namespace memlith::tool
