// The changes of one cut to the kv store: operations one after the other in one string. plugin redis.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace memlith_redis {

enum class Kind : std::uint8_t {
  part,    // of an object to which no record points before: may be committed before the rest
  put,     // key and value in map `number`
  remove,  // key in map `number`
  add,     // a part of an object that records point to
  bind,    // database: key, has the map `number`
  unbind,  // database: key, has no map
};

struct Operation {
  Kind kind = Kind::put;
  std::uint64_t number = 0;  // of a map or an object
  std::string_view key;
  std::string_view value;
};

struct Batch {
  std::uint64_t entry = 0;  // the newest entry of the log that is in it; 0: none, only parts and records of new maps
  std::string operations;
  std::vector<std::uint64_t> new_maps;
  std::vector<std::uint64_t> dropped_maps;     // after the commit
  std::vector<std::uint64_t> dropped_objects;  // the same

  void add(const Operation& operation) {
    const Head head{operation.number, static_cast<std::uint32_t>(operation.key.size()),
                    static_cast<std::uint32_t>(operation.value.size()), static_cast<std::uint32_t>(operation.kind), 0};
    operations.append(reinterpret_cast<const char*>(&head), sizeof head);
    operations.append(operation.key);
    operations.append(operation.value);
  }
  // Calls `act(operation)` for each, until one returns false.
  template <class Act>
  bool each(Act&& act) const {
    for (std::size_t at = 0; at < operations.size();) {
      Head head;
      std::memcpy(&head, operations.data() + at, sizeof head);
      at += sizeof head;
      const std::string_view key(operations.data() + at, head.key_bytes);
      const std::string_view value(operations.data() + at + head.key_bytes, head.value_bytes);
      at += head.key_bytes + head.value_bytes;
      if (!act(Operation{static_cast<Kind>(head.kind), head.number, key, value})) return false;
    }
    return true;
  }
  [[nodiscard]] bool empty() const { return operations.empty() && dropped_maps.empty() && dropped_objects.empty(); }

 private:
  struct Head {
    std::uint64_t number;
    std::uint32_t key_bytes, value_bytes, kind, unused;
  };
};

}  // namespace memlith_redis
