// Appending to the log: places for frames, buffers, and waiting for what was appended.
#include <bit>
#include <cstring>

#include "log/copy.hpp"
#include "log/log.hpp"

namespace memlith::core {

// ---- FrameWriter -----------------------------------------------------------------------------------------------

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : log_(std::exchange(other.log_, nullptr)),
      sequence_(other.sequence_),
      way_(other.way_),
      kind_(other.kind_),
      begin_(other.begin_),
      payload_bytes_(other.payload_bytes_),
      put_bytes_(other.put_bytes_),
      payload_(other.payload_) {}

FrameWriter::~FrameWriter() { MEMLITH_ASSERT(log_ == nullptr); }  // an unfinished frame would stop the log

void FrameWriter::put_many(const void* bytes, std::uint64_t count, std::span<const std::byte> next) {
  MEMLITH_ASSERT(count <= payload_bytes_ - put_bytes_);
  const auto* const source = static_cast<const std::byte*>(bytes);
  if (way_ == Way::streamed) {
    log_->stream_put(source, count, next);
  } else {
    copy_and_fetch(payload_ + put_bytes_, source, count, next);
  }
  put_bytes_ += count;
}

Result<Lsn> FrameWriter::finish() {
  MEMLITH_ASSERT(log_ != nullptr);
  MEMLITH_ASSERT(put_bytes_ == payload_bytes_);
  Log& log = *std::exchange(log_, nullptr);
  if (way_ == Way::streamed) return log.finish_stream(*this);

  Lsn end = begin_.advance(payload_bytes_);
  if (way_ == Way::whole) {
    log.end_frame(payload_, payload_bytes_, begin_);
    const FrameHeader header = log.compose_header(begin_, kind_, payload_bytes_);
    std::memcpy(payload_ - sizeof header, &header, sizeof header);
    end = begin_.advance(log.geometry_.frame_bytes(payload_bytes_));
  }
  Log::Batch& batch = log.batch(sequence_);
  const std::uint32_t unfinished = batch.unfinished.fetch_sub(1, std::memory_order_release);
  MEMLITH_ASSERT(unfinished > 0);
  if (unfinished == 1) batch.unfinished.notify_all();
  return end;
}

// Writes what follows the payload: zeros and the trailer.
void Log::end_frame(std::byte* payload, std::uint64_t payload_bytes, Lsn begin) const {
  const std::uint64_t bytes = geometry_.frame_bytes(payload_bytes) - sizeof(FrameHeader);
  MEMLITH_DCHECK(bytes >= payload_bytes + sizeof(FrameTrailer));
  std::memset(payload + payload_bytes, 0, bytes - payload_bytes);
  const FrameTrailer trailer{checksum({payload, payload_bytes}, payload_seed(log_id_, begin, incarnation_))};
  std::memcpy(payload + bytes - sizeof trailer, &trailer, sizeof trailer);
}

// Fills everything except the chain, which only the thread that seals knows.
FrameHeader Log::compose_header(Lsn lsn, std::uint32_t kind, std::uint64_t payload_bytes) const {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.kind = kind;
  header.lsn = lsn.value;
  header.payload_bytes = payload_bytes;
  header.incarnation = incarnation_;
  return header;
}

// Chains the frame to the frame that was sealed before it. Called in LSN order.
void Log::chain(FrameHeader& header, std::uint64_t durable_lsn) {
  header.previous = last_checksum_;
  header.durable_lsn = durable_lsn;
  header.checksum = header_checksum(header, log_id_);
}

// ---- begin and sync --------------------------------------------------------------------------------------------

Status Log::allocate_buffers() {
  MEMLITH_ASSERT(batches_.empty() && options_.in_flight_max > 0);
  // Batches are numbered by a counter that wraps, so their count is a power of two.
  const std::size_t count = std::bit_ceil(std::size_t{options_.in_flight_max} + 1);
  options_.batch_bytes = round_up(options_.batch_bytes, kPageBytes);
  options_.small_batch_bytes = std::min(options_.batch_bytes, round_up(options_.small_batch_bytes, kPageBytes));
  options_.stream_chunk_bytes = round_up(options_.stream_chunk_bytes, kPageBytes);
  stream_.buffer_bytes = round_up(options_.stream_chunk_bytes + options_.stream_chunk_bytes / 4, kPageBytes);
  MEMLITH_TRY_ASSIGN(memory_.small, AlignedBuffer::allocate(count * options_.small_batch_bytes));
  const std::size_t stretches_max =
      2 + std::max(options_.batch_bytes, stream_.buffer_bytes) / geometry_.segment_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    auto batch = std::make_unique<Batch>();
    batch->stretches.reserve(stretches_max);
    MEMLITH_TRY_ASSIGN(batch->slot_header, AlignedBuffer::allocate(geometry_.block_bytes));
    batches_.push_back(std::move(batch));
  }
  place_buffer(open_sequence_);
  stream_.stretches.reserve(stretches_max);
  MEMLITH_TRY_ASSIGN(stream_.slot_header, AlignedBuffer::allocate(geometry_.block_bytes));
  return kOk;
}

// Allocates the memory that large frames need and, for streams, the queue. Releases the lock meanwhile.
Status Log::make_large(bool with_queue) {
  const bool memory_wanted = memory_.large.size() == 0;
  const std::uint64_t batches_bytes = batches_.size() * options_.batch_bytes;
  const std::uint64_t stream_bytes = kStreamChunks * stream_.buffer_bytes;
  mutex_.unlock();
  AlignedBuffer memory;
  Status status = kOk;
  if (memory_wanted) {
    auto allocated = AlignedBuffer::allocate(batches_bytes + stream_bytes);
    status = allocated.status();
    if (status.ok()) memory = std::move(*allocated);
  }
  std::unique_ptr<IoQueue> queue;
  if (status.ok() && with_queue) queue = device_.make_queue(kStreamChunks);
  mutex_.lock();
  MEMLITH_TRY(status);
  // Another thread may have done the same and may be streaming already.
  if (memory_.large.size() == 0 && memory.size() > 0) {
    memory_.large = std::move(memory);
    stream_.memory = memory_.large.data() + batches_bytes;
  }
  if (stream_.queue == nullptr && queue != nullptr && memory_.large.size() > 0) {
    stream_.queue = std::move(queue);
    stream_.queue->register_memory({stream_.memory, stream_bytes});
  }
  return kOk;
}

// A log that needed no large memory between two checkpoints releases it.
Log::Spare Log::take_spare() {
  Spare spare;
  const bool needed = std::exchange(memory_.large_used, false) || memory_.large.size() == 0;
  if (needed || in_flight() > 0 || batch(open_sequence_).used > 0) return spare;
  MEMLITH_ASSERT(!streaming_);
  spare.queue = std::move(stream_.queue);
  spare.memory = std::move(memory_.large);
  stream_.memory = nullptr;
  place_buffer(open_sequence_);
  return spare;
}

// The batch is the open one, and empty.
void Log::place_buffer(std::uint32_t sequence) {
  const bool large = memory_.large.size() > 0;
  Batch& open = batch(sequence);
  MEMLITH_ASSERT(sequence == open_sequence_ && open.used == 0 && pack_.frame == nullptr);
  open.capacity = large ? options_.batch_bytes : options_.small_batch_bytes;
  open.buffer = (large ? memory_.large : memory_.small).data() + sequence % batches_.size() * open.capacity;
}

// The obstacle that prevents a frame of this size from being begun now.
Log::Obstacle Log::obstacle(std::uint64_t frame_bytes, bool will_sync, bool& streamed) {
  const Batch& open = batch(open_sequence_);
  // A large frame of a single committer gains by being written while it is being copied; with several committers, a
  // shared write gains more.
  streamed = frame_bytes > options_.batch_bytes ||
             (will_sync && frame_bytes >= options_.stream_bytes_min && open.used == 0 && in_flight() == 0);
  const bool small_is_all = options_.small_batch_bytes == options_.batch_bytes;
  const bool large = streamed || (!small_is_all && open.used + frame_bytes > options_.small_batch_bytes);
  if (large && (memory_.large.size() == 0 || (streamed && stream_.queue == nullptr))) return Obstacle::small_memory;
  if (open.used == 0) place_buffer(open_sequence_);
  if (large) memory_.large_used = true;
  const bool room = streamed ? open.used == 0 : open.used + frame_bytes <= open.capacity;
  if (!room) return Obstacle::full_batch;
  if (streamed && streaming_) return Obstacle::other_stream;
  if (streamed && in_flight() == options_.in_flight_max) {
    return Obstacle::all_in_flight;
  }
  const std::uint64_t end = geometry_.segments_until(head_.advance(frame_bytes));
  return space_.slots.has_room(end) ? Obstacle::none : Obstacle::full_log;
}

// Takes one step to remove the obstacle.
Status Log::work_on(Obstacle obstacle, std::uint64_t frame_bytes, bool streamed) {
  switch (obstacle) {
    case Obstacle::none: break;
    case Obstacle::small_memory: return make_large(streamed);
    case Obstacle::full_batch:
      if (in_flight() < options_.in_flight_max && !gathering_.active) {
        lead();
      } else {
        gathering_.room_wanted = true;
        wait_for(open_sequence_);
      }
      break;
    case Obstacle::other_stream: wait_for(stream_.sequence); break;
    case Obstacle::all_in_flight: wait_for(done_sequence_.load(std::memory_order_relaxed)); break;
    case Obstacle::full_log: return make_space(head_.advance(frame_bytes));
  }
  return kOk;
}

Result<FrameWriter> Log::begin(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(started_);
  bool streamed = false;
  for (;;) {
    if (!failure_.ok()) return failure_for_late_comer();
    const std::uint64_t bytes = bytes_to_take(payload_bytes, kind, will_sync);
    const Obstacle found = obstacle(bytes, will_sync, streamed);
    if (found == Obstacle::none) return place(payload_bytes, kind, will_sync, streamed);
    MEMLITH_TRY(work_on(found, bytes, streamed));
  }
}

Result<std::optional<FrameWriter>> Log::begin_at_once(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(started_);
  if (!failure_.ok()) return failure_for_late_comer();
  bool streamed = false;
  if (obstacle(bytes_to_take(payload_bytes, kind, will_sync), will_sync, streamed) != Obstacle::none) {
    return std::optional<FrameWriter>();
  }
  return std::optional(place(payload_bytes, kind, will_sync, streamed));
}

Status Log::make_room(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const LockGuard lock(mutex_);
  for (;;) {
    if (!failure_.ok()) return failure_for_late_comer();
    const std::uint64_t bytes = bytes_to_take(payload_bytes, kind, will_sync);
    bool streamed = false;
    const Obstacle found = obstacle(bytes, will_sync, streamed);
    if (found == Obstacle::none) return kOk;
    MEMLITH_TRY(work_on(found, bytes, streamed));
  }
}

// How far the head moves for this payload.
std::uint64_t Log::bytes_to_take(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) const {
  if (!is_packed(payload_bytes, will_sync) || pack_.frame == nullptr || pack_.kind != kind) {
    return geometry_.frame_bytes(payload_bytes);
  }
  return geometry_.frame_bytes(pack_.payload_bytes + payload_bytes) - geometry_.frame_bytes(pack_.payload_bytes);
}

// Moves the head. There is room in the open batch, and there are free slots.
void Log::take(std::uint64_t bytes) {
  const Lsn end = head_.advance(bytes);
  space_.slots.map_until(geometry_.segments_until(end));
  counters_.bytes.fetch_add(bytes, std::memory_order_relaxed);
  batch(open_sequence_).used += bytes;
  head_ = end;
}

void Log::tell_head() {
  const Lsn end = pack_.frame == nullptr ? head_ : pack_.begin.advance(sizeof(FrameHeader) + pack_.payload_bytes);
  head_lsn_.store(end.value, std::memory_order_seq_cst);
}

// The payload gets its place in the open pack, or in a new one.
FrameWriter Log::place_packed(std::uint64_t payload_bytes, std::uint32_t kind) {
  if (pack_.frame != nullptr && pack_.kind != kind) close_pack();
  const std::uint64_t bytes = bytes_to_take(payload_bytes, kind, false);
  Batch& open = batch(open_sequence_);
  if (pack_.frame == nullptr) pack_ = {open.buffer + open.used, kind, head_, 0};
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
void Log::close_pack() {
  if (pack_.frame == nullptr) return;
  FrameHeader header = compose_header(pack_.begin, pack_.kind, pack_.payload_bytes);
  header.checksum = kUnsealedPack;
  std::memcpy(pack_.frame, &header, sizeof header);
  pack_ = {};
  tell_head();
}

// Assigns the frame's place in the log; there is no obstacle.
FrameWriter Log::place(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync, bool streamed) {
  counters_.frames.fetch_add(1, std::memory_order_relaxed);
  if (is_packed(payload_bytes, will_sync)) return place_packed(payload_bytes, kind);
  close_pack();
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  Batch& open = batch(open_sequence_);
  MEMLITH_ASSERT(head_ == open.begin.advance(open.used));
  MEMLITH_ASSERT(streamed ? open.used == 0 : open.used + frame_bytes <= open.capacity);
  const Lsn begin = head_;
  const std::uint32_t sequence = open_sequence_;
  std::byte* const payload = open.buffer + open.used + sizeof(FrameHeader);
  if (will_sync) ++open.committers;
  take(frame_bytes);
  tell_head();
  if (streamed) {
    // The stream is a batch of its own, already in flight; its bytes are in the stream's buffers.
    open_next_batch();
    streaming_ = true;
    stream_.sequence = sequence;
    stream_.begin = begin;
    // Chunks have equal sizes, so that the last one is not a small transfer of its own.
    const std::uint64_t wish = options_.stream_chunk_bytes;
    const std::uint64_t chunks = std::max<std::uint64_t>(2, (frame_bytes + wish / 2) / wish);
    stream_.chunk_bytes = round_up((frame_bytes + chunks - 1) / chunks, kPageBytes);
    MEMLITH_ASSERT(stream_.chunk_bytes <= stream_.buffer_bytes);
    stream_.chunk = 0;
    stream_.chunk_used = sizeof(FrameHeader);
    stream_.status = kOk;
    stream_.payload_checksum.reset(payload_seed(log_id_, begin, incarnation_));
    stream_.header = compose_header(begin, kind, payload_bytes);
  } else {
    open.unfinished.fetch_add(1, std::memory_order_relaxed);
  }
  const auto way = streamed ? FrameWriter::Way::streamed : FrameWriter::Way::whole;
  return FrameWriter(*this, sequence, way, payload, begin, payload_bytes, kind);
}

Result<Lsn> Log::append(std::span<const std::byte> payload, std::uint32_t kind) {
  MEMLITH_TRY_ASSIGN(FrameWriter writer, begin(payload.size(), kind));
  writer.put(payload.data(), payload.size());
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  MEMLITH_TRY(sync(end));
  return end;
}

Status Log::sync(Lsn lsn) {
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
