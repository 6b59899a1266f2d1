// The content of the region of an application log. Floor: applog.
//
// The first page has three records, each with a checksum: what the region is, the shape of the ring, and the position
// of the first entry that is not consumed. The ring follows. Positions count all bytes that were ever appended;
// a position's place in the ring is its distance from the base, modulo the capacity. Entries lie one behind the other,
// each with a header, rounded up to 8 bytes, and may lie across the end of the ring. Behind the newest entry that a
// commit brought stands an end mark, in place of the next entry's header: the same commit writes both, so reading finds
// the end of the log exactly, and anything else than an entry or the mark is damage.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/units.hpp"
#include "store/format.hpp"

namespace memlith::core::applog {

inline constexpr std::uint64_t kMagic = 0x474f4c50504c4d45;  // "EMLPPLOG"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kRingOffset = kPageBytes;
inline constexpr std::uint64_t kIdentityOffset =
    kInUseHeaderBytes;  // the first bytes are the store's: the in-use header
inline constexpr std::uint64_t kShapeOffset = 64;
inline constexpr std::uint64_t kPositionOffset = 128;
inline constexpr std::uint64_t kUnit = 8;  // of positions

struct Identity {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ring_offset;
  std::uint64_t log;       // random; seeds the other checksums
  std::uint64_t store;     // the folder store's origin, which its copies share; 0: one file, which does without its log
  std::uint64_t checksum;  // of everything before it
};
struct Shape {
  std::uint64_t capacity;  // bytes of the ring
  std::uint64_t base;      // the position that lies at the ring's beginning
  std::uint64_t checksum;
};
struct Position {
  std::uint64_t at;
  std::uint64_t number;  // of the entry that begins there
  std::uint64_t checksum;
};
enum class EntryKind : std::uint32_t { entry = 0x45544e45, end = 0x2e444e45 };
struct EntryHeader {
  std::uint64_t number;
  EntryKind kind;
  std::uint32_t bytes;
  std::uint64_t checksum;  // of everything before it and of the content's checksum
};
static_assert(sizeof(EntryHeader) == 24 && std::is_trivially_copyable_v<EntryHeader>);
static_assert(kIdentityOffset + sizeof(Identity) <= kShapeOffset && kShapeOffset + sizeof(Shape) <= kPositionOffset);

inline constexpr std::uint64_t kEntryBytesMax = 0xffffffff;
constexpr std::uint64_t stored_bytes(std::uint64_t content_bytes) {
  return round_up(sizeof(EntryHeader) + content_bytes, kUnit);
}

}  // namespace memlith::core::applog
