// Life and state of the log. Recovery, space, appending, batches and streams have files of their own.
#include "log/log.hpp"

#include <algorithm>
#include <utility>

#include "log/zeros.hpp"

namespace memlith::core {

// ---- format and open -------------------------------------------------------------------------------------------

Status Log::format(Device& device, const LogFormat& format, const ClientBytes& client, std::uint64_t log_id,
                   const std::optional<LogBeginning>& beginning) {
  if (!is_log_block(format.block_bytes) || format.block_bytes % device.caps().block_bytes != 0) {
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
  Superblocks superblocks(device);
  const LockGuard lock(superblocks.mutex());
  Superblock& first = superblocks.current();
  first.magic = kSuperblockMagic;
  first.version = kFormatVersion;
  first.block_bytes = format.block_bytes;
  first.log_id = log_id;
  first.slot_bytes = format.slot_bytes;
  first.slot_count = first.slot_count_made = format.slot_count;
  // The first frame's `previous` is the log's identity. Not marked clean: the first opening cannot rely on the log's
  // name being durable.
  const LogBeginning from = beginning.value_or(LogBeginning{{Lsn{0}, log_id}, 0, LogEnd::open});
  first.incarnation = from.incarnation;
  first.begun_lsn = from.position.lsn.value;
  return superblocks.write_first(from.position, client, from.end);
}

Result<std::unique_ptr<Log>> Log::open(Device& device, const LogOptions& options) {
  auto log = std::unique_ptr<Log>(new Log(device, options));
  MEMLITH_TRY(log->superblocks_.read());
  const Superblock& superblock = log->superblock();
  log->geometry_ = {superblock.block_bytes, superblock.slot_bytes};
  log->log_id_ = superblock.log_id;
  const std::uint64_t wanted =
      options.bytes_max != 0 ? options.bytes_max / superblock.slot_bytes : options.slot_count_max;
  log->slot_count_max_ = std::clamp<std::uint64_t>(wanted, superblock.slot_count, kSlotCountMax);
  MEMLITH_TRY(log->recovery_.read_slots(options.followed_to));
  const LockGuard lock(log->batches_.mutex());
  log->tail_ = log->recovery_.tail();
  log->take_over_slots();
  return log;
}

void Log::take_over_slots() {
  space_.slots.take_over(recovery_.found().slots, recovery_.found().slot_count);
  slot_count_max_ = std::max(slot_count_max(), space_.slots.count());
}

Status Log::recover(const std::function<Status(const Frame&)>& visit) {
  MEMLITH_TRY(recovery_.recover(options_.recovery_window_bytes, visit));
  const LockGuard lock(batches_.mutex());
  batches_.set_end(recovered());
  return kOk;
}

Status Log::secure() {
  const Status status = recovery_.secure([this](LogPosition tail, LogPosition head, std::uint64_t more) {
    const LockGuard lock(superblocks_.mutex());
    return add_slots(tail, head, more);
  });
  const LockGuard lock(batches_.mutex());
  take_over_slots();
  return status;
}

void Log::break_chain() {
  MEMLITH_ASSERT(!started_ && closed_cleanly() && tail() == recovered());
  recovery_.break_chain();
  const LockGuard lock(batches_.mutex());
  tail_ = recovered();
  batches_.set_end(tail_);
}

Log::~Log() = default;

Status Log::start(LogPosition tail, const ClientBytes& client, bool is_flushed) {
  MEMLITH_ASSERT(!started_ && tail.lsn <= recovered().lsn);
  MEMLITH_TRY(secure());
  const LockGuard superblock_lock(superblocks_.mutex());
  MEMLITH_TRY(superblocks_.allocate());
  begun_lsn_ = recovered().lsn;
  superblocks_.current().begun_lsn = begun_lsn_.value;
  // Later than all existing incarnations. If the newest superblock is damaged, the other copy does not know of the last
  // opening, whose slots and frames must not be taken for those of this opening. [log/forgotten_incarnation]
  const std::uint64_t seen = recovery_.found().incarnation_seen;
  superblocks_.current().incarnation = std::max(superblocks_.current().incarnation, seen);
  incarnation_ = superblocks_.current().incarnation += 1;
  {
    const LockGuard lock(batches_.mutex());
    MEMLITH_TRY(batches_.allocate());
  }
  // ORDER copy-after-kill: the newest copy may have been written by a program that was killed before the flush. The
  // other copy must not be written until the newest one is on the medium. [mutant start_over_unflushed_copy]
  if (!is_flushed) MEMLITH_TRY(device_.flush());
  MEMLITH_TRY(superblocks_.write(tail, client, recovered(), LogEnd::open));
  const LockGuard lock(batches_.mutex());
  MEMLITH_TRY(use_found_slots(tail));
  recovery_.forget_slots();
  tail_ = tail;
  batches_.start(log_id_, incarnation_, recovered());
  started_ = true;
  return kOk;
}

// The segments that hold [tail, head) are live.
Status Log::use_found_slots(LogPosition tail) {
  MEMLITH_ASSERT(superblocks_.current().slot_count == space_.slots.count());
  const std::uint64_t first = geometry_.segment_of(tail.lsn);
  const auto missing = space_.slots.use(first, std::max(first, geometry_.segments_until(batches_.next_frame())),
                                        recovery_.found().headers);
  if (!missing.has_value()) return kOk;
  return fail(Errc::corrupt, Detail::slot, "{}: no slot holds segment {}, in which the log continues at LSN {}",
              device_.path(), *missing, batches_.next_frame().value);
}

Status Log::close(const ClientBytes& client, std::optional<LogPosition> home, std::uint64_t slots_kept) {
  if (poisoned()) return failure();
  if (!started_) return kOk;
  MEMLITH_TRY(sync(head()));
  LogPosition from = home.value_or(tail());
  LogPosition end = durable();
  const LockGuard lock(superblocks_.mutex());
  const std::uint64_t left = std::max(superblocks_.current().slot_count_made, slots_kept);
  const bool grown = superblocks_.current().slot_count > left && from == end;
  const std::uint64_t bytes = kSlotsOffset + left * geometry_.slot_bytes;
  if (grown) {
    // Slots that grow() added are removed. The log continues in a new segment, which may lie in any slot.
    end.lsn = Lsn{geometry_.segments_until(end.lsn) * geometry_.segment_bytes()};
    from = end;
    superblocks_.current().slot_count = left;
  }
  const Status status = superblocks_.write(from, client, end, LogEnd::closed);
  if (!status.ok()) poison(status);
  if (!status.ok() || !grown) return status;
  // ORDER count-before-cut: no superblock counts the slots any more when they are cut off. If they stay after all, they
  // do no harm. [mutant log_cut_early]
  return device_.truncate(bytes);
}

// ---- frames ----------------------------------------------------------------------------------------------------

Result<FrameWriter> Log::begin(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(batches_.mutex());
  MEMLITH_ASSERT(started_);
  bool streamed = false;
  for (;;) {
    if (batches_.poisoned()) return batches_.failure();
    const std::uint64_t bytes = batches_.bytes_to_take(payload_bytes, kind, will_sync);
    const auto found = batches_.obstacle(bytes, will_sync, streamed);
    if (found == Batches::Obstacle::none) return batches_.place(payload_bytes, kind, will_sync, streamed);
    MEMLITH_TRY(found == Batches::Obstacle::full_log ? make_space(batches_.next_frame().advance(bytes))
                                                     : batches_.work_on(found, streamed));
  }
}

Result<std::optional<FrameWriter>> Log::begin_at_once(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(batches_.mutex());
  MEMLITH_ASSERT(started_);
  if (batches_.poisoned()) return batches_.failure();
  bool streamed = false;
  const std::uint64_t bytes = batches_.bytes_to_take(payload_bytes, kind, will_sync);
  if (batches_.obstacle(bytes, will_sync, streamed) != Batches::Obstacle::none) return std::optional<FrameWriter>();
  return std::optional(batches_.place(payload_bytes, kind, will_sync, streamed));
}

Status Log::make_room(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(batches_.mutex());
  for (;;) {
    if (batches_.poisoned()) return batches_.failure();
    const std::uint64_t bytes = batches_.bytes_to_take(payload_bytes, kind, will_sync);
    bool streamed = false;
    const auto found = batches_.obstacle(bytes, will_sync, streamed);
    if (found == Batches::Obstacle::none) return kOk;
    MEMLITH_TRY(found == Batches::Obstacle::full_log ? make_space(batches_.next_frame().advance(bytes))
                                                     : batches_.work_on(found, streamed));
  }
}

Result<Lsn> Log::append(std::span<const std::byte> payload, std::uint32_t kind) {
  MEMLITH_TRY_ASSIGN(FrameWriter writer, begin(payload.size(), kind));
  writer.put(payload.data(), payload.size());
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  MEMLITH_TRY(sync(end));
  return end;
}

// ---- state -----------------------------------------------------------------------------------------------------

void Log::poison(Status cause) {
  const KeptSentence why;  // whatever the notified callers do
  batches_.poison(cause);
}

Status Log::failure() const {
  if (!poisoned()) return kOk;
  const LockGuard lock(batches_.mutex());
  return batches_.failure();
}

// Called by the batches, without any lock.
void Log::note_progress() {
  if (poisoned()) {
    {
      const LockGuard lock(batches_.mutex());
      change_space();
    }
    space_word_.notify_all();
  }
  if (on_durable_) on_durable_();
}
LogReader Log::reader(LogPosition from, Lsn limit) const {
  const LockGuard lock(batches_.mutex());
  return {device_,    geometry_,   space_.slots.map(), log_id_, from, limit, options_.window_bytes,
          begun_lsn_, incarnation_};
}

LogReader Log::follower(LogPosition from) const {
  const Superblock& superblock = this->superblock();
  const LockGuard lock(batches_.mutex());
  return {device_,
          geometry_,
          space_.slots.map(),
          log_id_,
          from,
          Lsn{~std::uint64_t{0}},
          options_.follow_window_bytes,
          Lsn{superblock.begun_lsn},
          superblock.incarnation};
}

LogPosition Log::tail() const {
  const LockGuard lock(batches_.mutex());
  return tail_;
}

LogPosition Log::durable() const {
  const LockGuard lock(batches_.mutex());
  return batches_.durable();
}

bool Log::room_is_waited_for() const {
  const LockGuard lock(batches_.mutex());
  return space_.waiters > 0;
}

std::uint64_t Log::mapped_bytes() const {
  const LockGuard lock(batches_.mutex());
  const Lsn end{space_.slots.map().end() * geometry_.segment_bytes()};
  return end > tail_.lsn ? bytes_between(tail_.lsn, end) : 0;
}

std::uint64_t Log::capacity_bytes() const {
  const LockGuard lock(batches_.mutex());
  return space_.slots.count() * geometry_.segment_bytes();
}

}  // namespace memlith::core
