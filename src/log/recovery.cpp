#include "log/recovery.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/bytes.hpp"
#include "base/checksum.hpp"
#include "log/recovery_table.hpp"
#include "log/zeros.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kProbeBytesLeast = 16 * kKiB;  // bytes examined of a slot that seems never used
constexpr std::uint64_t kProbeBytesMost = 64 * kKiB;
constexpr std::uint32_t kSlotReads = 64;  // at a time
constexpr std::uint64_t kNoSegment = ~0ull;

}  // namespace

// ---- slots -----------------------------------------------------------------------------------------------------

Status LogRecovery::read_slots(Lsn followed_to) {
  geometry_ = {superblock().block_bytes, superblock().slot_bytes};
  tail_ = {Lsn{superblock().tail_lsn}, superblock().tail_previous};
  log_id_ = superblock().log_id;
  found_.slot_count = superblock().slot_count;
  const auto count = static_cast<std::uint32_t>(superblock().slot_count);

  // The latest claim on each segment that may still matter.
  struct Claim {
    std::uint32_t slot;
    std::uint64_t incarnation;
  };
  std::map<std::uint64_t, Claim> claims;
  const std::uint64_t tail_segment = geometry_.segment_of(tail_.lsn);
  const std::uint64_t followed_segment = geometry_.segment_of(std::min(tail_.lsn, followed_to));
  found_.claims.assign(count, kNoSegment);
  found_.headers.resize(count);
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  MEMLITH_TRY(read_in_slots(all, 0, geometry_.block_bytes,
                            [this](std::uint32_t slot, std::span<const std::byte> block) {
                              std::memcpy(&found_.headers[slot], block.data(), sizeof(SlotHeader));
                            }));
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    const SlotHeader& header = found_.headers[slot];
    if (header.magic != kSlotMagic || header.checksum != header_checksum(header, log_id_)) continue;
    if (header.incarnation >= kIncarnationMax) continue;
    found_.incarnation_seen = std::max(found_.incarnation_seen, header.incarnation);
    if (header.segment < followed_segment) continue;
    found_.claims[slot] = header.segment;
    const auto [found, fresh] = claims.try_emplace(header.segment, Claim{slot, header.incarnation});
    if (!fresh && header.incarnation > found->second.incarnation) found->second = {slot, header.incarnation};
  }
  std::uint64_t first_segment = tail_segment;
  while (first_segment > followed_segment && claims.contains(first_segment - 1)) --first_segment;
  found_.slots.reset(first_segment, count);
  for (std::uint64_t segment = first_segment;
       claims.contains(segment) && found_.slots.end() - found_.slots.first() < count; ++segment) {
    found_.slots.append(claims.at(segment).slot);
  }
  return kOk;
}

void LogRecovery::forget_slots() {
  found_.slots = {};
  found_.claims = {};
  found_.headers = {};
}

// Reads `bytes` of each of these slots, from `begin` on, many at a time: a log of 1 GiB may have thousands of slots.
Status LogRecovery::read_in_slots(std::span<const std::uint32_t> slots, std::uint64_t begin, std::uint64_t bytes,
                                  const std::function<void(std::uint32_t slot, std::span<const std::byte>)>& visit) {
  MEMLITH_ASSERT(begin + bytes <= geometry_.slot_bytes);
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

Status LogRecovery::recover(std::uint64_t window_bytes, const std::function<Status(const Frame&)>& visit) {
  LogPosition end = tail_;
  const char* why = "";
  const LogPosition told = told_end();
  found_.proven = told.lsn;
  const bool ends_there = superblocks_.found_end() != LogEnd::open;
  if (ends_there && told.lsn == tail_.lsn) {
    end = told;
  } else {
    LogReader reader(device_, geometry_, found_.slots, log_id_, tail_, ends_there ? told.lsn : Lsn{~0ull}, window_bytes,
                     Lsn{superblock().begun_lsn}, superblock().incarnation);
    for (;;) {
      MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
      if (!frame.has_value()) break;
      if (frame->incarnation < kIncarnationMax)
        found_.incarnation_seen = std::max(found_.incarnation_seen, frame->incarnation);
      found_.proven = std::max(found_.proven, frame->durable);
      MEMLITH_TRY(visit(*frame));
    }
    end = reader.position();
    why = reader.why();
  }
  MEMLITH_TRY(decide(end, told, why));
  MEMLITH_ASSERT(tail_.lsn <= end.lsn);
  found_.end = end;
  return kOk;
}

// Finds the row of the table for what opening has found, and refuses the log if the row says so.
Status LogRecovery::decide(LogPosition end, LogPosition told, const char* why) {
  RecoveryInputs found;
  found.closed = superblocks_.found_end() != LogEnd::open;
  found.end = end.lsn < told.lsn              ? FramesEnd::before
              : end.lsn > told.lsn            ? FramesEnd::behind
              : end.previous == told.previous ? FramesEnd::at
                                              : FramesEnd::at_of_another;
  std::optional<LaterProof> proof;
  if (!found.closed && (found.end == FramesEnd::at || found.end == FramesEnd::behind)) {
    MEMLITH_TRY_ASSIGN(proof, find_later_proof(end));
  }
  found.later_proof = proof.has_value();
  found.unproven = found_.proven < end.lsn;
  const RecoveryRow* const row = row_for(found);
  MEMLITH_ASSERT(row != nullptr);
  found_.row = row->letter;
  MEMLITH_ASSERT(row->decision != RecoveryDecision::take || found_.proven >= end.lsn);
  if (row->decision != RecoveryDecision::refuse) return kOk;
  if (proof.has_value()) {
    return fail(Errc::corrupt, Detail::frame,
                "{}: the log is damaged at LSN {}: {}, but the frame at LSN {} (file offset {}) shows that everything "
                "up to LSN {} had been durable. Commits from there on are lost; `memlith verify` reports what is left",
                device_.path(), end.lsn.value, why, proof->lsn, proof->file_offset, proof->durable_lsn);
  }
  return fail(Errc::corrupt, Detail::frame,
              "{}: the log is damaged at LSN {}: {}, but its superblock says that everything up to LSN {} was "
              "durable{}. Commits from there on are lost; `memlith verify` reports what is left",
              device_.path(), end.lsn.value, found.end == FramesEnd::before ? why : "another frame stands before it",
              told.lsn.value, superblocks_.found_end() == LogEnd::closed ? " when it was closed" : "");
}

// A torn end and damage in the middle look alike at the place itself. They differ in what follows: every frame says how
// far the log was durable when it was sealed, so a later frame whose durable LSN lies beyond this place proves that the
// bytes here had been acknowledged.
Result<std::optional<LogRecovery::LaterProof>> LogRecovery::find_later_proof(LogPosition end) {
  MEMLITH_TRY_ASSIGN(AlignedBuffer buffer, AlignedBuffer::allocate(std::min(geometry_.slot_bytes, kZeroBytes)));
  const std::uint32_t block_bytes = geometry_.block_bytes;
  const std::uint64_t end_segment = geometry_.segment_of(end.lsn);
  // The slot was never used if the bytes after the header are zeros, too: a misdirected write of zeros for new slots
  // may have overwritten this header, but would have overwritten more than the header. (Not all of the slot is read:
  // opening a large log that is hardly used would take long.)
  std::vector<std::uint32_t> blank;
  for (std::uint32_t slot = 0; slot < superblock().slot_count; ++slot) {
    if (found_.headers[slot].magic == 0) blank.push_back(slot);
  }
  std::vector<bool> unused(superblock().slot_count, false);
  const std::uint64_t probe_bytes =
      std::min(std::clamp(geometry_.slot_bytes / 16, kProbeBytesLeast, kProbeBytesMost), geometry_.segment_bytes());
  MEMLITH_TRY(read_in_slots(blank, block_bytes, probe_bytes,
                            [&unused](std::uint32_t slot, std::span<const std::byte> bytes) {
                              unused[slot] = is_zero(bytes);
                            }));
  for (std::uint32_t slot = 0; slot < superblock().slot_count; ++slot) {
    if (unused[slot]) continue;
    const std::uint64_t slot_offset = geometry_.slot_offset(slot);
    const SlotHeader& claim = found_.headers[slot];
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
        if (header.durable_lsn <= found_.proven.value || header.lsn < end.lsn.value) continue;
        if (header.checksum != header_checksum(header, log_id_)) continue;
        // Frames that were in flight behind a lost frame also report a durable LSN.
        found_.proven = std::min(Lsn{header.durable_lsn}, end.lsn);
        if (header.durable_lsn <= end.lsn.value) continue;
        return std::optional(LaterProof{header.lsn, slot_offset + block_bytes + at + block, header.durable_lsn});
      }
      at += step;
    }
  }
  return std::optional<LaterProof>{};
}

void LogRecovery::break_chain() {
  const std::uint64_t before[2] = {tail_.previous, superblock().sequence};
  tail_.previous = found_.end.previous = checksum(std::as_bytes(std::span(before)), log_id_);
}

Status LogRecovery::hold(const ClientBytes& client) {
  MEMLITH_ASSERT(superblocks_.found_end() == LogEnd::held);
  const LockGuard lock(superblocks_.mutex());
  return superblocks_.write(found_.end, client, found_.end, LogEnd::held);
}

// ---- frames that nothing proves --------------------------------------------------------------------------------

Status LogRecovery::secure_superblock() {
  if (superblock_is_secure_) return kOk;
  MEMLITH_TRY(device_.flush());
  const LockGuard lock(superblocks_.mutex());
  MEMLITH_TRY(superblocks_.write(tail_, superblocks_.client_bytes(), told_end(), superblocks_.found_end()));
  superblock_is_secure_ = true;
  return kOk;
}

// A failed flush may leave bytes in the page cache that the medium does not have, marked clean (Linux does that): reads
// return them, and later flushes return ok without writing them. Therefore the frames that were read are trusted only
// as far as the superblock or a later frame reports them as durable. The rest, which is short, is written again before
// anything relies on it.
//
// Not in place: the newest of these frames may have been acknowledged, and a power cut can damage bytes that are being
// written. A free slot takes the segment over, with a later incarnation than the old slot's.
Status LogRecovery::secure(const AddSlots& add_slots) {
  if (found_.proven >= found_.end.lsn) return kOk;
  const std::uint64_t first = geometry_.segment_of(found_.proven);
  const std::uint64_t end = geometry_.segment_of(found_.end.lsn.advance(geometry_.segment_bytes() - 1));
  MEMLITH_TRY_ASSIGN(const std::vector<std::uint32_t> targets, slots_to_move_to(first, end, add_slots));
  MEMLITH_ASSERT(first < end && targets.size() == end - first);
  // ORDER tail-before-move: slots from the tail of an older copy on must not be overwritten. Either copy of the
  // superblock may be in the page cache only, above an older one: that both are equal there proves nothing.
  // [mutant frames_moved_under_old_tail, test ForgottenFlush.ATailThatThePageCacheAloneHas]
  MEMLITH_TRY(secure_superblock());
  MEMLITH_TRY_ASSIGN(AlignedBuffer buffer, AlignedBuffer::allocate(std::min(geometry_.slot_bytes, kZeroBytes)));
  MEMLITH_TRY(erase_headers(targets, buffer));
  for (std::uint64_t segment = first; segment < end; ++segment) {
    MEMLITH_TRY(copy_segment(segment, targets[segment - first], buffer));
  }
  // ORDER copy-before-claim: a slot must have all of the segment when it claims it. [mutant moved_frames_claimed_early]
  MEMLITH_TRY(device_.flush());
  const std::uint64_t incarnation = std::max(superblock().incarnation, found_.incarnation_seen) + 1;
  for (std::uint64_t segment = first; segment < end; ++segment) {
    const std::uint32_t slot = targets[segment - first];
    fill_slot_header(buffer.span().first(geometry_.block_bytes), segment, incarnation, log_id_);
    MEMLITH_TRY(device_.write(geometry_.slot_offset(slot), buffer.span().first(geometry_.block_bytes)));
    found_.slots.move(segment, slot);
  }
  MEMLITH_TRY(device_.flush());
  found_.incarnation_seen = incarnation;
  found_.proven = found_.end.lsn;
  return kOk;
}

// A slot is free if it claims no live segment, even if another slot has a later claim: the later claim may not be on
// the medium.
Result<std::vector<std::uint32_t>> LogRecovery::slots_to_move_to(std::uint64_t first_segment, std::uint64_t end_segment,
                                                                 const AddSlots& add_slots) {
  const std::uint64_t needed = end_segment - first_segment;
  std::vector<std::uint32_t> targets;
  for (std::uint32_t slot = 0; slot < found_.claims.size() && targets.size() < needed; ++slot) {
    if (found_.claims[slot] == kNoSegment || found_.claims[slot] >= end_segment) targets.push_back(slot);
  }
  if (targets.size() == needed) return targets;
  const std::uint64_t more = needed - targets.size();
  const Status added = add_slots(tail_, told_end(), more);
  if (added.category == Errc::no_space) {
    return fail(Errc::no_space, added.detail,
                "{}: the log is full, and recovery has to write its newest frames once more; free {} bytes on the "
                "disk and open the store again. Nothing is lost",
                device_.path(), more * geometry_.slot_bytes);
  }
  MEMLITH_TRY(added);
  for (std::uint64_t i = 0; i < more; ++i) targets.push_back(static_cast<std::uint32_t>(found_.slot_count++));
  found_.claims.resize(found_.slot_count, kNoSegment);
  return targets;
}

// For media that tear a header. Of an earlier, interrupted recovery, a slot may have all words of a header but one. A
// new header that is torn as well may bring that one: the slot would claim what the earlier recovery had copied there.
Status LogRecovery::erase_headers(std::span<const std::uint32_t> slots, const AlignedBuffer& buffer) {
  if (device_.caps().atomic_bytes >= sizeof(SlotHeader)) return kOk;
  std::memset(buffer.data(), 0, geometry_.block_bytes);
  for (const std::uint32_t slot : slots) {
    MEMLITH_TRY(device_.write(geometry_.slot_offset(slot), buffer.span().first(geometry_.block_bytes)));
  }
  // ORDER erase-before-copy: the old words are gone from the medium before the slot holds other frames than they claim.
  // [test TornHeader.IsGoneBeforeFramesMoveToItsSlot]
  return device_.flush();
}

// Copies the live bytes of the segment to the same places in another slot, followed by a block of zeros after the
// newest frame.
Status LogRecovery::copy_segment(std::uint64_t segment, std::uint32_t slot, const AlignedBuffer& buffer) {
  const std::uint64_t begin = segment * geometry_.segment_bytes();
  const std::uint64_t from = std::max(begin, tail_.lsn.value) - begin;
  const std::uint64_t until = std::min(begin + geometry_.segment_bytes(), found_.end.lsn.value) - begin;
  MEMLITH_ASSERT(from < until && until <= geometry_.segment_bytes());
  const std::uint64_t source = geometry_.slot_offset(found_.slots.at(segment)) + geometry_.block_bytes;
  const std::uint64_t target = geometry_.slot_offset(slot) + geometry_.block_bytes;
  for (std::uint64_t at = from; at < until;) {
    const auto piece = buffer.span().first(std::min(buffer.size(), until - at));
    MEMLITH_TRY(device_.read(source + at, piece));
    MEMLITH_TRY(device_.write(target + at, piece));
    at += piece.size();
  }
  if (until == geometry_.segment_bytes()) return kOk;
  // ORDER end-before-claim: an earlier, interrupted recovery may have copied more frames to this slot than survived the
  // crash. Without the zeros, these frames would follow the moved ones and come back. [mutant moved_frames_not_ended]
  std::memset(buffer.data(), 0, geometry_.block_bytes);
  return device_.write(target + until, buffer.span().first(geometry_.block_bytes));
}

}  // namespace memlith::core
