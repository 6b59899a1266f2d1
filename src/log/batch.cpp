// Sealing, writing and acknowledging batches, and the state of all of them.
#include <algorithm>
#include <cstring>

#include "log/batches.hpp"

namespace memlith::core {

// Yields several times before it blocks. Waking a blocked thread can take as long as writing a small batch; woken
// committers would come too late for the next batch, and batches would stay small. A count and not a time: it is over
// soon if no other thread runs, and lasts as long as needed if there are many committers.
void Batches::wait_for(std::uint32_t sequence) {
  const Atomic<std::uint32_t>& word = batch(sequence).word;
  const std::uint32_t seen = word.load(std::memory_order_relaxed);
  mutex_.unlock();
  for (std::uint32_t turn = 0; turn < options_.turns_awake && word.load(std::memory_order_acquire) == seen; ++turn) {
    yield_thread();
  }
  await(word, seen);
  mutex_.lock();
}

void Batches::open_next_batch() {
  MEMLITH_ASSERT(pack_.frame == nullptr);
  Batch& next = batch(++open_sequence_);
  MEMLITH_ASSERT(next.unfinished.load(std::memory_order_relaxed) == 0);
  next.begin = head_;
  next.used = 0;
  next.committers = 0;
  gathering_.room_wanted = false;
  place_buffer(open_sequence_);
}

void Batches::lay_out(Lsn begin, std::uint64_t bytes, std::vector<Stretch>& stretches) const {
  stretches.clear();
  for (std::uint64_t done = 0; done < bytes;) {
    const Lsn at = begin.advance(done);
    Stretch stretch;
    stretch.segment = geometry_.segment_of(at);
    const std::uint32_t slot = slots_.map().at(stretch.segment);
    MEMLITH_ASSERT(slot != SlotMap::kNone);
    const std::uint64_t offset = geometry_.offset_in_segment(at);
    stretch.with_slot_header = offset == 0;
    stretch.device_offset = geometry_.slot_offset(slot) + geometry_.block_bytes + offset;
    stretch.begin = done;
    stretch.bytes = std::min(bytes - done, geometry_.left_in_segment(at));
    MEMLITH_ASSERT(stretch.bytes > 0 && offset + stretch.bytes <= geometry_.segment_bytes());
    done += stretch.bytes;
    stretches.push_back(stretch);
  }
  MEMLITH_ASSERT(stretches.empty() || stretches.back().begin + stretches.back().bytes == bytes);
}

// Waits until the committers of the last acknowledged batch have come back with their next frames, at most a quarter of
// a batch's I/O time, so that the same I/O serves all of them. The idea is PostgreSQL's commit_delay, but without a
// parameter: a single committer is the only one of its batch, and does not wait.
void Batches::gather() {
  const auto enough = [this]() MEMLITH_REQUIRES(mutex_) {
    return batch(open_sequence_).committers >= gathering_.expected_committers || gathering_.room_wanted ||
           !failure_.ok();
  };
  if (enough()) return;
  gathering_.active = true;
  const auto deadline = SteadyClock::now() + gathering_.io_time / 4;
  while (!enough() && SteadyClock::now() < deadline) {
    mutex_.unlock();
    yield_thread();
    mutex_.lock();
  }
  gathering_.active = false;
}

// Seals the open batch, which is not empty, and makes it durable.
void Batches::lead() {
  const std::uint32_t sequence = open_sequence_;
  Batch& sealed = batch(sequence);
  MEMLITH_ASSERT(sealed.used > 0 && sealed.used <= sealed.capacity);
  close_pack();
  lay_out(sealed.begin, sealed.used, sealed.stretches);
  open_next_batch();
  mutex_.unlock();
  seal(sealed, sequence);
  const auto begin = SteadyClock::now();
  const Status status = make_durable(sealed);
  complete(sequence, status, SteadyClock::now() - begin);
}

// Waits until every writer of the batch has finished and the batch before it has its headers; then chains the frames.
void Batches::seal(Batch& sealed, std::uint32_t sequence) {
  for (std::uint32_t left = 0; (left = sealed.unfinished.load(std::memory_order_acquire)) != 0;) {
    await(sealed.unfinished, left);
  }
  chain_.await_turn(sequence);
  const std::uint64_t durable = durable_lsn_.load(std::memory_order_acquire);
  for (std::uint64_t at = 0; at < sealed.used;) {
    FrameHeader header;
    std::memcpy(&header, sealed.buffer + at, sizeof header);
    MEMLITH_ASSERT(header.magic == kFrameMagic && header.lsn == sealed.begin.value + at);
    if (header.checksum == kUnsealedPack) {
      chain_.end(sealed.buffer + at + sizeof header, header.payload_bytes, Lsn{header.lsn});
    }
    chain_.link(header, durable);
    std::memcpy(sealed.buffer + at, &header, sizeof header);
    at += geometry_.frame_bytes(header.payload_bytes);
    MEMLITH_ASSERT(at <= sealed.used);  // the last frame ends where the batch does
    FrameTrailer trailer;
    std::memcpy(&trailer, sealed.buffer + at - sizeof trailer, sizeof trailer);
    chain_.add(header, trailer);
  }
  sealed.after_checksum = chain_.last();
  chain_.end_turn(sequence);
}

Batches::Pieces Batches::pieces_of(Batch& sealed, const Stretch& stretch) {
  const std::span<std::byte> slot_header = sealed.slot_header.span().first(geometry_.block_bytes);
  Pieces pieces{.vectors = {{slot_header.data(), slot_header.size()}, {sealed.buffer + stretch.begin, stretch.bytes}}};
  pieces.first = stretch.with_slot_header ? 0 : 1;
  pieces.offset = stretch.device_offset - (stretch.with_slot_header ? geometry_.block_bytes : 0);
  if (stretch.with_slot_header) chain_.fill_slot_header(slot_header, stretch.segment);
  return pieces;
}

// One command where the disk has forced unit access and the batch lies in one slot; else a write for each slot, and a
// flush. Nothing but the batch relies on this flush: growth, superblocks and moved slots have flushes of their own, and
// the batches in flight beside it are acknowledged after theirs.
Status Batches::make_durable(Batch& sealed) {
  MEMLITH_ASSERT(!sealed.stretches.empty());
  const Stretch& last = sealed.stretches.back();
  const bool through = sealed.stretches.size() == 1 && device_.can_write_through(last.bytes + geometry_.block_bytes);
  for (const Stretch& stretch : sealed.stretches) {
    const Pieces pieces = pieces_of(sealed, stretch);
    if (through && &stretch == &last) return device_.write_through(pieces.offset, pieces.used());
    MEMLITH_TRY(device_.write_pieces(pieces.offset, pieces.used()));
  }
  return device_.flush();
}

// Until every batch before this one is acknowledged.
void Batches::await_done(std::uint32_t sequence) {
  for (std::uint32_t now = 0; (now = done_sequence_.load(std::memory_order_acquire)) != sequence;) {
    await(done_sequence_, now);
  }
}

// Where the log is durable to when this batch is.
LogPosition Batches::end_of(std::uint32_t sequence) {
  const Batch& done = batch(sequence);
  return {done.begin.advance(done.used), done.after_checksum};
}

// Acknowledges the batch, after all batches before it. `io_time` is 0 for a stream, whose time says nothing about
// batches.
void Batches::complete(std::uint32_t sequence, Status status, std::chrono::nanoseconds io_time) {
  await_done(sequence);
  Batch& done = batch(sequence);
  mutex_.lock();
  if (failure_.ok() && !status.ok()) {
    keep_failure(status);
  }
  if (failure_.ok()) {
    // ORDER flush-before-acknowledge: a commit becomes visible as durable only here. [mutant acknowledge_before_flush]
    durable_position_ = end_of(sequence);
    durable_lsn_.store(durable_position_.lsn.value, std::memory_order_release);
  }
  if (io_time.count() > 0) gathering_.io_time += (io_time - gathering_.io_time) / 8;
  if (streaming_ && stream_.sequence() == sequence) streaming_ = false;
  counters_.batches.fetch_add(1, std::memory_order_relaxed);
  done.word.fetch_add(1, std::memory_order_release);
  done_sequence_.store(sequence + 1, std::memory_order_release);
  Batch& open = batch(open_sequence_);
  gathering_.expected_committers = done.committers + open.committers;
  const bool more = open.used > 0;
  if (more) open.word.fetch_add(1, std::memory_order_release);
  const bool failed = !failure_.ok();
  assert_state();
  mutex_.unlock();
  done_sequence_.notify_all();
  done.word.notify_all();
  if (more && !failed) open.word.notify_one();
  if (failed) {
    for (const auto& each : batches_) {
      each->word.fetch_add(1, std::memory_order_release);
      each->word.notify_all();
    }
  }
  if (on_progress_) on_progress_();
  mutex_.lock();
}

// ---- state -----------------------------------------------------------------------------------------------------

Batches::Batches(Device& device, const LogGeometry& geometry, const LogOptions& options, LogCounters& counters,
                 Slots& slots)
    : device_(device),
      geometry_(geometry),
      options_(options),
      counters_(counters),
      slots_(slots),
      chain_(geometry),
      stream_(device, geometry, chain_,
              {[this](Lsn begin, std::uint64_t bytes, std::vector<Stretch>& stretches) {
                 const LockGuard lock(mutex_);
                 lay_out(begin, bytes, stretches);
               },
               [this] { return durable_lsn_.load(std::memory_order_acquire); }}) {}

void Batches::set_end(LogPosition end) {
  durable_position_ = end;
  head_ = end.lsn;
  tell_head();
}

void Batches::start(std::uint64_t log_id, std::uint64_t incarnation, LogPosition end) {
  MEMLITH_ASSERT(end.lsn == head_ && in_flight() == 0);
  chain_.start(log_id, incarnation, end.previous);
  batch(open_sequence_).begin = head_;
  durable_lsn_.store(end.lsn.value, std::memory_order_release);
}

LogPosition Batches::durable() const { return durable_position_; }

// Committers that wait do not know whether their bytes are durable, whatever failed. They get `io`, even if the device
// refused because of a failure that another thread has not reported yet.
void Batches::keep_failure(Status cause) {
  cause.category = Errc::io;
  failure_.keep(cause);
  failed_.store(true, std::memory_order_release);
}

void Batches::assert_state() const {
  MEMLITH_ASSERT(failed_.load(std::memory_order_relaxed) != failure_.ok());
  MEMLITH_ASSERT(durable_position_.lsn <= head_);
  MEMLITH_ASSERT(in_flight() <= batches_.size());
  const Batch& open = *batches_[open_sequence_ % batches_.size()];
  MEMLITH_ASSERT(open.begin.advance(open.used) == head_);
  MEMLITH_ASSERT(chain_.sealed() - done_sequence_.load(std::memory_order_relaxed) <= in_flight());
  // Every slot has a live segment or is free. The live segments reach beyond the head.
  slots_.assert_state(slots_.map().first(), geometry_.segments_until(head_));
}

void Batches::poison(Status cause) {
  {
    const LockGuard lock(mutex_);
    if (failure_.ok()) keep_failure(cause);
    for (const auto& each : batches_) each->word.fetch_add(1, std::memory_order_release);
  }
  for (const auto& each : batches_) each->word.notify_all();
  if (on_progress_) on_progress_();
}

Status Batches::failure() const {
  if (failure_.ok()) return kOk;
  const bool is_read = failure_.tell().detail == Detail::read;
  return fail(Errc::poisoned, Detail::frame,
              "{}: nothing more is made durable, because an earlier operation failed ({}). Close and reopen to get "
              "back the last durable state{}",
              device_.path(), failure_.text(),
              is_read ? "; if these bytes cannot be read then either, restore a copy or an archive" : "");
}

}  // namespace memlith::core
