// Named objects: a list of records in blocks of the heap, found by an index in memory that is made when a name is first
// asked for.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

#include "heap/checks.hpp"
#include "heap/heap.hpp"

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

Result<NameRecord*> Heap::record_at(std::uint64_t offset, std::uint64_t previous) {
  const auto wrong = [&](std::string_view what) { return corrupt(offset, fmt::format("a name record {}", what)); };
  if (offset >= region_.size() || offset % kGrainBytes != 0) return wrong("lies outside of the heap");
  const Result<std::uint64_t> room = locked_block_bytes(offset);
  if (!room.ok() && room.error().category != Errc::invalid) return room.error();
  if (!room.ok() || *room < sizeof(NameRecord)) return wrong("lies in no block");
  auto& record = *reinterpret_cast<NameRecord*>(base_ + offset);
  if (record_bytes(record) > *room || record.check != record_check(record)) return wrong("does not fit its checksum");
  if (record.previous != previous) return wrong("does not lead back to the one that led here");
  const Result<std::uint64_t> object = locked_block_bytes(record.object);
  if (!object.ok() && object.error().category != Errc::invalid) return object.error();
  if (!object.ok() || *object < record.size) return wrong("leads to no block of its object's size");
  return &record;
}

Status Heap::load_names() {
  if (names_loaded_) return kOk;
  names_.clear();
  std::uint64_t previous = 0;
  for (std::uint64_t offset = header_->names_first; offset != 0;) {
    if (names_.size() == header_->names_count) {
      return corrupt(offset, fmt::format("there are more name records than the {} counted", header_->names_count));
    }
    MEMLITH_TRY_ASSIGN(const NameRecord* const record, record_at(offset, previous));
    const bool first = names_.emplace(std::string(text_of(*record), record->name_bytes), offset).second;
    if (!first) return corrupt(offset, "two name records have the same name");
    previous = offset;
    offset = record->next;
  }
  if (names_.size() != header_->names_count) {
    return corrupt(kHeapHeaderOffset + offsetof(HeapHeader, names_count),
                   fmt::format("there are {} name records, counted were {}", names_.size(), header_->names_count));
  }
  names_loaded_ = true;
  return kOk;
}

Result<NameRecord*> Heap::record_of(std::string_view name) {
  MEMLITH_TRY(load_names());
  const auto found = names_.find(std::string(name));
  if (found == names_.end()) {
    return fail(Errc::not_found, Detail::heap, "{}: there is no object \"{}\"", place(), name);
  }
  return reinterpret_cast<NameRecord*>(base_ + found->second);
}

NamedObject Heap::object_of(const NameRecord& record) const {
  const char* const text = text_of(record);
  return {base_ + record.object,
          std::string(text, record.name_bytes),
          std::string(text + record.name_bytes, record.type_bytes),
          record.size,
          record.alignment,
          record.layout};
}

// True if the object may have that name.
Status Heap::check_name(std::string_view name, const ObjectType& type, std::uint64_t object) {
  if (name.size() > kObjectNameBytesMax || type.name.size() > kTypeNameBytesMax) {
    return fail(Errc::invalid, Detail::argument, "a name of {} bytes and a type's of {}; they have {} and {} at most",
                name.size(), type.name.size(), kObjectNameBytesMax, kTypeNameBytesMax);
  }
  if (object >= region_.size()) return no_block(object, "it lies outside of the heap");
  MEMLITH_TRY_ASSIGN(const std::uint64_t room, locked_block_bytes(object));
  if (room >= type.size) return kOk;
  return fail(Errc::invalid, Detail::heap, "{}: the object \"{}\" has a block of {} bytes, its type has {}", place(),
              name, room, type.size);
}

// A record that is in no list yet.
Result<NameRecord*> Heap::make_record(std::string_view name, const ObjectType& type, std::uint64_t object) {
  MEMLITH_TRY(check_name(name, type, object));
  NameRecord record{};
  record.object = object;
  record.size = type.size;
  record.alignment = type.alignment;
  record.layout = type.layout;
  record.name_bytes = static_cast<std::uint16_t>(name.size());
  record.type_bytes = static_cast<std::uint16_t>(type.name.size());
  MEMLITH_TRY_ASSIGN(void* const block,
                     allocate_locked(arena_of_thread(), class_of(record_bytes(record), alignof(NameRecord))));
  auto* const placed = static_cast<NameRecord*>(block);
  MEMLITH_ASSERT(offset_of(placed) % kGrainBytes == 0 && offset_of(placed) + record_bytes(record) <= region_.size());
  *placed = record;
  auto* const text = reinterpret_cast<char*>(placed + 1);
  std::memcpy(text, name.data(), name.size());
  std::memcpy(text + name.size(), type.name.data(), type.name.size());
  placed->check = record_check(*placed);
  return placed;
}

// All of it under the structure lock, so that no capture has the record without its place in the list.
Status Heap::set_name(std::string_view name, const void* object, const ObjectType& type) {
  MEMLITH_TRY(check_writable());
  const LockGuard structure(structure_);
  MEMLITH_TRY(load_names());
  const auto [entry, added] = names_.try_emplace(std::string(name), 0);
  if (!added) return fail(Errc::exists, Detail::heap, "{}: there is an object \"{}\" already", place(), name);
  const auto record = make_record(name, type, offset_of(object));
  if (!record.ok()) {
    names_.erase(entry);
    return record.error();
  }
  entry->second = offset_of(*record);
  link_first(**record);
  return kOk;
}

Status Heap::replace_name(std::string_view name, const void* object, const ObjectType& type) {
  MEMLITH_TRY(check_writable());
  const LockGuard structure(structure_);
  MEMLITH_TRY_ASSIGN(NameRecord* const before, record_of(name));
  MEMLITH_TRY_ASSIGN(NameRecord* const record, make_record(name, type, offset_of(object)));
  names_.find(std::string(name))->second = offset_of(record);
  link_first(*record);
  unlink(*before);
  return free_locked(reinterpret_cast<std::byte*>(before));
}

void Heap::link_first(NameRecord& record) {
  MEMLITH_ASSERT(record.previous == 0 && record.check == record_check(record));
  record.next = header_->names_first;
  wrote(&record, record_bytes(record));
  if (record.next != 0) {
    auto& next = *reinterpret_cast<NameRecord*>(base_ + record.next);
    MEMLITH_ASSERT(next.previous == 0);  // until now the first
    next.previous = offset_of(&record);
    wrote(&next.previous, sizeof next.previous);
  }
  header_->names_first = offset_of(&record);
  ++header_->names_count;
  wrote(&header_->names_first, sizeof header_->names_first + sizeof header_->names_count);
}

Result<NamedObject> Heap::find_name(std::string_view name) {
  const LockGuard structure(structure_);
  MEMLITH_TRY_ASSIGN(const NameRecord* const record, record_of(name));
  return object_of(*record);
}

Result<NamedObject> Heap::find_name(std::string_view name, const ObjectType& type) {
  MEMLITH_TRY_ASSIGN(NamedObject found, find_name(name));
  const bool named = type.name.data() == nullptr || found.type_name == type.name;
  if (named && found.size == type.size && found.alignment == type.alignment && found.layout == type.layout) {
    return found;
  }
  return fail(Errc::incompatible, Detail::heap,
              "{}: {} is of another type: the heap has {}; the program expects {}. Open it with the type that it was "
              "made with; `heap.migrate<Old, New>` converts it in one commit (docs/how-to/schema.md)",
              place(), name.empty() ? "its root" : fmt::format("object \"{}\"", name),
              in_words(found.type_name, found.size, found.alignment, found.layout),
              in_words(type.name, type.size, type.alignment, type.layout));
}

void Heap::unlink(NameRecord& record) {
  MEMLITH_ASSERT(header_->names_count > 0);
  MEMLITH_ASSERT((record.previous == 0) == (header_->names_first == offset_of(&record)));
  const auto relink = [&](std::uint64_t* link, std::uint64_t value) {
    *link = value;
    wrote(link, sizeof *link);
  };
  if (record.next != 0) relink(&reinterpret_cast<NameRecord*>(base_ + record.next)->previous, record.previous);
  relink(record.previous == 0 ? &header_->names_first : &reinterpret_cast<NameRecord*>(base_ + record.previous)->next,
         record.next);
  relink(&header_->names_count, header_->names_count - 1);
}

Status Heap::remove_name(std::string_view name) {
  MEMLITH_TRY(check_writable());
  const LockGuard structure(structure_);
  MEMLITH_TRY_ASSIGN(NameRecord* const record, record_of(name));
  unlink(*record);
  names_.erase(std::string(name));
  return free_locked(reinterpret_cast<std::byte*>(record));
}

Result<std::vector<NamedObject>> Heap::names() {
  const LockGuard structure(structure_);
  MEMLITH_TRY(load_names());
  std::vector<NamedObject> all;
  for (const auto& [name, offset] : names_) all.push_back(object_of(*reinterpret_cast<NameRecord*>(base_ + offset)));
  return all;
}

}  // namespace memlith::core
