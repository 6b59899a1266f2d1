// Space of the log: slots that are freed by a trim, taken by frames, and added when the log grows.
#include <algorithm>
#include <new>

#include "log/log.hpp"
#include "log/zeros.hpp"

namespace memlith::core {

Status Log::trim(LogPosition tail, const ClientBytes& client) {
  if (poisoned()) return failure();
  Batches::Spare spare;
  {
    // Held until the tail has moved in memory, too: growth writes a superblock with that tail. [schedule/trim-growth]
    UniqueLock superblock_lock(superblocks_.mutex());
    // ORDER tail-before-reuse: slots are reused only when the new tail is durable. Otherwise, after a crash, the old
    // tail could point into overwritten frames. [mutant trim_not_written]
    const Status status = superblocks_.write(tail, client, durable(), LogEnd::open);
    if (!status.ok()) {
      poison(status);
      return status;
    }
    const LockGuard lock(batches_.mutex());
    MEMLITH_ASSERT(tail_.lsn <= tail.lsn && tail.lsn <= batches_.durable_lsn());
    tail_ = tail;
    space_.slots.release_before(geometry_.segment_of(tail.lsn));
    change_space();
    spare = batches_.take_spare();
    space_.slots.assert_state(geometry_.segment_of(tail_.lsn), geometry_.segments_until(batches_.next_frame()));
  }
  counters_.trims.fetch_add(1, std::memory_order_relaxed);
  space_word_.notify_all();
  return kOk;
}

// Makes more slots free, enough for everything up to `end`.
Status Log::make_space(Lsn end) {
  const std::uint64_t needed = space_.slots.needed(geometry_.segments_until(end));
  const std::uint64_t free_at_best = space_.slots.free_at_best(geometry_.segment_of(batches_.next_frame()));
  if (needed > free_at_best) {
    const std::uint64_t more = needed - free_at_best;
    if (space_.slots.count() + more > slot_count_max()) {
      return fail(Errc::full, Detail::frame,
                  "{}: a transaction of {} bytes does not fit the log, whose limit is {} bytes; nothing was written. "
                  "Raise the limit (memlith_store_set_log_max) and try again, or split the transaction "
                  "(memlith_persist_range)",
                  device_.path(), bytes_between(batches_.next_frame(), end),
                  slot_count_max() * geometry_.segment_bytes());
    }
    batches_.mutex().unlock();
    const Status status = grow(more);
    batches_.mutex().lock();
    return status;
  }
  // The log is full: frames in memory are written to the medium, then the owner is asked to trim.
  const std::uint32_t word = space_word_.load(std::memory_order_acquire);
  const std::uint32_t refusals = space_.refusals;
  const Lsn head = batches_.next_frame();
  batches_.mutex().unlock();
  Status status = sync(head);
  if (status.ok()) {
    const LockGuard again(batches_.mutex());
    if (space_word_.load(std::memory_order_relaxed) == word) ++space_.waiters;
  }
  if (status.ok())
    status = relieve_ ? relieve_() : fail(Errc::full, Detail::frame, "{}: the log is full", device_.path());
  if (status.ok()) space_word_.wait(word, std::memory_order_acquire);
  batches_.mutex().lock();
  MEMLITH_TRY(status);
  return space_.refusals != refusals ? space_.refusal.tell() : kOk;
}

void Log::refuse_room(Status cause) {
  {
    const LockGuard lock(batches_.mutex());
    space_.refusal.keep(cause);
    ++space_.refusals;
    change_space();
  }
  space_word_.notify_all();
}

Status Log::set_bytes_max(std::uint64_t bytes) {
  const LockGuard lock(batches_.mutex());
  const std::uint64_t slots = std::min(bytes / geometry_.slot_bytes, kSlotCountMax);
  if (slots < space_.slots.count()) {
    return fail(Errc::invalid, Detail::argument,
                "{}: the log has {} bytes, so {} cannot be its limit; it shrinks when the store is closed",
                device_.path(), space_.slots.count() * geometry_.slot_bytes, bytes);
  }
  slot_count_max_.store(slots, std::memory_order_relaxed);
  return kOk;
}

// Adds slots to the file. After any failure except `io` and `poisoned`, nothing has changed.
Status Log::add_slots(LogPosition tail, LogPosition head, std::uint64_t more) {
  MEMLITH_ASSERT(more > 0);
  const std::uint64_t begin = kSlotsOffset + superblocks_.current().slot_count * geometry_.slot_bytes;
  const std::uint64_t end = begin + more * geometry_.slot_bytes;
  MEMLITH_TRY_ASSIGN(const AlignedBuffer zeros, zeros_for(begin, end));
  MEMLITH_TRY(device_.reserve(end));
  // ORDER growth-before-name: the new slots are zeros on the medium before the superblock counts them.
  // [mutant growth_not_durable]
  MEMLITH_TRY(write_zeros(device_, begin, end, zeros));
  MEMLITH_TRY(device_.flush());
  superblocks_.current().slot_count += more;
  return superblocks_.write(tail, superblocks_.client_bytes(), head, LogEnd::open);
}

Status Log::grow(std::uint64_t more_slots) {
  if (poisoned()) return failure();
  const LockGuard superblock_lock(superblocks_.mutex());
  const std::uint64_t old_count = superblocks_.current().slot_count;
  // Another thread grew the log meanwhile; begin() checks again.
  if (old_count + more_slots > slot_count_max()) return kOk;
  // ORDER room-before-growth: memory for the new slots is allocated before the superblock counts them, so that it
  // cannot be lacking afterwards. [test OutOfMemoryStore.ALogGrowsOrNot]
  try {
    const LockGuard lock(batches_.mutex());
    space_.slots.reserve(old_count + more_slots);
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::slot, "{}: out of memory for a log of {} slots; nothing was written",
                device_.path(), old_count + more_slots);
  }
  if (const Status status = add_slots(tail(), durable(), more_slots); !status.ok()) {
    if (status.category == Errc::io || status.category == Errc::poisoned) poison(status);
    return status;
  }
  {
    const LockGuard lock(batches_.mutex());
    space_.slots.add(more_slots);
    change_space();
  }
  space_word_.notify_all();
  return kOk;
}

}  // namespace memlith::core
