// Opening, recovery, superblock and space of the log. Appending is in append.cpp.
#include "log/log.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

#include "base/mutant.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kSlotBytesMax = 1 * kGiB;
constexpr std::uint64_t kSlotCountMax = 1u << 20;
constexpr std::uint64_t kIncarnationMax = 1ull << 62;  // the largest number that opening accepts
constexpr std::uint64_t kZeroBytes = 2 * kMiB;         // large enough for huge pages
constexpr std::uint64_t kProbeBytesLeast = 16 * kKiB;  // bytes examined of a slot that seems never used
constexpr std::uint64_t kProbeBytesMost = 64 * kKiB;
constexpr std::uint32_t kSlotReads = 64;  // at a time
constexpr std::uint64_t kNoSegment = ~0ull;

Result<AlignedBuffer> zeros_for(std::uint64_t begin, std::uint64_t end) {
  MEMLITH_TRY_ASSIGN(AlignedBuffer zeros, AlignedBuffer::allocate(std::min(kZeroBytes, end - begin)));
  std::memset(zeros.data(), 0, zeros.size());
  return zeros;
}

// Writes the zeros instead of reserving space, so that a later flush changes no metadata of the file system.
Status write_zeros(Device& device, std::uint64_t begin, std::uint64_t end, const AlignedBuffer& zeros) {
  for (std::uint64_t offset = begin; offset < end;) {
    const std::uint64_t step = std::min(zeros.size(), end - offset);
    MEMLITH_TRY(device.write(offset, {zeros.data(), step}));
    offset += step;
  }
  return kOk;
}

// Bytes from the medium that may be a Superblock.
enum class Verdict : std::uint8_t { valid, foreign, torn, other_version, nonsense };

Verdict judge(const Superblock& copy) {
  if (copy.magic != kSuperblockMagic) return Verdict::foreign;
  const bool unchecked = MEMLITH_MUTANT(skip_superblock_checksum);
  if (copy.checksum != header_checksum(copy, kSuperblockSeed) && !unchecked) return Verdict::torn;
  if (copy.version != kFormatVersion) return Verdict::other_version;
  const bool sane = (copy.block_bytes == 512 || copy.block_bytes == 4096) && copy.slot_bytes % 4096 == 0 &&
                    copy.slot_bytes >= 2 * copy.block_bytes && copy.slot_bytes <= kSlotBytesMax &&
                    copy.slot_count_made >= 2 && copy.slot_count >= copy.slot_count_made &&
                    copy.slot_count <= kSlotCountMax && copy.log_id != 0 && copy.tail_lsn % copy.block_bytes == 0 &&
                    copy.tail_lsn < (1ull << 62) && copy.head_lsn % copy.block_bytes == 0 &&
                    copy.head_lsn < (1ull << 62) && copy.clean <= 1 && copy.head_lsn >= copy.tail_lsn &&
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

// ---- format and open -------------------------------------------------------------------------------------------

Status Log::format(Device& device, const LogFormat& format, const ClientBytes& client, std::uint64_t log_id) {
  if ((format.block_bytes != 512 && format.block_bytes != 4096) ||
      format.block_bytes % device.caps().block_bytes != 0) {
    return fail(Errc::invalid, Detail::argument, "{}: a log block of {} bytes does not suit this device", device.path(),
                format.block_bytes);
  }
  if (format.slot_bytes % 4096 != 0 || format.slot_bytes < 2 * std::uint64_t{format.block_bytes} ||
      format.slot_bytes > kSlotBytesMax || format.slot_count < 2 || format.slot_count > kSlotCountMax) {
    return fail(Errc::invalid, Detail::argument,
                "{}: the log cannot have {} slots of {} bytes; slots are multiples of 4096 up to 1 GiB, and at least 2",
                device.path(), format.slot_count, format.slot_bytes);
  }
  const std::uint64_t total = kSlotsOffset + format.slot_count * format.slot_bytes;
  MEMLITH_TRY(device.reserve(total));
  MEMLITH_TRY_ASSIGN(const AlignedBuffer zeros, zeros_for(0, total));
  MEMLITH_TRY(write_zeros(device, 0, total, zeros));
  Log log(device, {});
  log.superblock_.magic = kSuperblockMagic;
  log.superblock_.version = kFormatVersion;
  log.superblock_.block_bytes = format.block_bytes;
  log.superblock_.log_id = log_id;
  log.superblock_.slot_bytes = format.slot_bytes;
  log.superblock_.slot_count = log.superblock_.slot_count_made = format.slot_count;
  const LogPosition beginning{Lsn{0}, log_id};  // the first frame's `previous` is the log's identity
  // Not marked clean: the first opening cannot rely on the log's name being durable.
  return log.write_superblock(beginning, client, beginning, false);
}

Result<std::unique_ptr<Log>> Log::open(Device& device, const LogOptions& options) {
  auto log = std::unique_ptr<Log>(new Log(device, options));
  MEMLITH_TRY(log->read_superblock());
  MEMLITH_TRY(log->read_slots());
  return log;
}

Log::~Log() = default;

Status Log::read_superblock() {
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
  superblock_ = copies[newest];
  superblock_at_ = newest;
  superblock_copies_ = (valid[0] ? 1 : 0) + (valid[1] ? 1 : 0);
  superblocks_agree_ = valid[0] && valid[1] && std::memcmp(&copies[0], &copies[1], sizeof copies[0]) == 0;
  found_clean_ = superblock_.clean == 1;
  geometry_ = {superblock_.block_bytes, superblock_.slot_bytes};
  if (superblock_.block_bytes % device_.caps().block_bytes != 0) {
    return fail(Errc::unsupported, Detail::superblock,
                "{}: its blocks are {} bytes, but this disk needs transfers of {}; copy the store to a disk like the "
                "old one",
                device_.path(), superblock_.block_bytes, device_.caps().block_bytes);
  }
  const std::uint64_t needed = kSlotsOffset + superblock_.slot_count * superblock_.slot_bytes;
  if (size < needed) {
    return fail(Errc::corrupt, Detail::slot, "{}: expected at least {} bytes, found {}; it was cut short",
                device_.path(), needed, size);
  }
  return kOk;
}

Status Log::read_slots() {
  tail_ = {Lsn{superblock_.tail_lsn}, superblock_.tail_previous};
  log_id_ = superblock_.log_id;
  slot_count_ = superblock_.slot_count;
  const auto count = static_cast<std::uint32_t>(superblock_.slot_count);
  if (options_.bytes_max != 0) options_.slot_count_max = options_.bytes_max / superblock_.slot_bytes;
  options_.slot_count_max = std::clamp<std::uint64_t>(options_.slot_count_max, count, kSlotCountMax);

  // The latest claim on each segment that may still matter.
  struct Claim {
    std::uint32_t slot;
    std::uint64_t incarnation;
  };
  std::map<std::uint64_t, Claim> claims;
  const std::uint64_t tail_segment = geometry_.segment_of(tail_.lsn);
  claims_.assign(count, kNoSegment);
  headers_.resize(count);
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  MEMLITH_TRY(read_in_slots(all, 0, geometry_.block_bytes,
                            [this](std::uint32_t slot, std::span<const std::byte> block) {
                              std::memcpy(&headers_[slot], block.data(), sizeof(SlotHeader));
                            }));
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    const SlotHeader& header = headers_[slot];
    if (header.magic != kSlotMagic || header.checksum != header_checksum(header, log_id_)) continue;
    if (header.incarnation >= kIncarnationMax) continue;
    incarnation_seen_ = std::max(incarnation_seen_, header.incarnation);
    if (header.segment < tail_segment) continue;
    claims_[slot] = header.segment;
    const auto [found, fresh] = claims.try_emplace(header.segment, Claim{slot, header.incarnation});
    if (MEMLITH_MUTANT(first_claim_counts)) continue;
    if (!fresh && header.incarnation > found->second.incarnation) found->second = {slot, header.incarnation};
  }
  slots_.reset(tail_segment, count);
  for (std::uint64_t segment = tail_segment; claims.contains(segment) && slots_.end() - slots_.first() < count;
       ++segment) {
    slots_.append(claims.at(segment).slot);
  }
  return kOk;
}

// Reads `bytes` of each of these slots, from `begin` on, many at a time: a log of 1 GiB may have thousands of slots.
Status Log::read_in_slots(std::span<const std::uint32_t> slots, std::uint64_t begin, std::uint64_t bytes,
                          const std::function<void(std::uint32_t slot, std::span<const std::byte>)>& visit) {
  const auto depth = static_cast<std::uint32_t>(std::min<std::uint64_t>(slots.size(), kSlotReads));
  if (depth == 0) return kOk;
  MEMLITH_TRY_ASSIGN(AlignedBuffer memory, AlignedBuffer::allocate(depth * bytes));
  const auto place = [&](std::uint64_t nth) { return memory.span().subspan(nth % depth * bytes, bytes); };
  if (depth <= 4) {  // not worth creating a queue
    for (std::uint64_t i = 0; i < slots.size(); ++i) {
      MEMLITH_TRY(device_.read(geometry_.slot_offset(slots[i]) + begin, place(i)));
      visit(slots[i], place(i));
    }
    return kOk;
  }
  const std::unique_ptr<IoQueue> queue = device_.make_queue(depth);
  queue->register_memory(memory.span());
  std::uint64_t started = 0;
  for (std::uint64_t arrived = 0; arrived < slots.size(); ++arrived) {
    for (; started < slots.size() && started - arrived < depth; ++started) {
      const auto index = static_cast<std::uint32_t>(started % depth);
      MEMLITH_TRY(queue->read(index, geometry_.slot_offset(slots[started]) + begin, place(started)));
    }
    MEMLITH_TRY(queue->wait(static_cast<std::uint32_t>(arrived % depth)));
    visit(slots[arrived], place(arrived));
  }
  return kOk;
}

// ---- recovery --------------------------------------------------------------------------------------------------

Status Log::recover(const std::function<Status(const Frame&)>& visit) {
  LogPosition end = tail_;
  const LogPosition told{Lsn{superblock_.head_lsn}, superblock_.head_previous};
  proven_ = told.lsn;
  if (found_clean_ && told.lsn == tail_.lsn) {
    end = told;
  } else {
    LogReader reader(device_, geometry_, slots_, log_id_, tail_, found_clean_ ? told.lsn : Lsn{~0ull},
                     options_.recovery_window_bytes, Lsn{superblock_.begun_lsn}, superblock_.incarnation);
    for (;;) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
      if (!frame.has_value()) break;
      if (frame->incarnation < kIncarnationMax) incarnation_seen_ = std::max(incarnation_seen_, frame->incarnation);
      proven_ = std::max(proven_, frame->durable);
      MEMLITH_TRY(visit(*frame));
    }
    end = reader.position();
    if (!MEMLITH_MUTANT(no_check_for_damage)) {
      if (end.lsn < told.lsn || (end.lsn == told.lsn && end.previous != told.previous)) {
        return fail(Errc::corrupt, Detail::frame,
                    "{}: the log is damaged at LSN {}: {}, but its superblock says that everything up to LSN {} was "
                    "durable{}. Commits from there on are lost; `memlith verify` reports what is left",
                    device_.path(), end.lsn.value, end.lsn < told.lsn ? reader.why() : "another frame stands before it",
                    told.lsn.value, found_clean_ ? " when it was closed" : "");
      }
      if (!found_clean_) MEMLITH_TRY(check_for_damage(end, reader.why()));
    }
  }
  recovered_ = end;
  head_ = end.lsn;
  durable_position_ = end;
  return kOk;
}

// A torn end and damage in the middle look alike at the place itself. They differ in what follows: every frame says how
// far the log was durable when it was sealed, so a later frame whose durable LSN lies beyond this place proves that the
// bytes here had been acknowledged.
Status Log::check_for_damage(LogPosition end, const char* why) {
  MEMLITH_TRY_ASSIGN(AlignedBuffer buffer, AlignedBuffer::allocate(std::min(geometry_.slot_bytes, kZeroBytes)));
  const std::uint32_t block_bytes = geometry_.block_bytes;
  const std::uint64_t end_segment = geometry_.segment_of(end.lsn);
  // The slot was never used if the bytes after the header are zeros, too: a misdirected write of zeros for new slots
  // may have overwritten this header, but would have overwritten more than the header. (Not all of the slot is read:
  // opening a large log that is hardly used would take long.)
  std::vector<std::uint32_t> blank;
  for (std::uint32_t slot = 0; slot < superblock_.slot_count; ++slot) {
    if (headers_[slot].magic == 0) blank.push_back(slot);
  }
  std::vector<bool> unused(superblock_.slot_count, false);
  const std::uint64_t probe_bytes =
      std::min(std::clamp(geometry_.slot_bytes / 16, kProbeBytesLeast, kProbeBytesMost), geometry_.segment_bytes());
  MEMLITH_TRY(read_in_slots(blank, block_bytes, probe_bytes,
                            [&unused](std::uint32_t slot, std::span<const std::byte> bytes) {
                              unused[slot] = std::all_of(bytes.begin(), bytes.end(),
                                                         [](std::byte b) { return b == std::byte{0}; });
                            }));
  for (std::uint32_t slot = 0; slot < superblock_.slot_count; ++slot) {
    if (unused[slot]) continue;
    const std::uint64_t slot_offset = geometry_.slot_offset(slot);
    const SlotHeader& claim = headers_[slot];
    std::uint64_t skip = 0;
    if (claim.magic == kSlotMagic && claim.checksum == header_checksum(claim, log_id_)) {
      if (claim.segment < end_segment) continue;
      if (claim.segment == end_segment) skip = geometry_.offset_in_segment(end.lsn);
    }
    for (std::uint64_t at = skip; at < geometry_.segment_bytes();) {
      const std::uint64_t step = std::min(buffer.size(), geometry_.segment_bytes() - at);
      MEMLITH_TRY(device_.read(slot_offset + block_bytes + at, buffer.span().first(step)));
      for (std::uint64_t block = 0; block < step; block += block_bytes) {
        FrameHeader header;
        std::memcpy(&header, buffer.data() + block, sizeof header);
        if (header.magic != kFrameMagic || header.lsn % geometry_.segment_bytes() != at + block) continue;
        if (header.durable_lsn <= proven_.value || header.lsn < end.lsn.value) continue;
        if (header.checksum != header_checksum(header, log_id_)) continue;
        // Frames that were in flight behind a lost frame also report a durable LSN.
        proven_ = std::min(Lsn{header.durable_lsn}, end.lsn);
        if (header.durable_lsn <= end.lsn.value) continue;
        return fail(Errc::corrupt, Detail::frame,
                    "{}: the log is damaged at LSN {}: {}, but the frame at LSN {} (file offset {}) shows that "
                    "everything up to LSN {} had been durable. Commits from there on are lost; `memlith verify` "
                    "reports what is left",
                    device_.path(), end.lsn.value, why, header.lsn, slot_offset + block_bytes + at + block,
                    header.durable_lsn);
      }
      at += step;
    }
  }
  return kOk;
}

// ---- frames that nothing proves --------------------------------------------------------------------------------

// A failed flush may leave bytes in the page cache that the medium does not have, marked clean (Linux does that): reads
// return them, and later flushes return ok without writing them. Therefore the frames that were read are trusted only
// as far as the superblock or a later frame reports them as durable. The rest, which is short, is written again before
// anything relies on it.
//
// Not in place: the newest of these frames may have been acknowledged, and a power cut can damage bytes that are being
// written. A free slot takes the segment over, with a later incarnation than the old slot's.
Status Log::secure() {
  if (proven_ >= recovered_.lsn || MEMLITH_MUTANT(unproven_frames_believed)) return kOk;
  if (!superblocks_agree_ && !MEMLITH_MUTANT(frames_moved_under_old_tail)) {
    // ORDER tail-before-move: if the two copies differ, the newer may be in the page cache only. Slots from the older
    // copy's tail on must not be overwritten. [mutant frames_moved_under_old_tail]
    MEMLITH_TRY(device_.flush());
    const std::lock_guard lock(superblock_mutex_);
    MEMLITH_TRY(write_superblock(tail_, client_bytes(), {Lsn{superblock_.head_lsn}, superblock_.head_previous}, false));
  }
  const std::uint64_t first = geometry_.segment_of(proven_);
  const std::uint64_t end = geometry_.segment_of(recovered_.lsn.advance(geometry_.segment_bytes() - 1));
  MEMLITH_TRY_ASSIGN(const std::vector<std::uint32_t> targets, slots_to_move_to(first, end));
  MEMLITH_TRY_ASSIGN(AlignedBuffer buffer, AlignedBuffer::allocate(std::min(geometry_.slot_bytes, kZeroBytes)));
  for (std::uint64_t segment = first; segment < end; ++segment) {
    MEMLITH_TRY(copy_segment(segment, targets[segment - first], buffer));
  }
  // ORDER copy-before-claim: a slot must have all of the segment when it claims it. [mutant moved_frames_claimed_early]
  if (!MEMLITH_MUTANT(moved_frames_claimed_early)) MEMLITH_TRY(device_.flush());
  incarnation_ = std::max(superblock_.incarnation, incarnation_seen_) + 1;
  for (std::uint64_t segment = first; segment < end; ++segment) {
    const std::uint32_t slot = targets[segment - first];
    fill_slot_header(buffer, segment);
    MEMLITH_TRY(device_.write(geometry_.slot_offset(slot), buffer.span().first(geometry_.block_bytes)));
    slots_.move(segment, slot);
  }
  MEMLITH_TRY(device_.flush());
  incarnation_seen_ = incarnation_;
  proven_ = recovered_.lsn;
  return kOk;
}

// A slot is free if it claims no live segment, even if another slot has a later claim: the later claim may not be on
// the medium.
Result<std::vector<std::uint32_t>> Log::slots_to_move_to(std::uint64_t first_segment, std::uint64_t end_segment) {
  const std::uint64_t needed = end_segment - first_segment;
  std::vector<std::uint32_t> targets;
  if (MEMLITH_MUTANT(frames_moved_in_place)) {
    for (std::uint64_t segment = first_segment; segment < end_segment; ++segment) targets.push_back(slots_.at(segment));
    return targets;
  }
  for (std::uint32_t slot = 0; slot < claims_.size() && targets.size() < needed; ++slot) {
    if (claims_[slot] == kNoSegment || claims_[slot] >= end_segment) targets.push_back(slot);
  }
  if (targets.size() == needed) return targets;
  const std::uint64_t more = needed - targets.size();
  {
    const std::lock_guard lock(superblock_mutex_);
    const Status added = add_slots(tail_, {Lsn{superblock_.head_lsn}, superblock_.head_previous}, more);
    if (added.category == Errc::no_space) {
      return fail(Errc::no_space, added.detail,
                  "{}: the log is full, and recovery has to write its newest frames once more; free {} bytes on the "
                  "disk and open the store again. Nothing is lost",
                  device_.path(), more * geometry_.slot_bytes);
    }
    MEMLITH_TRY(added);
  }
  for (std::uint64_t i = 0; i < more; ++i) targets.push_back(static_cast<std::uint32_t>(slot_count_++));
  claims_.resize(slot_count_, kNoSegment);
  options_.slot_count_max = std::max(options_.slot_count_max, slot_count_);
  return targets;
}

// Copies the live bytes of the segment to the same places in another slot, followed by a block of zeros after the
// newest frame.
Status Log::copy_segment(std::uint64_t segment, std::uint32_t slot, const AlignedBuffer& buffer) {
  const std::uint64_t begin = segment * geometry_.segment_bytes();
  const std::uint64_t from = std::max(begin, tail_.lsn.value) - begin;
  const std::uint64_t until = std::min(begin + geometry_.segment_bytes(), recovered_.lsn.value) - begin;
  const std::uint64_t source = geometry_.slot_offset(slots_.at(segment)) + geometry_.block_bytes;
  const std::uint64_t target = geometry_.slot_offset(slot) + geometry_.block_bytes;
  for (std::uint64_t at = from; at < until;) {
    const auto piece = buffer.span().first(std::min(buffer.size(), until - at));
    MEMLITH_TRY(device_.read(source + at, piece));
    MEMLITH_TRY(device_.write(target + at, piece));
    at += piece.size();
  }
  if (until == geometry_.segment_bytes() || MEMLITH_MUTANT(moved_frames_not_ended)) return kOk;
  // ORDER end-before-claim: an earlier, interrupted recovery may have copied more frames to this slot than survived the
  // crash. Without the zeros, these frames would follow the moved ones and come back. [mutant moved_frames_not_ended]
  std::memset(buffer.data(), 0, geometry_.block_bytes);
  return device_.write(target + until, buffer.span().first(geometry_.block_bytes));
}

Status Log::start(LogPosition tail, const ClientBytes& client) {
  MEMLITH_ASSERT(!started_ && tail.lsn <= recovered_.lsn);
  MEMLITH_TRY(secure());
  MEMLITH_TRY_ASSIGN(superblock_block_, AlignedBuffer::allocate(kSuperblockStrideBytes));
  begun_lsn_ = recovered_.lsn;
  superblock_.begun_lsn = begun_lsn_.value;
  // Later than all existing incarnations. If the newest superblock is damaged, the other copy does not know of the last
  // opening, whose slots and frames must not be taken for those of this opening. [log/forgotten_incarnation]
  superblock_.incarnation = std::max(superblock_.incarnation, incarnation_seen_);
  incarnation_ = superblock_.incarnation += MEMLITH_MUTANT(constant_incarnation) ? 0 : 1;
  MEMLITH_TRY(allocate_buffers());
  // ORDER copy-after-kill: the newest copy may have been written by a program that was killed before the flush. The
  // other copy must not be written until the newest one is on the medium. [mutant start_over_unflushed_copy]
  if (!MEMLITH_MUTANT(start_over_unflushed_copy)) MEMLITH_TRY(device_.flush());
  {
    const std::lock_guard lock(superblock_mutex_);
    MEMLITH_TRY(write_superblock(tail, client, recovered_, false));
  }
  const Lock lock(mutex_);
  claims_ = {};
  // The segments that hold [tail, head) are live; segments mapped beyond the head are stale.
  const std::uint64_t first = geometry_.segment_of(tail.lsn);
  const std::uint64_t end = geometry_.segment_of(head_) + (geometry_.offset_in_segment(head_) > 0 ? 1 : 0);
  SlotMap live;
  live.reset(first, static_cast<std::uint32_t>(superblock_.slot_count));
  std::vector<bool> taken(superblock_.slot_count, false);
  for (std::uint64_t segment = first; segment < end; ++segment) {
    const std::uint32_t slot = slots_.at(segment);
    if (slot == SlotMap::kNone) {
      return fail(Errc::corrupt, Detail::slot, "{}: no slot holds segment {}, in which the log continues at LSN {}",
                  device_.path(), segment, head_.value);
    }
    live.append(slot);
    taken[slot] = true;
  }
  slots_ = std::move(live);
  headers_ = {};
  free_slots_.reserve(superblock_.slot_count);
  for (auto slot = static_cast<std::uint32_t>(superblock_.slot_count); slot-- > 0;) {
    if (!taken[slot]) free_slots_.push_back(slot);
  }
  tail_ = tail;
  last_checksum_ = recovered_.previous;
  batch(open_sequence_).begin = head_;
  durable_lsn_.store(recovered_.lsn.value, std::memory_order_release);
  started_ = true;
  return kOk;
}

// ---- superblock and space --------------------------------------------------------------------------------------

ClientBytes Log::client_bytes() const {
  ClientBytes client;
  std::memcpy(client.data(), superblock_.client, client.size());
  return client;
}

Status Log::write_superblock(LogPosition tail, const ClientBytes& client, LogPosition head, bool clean) {
  if (superblock_block_.size() == 0) {
    MEMLITH_TRY_ASSIGN(superblock_block_, AlignedBuffer::allocate(kSuperblockStrideBytes));
  }
  Superblock next = superblock_;
  ++next.sequence;
  next.tail_lsn = tail.lsn.value;
  next.tail_previous = tail.previous;
  next.clean = clean ? 1 : 0;
  next.head_lsn = head.lsn.value;
  next.head_previous = head.previous;
  std::memcpy(next.client, client.data(), client.size());
  next.client_bytes = kClientBytes;
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(tail_too_far) && tail.lsn.value > 0) next.tail_lsn += next.block_bytes;
#endif
  next.checksum = header_checksum(next, kSuperblockSeed);
  std::memset(superblock_block_.data(), 0, next.block_bytes);
  std::memcpy(superblock_block_.data(), &next, sizeof next);
  // ORDER copy-after-copy: one copy is intact at any time, and when this returns both are equal. If one copy is lost
  // later, the other is never older than a state that was relied on: a tail after which slots were reused, or a clean
  // mark after which frames were written. [mutant superblock_copies_at_once]
  for (int copy = 0; copy < (MEMLITH_MUTANT(superblock_copies_in_turn) ? 1 : 2); ++copy) {
    if (!MEMLITH_MUTANT(one_superblock_copy)) superblock_at_ = 1 - superblock_at_;
    const std::uint64_t offset = static_cast<std::uint64_t>(superblock_at_) * kSuperblockStrideBytes;
    MEMLITH_TRY(device_.write(offset, {superblock_block_.data(), next.block_bytes}));
    MEMLITH_TRY(device_.flush());
  }
  superblock_ = next;
  return kOk;
}

Status Log::trim(LogPosition tail, const ClientBytes& client) {
  if (poisoned()) return failure_for_late_comer();
  Spare spare;
  {
    // Held until the tail has moved in memory, too: growth writes a superblock with that tail. [schedule/trim-growth]
    std::unique_lock superblock_lock(superblock_mutex_);
    // ORDER tail-before-reuse: slots are reused only when the new tail is durable. Otherwise, after a crash, the old
    // tail could point into overwritten frames. [mutant trim_not_written]
    const Status status = MEMLITH_MUTANT(trim_not_written) ? kOk : write_superblock(tail, client, durable(), false);
    if (!status.ok()) {
      poison(status);
      return status;
    }
    if (MEMLITH_MUTANT(tail_moved_outside_lock)) superblock_lock.unlock();
    const Lock lock(mutex_);
    MEMLITH_ASSERT(tail_.lsn <= tail.lsn && tail.lsn <= durable_position_.lsn);
    tail_ = tail;
    release_slots_before(geometry_.segment_of(tail.lsn));
#ifdef MEMLITH_MUTANTS
    if (MEMLITH_MUTANT(trim_frees_live_slot) && slots_.first() < slots_.end()) {
      free_slots_.push_back(slots_.at(slots_.first()));
    }
#endif
    change_space();
    spare = take_spare();
  }
  counters_.trims.fetch_add(1, std::memory_order_relaxed);
  space_word_.notify_all();
  return kOk;
}

void Log::release_slots_before(std::uint64_t segment) {
  while (slots_.first() < std::min(segment, slots_.end())) free_slots_.push_back(slots_.drop_first());
  // The tail may be the very start of a segment that has no frame yet.
  if (slots_.first() == slots_.end() && slots_.first() < segment) slots_.restart(segment);
}

Status Log::close(const ClientBytes& client) {
  if (poisoned()) return failure_for_late_comer();
  if (!started_) return kOk;
  MEMLITH_TRY(sync(head()));
  LogPosition from = tail();
  LogPosition end = durable();
  const std::lock_guard lock(superblock_mutex_);
  const bool grown = superblock_.slot_count > superblock_.slot_count_made && from == end;
  const std::uint64_t bytes = kSlotsOffset + superblock_.slot_count_made * geometry_.slot_bytes;
  if (grown) {
    // The slots that grow() added are removed. The log continues in a new segment, which may lie in any slot.
    if (!MEMLITH_MUTANT(cut_log_goes_on_in_lost_slot)) {
      const std::uint64_t segments = geometry_.segment_of(end.lsn.advance(geometry_.segment_bytes() - 1));
      end.lsn = Lsn{segments * geometry_.segment_bytes()};
    }
    from = end;
    superblock_.slot_count = superblock_.slot_count_made;
  }
  if (grown && MEMLITH_MUTANT(log_cut_early)) MEMLITH_TRY(device_.truncate(bytes));
  const Status status = write_superblock(from, client, end, true);
  if (!status.ok()) poison(status);
  if (!status.ok() || !grown) return status;
  // ORDER count-before-cut: no superblock counts the slots any more when they are cut off. If they stay after all, they
  // do no harm. [mutant log_cut_early]
  return device_.truncate(bytes);
}

// How many slots have to be mapped for everything up to `end`.
std::uint64_t Log::slots_needed(Lsn end) const {
  const std::uint64_t wanted_end = (end.value + geometry_.segment_bytes() - 1) / geometry_.segment_bytes();
  return wanted_end - std::min(wanted_end, slots_.end());
}

// Makes more slots free, enough for everything up to `end`. Releases the lock.
Status Log::make_space(Lock& lock, Lsn end) {
  const std::uint64_t needed = slots_needed(end);
  // What would be free if everything before the head were trimmed.
  const std::uint64_t free_at_best = slot_count_ - (slots_.end() - std::min(slots_.end(), geometry_.segment_of(head_)));
  if (needed > free_at_best) {
    const std::uint64_t more = needed - free_at_best;
    if (slot_count_ + more > options_.slot_count_max) {
      return fail(Errc::full, Detail::frame,
                  "{}: a transaction of {} bytes does not fit the log, whose limit is {} bytes; nothing was written. "
                  "Split "
                  "it, or open the store with a larger log limit",
                  device_.path(), bytes_between(head_, end), options_.slot_count_max * geometry_.segment_bytes());
    }
    lock.unlock();
    const Status status = grow(more);
    lock.lock();
    return status;
  }
  // The log is full: frames in memory are written to the medium, then the owner is asked to trim.
  const std::uint32_t word = space_word_.load(std::memory_order_acquire);
  const std::uint32_t refusals = refusals_;
  const Lsn head = head_;
  lock.unlock();
  Status status = sync(head);
  if (status.ok()) {
    const Lock again(mutex_);
    if (space_word_.load(std::memory_order_relaxed) == word) ++space_waiters_;
  }
  if (status.ok())
    status = relieve_ ? relieve_() : fail(Errc::full, Detail::frame, "{}: the log is full", device_.path());
  if (status.ok()) await(space_word_, word);
  lock.lock();
  MEMLITH_TRY(status);
  return refusals_ != refusals ? refusal_.tell() : kOk;
}

void Log::refuse_room(Status cause) {
  {
    const Lock lock(mutex_);
    refusal_.keep(cause);
    ++refusals_;
    if (MEMLITH_MUTANT(refusal_wakes_nobody)) {
      space_waiters_ = 0;
    } else {
      change_space();
    }
  }
  space_word_.notify_all();
}

// Adds slots to the file. After any failure except `io` and `poisoned`, nothing has changed.
Status Log::add_slots(LogPosition tail, LogPosition head, std::uint64_t more) {
  const std::uint64_t begin = kSlotsOffset + superblock_.slot_count * geometry_.slot_bytes;
  const std::uint64_t end = begin + more * geometry_.slot_bytes;
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(growth_not_durable)) {
    superblock_.slot_count += more;
    MEMLITH_TRY(write_superblock(tail, client_bytes(), head, false));
    superblock_.slot_count -= more;
  }
#endif
  MEMLITH_TRY_ASSIGN(const AlignedBuffer zeros, zeros_for(begin, end));
  MEMLITH_TRY(device_.reserve(end));
  // ORDER growth-before-name: the new slots are zeros on the medium before the superblock counts them.
  // [mutant growth_not_durable]
  MEMLITH_TRY(write_zeros(device_, begin, end, zeros));
  MEMLITH_TRY(device_.flush());
  superblock_.slot_count += more;
  return write_superblock(tail, client_bytes(), head, false);
}

Status Log::grow(std::uint64_t more_slots) {
  if (poisoned()) return failure_for_late_comer();
#ifdef MEMLITH_MUTANTS
  const std::uint64_t count_before = superblock_.slot_count;
#endif
  const std::lock_guard superblock_lock(superblock_mutex_);
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(growth_sized_outside_lock)) superblock_.slot_count = count_before;
#endif
  const std::uint64_t old_count = superblock_.slot_count;
  // Another thread grew the log meanwhile; begin() checks again.
  if (old_count + more_slots > options_.slot_count_max) return kOk;
  // ORDER room-before-growth: memory for the new slots is allocated before the superblock counts them, so that it
  // cannot be lacking afterwards. [test OutOfMemoryStore.ALogGrowsOrNot]
  try {
    const Lock lock(mutex_);
    slots_.grow(static_cast<std::uint32_t>(old_count + more_slots));
    free_slots_.reserve(old_count + more_slots);
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::slot, "{}: out of memory for a log of {} slots; nothing was written",
                device_.path(), old_count + more_slots);
  }
  if (const Status status = add_slots(tail(), durable(), more_slots); !status.ok()) {
    if (status.category == Errc::io || status.category == Errc::poisoned) poison(status);
    return status;
  }
  {
    const Lock lock(mutex_);
    slot_count_ = old_count + more_slots;
    for (std::uint64_t slot = old_count; slot < old_count + more_slots; ++slot) {
      free_slots_.push_back(static_cast<std::uint32_t>(slot));
    }
    change_space();
  }
  space_word_.notify_all();
  return kOk;
}

// ---- state -----------------------------------------------------------------------------------------------------

// Committers that wait do not know whether their bytes are durable, whatever failed. They get `io`, even if the device
// refused because of a failure that another thread has not reported yet.
void Log::keep_failure(Status cause) {
  cause.category = Errc::io;
  failure_.keep(cause);
  failed_.store(true, std::memory_order_release);
}

void Log::poison(Status cause) {
  const KeptSentence why;  // whatever the notified callers do
  {
    const Lock lock(mutex_);
    if (failure_.ok()) keep_failure(cause);
    for (const auto& each : batches_) each->word.fetch_add(1, std::memory_order_release);
    change_space();
  }
  for (const auto& each : batches_) each->word.notify_all();
  space_word_.notify_all();
  if (on_durable_) on_durable_();
}

Status Log::failure() const { return poisoned() ? failure_for_late_comer() : kOk; }

Status Log::failure_for_late_comer() const {
  return fail(Errc::poisoned, Detail::frame,
              "{}: nothing more is made durable, because an earlier operation failed ({}). Close and reopen to get "
              "back the "
              "last durable state",
              device_.path(), failure_.text());
}

LogReader Log::reader(LogPosition from, Lsn limit) const {
  const Lock lock(mutex_);
  return {device_, geometry_, slots_, log_id_, from, limit, options_.window_bytes, begun_lsn_, incarnation_};
}

LogPosition Log::tail() const {
  const Lock lock(mutex_);
  return tail_;
}

LogPosition Log::durable() const {
  const Lock lock(mutex_);
#ifdef MEMLITH_MUTANTS
  if (const std::uint32_t sealed = sealed_sequence_.load();
      MEMLITH_MUTANT(checkpoint_beyond_durable) && sealed > done_sequence_.load()) {
    const Batch& last = *batches_[(sealed - 1) % batches_.size()];
    return {last.begin.advance(last.used), last.after_checksum};
  }
#endif
  return durable_position_;
}

bool Log::room_is_waited_for() const {
  const Lock lock(mutex_);
  return space_waiters_ > 0;
}

Lsn Log::head() const {
  const Lock lock(mutex_);
  return head_;
}

std::uint64_t Log::mapped_bytes() const {
  const Lock lock(mutex_);
  const Lsn end{slots_.end() * geometry_.segment_bytes()};
  return end > tail_.lsn ? bytes_between(tail_.lsn, end) : 0;
}

std::uint64_t Log::capacity_bytes() const {
  const Lock lock(mutex_);
  return slot_count_ * geometry_.segment_bytes();
}

}  // namespace memlith::core
