// Places for frames, their buffers, and waiting for what was appended.
#include <bit>
#include <cstring>

#include "log/batches.hpp"

namespace memlith::core {

// ---- FrameWriter -----------------------------------------------------------------------------------------------

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : batches_(std::exchange(other.batches_, nullptr)),
      sequence_(other.sequence_),
      way_(other.way_),
      kind_(other.kind_),
      begin_(other.begin_),
      payload_bytes_(other.payload_bytes_),
      put_bytes_(other.put_bytes_),
      payload_(other.payload_) {}

FrameWriter::~FrameWriter() { MEMLITH_ASSERT(batches_ == nullptr); }  // an unfinished frame would stop the log

void FrameWriter::put_many(const void* bytes, std::uint64_t count, std::span<const std::byte> next) {
  MEMLITH_ASSERT(count <= payload_bytes_ - put_bytes_);
  const auto* const source = static_cast<const std::byte*>(bytes);
  if (way_ == Way::streamed) {
    batches_->stream_.put(source, count, next);
  } else {
    copy_and_fetch(payload_ + put_bytes_, source, count, next);
  }
  put_bytes_ += count;
}

Result<Lsn> FrameWriter::finish() {
  MEMLITH_ASSERT(batches_ != nullptr);
  MEMLITH_ASSERT(put_bytes_ == payload_bytes_);
  Batches& all = *std::exchange(batches_, nullptr);
  if (way_ == Way::streamed) return all.finish_streamed(*this);

  Lsn end = begin_.advance(payload_bytes_);
  if (way_ == Way::whole) {
    all.chain_.end(payload_, payload_bytes_, begin_);
    const FrameHeader header = all.chain_.header(begin_, kind_, payload_bytes_);
    std::memcpy(payload_ - sizeof header, &header, sizeof header);
    end = begin_.advance(all.geometry_.frame_bytes(payload_bytes_));
  }
  Batches::Batch& batch = all.batch(sequence_);
  const std::uint32_t unfinished = batch.unfinished.fetch_sub(1, std::memory_order_release);
  MEMLITH_ASSERT(unfinished > 0);
  if (unfinished == 1) batch.unfinished.notify_all();
  return end;
}

// ---- begin and sync --------------------------------------------------------------------------------------------

Status Batches::allocate() {
  MEMLITH_ASSERT(batches_.empty() && options_.in_flight_max > 0);
  // Batches are numbered by a counter that wraps, so their count is a power of two.
  const std::size_t count = std::bit_ceil(std::size_t{options_.in_flight_max} + 1);
  options_.batch_bytes = round_up(options_.batch_bytes, kPageBytes);
  options_.small_batch_bytes = std::min(options_.batch_bytes, round_up(options_.small_batch_bytes, kPageBytes));
  options_.stream_chunk_bytes = round_up(options_.stream_chunk_bytes, kPageBytes);
  MEMLITH_TRY_ASSIGN(memory_.small, AlignedBuffer::allocate(count * options_.small_batch_bytes));
  // A chunk of a stream may be a quarter larger than wished (Stream::allocate).
  const std::uint64_t most = std::max(options_.batch_bytes, 2 * options_.stream_chunk_bytes);
  const std::size_t stretches_max = 2 + most / geometry_.segment_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    auto batch = std::make_unique<Batch>();
    batch->stretches.reserve(stretches_max);
    MEMLITH_TRY_ASSIGN(batch->slot_header, AlignedBuffer::allocate(geometry_.block_bytes));
    batches_.push_back(std::move(batch));
  }
  place_buffer(open_sequence_);
  return stream_.allocate(options_.stream_chunk_bytes, stretches_max);
}

// Allocates the memory that large frames need and, for streams, the queue. Releases the lock meanwhile.
Status Batches::make_large(bool with_queue) {
  const bool memory_wanted = memory_.large.size() == 0;
  const std::uint64_t batches_bytes = batches_.size() * options_.batch_bytes;
  mutex_.unlock();
  AlignedBuffer memory;
  Status status = kOk;
  if (memory_wanted) {
    auto allocated = AlignedBuffer::allocate(batches_bytes + stream_.memory_bytes());
    status = allocated.status();
    if (status.ok()) memory = std::move(*allocated);
  }
  std::unique_ptr<IoQueue> queue;
  if (status.ok() && with_queue) queue = stream_.make_queue();
  mutex_.lock();
  MEMLITH_TRY(status);
  // Another thread may have done the same and may be streaming already.
  if (memory_.large.size() == 0 && memory.size() > 0) {
    memory_.large = std::move(memory);
    stream_.use_memory(memory_.large.data() + batches_bytes);
  }
  if (!stream_.has_queue() && queue != nullptr && memory_.large.size() > 0) stream_.use_queue(std::move(queue));
  return kOk;
}

// A log that needed no large memory between two checkpoints releases it.
Batches::Spare Batches::take_spare() {
  Spare spare;
  const bool needed = std::exchange(memory_.large_used, false) || memory_.large.size() == 0;
  if (needed || in_flight() > 0 || batch(open_sequence_).used > 0) return spare;
  MEMLITH_ASSERT(!streaming_);
  spare.queue = stream_.take_queue();
  spare.memory = std::move(memory_.large);
  place_buffer(open_sequence_);
  return spare;
}

// The batch is the open one, and empty.
void Batches::place_buffer(std::uint32_t sequence) {
  const bool large = memory_.large.size() > 0;
  Batch& open = batch(sequence);
  MEMLITH_ASSERT(sequence == open_sequence_ && open.used == 0 && pack_.frame == nullptr);
  open.capacity = large ? options_.batch_bytes : options_.small_batch_bytes;
  open.buffer = (large ? memory_.large : memory_.small).data() + sequence % batches_.size() * open.capacity;
}

// The obstacle that prevents a frame of this size from being begun now.
Batches::Obstacle Batches::obstacle(std::uint64_t frame_bytes, bool will_sync, bool& streamed) {
  const Batch& open = batch(open_sequence_);
  // A large frame of a single committer gains by being written while it is being copied; with several committers, a
  // shared write gains more.
  streamed = frame_bytes > options_.batch_bytes ||
             (will_sync && frame_bytes >= options_.stream_bytes_min && open.used == 0 && in_flight() == 0);
  const bool small_is_all = options_.small_batch_bytes == options_.batch_bytes;
  const bool large = streamed || (!small_is_all && open.used + frame_bytes > options_.small_batch_bytes);
  if (large && (memory_.large.size() == 0 || (streamed && !stream_.has_queue()))) return Obstacle::small_memory;
  if (open.used == 0) place_buffer(open_sequence_);
  if (large) memory_.large_used = true;
  const bool room = streamed ? open.used == 0 : open.used + frame_bytes <= open.capacity;
  if (!room) return Obstacle::full_batch;
  if (streamed && streaming_) return Obstacle::other_stream;
  if (streamed && in_flight() == options_.in_flight_max) {
    return Obstacle::all_in_flight;
  }
  const std::uint64_t end = geometry_.segments_until(head_.advance(frame_bytes));
  return slots_.has_room(end) ? Obstacle::none : Obstacle::full_log;
}

// Takes one step to remove the obstacle.
Status Batches::work_on(Obstacle obstacle, bool streamed) {
  switch (obstacle) {
    case Obstacle::none:
    case Obstacle::full_log: MEMLITH_ASSERT(false); break;
    case Obstacle::small_memory: return make_large(streamed);
    case Obstacle::full_batch:
      if (in_flight() < options_.in_flight_max && !gathering_.active) {
        lead();
      } else {
        gathering_.room_wanted = true;
        wait_for(open_sequence_);
      }
      break;
    case Obstacle::other_stream: wait_for(stream_.sequence()); break;
    case Obstacle::all_in_flight: wait_for(done_sequence_.load(std::memory_order_relaxed)); break;
  }
  return kOk;
}

// How far the head moves for this payload.
std::uint64_t Batches::bytes_to_take(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) const {
  if (pack_.frame == nullptr || !is_packed(payload_bytes, kind, will_sync)) return geometry_.frame_bytes(payload_bytes);
  return geometry_.frame_bytes(pack_.payload_bytes + payload_bytes) - geometry_.frame_bytes(pack_.payload_bytes);
}

// Moves the head. There is room in the open batch, and there are free slots.
void Batches::take(std::uint64_t bytes) {
  const Lsn end = head_.advance(bytes);
  slots_.map_until(geometry_.segments_until(end));
  counters_.bytes.fetch_add(bytes, std::memory_order_relaxed);
  batch(open_sequence_).used += bytes;
  head_ = end;
}

void Batches::tell_head() {
  const Lsn end = pack_.frame == nullptr ? head_ : pack_.begin.advance(sizeof(FrameHeader) + pack_.payload_bytes);
  head_lsn_.store(end.value, std::memory_order_seq_cst);
}

// The payload gets its place in the open pack, or in a new one.
FrameWriter Batches::place_packed(std::uint64_t payload_bytes) {
  const std::uint32_t kind = options_.packed_kind;
  const std::uint64_t bytes = bytes_to_take(payload_bytes, kind, false);
  Batch& open = batch(open_sequence_);
  if (pack_.frame == nullptr) pack_ = {open.buffer + open.used, head_, 0};
  if (bytes > 0) take(bytes);
  const std::uint64_t offset = sizeof(FrameHeader) + pack_.payload_bytes;
  pack_.payload_bytes += payload_bytes;
  tell_head();
  // The pack is the last frame of the batch, and ends where the batch does.
  MEMLITH_ASSERT(pack_.begin == open.begin.advance(static_cast<std::uint64_t>(pack_.frame - open.buffer)));
  MEMLITH_ASSERT(pack_.begin.advance(geometry_.frame_bytes(pack_.payload_bytes)) == head_);
  open.unfinished.fetch_add(1, std::memory_order_relaxed);
  return FrameWriter(*this, open_sequence_, FrameWriter::Way::packed, pack_.frame + offset, pack_.begin.advance(offset),
                     payload_bytes, kind);
}

// The pack takes no more payloads; writers may still be copying.
void Batches::close_pack() {
  if (pack_.frame == nullptr) return;
  FrameHeader header = chain_.header(pack_.begin, options_.packed_kind, pack_.payload_bytes);
  header.checksum = kUnsealedPack;
  std::memcpy(pack_.frame, &header, sizeof header);
  pack_ = {};
  tell_head();
}

// Assigns the frame's place in the log; there is no obstacle.
FrameWriter Batches::place(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync, bool streamed) {
  counters_.frames.fetch_add(1, std::memory_order_relaxed);
  Batch& open = batch(open_sequence_);
  const bool packed = is_packed(payload_bytes, kind, will_sync);
  if (will_sync) ++open.committers;
  if (packed) return place_packed(payload_bytes);
  close_pack();
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  MEMLITH_ASSERT(head_ == open.begin.advance(open.used));
  MEMLITH_ASSERT(streamed ? open.used == 0 : open.used + frame_bytes <= open.capacity);
  const Lsn begin = head_;
  const std::uint32_t sequence = open_sequence_;
  std::byte* const payload = open.buffer + open.used + sizeof(FrameHeader);
  take(frame_bytes);
  tell_head();
  if (streamed) {
    // The stream is a batch of its own, already in flight; its bytes are in the stream's buffers.
    open_next_batch();
    streaming_ = true;
    stream_.begin(sequence, begin, kind, payload_bytes);
  } else {
    open.unfinished.fetch_add(1, std::memory_order_relaxed);
  }
  const auto way = streamed ? FrameWriter::Way::streamed : FrameWriter::Way::whole;
  return FrameWriter(*this, sequence, way, payload, begin, payload_bytes, kind);
}

// From the end of the stream on as with a batch: later frames may be sealed; wait, flush, acknowledge.
Result<Lsn> Batches::finish_streamed(const FrameWriter& writer) {
  batch(writer.sequence_).after_checksum = stream_.finish();
  chain_.end_turn(writer.sequence_);
  complete(writer.sequence_, stream_.make_durable(), {});
  const LockGuard lock(mutex_, std::adopt_lock);
  if (!failure_.ok()) return failure_.tell();
  return writer.begin_.advance(geometry_.frame_bytes(writer.payload_bytes_));
}

Status Batches::sync(Lsn lsn) {
  if (durable_lsn_.load(std::memory_order_acquire) >= lsn.value) return kOk;
  const LockGuard lock(mutex_);
  for (;;) {
    if (durable_position_.lsn >= lsn) return kOk;
    if (!failure_.ok()) return failure_.tell();
    MEMLITH_ASSERT(lsn <= head_);
    if (batch(open_sequence_).begin < lsn) {
      if (may_lead()) {
        gather();
        lead();
      } else {
        wait_for(open_sequence_);
      }
      continue;
    }
    std::uint32_t sequence = done_sequence_.load(std::memory_order_relaxed);
    while (batch(sequence).begin.advance(batch(sequence).used) < lsn) ++sequence;
    MEMLITH_ASSERT(sequence != open_sequence_);
    wait_for(sequence);
  }
}

}  // namespace memlith::core
