// Appending to the log: batches (group commit) and streamed frames. Opening and space are in log.cpp.
#include <bit>
#include <cstring>

#include "base/mutant.hpp"
#include "log/log.hpp"

namespace memlith::core {

// ---- FrameWriter -----------------------------------------------------------------------------------------------

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : log_(std::exchange(other.log_, nullptr)),
      sequence_(other.sequence_),
      streamed_(other.streamed_),
      kind_(other.kind_),
      begin_(other.begin_),
      payload_bytes_(other.payload_bytes_),
      put_bytes_(other.put_bytes_),
      frame_(other.frame_) {}

FrameWriter::~FrameWriter() { MEMLITH_ASSERT(log_ == nullptr); }  // an unfinished frame would stop the log

namespace {

// The sources lie scattered, and the processor cannot predict the next one: the beginning of `next` is fetched while
// the end of `source` is copied.
void copy_and_fetch(std::byte* target, const std::byte* source, std::uint64_t count, std::span<const std::byte> next) {
  constexpr std::uint64_t kStep = 512;
  constexpr std::uint64_t kCacheLineBytes = 64;
  std::uint64_t done = count - std::min(count, kPageBytes);
  if (done > 0) std::memcpy(target, source, done);
  std::uint64_t fetched = 0;
  for (; done < count; done += kStep) {
    const std::uint64_t fetch_end = std::min<std::uint64_t>(next.size(), fetched + kStep);
    for (; fetched < fetch_end; fetched += kCacheLineBytes) __builtin_prefetch(next.data() + fetched);
    std::memcpy(target + done, source + done, std::min(kStep, count - done));
  }
}

}  // namespace

void FrameWriter::put(const void* bytes, std::uint64_t count, std::span<const std::byte> next) {
  MEMLITH_ASSERT(count <= payload_bytes_ - put_bytes_);
  const auto* const source = static_cast<const std::byte*>(bytes);
  if (streamed_) {
    log_->stream_put(source, count, next);
  } else {
    copy_and_fetch(frame_ + sizeof(FrameHeader) + put_bytes_, source, count, next);
  }
  put_bytes_ += count;
}

Result<Lsn> FrameWriter::finish() {
  MEMLITH_ASSERT(put_bytes_ == payload_bytes_);
  Log& log = *std::exchange(log_, nullptr);
  if (streamed_) return log.finish_stream(*this);

  const std::uint64_t frame_bytes = log.geometry_.frame_bytes(payload_bytes_);
  std::byte* const payload = frame_ + sizeof(FrameHeader);
  std::memset(payload + payload_bytes_, 0, frame_bytes - sizeof(FrameHeader) - payload_bytes_);
  const FrameTrailer trailer{checksum({payload, payload_bytes_}, payload_seed(log.log_id_, begin_))};
  std::memcpy(frame_ + frame_bytes - sizeof trailer, &trailer, sizeof trailer);
  const FrameHeader header = log.compose_header(begin_, kind_, payload_bytes_);
  std::memcpy(frame_, &header, sizeof header);
  Log::Batch& batch = log.batch(sequence_);
  if (batch.unfinished.fetch_sub(1, std::memory_order_release) == 1) batch.unfinished.notify_all();
  return begin_.advance(frame_bytes);
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
  header.durable_lsn = MEMLITH_MUTANT(durable_lsn_not_told) ? 0 : durable_lsn;
  header.checksum = header_checksum(header, log_id_);
}

// ---- begin and sync --------------------------------------------------------------------------------------------

Status Log::allocate_buffers() {
  // Batches are numbered by a counter that wraps, so their count is a power of two.
  const std::size_t count = std::bit_ceil(std::size_t{options_.in_flight_max} + 1);
  options_.batch_bytes = round_up(options_.batch_bytes, kPageBytes);
  options_.small_batch_bytes = std::min(options_.batch_bytes, round_up(options_.small_batch_bytes, kPageBytes));
  options_.stream_chunk_bytes = round_up(options_.stream_chunk_bytes, kPageBytes);
  stream_.buffer_bytes = round_up(options_.stream_chunk_bytes + options_.stream_chunk_bytes / 4, kPageBytes);
  MEMLITH_TRY_ASSIGN(small_memory_, AlignedBuffer::allocate(count * options_.small_batch_bytes));
  const std::size_t pieces_max = 2 + std::max(options_.batch_bytes, stream_.buffer_bytes) / geometry_.segment_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    auto batch = std::make_unique<Batch>();
    batch->pieces.reserve(pieces_max);
    MEMLITH_TRY_ASSIGN(batch->slot_header, AlignedBuffer::allocate(geometry_.block_bytes));
    batches_.push_back(std::move(batch));
  }
  place_buffer(open_sequence_);
  stream_.pieces.reserve(pieces_max);
  MEMLITH_TRY_ASSIGN(stream_.slot_header, AlignedBuffer::allocate(geometry_.block_bytes));
  return kOk;
}

// Allocates the memory that large frames need and, for streams, the queue. Releases the lock meanwhile.
Status Log::make_large(Lock& lock, bool with_queue) {
  const bool memory_wanted = large_memory_.size() == 0;
  const std::uint64_t batches_bytes = batches_.size() * options_.batch_bytes;
  const std::uint64_t stream_bytes = kStreamChunks * stream_.buffer_bytes;
  lock.unlock();
  AlignedBuffer memory;
  Status status = kOk;
  if (memory_wanted) {
    auto allocated = AlignedBuffer::allocate(batches_bytes + stream_bytes);
    status = allocated.status();
    if (status.ok()) memory = std::move(*allocated);
  }
  std::unique_ptr<IoQueue> queue;
  if (status.ok() && with_queue) queue = device_.make_queue(kStreamChunks);
  lock.lock();
  MEMLITH_TRY(status);
  // Another thread may have done the same and may be streaming already.
  if (large_memory_.size() == 0 && memory.size() > 0) {
    large_memory_ = std::move(memory);
    stream_.memory = large_memory_.data() + batches_bytes;
  }
  if (stream_.queue == nullptr && queue != nullptr && large_memory_.size() > 0) {
    stream_.queue = std::move(queue);
    stream_.queue->register_memory({stream_.memory, stream_bytes});
  }
  return kOk;
}

// Under mutex_. A log that needed no large memory between two checkpoints releases it.
Log::Spare Log::take_spare() {
  Spare spare;
  const bool needed = std::exchange(large_used_, false) || large_memory_.size() == 0;
  if (needed || in_flight() > 0 || batch(open_sequence_).used > 0) return spare;
  spare.queue = std::move(stream_.queue);
  spare.memory = std::move(large_memory_);
  stream_.memory = nullptr;
  place_buffer(open_sequence_);
  return spare;
}

// The batch is the open one, and empty.
void Log::place_buffer(std::uint32_t sequence) {
  const bool large = large_memory_.size() > 0;
  Batch& open = batch(sequence);
  open.capacity = large ? options_.batch_bytes : options_.small_batch_bytes;
  open.buffer = (large ? large_memory_ : small_memory_).data() + sequence % batches_.size() * open.capacity;
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
  if (large && (large_memory_.size() == 0 || (streamed && stream_.queue == nullptr))) return Obstacle::small_memory;
  if (open.used == 0) place_buffer(open_sequence_);
  if (large) large_used_ = true;
  const bool room = streamed ? open.used == 0 : open.used + frame_bytes <= open.capacity;
  if (!room) return Obstacle::full_batch;
  if (streamed && stream_.busy && !MEMLITH_MUTANT(two_streams_at_once)) return Obstacle::other_stream;
  if (streamed && in_flight() == options_.in_flight_max && !MEMLITH_MUTANT(stream_beyond_in_flight_max)) {
    return Obstacle::all_in_flight;
  }
  return slots_needed(head_.advance(frame_bytes)) <= free_slots_.size() ? Obstacle::none : Obstacle::full_log;
}

// Takes one step to remove the obstacle. Releases the lock: the caller checks everything again.
Status Log::work_on(Obstacle obstacle, Lock& lock, std::uint64_t frame_bytes, bool streamed) {
  switch (obstacle) {
    case Obstacle::none: break;
    case Obstacle::small_memory: return make_large(lock, streamed);
    case Obstacle::full_batch:
      if (in_flight() < options_.in_flight_max && !gathering_) {
        lead(lock);
      } else {
        room_wanted_ = true;
        wait_for(lock, open_sequence_);
      }
      break;
    case Obstacle::other_stream: wait_for(lock, stream_.sequence); break;
    case Obstacle::all_in_flight: wait_for(lock, done_sequence_.load(std::memory_order_relaxed)); break;
    case Obstacle::full_log: return make_space(lock, head_.advance(frame_bytes));
  }
  return kOk;
}

Result<FrameWriter> Log::begin(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  Lock lock(mutex_);
  MEMLITH_ASSERT(started_);
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  bool streamed = false;
  for (;;) {
    if (!failure_.ok()) return failure_for_late_comer();
    const Obstacle found = obstacle(frame_bytes, will_sync, streamed);
    if (found == Obstacle::none) return place(payload_bytes, kind, will_sync, streamed);
    MEMLITH_TRY(work_on(found, lock, frame_bytes, streamed));
  }
}

Result<std::optional<FrameWriter>> Log::begin_at_once(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync) {
  const Lock lock(mutex_);
  MEMLITH_ASSERT(started_);
  if (!failure_.ok()) return failure_for_late_comer();
  bool streamed = false;
  if (obstacle(geometry_.frame_bytes(payload_bytes), will_sync, streamed) != Obstacle::none) {
    return std::optional<FrameWriter>();
  }
  return std::optional(place(payload_bytes, kind, will_sync, streamed));
}

Status Log::make_room(std::uint64_t payload_bytes, bool will_sync) {
  Lock lock(mutex_);
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  for (;;) {
    if (!failure_.ok()) return failure_for_late_comer();
    bool streamed = false;
    const Obstacle found = obstacle(frame_bytes, will_sync, streamed);
    if (found == Obstacle::none) return kOk;
    MEMLITH_TRY(work_on(found, lock, frame_bytes, streamed));
  }
}

// Assigns the frame's place in the log; there is no obstacle.
FrameWriter Log::place(std::uint64_t payload_bytes, std::uint32_t kind, bool will_sync, bool streamed) {
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  for (std::uint64_t i = slots_needed(head_.advance(frame_bytes)); i > 0; --i) {
    slots_.append(free_slots_.back());
    free_slots_.pop_back();
  }
  counters_.frames.fetch_add(1, std::memory_order_relaxed);
  counters_.bytes.fetch_add(frame_bytes, std::memory_order_relaxed);
  Batch& open = batch(open_sequence_);
  const Lsn begin = head_;
  const std::uint32_t sequence = open_sequence_;
  std::byte* const frame = open.buffer + open.used;
  open.used += frame_bytes;
  if (will_sync) ++open.committers;
  head_ = head_.advance(frame_bytes);
  if (streamed) {
    // The stream is a batch of its own, already in flight; its bytes are in the stream's buffers.
    open_next_batch();
    stream_.busy = true;
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
    stream_.payload_checksum.reset(payload_seed(log_id_, begin));
    stream_.header = compose_header(begin, kind, payload_bytes);
  } else {
    open.unfinished.fetch_add(1, std::memory_order_relaxed);
  }
  return FrameWriter(*this, sequence, streamed, frame, begin, payload_bytes, kind);
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
  Lock lock(mutex_);
  for (;;) {
    if (durable_position_.lsn >= lsn) return kOk;
    if (!failure_.ok()) {
      const Status failure = failure_.tell();
      if (MEMLITH_MUTANT(poisoned_log_goes_on)) forget_failure();
      return failure;
    }
    MEMLITH_ASSERT(lsn <= head_);
    if (batch(open_sequence_).begin < lsn) {
      if (may_lead()) {
        gather(lock);
        lead(lock);
      } else {
        wait_for(lock, open_sequence_);
      }
      continue;
    }
    std::uint32_t sequence = done_sequence_.load(std::memory_order_relaxed);
    while (batch(sequence).begin.advance(batch(sequence).used) < lsn) ++sequence;
    wait_for(lock, sequence);
  }
}

// ---- batches ---------------------------------------------------------------------------------------------------

void Log::await(const Atomic<std::uint32_t>& word, std::uint32_t value) { word.wait(value, std::memory_order_acquire); }

// Yields several times before it blocks. Waking a blocked thread can take as long as writing a small batch; woken
// committers would come too late for the next batch, and batches would stay small. A count and not a time: it is over
// soon if no other thread runs, and lasts as long as needed if there are many committers.
void Log::wait_for(Lock& lock, std::uint32_t sequence) {
  const Atomic<std::uint32_t>& word = batch(sequence).word;
  const std::uint32_t seen = word.load(std::memory_order_relaxed);
  lock.unlock();
  for (std::uint32_t turn = 0; turn < options_.turns_awake && word.load(std::memory_order_acquire) == seen; ++turn) {
    yield_thread();
  }
  await(word, MEMLITH_MUTANT(waiter_looks_late) ? word.load() : seen);
  lock.lock();
}

void Log::open_next_batch() {
  Batch& next = batch(++open_sequence_);
  next.begin = head_;
  next.used = 0;
  next.committers = 0;
  room_wanted_ = false;
  place_buffer(open_sequence_);
}

void Log::lay_out(Lsn begin, std::uint64_t bytes, std::vector<Piece>& pieces) const {
  pieces.clear();
  for (std::uint64_t done = 0; done < bytes;) {
    const Lsn at = begin.advance(done);
    Piece piece;
    piece.segment = geometry_.segment_of(at);
    const std::uint32_t slot = slots_.at(piece.segment);
    MEMLITH_ASSERT(slot != SlotMap::kNone);
    const std::uint64_t offset = geometry_.offset_in_segment(at);
    piece.with_slot_header = offset == 0;
    piece.device_offset = geometry_.slot_offset(slot) + geometry_.block_bytes + offset;
    piece.begin = done;
    piece.bytes = std::min(bytes - done, geometry_.left_in_segment(at));
    done += piece.bytes;
    pieces.push_back(piece);
  }
}

void Log::fill_slot_header(AlignedBuffer& block, std::uint64_t segment) const {
  SlotHeader header{};
  header.magic = kSlotMagic;
  header.segment = segment;
  header.incarnation = incarnation_;
  header.checksum = header_checksum(header, log_id_);
  std::memset(block.data(), 0, geometry_.block_bytes);
  std::memcpy(block.data(), &header, sizeof header);
}

// Waits until the committers of the last acknowledged batch have come back with their next frames, at most a quarter of
// a batch's I/O time, so that the same I/O serves all of them. The idea is PostgreSQL's commit_delay, but without a
// parameter: a single committer is the only one of its batch, and does not wait.
void Log::gather(Lock& lock) {
  const auto enough = [this] {
    return batch(open_sequence_).committers >= expected_committers_ || room_wanted_ || !failure_.ok();
  };
  if (enough()) return;
  gathering_ = true;
  const auto deadline = SteadyClock::now() + io_time_ / 4;
  while (!enough() && SteadyClock::now() < deadline) {
    lock.unlock();
    yield_thread();
    lock.lock();
  }
  gathering_ = false;
}

// Seals the open batch, which is not empty, and makes it durable. Releases the lock meanwhile.
void Log::lead(Lock& lock) {
  const std::uint32_t sequence = open_sequence_;
  Batch& sealed = batch(sequence);
  MEMLITH_ASSERT(sealed.used > 0);
  lay_out(sealed.begin, sealed.used, sealed.pieces);
  open_next_batch();
  lock.unlock();
  seal(sealed, sequence);
  const auto begin = SteadyClock::now();
  Status status = write_batch(sealed);
  if (MEMLITH_MUTANT(durable_told_before_flush)) tell_durable_early(sequence);
  if (status.ok()) status = device_.flush();
  complete(lock, sequence, status, SteadyClock::now() - begin);
}

// Until every batch before this one has its headers.
void Log::await_sealed(std::uint32_t sequence) {
  for (std::uint32_t now = 0; (now = sealed_sequence_.load(std::memory_order_acquire)) != sequence;) {
    await(sealed_sequence_, now);
  }
}

void Log::publish_sealed(std::uint32_t sequence) {
  sealed_sequence_.store(sequence + 1, std::memory_order_release);
  sealed_sequence_.notify_all();
}

// Waits until every writer of the batch has finished and the batch before it has its headers; then chains the frames.
void Log::seal(Batch& sealed, std::uint32_t sequence) {
  for (std::uint32_t left = 0; (left = sealed.unfinished.load(std::memory_order_acquire)) != 0;) {
    await(sealed.unfinished, left);
  }
  await_sealed(sequence);
  const std::uint64_t durable = durable_lsn_.load(std::memory_order_acquire);
  for (std::uint64_t at = 0; at < sealed.used;) {
    FrameHeader header;
    std::memcpy(&header, sealed.buffer + at, sizeof header);
    MEMLITH_ASSERT(header.magic == kFrameMagic && header.lsn == sealed.begin.value + at);
    chain(header, durable);
    std::memcpy(sealed.buffer + at, &header, sizeof header);
    at += geometry_.frame_bytes(header.payload_bytes);
    FrameTrailer trailer;
    std::memcpy(&trailer, sealed.buffer + at - sizeof trailer, sizeof trailer);
    last_checksum_ = chain_value(header, trailer, log_id_);
  }
  sealed.after_checksum = last_checksum_;
  publish_sealed(sequence);
}

Status Log::write_batch(Batch& sealed) {
  for (const Piece& piece : sealed.pieces) {
    iovec vectors[2] = {{sealed.slot_header.data(), geometry_.block_bytes}, {sealed.buffer + piece.begin, piece.bytes}};
    if (piece.with_slot_header) {
      fill_slot_header(sealed.slot_header, piece.segment);
      MEMLITH_TRY(device_.write_pieces(piece.device_offset - geometry_.block_bytes, vectors));
    } else {
      MEMLITH_TRY(device_.write_pieces(piece.device_offset, {vectors + 1, 1}));
    }
  }
  return kOk;
}

// Until every batch before this one is acknowledged.
void Log::await_done(std::uint32_t sequence) {
  if (MEMLITH_MUTANT(complete_out_of_order)) return;
  for (std::uint32_t now = 0; (now = done_sequence_.load(std::memory_order_acquire)) != sequence;) {
    await(done_sequence_, now);
  }
}

// Where the log is durable to when this batch is.
LogPosition Log::end_of(std::uint32_t sequence) {
  if (MEMLITH_MUTANT(acknowledge_next_batch) && sealed_sequence_.load() - sequence == 2) ++sequence;
  const Batch& done = batch(sequence);
  return {done.begin.advance(done.used), done.after_checksum};
}

// Acknowledges the batch, after all batches before it. `io_time` is 0 for a stream, whose time says nothing about
// batches. Called without the lock, returns with it.
void Log::complete(Lock& lock, std::uint32_t sequence, Status status, std::chrono::nanoseconds io_time) {
  await_done(sequence);
  Batch& done = batch(sequence);
  lock.lock();
  if (failure_.ok() && !status.ok()) {
    keep_failure(status);
    change_space();
  }
  if (failure_.ok()) {
    // ORDER flush-before-acknowledge: a commit becomes visible as durable only here. [mutant acknowledge_before_flush]
    durable_position_ = end_of(sequence);
    durable_lsn_.store(durable_position_.lsn.value, std::memory_order_release);
  }
  if (io_time.count() > 0) io_time_ += (io_time - io_time_) / 8;
  if (stream_.busy && stream_.sequence == sequence) stream_.busy = false;
  counters_.batches.fetch_add(1, std::memory_order_relaxed);
  done.word.fetch_add(1, std::memory_order_release);
  done_sequence_.store(sequence + 1, std::memory_order_release);
  Batch& open = batch(open_sequence_);
  expected_committers_ = done.committers + open.committers;
  const bool more = open.used > 0;
  if (more) open.word.fetch_add(1, std::memory_order_release);
  const bool failed = !failure_.ok();
  lock.unlock();
  done_sequence_.notify_all();
  done.word.notify_all();
  if (more && !failed) open.word.notify_one();
  if (failed) {
    for (const auto& each : batches_) {
      each->word.fetch_add(1, std::memory_order_release);
      each->word.notify_all();
    }
    space_word_.notify_all();
  }
  if (on_durable_) on_durable_();
  lock.lock();
}

// ---- streamed frames -------------------------------------------------------------------------------------------

std::byte* Log::stream_buffer(std::uint64_t chunk) const {
  return stream_.memory + stream_slot(chunk) * stream_.buffer_bytes;
}

void Log::stream_put(const std::byte* bytes, std::uint64_t count, std::span<const std::byte> next) {
  while (count > 0) {
    if (stream_.chunk_used == stream_.chunk_bytes) {
      stream_hash(stream_.chunk_used);
      stream_send();
    }
    const std::uint64_t step = std::min(count, stream_.chunk_bytes - stream_.chunk_used);
    const bool last = step == count;
    copy_and_fetch(stream_buffer(stream_.chunk) + stream_.chunk_used, bytes, step,
                   last ? next : std::span<const std::byte>());
    stream_.chunk_used += step;
    bytes += step;
    count -= step;
  }
}

void Log::stream_hash(std::uint64_t payload_end) {
  const std::uint64_t payload_begin = stream_.chunk == 0 ? sizeof(FrameHeader) : 0;
  if (payload_end <= payload_begin) return;
  stream_.payload_checksum.update({stream_buffer(stream_.chunk) + payload_begin, payload_end - payload_begin});
}

// Submits the chunk and changes to the next buffer.
void Log::stream_send() {
  if (stream_.chunk == 0) {
    // The header is written first, so everything before the frame must be sealed by now.
    await_sealed(stream_.sequence);
    chain(stream_.header, durable_lsn_.load(std::memory_order_acquire));
    std::memcpy(stream_buffer(0), &stream_.header, sizeof stream_.header);
  }
  if (stream_.status.ok()) stream_.status = stream_write();
  if (stream_.status.category == Errc::poisoned) {  // refused because of an earlier transfer
    if (const Status cause = stream_.queue->wait_all(); !cause.ok()) stream_.status = cause;
  }
  ++stream_.chunk;
  stream_.chunk_used = 0;
  // The next buffer may still be in flight.
  if (stream_.chunk >= kStreamChunks) {
    const Status status = stream_.queue->wait(stream_slot(stream_.chunk));
    if (stream_.status.ok()) stream_.status = status;
  }
}

Status Log::stream_write() {
  {
    const Lock lock(mutex_);
    lay_out(stream_.begin.advance(stream_.chunk * stream_.chunk_bytes), stream_.chunk_used, stream_.pieces);
  }
  for (const Piece& piece : stream_.pieces) {
    if (piece.with_slot_header) {
      fill_slot_header(stream_.slot_header, piece.segment);
      MEMLITH_TRY(device_.write(piece.device_offset - geometry_.block_bytes,
                                {stream_.slot_header.data(), geometry_.block_bytes}));
    }
    MEMLITH_TRY(stream_.queue->write(stream_slot(stream_.chunk), piece.device_offset,
                                     {stream_buffer(stream_.chunk) + piece.begin, piece.bytes}));
  }
  return kOk;
}

Result<Lsn> Log::finish_stream(const FrameWriter& writer) {
  const std::uint64_t frame_bytes = geometry_.frame_bytes(writer.payload_bytes_);
  stream_hash(stream_.chunk_used);
  std::uint64_t frame_end = frame_bytes - stream_.chunk * stream_.chunk_bytes;
  const auto fill_to = [this](std::uint64_t end) {
    std::memset(stream_buffer(stream_.chunk) + stream_.chunk_used, 0, end - stream_.chunk_used);
    stream_.chunk_used = end;
  };
  if (frame_end > stream_.chunk_bytes) {  // the payload ends in this chunk, the frame in the next
    fill_to(stream_.chunk_bytes);
    stream_send();
    frame_end -= stream_.chunk_bytes;
  }
  fill_to(frame_end);
  const FrameTrailer trailer{stream_.payload_checksum.digest()};
  std::memcpy(stream_buffer(stream_.chunk) + frame_end - sizeof trailer, &trailer, sizeof trailer);
  stream_send();

  // From here on as with a batch: later frames may be sealed; wait, flush, acknowledge.
  last_checksum_ = chain_value(stream_.header, trailer, log_id_);
  batch(writer.sequence_).after_checksum = last_checksum_;
  publish_sealed(writer.sequence_);
  Status status = stream_.status;
  if (const Status rest = stream_.queue->wait_all(); status.ok()) status = rest;
  if (status.ok()) status = device_.flush();
  Lock lock(mutex_, std::defer_lock);
  complete(lock, writer.sequence_, status, {});
  if (!failure_.ok()) return failure_.tell();
  return writer.begin_.advance(frame_bytes);
}

}  // namespace memlith::core
