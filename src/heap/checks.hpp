// The checksums of a heap's structures: what the region holds is not believed without them. Floor: heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checksum.hpp"
#include "heap/format.hpp"

namespace memlith::core {

inline std::uint64_t header_check(const HeapHeader& header) {
  const std::span<const std::byte> fields(reinterpret_cast<const std::byte*>(&header), offsetof(HeapHeader, check));
  return checksum(fields, kHeapMagic + header.table_offset);
}

inline std::uint16_t entry_check(std::uint32_t segment, const SegmentEntry& entry) {
  std::uint64_t mixed = segment + 1ull;
  mixed = mixed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(entry.kind);
  mixed = mixed * 0x9e3779b97f4a7c15u + entry.header_page;
  mixed = mixed * 0x9e3779b97f4a7c15u + entry.pages;
  return static_cast<std::uint16_t>((mixed * 0xbf58476d1ce4e5b9u) >> 48);
}

inline std::uint64_t record_bytes(const NameRecord& record) {
  return sizeof(NameRecord) + record.name_bytes + record.type_bytes;
}

// Size of a record that is followed by its two names.
inline std::uint64_t record_check(const NameRecord& record) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
  const std::uint64_t fields =
      checksum({bytes + offsetof(NameRecord, object), offsetof(NameRecord, check) - offsetof(NameRecord, object)},
               kHeapMagic);
  return checksum({bytes + sizeof record, record_bytes(record) - sizeof record}, fields);
}

}  // namespace memlith::core
