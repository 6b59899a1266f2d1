#include "heap/names.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "heap/checks.hpp"

namespace memlith::core {

namespace {

const char* text_of(const NameRecord& record) { return reinterpret_cast<const char*>(&record + 1); }

// The name that the C++ interface gives a type, "_ZTS8Notebook {_ZTSi, _ZTSd}", as "Notebook {int, double}".
std::string readable(std::string_view type_name) {
  constexpr std::string_view kSymbol = "_ZTS";
  std::string text;
  while (!type_name.empty()) {
    const std::string_view word = type_name.substr(0, type_name.find_first_of(" ,{}"));
    type_name.remove_prefix(word.size());
    const std::string symbol(word);
    int error = -1;
    std::unique_ptr<char, decltype(&std::free)> name(nullptr, &std::free);
    if (word.starts_with(kSymbol)) {
      name.reset(abi::__cxa_demangle(symbol.c_str() + kSymbol.size(), nullptr, nullptr, &error));
    }
    text += error == 0 ? name.get() : symbol;
    if (type_name.empty()) break;
    text += type_name.front();
    type_name.remove_prefix(1);
  }
  return text;
}

std::string in_words(std::string_view name, std::uint64_t size, std::uint32_t alignment, std::uint32_t layout) {
  return fmt::format("{} of {} bytes, aligned to {}, layout {}", name.empty() ? "one" : readable(name), size, alignment,
                     layout);
}

}  // namespace

// ---- the list --------------------------------------------------------------------------------------------------

Result<NameRecord*> Names::record_at(std::uint64_t offset, std::uint64_t previous) {
  const auto wrong = [&](std::string_view what) {
    return memory_.corrupt(offset, fmt::format("a name record {}", what));
  };
  if (offset >= memory_.region().size() || offset % kGrainBytes != 0) return wrong("lies outside of the heap");
  const Result<std::uint64_t> room = arenas_.block_bytes(memory_.base() + offset);
  if (!room.ok() && room.error().category != Errc::invalid) return room.error();
  if (!room.ok() || *room < sizeof(NameRecord)) return wrong("lies in no block");
  NameRecord& record = loaded_record(offset);
  if (record_bytes(record) > *room || record.check != record_check(record)) return wrong("does not fit its checksum");
  if (record.previous != previous) return wrong("does not lead back to the one that led here");
  const Result<std::uint64_t> object = arenas_.block_bytes(memory_.base() + record.object);
  if (!object.ok() && object.error().category != Errc::invalid) return object.error();
  if (!object.ok() || *object < record.size) return wrong("leads to no block of its object's size");
  return &record;
}

Status Names::load() {
  if (loaded_) return kOk;
  index_.clear();
  std::uint64_t previous = 0;
  for (std::uint64_t offset = memory_.header().names_first; offset != 0;) {
    if (index_.size() == memory_.header().names_count) {
      return memory_.corrupt(offset, fmt::format("there are more name records than the {} counted",
                                                 memory_.header().names_count));
    }
    MEMLITH_TRY_ASSIGN(const NameRecord* const record, record_at(offset, previous));
    const bool first = index_.emplace(std::string(text_of(*record), record->name_bytes), offset).second;
    if (!first) return memory_.corrupt(offset, "two name records have the same name");
    previous = offset;
    offset = record->next;
  }
  if (index_.size() != memory_.header().names_count) {
    return memory_.corrupt(kHeapHeaderOffset + offsetof(HeapHeader, names_count),
                           fmt::format("there are {} name records, counted were {}", index_.size(),
                                       memory_.header().names_count));
  }
  loaded_ = true;
  return kOk;
}

Result<NameRecord*> Names::record_of(std::string_view name) {
  MEMLITH_TRY(load());
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) {
    return fail(Errc::not_found, Detail::heap, "{}: there is no object \"{}\"", memory_.shown(), name);
  }
  return &loaded_record(found->second);
}

NamedObject Names::object_of(const NameRecord& record) const {
  const char* const text = text_of(record);
  return {memory_.base() + record.object,
          std::string(text, record.name_bytes),
          std::string(text + record.name_bytes, record.type_bytes),
          record.size,
          record.alignment,
          record.layout};
}

// Ok if the object may have that name.
Status Names::check_new(std::string_view name, const ObjectType& type, const void* object) {
  if (name.size() > kObjectNameBytesMax || type.name.size() > kTypeNameBytesMax) {
    return fail(Errc::invalid, Detail::argument, "a name of {} bytes and a type's of {}; they have {} and {} at most",
                name.size(), type.name.size(), kObjectNameBytesMax, kTypeNameBytesMax);
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t room, arenas_.block_bytes(object));
  if (room >= type.size) return kOk;
  return fail(Errc::invalid, Detail::heap, "{}: the object \"{}\" has a block of {} bytes, its type has {}",
              memory_.shown(), name, room, type.size);
}

// A record that is in no list yet.
Result<NameRecord*> Names::make_record(std::string_view name, const ObjectType& type, const void* object) {
  MEMLITH_TRY(check_new(name, type, object));
  NameRecord record{};
  record.object = memory_.offset_of(object);
  record.size = type.size;
  record.alignment = type.alignment;
  record.layout = type.layout;
  record.name_bytes = static_cast<std::uint16_t>(name.size());
  record.type_bytes = static_cast<std::uint16_t>(type.name.size());
  MEMLITH_TRY_ASSIGN(void* const block, arenas_.allocate(record_bytes(record), alignof(NameRecord)));
  auto* const placed = static_cast<NameRecord*>(block);
  MEMLITH_ASSERT(memory_.offset_of(placed) % kGrainBytes == 0 &&
                 memory_.offset_of(placed) + record_bytes(record) <= memory_.region().size());
  *placed = record;
  auto* const text = reinterpret_cast<char*>(placed + 1);
  std::memcpy(text, name.data(), name.size());
  std::memcpy(text + name.size(), type.name.data(), type.name.size());
  placed->check = record_check(*placed);
  return placed;
}

// ---- names -----------------------------------------------------------------------------------------------------

Status Names::set(std::string_view name, const void* object, const ObjectType& type) {
  MEMLITH_TRY(memory_.check_writable());
  const LockGuard lock(mutex);
  MEMLITH_TRY(load());
  const auto [entry, added] = index_.try_emplace(std::string(name), 0);
  if (!added) return fail(Errc::exists, Detail::heap, "{}: there is an object \"{}\" already", memory_.shown(), name);
  const auto record = make_record(name, type, object);
  if (!record.ok()) {
    index_.erase(entry);
    return record.error();
  }
  entry->second = memory_.offset_of(*record);
  link_first(**record);
  return kOk;
}

Status Names::replace(std::string_view name, const void* object, const ObjectType& type) {
  MEMLITH_TRY(memory_.check_writable());
  const LockGuard lock(mutex);
  MEMLITH_TRY_ASSIGN(NameRecord* const before, record_of(name));
  MEMLITH_TRY_ASSIGN(NameRecord* const record, make_record(name, type, object));
  index_.find(std::string(name))->second = memory_.offset_of(record);
  link_first(*record);
  unlink(*before);
  return arenas_.free(before);
}

void Names::link_first(NameRecord& record) {
  MEMLITH_ASSERT(record.previous == 0 && record.check == record_check(record));
  changed_ = true;
  record.next = memory_.header().names_first;
  memory_.wrote(&record, record_bytes(record));
  if (record.next != 0) {
    NameRecord& next = loaded_record(record.next);
    MEMLITH_ASSERT(next.previous == 0);  // until now the first
    next.previous = memory_.offset_of(&record);
    memory_.wrote(&next.previous, sizeof next.previous);
  }
  memory_.header().names_first = memory_.offset_of(&record);
  ++memory_.header().names_count;
  memory_.wrote(&memory_.header().names_first,
                sizeof memory_.header().names_first + sizeof memory_.header().names_count);
}

Result<NamedObject> Names::find(std::string_view name) {
  const LockGuard lock(mutex);
  MEMLITH_TRY_ASSIGN(const NameRecord* const record, record_of(name));
  return object_of(*record);
}

Result<NamedObject> Names::find(std::string_view name, const ObjectType& type) {
  MEMLITH_TRY_ASSIGN(NamedObject found, find(name));
  const bool named = type.name.data() == nullptr || found.type_name == type.name;
  if (named && found.size == type.size && found.alignment == type.alignment && found.layout == type.layout) {
    return found;
  }
  return fail(Errc::incompatible, Detail::heap,
              "{}: {} is of another type: the heap has {}; the program expects {}. Open it with the type that it was "
              "made with; `heap.migrate<Old, New>` converts it in one commit (docs/how-to/schema.md)",
              memory_.shown(), name.empty() ? "its root" : fmt::format("object \"{}\"", name),
              in_words(found.type_name, found.size, found.alignment, found.layout),
              in_words(type.name, type.size, type.alignment, type.layout));
}

void Names::unlink(NameRecord& record) {
  MEMLITH_ASSERT(memory_.header().names_count > 0);
  changed_ = true;
  MEMLITH_ASSERT((record.previous == 0) == (memory_.header().names_first == memory_.offset_of(&record)));
  const auto relink = [&](std::uint64_t* link, std::uint64_t value) {
    *link = value;
    memory_.wrote(link, sizeof *link);
  };
  if (record.next != 0) relink(&loaded_record(record.next).previous, record.previous);
  relink(record.previous == 0 ? &memory_.header().names_first : &loaded_record(record.previous).next, record.next);
  relink(&memory_.header().names_count, memory_.header().names_count - 1);
}

Status Names::remove(std::string_view name) {
  MEMLITH_TRY(memory_.check_writable());
  const LockGuard lock(mutex);
  MEMLITH_TRY_ASSIGN(NameRecord* const record, record_of(name));
  unlink(*record);
  index_.erase(std::string(name));
  return arenas_.free(record);
}

Result<std::vector<NamedObject>> Names::all() {
  const LockGuard lock(mutex);
  MEMLITH_TRY(load());
  std::vector<NamedObject> found;
  for (const auto& [name, offset] : index_) found.push_back(object_of(loaded_record(offset)));
  return found;
}

Status Names::for_each_block(const std::function<void(std::uint64_t offset)>& use) {
  const LockGuard lock(mutex);
  MEMLITH_TRY(load());
  for (const auto& [name, offset] : index_) {
    use(offset);
    use(loaded_record(offset).object);
  }
  return kOk;
}

Status Names::check() {
  const LockGuard lock(mutex);
  loaded_ = false;
  return load();
}

void Names::forget() {
  loaded_ = changed_ = false;
  index_.clear();
}

}  // namespace memlith::core
