// The format of an archive's packs. Floor: archive. docs/format.md, "An archive"; a test compares the two.
//
// A pack is a header and then chunks, each compressed and checksummed by itself, the last of them empty. A segment's
// content is whole frames of the log as they are; a full copy's is records.
#pragma once

#include <cstdint>
#include <type_traits>

namespace memlith::core {

inline constexpr std::uint64_t kPackMagic = 0x0a4b4341504d454dU;  // "MEMPACK\n"
inline constexpr std::uint32_t kPackVersion = 1;
inline constexpr std::uint32_t kPackSegment = 1;
inline constexpr std::uint32_t kPackFull = 2;

struct PackHeader {              // docs/format.md#pack-header
  std::uint64_t magic;           // kPackMagic
  std::uint32_t version;         // kPackVersion
  std::uint32_t kind;            // kPackSegment or kPackFull
  std::uint64_t archive_id;      // seeds the checksums of the chunks
  std::uint64_t log_id;          // of the store
  std::uint64_t number;          // of the pack among those of its kind
  std::uint64_t run;             // packs of a run belong to one history
  std::uint64_t begin_lsn;       // segment: where its first frame starts; full copy: the tail, from which replay begins
  std::uint64_t begin_previous;  // that frame's `previous`
  std::uint64_t end_lsn;         // segment: behind its last frame; full copy: zero
  std::uint64_t end_previous;    // chain value there; full copy: zero
  std::uint64_t made_ns;         // since 1970, by the archiver's clock
  std::uint64_t first_time_ns;   // the earliest time record in a segment; else made_ns
  std::uint64_t checksum;        // of everything before it, seeded with archive_id
};
static_assert(sizeof(PackHeader) == 104 && std::has_unique_object_representations_v<PackHeader>);

inline constexpr std::uint32_t kChunkMagic = 0x4b4e4843u;  // "CHNK"
inline constexpr std::uint32_t kChunkBytesMax = 1u << 20;

struct ChunkHeader {           // docs/format.md#chunk
  std::uint32_t magic;         // kChunkMagic
  std::uint32_t index;         // 0, 1, ... in its pack
  std::uint32_t bytes;         // of the content; 0: the pack ends here
  std::uint32_t stored_bytes;  // that follow: a zstd frame, or the content itself if that is as short
  std::uint64_t checksum;      // of the 16 bytes before it and of what follows, seeded with the header's checksum
};
static_assert(sizeof(ChunkHeader) == 24 && std::has_unique_object_representations_v<ChunkHeader>);

inline constexpr std::uint32_t kCopySize = 1;   // the home file of the object has `offset` bytes; new ones are zeros
inline constexpr std::uint32_t kCopyBytes = 2;  // `bytes` bytes at `offset` of the home file, which follow
inline constexpr std::uint32_t kCopyEnd = 3;    // the copy is complete

struct CopyRecord {      // docs/format.md#copy-record
  std::uint32_t kind;    // kCopySize, kCopyBytes or kCopyEnd
  std::uint32_t object;  // 0: the directory of a folder store
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(CopyRecord) == 24 && std::has_unique_object_representations_v<CopyRecord>);

}  // namespace memlith::core
