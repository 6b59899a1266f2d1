// The parts of the format that a store defines: commits as frames, the directory of objects, and the store's part of
// the superblock. Floor: store. docs/format.md describes them; a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "log/format.hpp"
#include "store/objects.hpp"

namespace memlith::core {

inline constexpr std::uint32_t kFrameKindCommit = 1;
inline constexpr std::uint32_t kFrameKindTime = 2;
inline constexpr std::uint32_t kFrameKindCommon = 3;  // of a common log

// The content of a frame of kind 2: when the writer put it into the log, which the commits before it had reached by
// then.
struct TimeRecord {  // docs/format.md#time
  std::uint64_t ns;  // since 1970, by the writer's clock, which may be set
};
static_assert(sizeof(TimeRecord) == 8 && std::has_unique_object_representations_v<TimeRecord>);

// A commit: this header, `extent_count` extent records, then the bytes of the extents in their order. The payload of a
// frame is one commit after another.
struct CommitHeader {  // docs/format.md#commit
  std::uint32_t extent_count;
  std::uint32_t reserved;  // zero
};
static_assert(sizeof(CommitHeader) == 8 && std::has_unique_object_representations_v<CommitHeader>);

// A record whose offset has this bit is of a discard: pages that read as zeros, of which no bytes follow.
inline constexpr std::uint64_t kDiscardBit = 1ull << 63;

struct ExtentRecord {  // docs/format.md#extent
  std::uint32_t object;
  std::uint32_t bytes;
  std::uint64_t offset;
};
static_assert(sizeof(ExtentRecord) == 16 && std::has_unique_object_representations_v<ExtentRecord>);

// One object. In a folder store it is part of a directory entry; a one-file store keeps it in the superblock.
struct ObjectRecord {  // docs/format.md#object
  std::uint32_t id;
  std::uint32_t live;  // 1, or 0 for an empty entry
  std::uint64_t size_bytes;
  std::uint64_t address;
  std::uint64_t reserve_bytes;  // of address space, from `address` on
};
static_assert(sizeof(ObjectRecord) == 32 && std::has_unique_object_representations_v<ObjectRecord>);

inline constexpr std::uint64_t kDirectoryMagic = 0x0a5249444c4d454dU;  // "MEMLDIR\n"
inline constexpr std::uint64_t kDirectoryEntryBytes = 256;
inline constexpr std::size_t kNameBytesMax = 199;

// Entry 0 of the directory, which is the content of object 0.
struct DirectoryHeader {  // docs/format.md#directory-header
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t next_id;     // no object had this number or a higher one
  std::uint32_t live_count;  // of the entries; an entry lost to zeros would else look like one that was never there
  std::uint8_t reserved[228];
  std::uint64_t checksum;  // of everything before it, seeded with log_id
};
static_assert(sizeof(DirectoryHeader) == kDirectoryEntryBytes);
static_assert(std::has_unique_object_representations_v<DirectoryHeader>);

struct DirectoryEntry {  // docs/format.md#directory-entry
  ObjectRecord object;
  char name[216];          // ended and filled with zeros
  std::uint64_t checksum;  // of everything before it, seeded with log_id; an empty entry is all zeros
};
static_assert(sizeof(DirectoryEntry) == kDirectoryEntryBytes);
static_assert(std::has_unique_object_representations_v<DirectoryEntry>);

inline constexpr std::uint64_t kBlocksMagic = 0x0a4b4c424c4d454dU;  // "MEMLBLK\n"

// Whole blocks of homes, kept while parts of them are written. Followed by extent records, each with its bytes behind
// it.
struct BlocksHeader {  // docs/format.md#blocks-header
  std::uint64_t magic;
  std::uint64_t log_id;
  std::uint64_t tail_lsn;  // they count while the log's tail is there
  std::uint64_t content_bytes;
  std::uint64_t content_checksum;  // of what follows, seeded with log_id
  std::uint64_t checksum;          // of everything before it, seeded with log_id
};
static_assert(sizeof(BlocksHeader) == 48 && std::has_unique_object_representations_v<BlocksHeader>);

inline constexpr std::uint64_t kSumsMagic = 0x0a4d55534c4d454dU;  // "MEMLSUM\n"
inline constexpr std::uint64_t kSummedBytes = 4096;               // of a home, for each sum
inline constexpr std::size_t kSumsPerPage = 126;
// The sum of a block that nothing is known of. 0 is the sum of a block of zeros.
inline constexpr std::uint32_t kSumUnknown = ~std::uint32_t{0};

// The first 512 bytes of a sums file. Pages follow.
struct SumsHeader {  // docs/format.md#sums-header
  std::uint64_t magic;
  std::uint64_t log_id;
  std::uint32_t object;
  std::uint32_t began_as_zeros;  // 1: a page of zeros is of blocks of zeros; 0: of unknown ones
  std::uint8_t reserved[480];
  std::uint64_t checksum;  // of everything before it, seeded with log_id
};
static_assert(sizeof(SumsHeader) == 512 && std::has_unique_object_representations_v<SumsHeader>);

struct SumsPage {  // docs/format.md#sums-page
  std::uint32_t sums[kSumsPerPage];
  std::uint64_t checksum;  // of everything before it; of a page that was never written everything is zero
};
static_assert(sizeof(SumsPage) == 512 && std::has_unique_object_representations_v<SumsPage>);

// The first bytes of the file of a one-file store while commits may be in the log only, in the place of the file's own.
struct InUseHeader {     // docs/format.md#in-use-header
  std::uint64_t kind;    // one of the numbers for which is_in_use_kind()
  std::uint64_t moment;  // which commits the file holds (store/moment.hpp). Only replay writes it
};
static_assert(sizeof(InUseHeader) == 16 && std::has_unique_object_representations_v<InUseHeader>);
inline constexpr std::uint64_t kInUseHeaderBytes = sizeof(InUseHeader);
inline constexpr std::uint64_t kNoMoment = 0;  // in the place of the moment, if nothing is known of it

// The part of the program that put the in-use header. OwnBytes has the number.
enum class InUse : std::uint32_t {
  none = 0,
  guard = 1,      // Store::put_guard()
  structure = 2,  // Store::put_in_use_header(), for a heap, a kv store or an application log; its own bytes are zeros
  caller = 3,     // the caller, by its commits; never in OwnBytes
};
inline constexpr std::uint64_t kGuardInUse = 0x0a54494c4d454d89U;      // "\x89MEMLIT\n"
inline constexpr std::uint64_t kStructureInUse = 0x0a4553554d454d89U;  // "\x89MEMUSE\n"
// "\x89MEM", three letters and "\n".
constexpr bool is_in_use_kind(std::uint64_t kind) { return (kind & 0xff000000ffffffffU) == 0x0a0000004d454d89U; }
constexpr InUse in_use_of(std::uint64_t kind) {
  if (kind == kGuardInUse) return InUse::guard;
  if (kind == kStructureInUse) return InUse::structure;
  return is_in_use_kind(kind) ? InUse::caller : InUse::none;
}
// The kind of an in-use header that the store itself puts; 0 for none.
constexpr std::uint64_t kind_of(InUse own) {
  return own == InUse::guard ? kGuardInUse : own == InUse::structure ? kStructureInUse : 0;
}

// The bytes that belong in the place of the in-use header of the guard or of a structure. Part of the record of a
// one-file store, behind the object.
struct OwnBytes {  // docs/format.md#own-bytes
  InUse marked;    // which in-use header the file begins with; none: all is zero
  std::uint32_t reserved;
  std::uint8_t bytes[kInUseHeaderBytes];  // of a shorter file, as many as it has
};
static_assert(sizeof(OwnBytes) == 24 && std::has_unique_object_representations_v<OwnBytes>);

// Says that commits of the file may be in a common log only (store/common_log.hpp). Part of the record of a one-file
// store.
struct CommonMark {      // docs/format.md#common-mark
  std::uint64_t log_id;  // of the common log; 0: of none
  std::uint64_t number;  // the newest common commit that this log has
};
static_assert(sizeof(CommonMark) == 16 && std::has_unique_object_representations_v<CommonMark>);

// The payload of a frame of kind 3 is one of these behind the other, each with what it says follows it.
struct CommonRecord {  // docs/format.md#common-record
  static constexpr std::uint32_t kJoined = 1;
  static constexpr std::uint32_t kCommit = 2;
  static constexpr std::uint32_t kLeft = 3;
  std::uint64_t log_id;  // of the file's own log
  std::uint32_t kind;
  std::uint32_t extent_count;  // that follow; their bytes come behind them
  std::uint64_t number;        // of the common commit; else of the newest one
  std::uint64_t size_bytes;    // of the file from then on; all ones: as before
  std::uint64_t bytes;         // that follow, of all extents
};
static_assert(sizeof(CommonRecord) == 40 && std::has_unique_object_representations_v<CommonRecord>);

// Object 0 of a one-file store.
struct FileRecord {
  ObjectRecord object;
  OwnBytes own;
  CommonMark common;
  std::uint64_t recoveries;  // no commit changes it
};
inline constexpr Extent kCommonMarkExtent{kDirectory, offsetof(FileRecord, common), sizeof(CommonMark)};
inline constexpr Extent kOwnExtent{kDirectory, offsetof(FileRecord, own), sizeof(OwnBytes)};
inline constexpr std::uint64_t kOwnBytesOffset = kOwnExtent.offset + offsetof(OwnBytes, bytes);
static_assert(sizeof(FileRecord) == 80 && std::has_unique_object_representations_v<FileRecord>);

enum class StoreKind : std::uint32_t { folder = 1, one_file = 2 };
inline constexpr std::uint32_t kCommonLogKind = 3;  // the log is no store's

// True if the first bytes of a structure's region are its in-use header or zeros.
inline bool is_left_to_in_use_header(const std::byte* first) {
  InUseHeader header;
  std::memcpy(&header, first, sizeof header);
  return header.kind == kStructureInUse || (header.kind == 0 && header.moment == 0);
}

// True if the 8 bytes are a moment, and not one that a crash tore.
bool is_whole_moment(std::uint64_t moment);

// The store's part of the superblock.
struct StoreHeader {  // docs/format.md#store-header
  std::uint32_t kind;
  // 4096: a torn write may spoil that much around it; 0: 512, and nothing beside it
  std::uint16_t physical_block_bytes;
  std::uint16_t by_caller;  // 1: the file may begin with an in-use header of the caller; else 0 (0.1.0: or 2)
  ObjectRecord file;        // one-file store: the file as of the tail of the log
  OwnBytes own;             // the same
  // log_id of the store that this one and its copies come from; 0: unknown. What lies in an object and names its store
  // names the origin, because a copy has the objects as they are, and a log_id of its own.
  std::uint64_t origin;
  // One-file store that was closed cleanly: of the file then (Device::stamp); 0: not known.
  std::uint64_t closed_stamp;
  CommonMark common;  // one-file store: as of the tail of the log
  // One-file store: rises with each recovery from a crash, which may cut the file. Part of the moment.
  std::uint64_t recoveries;
};
static_assert(sizeof(StoreHeader) == 104 && sizeof(StoreHeader) <= kClientBytes);
static_assert(std::has_unique_object_representations_v<StoreHeader>);

}  // namespace memlith::core
