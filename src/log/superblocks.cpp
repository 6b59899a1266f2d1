#include "log/superblocks.hpp"

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

namespace {

// Bytes from the medium that may be a Superblock.
enum class Verdict : std::uint8_t { valid, foreign, torn, other_version, nonsense };

Verdict judge(const Superblock& copy) {
  if (copy.magic != kSuperblockMagic) return Verdict::foreign;
  if (copy.checksum != header_checksum(copy, kSuperblockSeed)) return Verdict::torn;
  if (copy.version != kFormatVersion) return Verdict::other_version;
  const bool sane =
      is_log_block(copy.block_bytes) && copy.slot_bytes % 4096 == 0 && copy.slot_bytes >= 2 * copy.block_bytes &&
      copy.slot_bytes <= kSlotBytesMax && copy.slot_count_made >= 2 && copy.slot_count >= copy.slot_count_made &&
      copy.slot_count <= kSlotCountMax && copy.log_id != 0 && copy.tail_lsn % copy.block_bytes == 0 &&
      copy.tail_lsn < (1ull << 62) && copy.head_lsn % copy.block_bytes == 0 && copy.head_lsn < (1ull << 62) &&
      copy.clean <= static_cast<std::uint32_t>(LogEnd::held) && copy.head_lsn >= copy.tail_lsn &&
      copy.client_bytes <= kClientBytes && copy.incarnation < kIncarnationMax;
  return sane ? Verdict::valid : Verdict::nonsense;
}

// The fault of one copy: what was expected and what was found.
std::string describe(Verdict verdict, const Superblock& copy) {
  switch (verdict) {
    case Verdict::valid: return "it is valid";
    case Verdict::foreign:
      return fmt::format("expected memlith's magic number {:#018x}, found {:#018x}", kSuperblockMagic, copy.magic);
    case Verdict::torn:
      return fmt::format("its checksum is wrong (expected {:#018x}, found {:#018x})",
                         header_checksum(copy, kSuperblockSeed), copy.checksum);
    case Verdict::other_version: return "it has another format version";
    case Verdict::nonsense: return "its checksum is right but its fields are invalid";
  }
  return "?";
}

// The advice for a log of a version that this version of memlith does not read.
const char* advice_for_version(std::uint32_t version) {
  if (version > kFormatVersion) return "Use a later version of memlith";
  if (version == 0)
    return "No version of memlith writes format version 0: check which program made this file, or restore the store "
           "from a backup";
  return "Use the earlier version of memlith that wrote it";
}

}  // namespace

Status Superblocks::read() {
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device_.size());
  if (size < kSlotsOffset) {
    return fail(Errc::corrupt, Detail::superblock,
                "{}: {} bytes are too few for a memlith log (at least {}); it was cut short or is another kind of file",
                device_.path(), size, kSlotsOffset);
  }
  MEMLITH_TRY_ASSIGN(AlignedBuffer block, AlignedBuffer::allocate(2 * kSuperblockStrideBytes));
  MEMLITH_TRY(device_.read(0, block.span().first(2 * kSuperblockStrideBytes)));
  Superblock copies[2];
  Verdict verdicts[2];
  for (int i = 0; i < 2; ++i) {
    std::memcpy(&copies[i], block.data() + static_cast<std::uint64_t>(i) * kSuperblockStrideBytes, sizeof(Superblock));
    verdicts[i] = judge(copies[i]);
    if (verdicts[i] == Verdict::other_version) {
      return fail(Errc::incompatible, Detail::version,
                  "{}: written in format version {}; this memlith reads version {}. {}", device_.path(),
                  copies[i].version, kFormatVersion, advice_for_version(copies[i].version));
    }
  }
  const bool valid[2] = {verdicts[0] == Verdict::valid, verdicts[1] == Verdict::valid};
  if (!valid[0] && !valid[1]) {
    const bool foreign = verdicts[0] == Verdict::foreign && verdicts[1] == Verdict::foreign;
    return fail(foreign ? Errc::incompatible : Errc::corrupt, Detail::superblock,
                "{}: neither copy of the superblock is usable: at offset 0, {}; at offset {}, {}{}", device_.path(),
                describe(verdicts[0], copies[0]), kSuperblockStrideBytes, describe(verdicts[1], copies[1]),
                foreign ? "; this is not a memlith log" : "");
  }
  const int newest = valid[0] && (!valid[1] || copies[0].sequence > copies[1].sequence) ? 0 : 1;
  if (valid[0] && valid[1] && copies[0].log_id != copies[1].log_id) {
    return fail(Errc::corrupt, Detail::superblock, "{}: the two copies of the superblock belong to different logs",
                device_.path());
  }
  const LockGuard lock(mutex_);
  current_ = copies[newest];
  at_ = newest;
  copies_ = (valid[0] ? 1 : 0) + (valid[1] ? 1 : 0);
  found_end_ = static_cast<LogEnd>(current_.clean);
  if (current_.block_bytes % device_.caps().block_bytes != 0) {
    return fail(Errc::unsupported, Detail::superblock,
                "{}: its blocks are {} bytes, but this disk needs transfers of {}; copy the store to a disk like the "
                "old one",
                device_.path(), current_.block_bytes, device_.caps().block_bytes);
  }
  const std::uint64_t needed = kSlotsOffset + current_.slot_count * current_.slot_bytes;
  if (size < needed) {
    return fail(Errc::corrupt, Detail::slot, "{}: expected at least {} bytes, found {}; it was cut short",
                device_.path(), needed, size);
  }
  return kOk;
}

Status Superblocks::allocate() {
  if (block_.size() == 0) {
    MEMLITH_TRY_ASSIGN(block_, AlignedBuffer::allocate(kSuperblockStrideBytes));
  }
  return kOk;
}

ClientBytes Superblocks::client_bytes() const {
  ClientBytes client;
  std::memcpy(client.data(), current_.client, client.size());
  return client;
}

Result<std::uint64_t> Superblocks::prepare(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end) {
  MEMLITH_TRY(allocate());
  // A superblock that opening refuses is not written.
  MEMLITH_ASSERT(tail.lsn <= head.lsn);
  MEMLITH_ASSERT(current_.log_id != 0 && current_.incarnation < kIncarnationMax);
  MEMLITH_ASSERT(current_.slot_count_made <= current_.slot_count && current_.slot_count <= kSlotCountMax);
  Superblock next = current_;
  ++next.sequence;
  next.tail_lsn = tail.lsn.value;
  next.tail_previous = tail.previous;
  next.clean = static_cast<std::uint32_t>(end);
  next.head_lsn = head.lsn.value;
  next.head_previous = head.previous;
  // The same superblock says that the log is open, and in which file: no crash leaves the one without the other.
  const FileBirth birth = device_.birth();
  next.file_birth_ns = birth.ns;
  next.file_number = birth.number;
  std::memcpy(next.client, client.data(), client.size());
  next.client_bytes = kClientBytes;
  next.checksum = header_checksum(next, kSuperblockSeed);
  const std::uint64_t bytes = std::max<std::uint64_t>(next.block_bytes, sizeof next);
  std::memset(block_.data(), 0, bytes);
  std::memcpy(block_.data(), &next, sizeof next);
  return bytes;
}

Status Superblocks::write(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, prepare(tail, client, head, end));
  // ORDER copy-after-copy: one copy is intact at any time, and when this returns both are equal. If one copy is lost
  // later, the other is never older than a state that was relied on: a tail after which slots were reused, or a clean
  // mark after which frames were written. [mutant superblock_copies_at_once]
  for (int copy = 0; copy < 2; ++copy) {
    at_ = 1 - at_;
    const std::uint64_t offset = static_cast<std::uint64_t>(at_) * kSuperblockStrideBytes;
    MEMLITH_TRY(device_.write(offset, {block_.data(), bytes}));
    MEMLITH_TRY(device_.flush());
  }
  std::memcpy(&current_, block_.data(), sizeof current_);
  return kOk;
}

Status Superblocks::write_first(LogPosition beginning, const ClientBytes& client, LogEnd end) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, prepare(beginning, client, beginning, end));
  for (const std::uint64_t copy : {std::uint64_t{0}, std::uint64_t{1}}) {
    MEMLITH_TRY(device_.write(copy * kSuperblockStrideBytes, {block_.data(), bytes}));
  }
  MEMLITH_TRY(device_.flush());
  std::memcpy(&current_, block_.data(), sizeof current_);
  return kOk;
}

}  // namespace memlith::core
