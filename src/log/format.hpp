// What a log looks like on the medium. Floor: log. Told in docs/format.md; a test holds the two together.
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

inline constexpr std::uint64_t kSuperblockSeed = 0x6d656d6c697468u;  // known before the log's identity is

// Which segments are live and where the log stood when it was last trimmed, opened or closed.
struct Superblock {           // docs/format.md#superblock
  std::uint64_t magic;        // kSuperblockMagic
  std::uint32_t version;      // kFormatVersion
  std::uint32_t block_bytes;  // frames start on multiples of it: 512 or 4096
  std::uint64_t log_id;       // random; seeds every checksum in the log
  std::uint64_t sequence;     // raised by each write; copy number = sequence % 2
  std::uint64_t incarnation;  // raised by each open that writes
  std::uint64_t slot_bytes;
  std::uint64_t slot_count;
  std::uint64_t tail_lsn;       // the oldest frame that may still be needed
  std::uint64_t tail_previous;  // what the frame at the tail carries in `previous`
  std::uint64_t head_lsn;       // up to here the log was durable when this was written; if clean, it ends here
  std::uint64_t head_previous;  // chain_value() of the last frame before head_lsn
  std::uint32_t clean;          // 1: closed in good order, nothing follows head_lsn
  std::uint32_t client_bytes;   // how much of `client` the owner of the log uses
  std::uint8_t client[kClientBytes];
  std::uint64_t begun_lsn;        // where the log stood when this incarnation began: frames from here on are of it
  std::uint64_t slot_count_made;  // how many it was made with, to which a clean close goes back
  std::uint8_t reserved[136];     // zeros
  std::uint64_t checksum;         // of everything before it, seeded with kSuperblockSeed
};
static_assert(sizeof(Superblock) == 512 && offsetof(Superblock, checksum) == 504);
static_assert(std::has_unique_object_representations_v<Superblock>);

inline constexpr std::uint32_t kSlotMagic = 0x544f4c53u;  // "SLOT"

// Says which segment the slot holds. Written together with the segment's first frame.
struct SlotHeader {        // docs/format.md#slot-header
  std::uint32_t magic;     // kSlotMagic
  std::uint32_t reserved;  // zero
  std::uint64_t segment;
  std::uint64_t incarnation;  // of two slots that claim one segment, the later wins
  std::uint64_t checksum;     // of everything before it, seeded with log_id
};
static_assert(sizeof(SlotHeader) == 32 && std::has_unique_object_representations_v<SlotHeader>);

inline constexpr std::uint32_t kFrameMagic = 0x4d415246u;  // "FRAM"

// Followed by the payload, then zeros, then the trailer, which ends on a block boundary. What is known only when the whole
// payload has passed by comes behind it, so that a large frame can be on its way to the device while it is still being made.
struct FrameHeader {          // docs/format.md#frame
  std::uint32_t magic;        // kFrameMagic
  std::uint32_t kind;         // of the owner's choice
  std::uint64_t lsn;          // where this frame starts
  std::uint64_t previous;     // chain_value() of the frame before it
  std::uint64_t durable_lsn;  // everything before this LSN was durable when the frame was sealed
  std::uint64_t payload_bytes;
  std::uint64_t incarnation;  // makes a rewritten frame differ from the lost one even if the payload is the same
  std::uint64_t checksum;     // of everything before it, seeded with log_id
};
static_assert(sizeof(FrameHeader) == 56 && std::has_unique_object_representations_v<FrameHeader>);

struct FrameTrailer {              // docs/format.md#frame-trailer
  std::uint64_t payload_checksum;  // of the payload, seeded with log_id + lsn
};
static_assert(sizeof(FrameTrailer) == 8 && std::has_unique_object_representations_v<FrameTrailer>);

}  // namespace memlith::core
