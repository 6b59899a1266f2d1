// Named objects of heaps as text and back, for `memlith dump` and `memlith load`.
//
// A heap keeps the name of each named object's type, and those of its members (docs/heap.md). That describes numbers,
// strings, and containers and structs of them; dump_type.hpp has the list. Other types are refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "memlith/heap.h"

namespace memlith::tool {

struct NamedType {
  std::string name;
  std::string type;
  std::uint64_t size = 0;
  std::uint32_t alignment = 0;
  std::uint32_t layout = 0;
  const char* object = nullptr;
};

// In the order of their names.
Result<std::vector<NamedType>> objects_of(memlith_heap* heap);

// Its value; of each container at most so many elements, 0: all. UNSUPPORTED: the object's type is not described.
Result<Json> value_of_object(memlith_heap* heap, const NamedType& object, std::uint64_t elements_max);

// One line. UNSUPPORTED: the object's type is not described.
Result<std::string> object_as_text(memlith_heap* heap, const NamedType& object);

// Makes the object of such a line, durably.
[[nodiscard]] MaybeFailure load_named_object(memlith_heap* heap, std::string_view text);

}  // namespace memlith::tool
