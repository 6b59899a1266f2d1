// The format of a log on the medium. Floor: log. docs/format.md describes it; a test compares the two.
//
//   0                superblock, copy 0        (kSuperblockStrideBytes)
//   4096             superblock, copy 1
//   8192             holder note               (advisory text: who has the log open)
//   12288            zeros
//   kSlotsOffset     slot 0, slot 1, ...       (slot_bytes each)
//
// A slot is a header block and then a segment of the logical log. An LSN is an offset in the logical log, which is
// made of the segments' bytes alone: segment n holds [n * (slot_bytes - block_bytes), (n + 1) * ...). Frames start
// on block boundaries and run on from one segment into the next.
//
// All integers are little-endian; memlith runs on little-endian hosts only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace memlith::core {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::uint64_t kSuperblockMagic = 0x0a4854494c4d454dU;  // "MEMLITH\n"
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint64_t kSuperblockStrideBytes = 4096;
inline constexpr std::uint64_t kHolderOffset = 8192;
inline constexpr std::uint64_t kSlotsOffset = 16384;
inline constexpr std::size_t kClientBytes = 256;

constexpr bool is_log_block(std::uint32_t bytes) { return bytes == 64 || bytes == 512 || bytes == 4096; }

// A constant, because the log's identity is not known yet.
inline constexpr std::uint64_t kSuperblockSeed = 0x6d656d6c697468u;

// Says which segments are live, and where the log ended when it was last trimmed, opened or closed.
struct Superblock {           // docs/format.md#superblock
  std::uint64_t magic;        // kSuperblockMagic
  std::uint32_t version;      // kFormatVersion
  std::uint32_t block_bytes;  // frames start on multiples of it: 64, 512 or 4096
  std::uint64_t log_id;       // random; seeds every checksum in the log
  std::uint64_t sequence;     // rises with each write; copy number = sequence % 2
  std::uint64_t incarnation;  // rises with each opening for writing
  std::uint64_t slot_bytes;
  std::uint64_t slot_count;
  std::uint64_t tail_lsn;       // the oldest frame that may still be needed
  std::uint64_t tail_previous;  // `previous` of the frame at the tail
  std::uint64_t head_lsn;       // the log was durable up to here when this was written; if clean, the log ends here
  std::uint64_t head_previous;  // chain_value() of the last frame before head_lsn
  std::uint32_t clean;          // a LogEnd
  std::uint32_t client_bytes;   // how much of `client` the owner of the log uses
  std::uint8_t client[kClientBytes];
  std::uint64_t begun_lsn;        // head of the log when this incarnation began: valid frames from here on belong to it
  std::uint64_t slot_count_made;  // number of slots at creation; a clean close leaves at least these
  // FileBirth of the file that this was written to; in a copy of the file they are not those of the copy.
  std::uint64_t file_birth_ns;
  std::uint64_t file_number;
  std::uint8_t reserved[120];  // zeros
  std::uint64_t checksum;      // of everything before it, seeded with kSuperblockSeed
};
static_assert(sizeof(Superblock) == 512 && offsetof(Superblock, checksum) == 504);
static_assert(std::has_unique_object_representations_v<Superblock>);

// The fields that follow head_lsn.
enum class LogEnd : std::uint32_t {
  open = 0,    // any number of frames
  closed = 1,  // nothing: the log was closed cleanly
  // Nothing that counts: the frames come from an archive, and a frame counts once a superblock has it before head_lsn.
  held = 2,
};

inline constexpr std::uint32_t kSlotMagic = 0x544f4c53u;  // "SLOT"

// Says which segment the slot holds. Written together with the first frame of the segment.
struct SlotHeader {        // docs/format.md#slot-header
  std::uint32_t magic;     // kSlotMagic
  std::uint32_t reserved;  // zero
  std::uint64_t segment;
  std::uint64_t incarnation;  // of two slots that claim one segment, the later counts
  std::uint64_t checksum;     // of everything before it, seeded with log_id
};
static_assert(sizeof(SlotHeader) == 32 && std::has_unique_object_representations_v<SlotHeader>);

inline constexpr std::uint32_t kFrameMagic = 0x4d415246u;  // "FRAM"

// Followed by the payload, then zeros, then the trailer, which ends on a block boundary. The checksum of the payload is
// known only at the end and therefore stands in the trailer, so that a large frame can be written while it is being
// filled.
struct FrameHeader {          // docs/format.md#frame
  std::uint32_t magic;        // kFrameMagic
  std::uint32_t kind;         // defined by the log's owner
  std::uint64_t lsn;          // where this frame starts
  std::uint64_t previous;     // chain_value() of the frame before it
  std::uint64_t durable_lsn;  // everything before this LSN was durable when the frame was sealed
  std::uint64_t payload_bytes;
  std::uint64_t incarnation;  // distinguishes a rewritten frame from the lost one with the same payload
  std::uint64_t checksum;     // of everything before it, seeded with log_id
};
static_assert(sizeof(FrameHeader) == 56 && std::has_unique_object_representations_v<FrameHeader>);

struct FrameTrailer {              // docs/format.md#frame-trailer
  std::uint64_t payload_checksum;  // of the payload, seeded with log_id + lsn
};
static_assert(sizeof(FrameTrailer) == 8 && std::has_unique_object_representations_v<FrameTrailer>);

}  // namespace memlith::core
