// Streamed frames, which are written while they are being filled.
#include <algorithm>
#include <cstring>

#include "log/copy.hpp"
#include "log/log.hpp"

namespace memlith::core {

std::byte* Log::stream_buffer(std::uint64_t chunk) const {
  MEMLITH_ASSERT(stream_.memory != nullptr);
  return stream_.memory + stream_slot(chunk) * stream_.buffer_bytes;
}

void Log::stream_put(const std::byte* bytes, std::uint64_t count, std::span<const std::byte> next) {
  while (count > 0) {
    MEMLITH_ASSERT(stream_.chunk_used <= stream_.chunk_bytes);
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
  MEMLITH_ASSERT(stream_.chunk_used > 0 && stream_.chunk_used <= stream_.buffer_bytes);
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
    const LockGuard lock(mutex_);
    lay_out(stream_.begin.advance(stream_.chunk * stream_.chunk_bytes), stream_.chunk_used, stream_.stretches);
  }
  for (const Stretch& stretch : stream_.stretches) {
    if (stretch.with_slot_header) {
      const std::span<std::byte> block = stream_.slot_header.span().first(geometry_.block_bytes);
      fill_slot_header(block, stretch.segment, incarnation_, log_id_);
      MEMLITH_TRY(device_.write(stretch.device_offset - block.size(), block));
    }
    MEMLITH_TRY(stream_.queue->write(stream_slot(stream_.chunk), stretch.device_offset,
                                     {stream_buffer(stream_.chunk) + stretch.begin, stretch.bytes}));
  }
  return kOk;
}

Result<Lsn> Log::finish_stream(const FrameWriter& writer) {
  const std::uint64_t frame_bytes = geometry_.frame_bytes(writer.payload_bytes_);
  stream_hash(stream_.chunk_used);
  std::uint64_t frame_end = frame_bytes - stream_.chunk * stream_.chunk_bytes;
  const auto fill_to = [this](std::uint64_t end) {
    MEMLITH_ASSERT(stream_.chunk_used <= end && end <= stream_.buffer_bytes);
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
  complete(writer.sequence_, status, {});
  const LockGuard lock(mutex_, std::adopt_lock);
  if (!failure_.ok()) return failure_.tell();
  return writer.begin_.advance(frame_bytes);
}

}  // namespace memlith::core
