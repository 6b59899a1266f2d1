// The format of a raw volume: a block device without a file system that holds the files of a store. Floor: device.
// docs/format.md describes it; a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checksum.hpp"
#include "base/units.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kRawMagic = 0x0a5741524c4d454dU;     // "MEMLRAW\n"
inline constexpr std::uint64_t kRawMapMagic = 0x0a50414d4c4d454dU;  // "MEMLMAP\n"
inline constexpr std::uint32_t kRawVersion = 1;
inline constexpr std::uint64_t kRawSeed = 0x6d656d6c726177U;  // "memlraw"

// Where things are on the device.
inline constexpr std::uint64_t kRawHeaderOffsets[] = {0, kPageBytes};
inline constexpr std::uint64_t kRawNoticeOffset = 2 * kPageBytes;
inline constexpr std::uint64_t kRawNoticeBytes = 2 * kPageBytes;
inline constexpr std::uint64_t kRawMapsOffset = 4 * kPageBytes;
inline constexpr std::size_t kRawMapCopies = 3;

inline constexpr std::uint64_t kRawMapBytesMin = 4 * kPageBytes;
inline constexpr std::uint64_t kRawMapBytesMax = 64 * kMiB;

// Two copies, written when the device is formatted and never after.
struct RawHeader {  // docs/format.md#device-header
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t unit_bytes;    // extents are multiples of it
  std::uint64_t device_id;     // random, never 0
  std::uint64_t device_bytes;  // the device is at least so long
  std::uint64_t map_bytes;     // room for one copy of the map
  std::uint8_t reserved[16];
  std::uint64_t checksum;  // of everything before it, seeded with kRawSeed
};
static_assert(sizeof(RawHeader) == 64 && std::has_unique_object_representations_v<RawHeader>);

// The beginning of one copy of the map. `file_count` file records follow, each with its extents behind it.
struct RawMapHeader {  // docs/format.md#map-header
  std::uint64_t magic;
  std::uint64_t device_id;
  std::uint64_t generation;
  std::uint32_t confirmed;  // 1: when this copy was written, the map was on the medium in another copy
  std::uint32_t file_count;
  std::uint64_t next_number;  // no file had this number or a higher one
  std::uint64_t content_bytes;
  std::uint64_t content_checksum;  // of what follows, seeded with device_id
  std::uint64_t checksum;          // of everything before it, seeded with device_id
};
static_assert(sizeof(RawMapHeader) == 64 && std::has_unique_object_representations_v<RawMapHeader>);

struct RawFileRecord {  // docs/format.md#file-record
  std::uint64_t number;
  std::uint64_t size_bytes;
  std::uint32_t extent_count;
  std::uint32_t reserved;  // zero
  char name[40];           // ended and filled with zeros
};
static_assert(sizeof(RawFileRecord) == 64 && std::has_unique_object_representations_v<RawFileRecord>);

struct RawExtent {  // docs/format.md#file-extent
  std::uint64_t offset;
  std::uint64_t bytes;
  friend bool operator==(const RawExtent&, const RawExtent&) = default;
  [[nodiscard]] std::uint64_t end() const { return offset + bytes; }
};
static_assert(sizeof(RawExtent) == 16 && std::has_unique_object_representations_v<RawExtent>);

// Where the first extent may begin.
inline std::uint64_t raw_data_offset(const RawHeader& header) {
  return round_up(kRawMapsOffset + kRawMapCopies * header.map_bytes, header.unit_bytes);
}

}  // namespace memlith::core
