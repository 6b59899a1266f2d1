// Named objects of a heap: a list of records in blocks of the heap. Floor: heap.
//
// An index in memory, made when a name is first asked for, leads to the records. A name's lock is taken before the
// locks of blocks, and a capture of the region holds both, so that no capture has a record without its place in the
// list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/sync.hpp"
#include "heap/arenas.hpp"
#include "heap/heap_memory.hpp"

namespace memlith::core {

// The stored description of an object's type, to refuse another one.
struct ObjectType {
  std::string_view name;  // without data: of any name, where an object is looked for
  std::uint64_t size = 0;
  std::uint32_t alignment = 1;
  std::uint32_t layout = 0;  // the program's own number for the layout
};

struct NamedObject {
  std::byte* address = nullptr;
  std::string name;
  std::string type_name;
  std::uint64_t size = 0;
  std::uint32_t alignment = 0;
  std::uint32_t layout = 0;
};

// All calls by any thread.
class Names {
 public:
  Names(const HeapMemory& memory, Arenas& arenas) : memory_(memory), arenas_(arenas) {}

  // An object has to begin a block. Errors: exists.
  Status set(std::string_view name, const void* object, const ObjectType& type) MEMLITH_EXCLUDES(mutex);
  // The same for a name that another object has; that object stays. Errors: not_found.
  Status replace(std::string_view name, const void* object, const ObjectType& type) MEMLITH_EXCLUDES(mutex);
  Result<NamedObject> find(std::string_view name) MEMLITH_EXCLUDES(mutex);
  // The same, and `incompatible` where the type is another one.
  Result<NamedObject> find(std::string_view name, const ObjectType& type) MEMLITH_EXCLUDES(mutex);
  Status remove(std::string_view name) MEMLITH_EXCLUDES(mutex);  // the object stays
  Result<std::vector<NamedObject>> all() MEMLITH_EXCLUDES(mutex);

  // Offsets of the blocks that names keep: of each record and of its object.
  Status for_each_block(const std::function<void(std::uint64_t offset)>& use) MEMLITH_EXCLUDES(mutex);
  // Checks every record anew.
  Status check() MEMLITH_EXCLUDES(mutex);

  // Guards the records and the index. Taken before the structure lock, also by captures and rollbacks of the region.
  Mutex mutex;
  // The memory is that of another moment.
  void forget() MEMLITH_REQUIRES(mutex);
  // A name was given or taken away, and no capture of process scope followed.
  [[nodiscard]] bool changed() const MEMLITH_REQUIRES(mutex) { return changed_; }
  void are_captured() MEMLITH_REQUIRES(mutex) { changed_ = false; }

 private:
  Status load() MEMLITH_REQUIRES(mutex);
  Result<NameRecord*> record_at(std::uint64_t offset, std::uint64_t previous) MEMLITH_REQUIRES(mutex);
  Result<NameRecord*> record_of(std::string_view name) MEMLITH_REQUIRES(mutex);
  [[nodiscard]] NameRecord& loaded_record(std::uint64_t offset) const MEMLITH_REQUIRES(mutex) {
    return *reinterpret_cast<NameRecord*>(memory_.base() + offset);
  }
  [[nodiscard]] NamedObject object_of(const NameRecord& record) const MEMLITH_REQUIRES(mutex);
  [[nodiscard]] Status check_new(std::string_view name, const ObjectType& type, const void* object);
  Result<NameRecord*> make_record(std::string_view name, const ObjectType& type, const void* object)
      MEMLITH_REQUIRES(mutex);
  void link_first(NameRecord& record) MEMLITH_REQUIRES(mutex);
  void unlink(NameRecord& record) MEMLITH_REQUIRES(mutex);

  const HeapMemory memory_;
  Arenas& arenas_;
  bool loaded_ MEMLITH_GUARDED_BY(mutex) = false;
  bool changed_ MEMLITH_GUARDED_BY(mutex) = false;
  std::unordered_map<std::string, std::uint64_t> index_ MEMLITH_GUARDED_BY(mutex);  // to the record's offset
};

}  // namespace memlith::core
