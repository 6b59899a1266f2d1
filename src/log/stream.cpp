#include "log/stream.hpp"

#include <algorithm>
#include <cstring>

#include "log/copy.hpp"

namespace memlith::core {

Status Stream::allocate(std::uint64_t chunk_bytes, std::size_t stretches_max) {
  MEMLITH_ASSERT(buffer_bytes_ == 0 && chunk_bytes % kPageBytes == 0);
  wished_chunk_bytes_ = chunk_bytes;
  buffer_bytes_ = round_up(chunk_bytes + chunk_bytes / 4, kPageBytes);
  stretches_.reserve(stretches_max);
  MEMLITH_TRY_ASSIGN(slot_header_, AlignedBuffer::allocate(geometry_.block_bytes));
  return kOk;
}

void Stream::use_queue(std::unique_ptr<IoQueue> queue) {
  MEMLITH_ASSERT(memory_ != nullptr && queue_ == nullptr);
  queue_ = std::move(queue);
  queue_->register_memory({memory_, memory_bytes()});
}

std::unique_ptr<IoQueue> Stream::take_queue() {
  memory_ = nullptr;
  return std::move(queue_);
}

void Stream::begin(std::uint32_t sequence, Lsn begin, std::uint32_t kind, std::uint64_t payload_bytes) {
  MEMLITH_ASSERT(memory_ != nullptr && queue_ != nullptr);
  sequence_ = sequence;
  begin_ = begin;
  header_ = chain_.header(begin, kind, payload_bytes);
  // Chunks have equal sizes, so that the last one is not a small transfer of its own.
  const std::uint64_t frame_bytes = geometry_.frame_bytes(payload_bytes);
  const std::uint64_t chunks =
      std::max<std::uint64_t>(2, (frame_bytes + wished_chunk_bytes_ / 2) / wished_chunk_bytes_);
  chunk_bytes_ = round_up((frame_bytes + chunks - 1) / chunks, kPageBytes);
  MEMLITH_ASSERT(chunk_bytes_ <= buffer_bytes_);
  chunk_ = 0;
  chunk_used_ = sizeof(FrameHeader);
  status_ = kOk;
  payload_checksum_.reset(chain_.seed(begin));
}

std::byte* Stream::buffer(std::uint64_t chunk) const {
  MEMLITH_ASSERT(memory_ != nullptr);
  return memory_ + slot(chunk) * buffer_bytes_;
}

void Stream::put(const std::byte* bytes, std::uint64_t count, std::span<const std::byte> next) {
  while (count > 0) {
    MEMLITH_ASSERT(chunk_used_ <= chunk_bytes_);
    if (chunk_used_ == chunk_bytes_) {
      hash(chunk_used_);
      send();
    }
    const std::uint64_t step = std::min(count, chunk_bytes_ - chunk_used_);
    const bool last = step == count;
    copy_and_fetch(buffer(chunk_) + chunk_used_, bytes, step, last ? next : std::span<const std::byte>());
    chunk_used_ += step;
    bytes += step;
    count -= step;
  }
}

void Stream::hash(std::uint64_t payload_end) {
  const std::uint64_t payload_begin = chunk_ == 0 ? sizeof(FrameHeader) : 0;
  if (payload_end <= payload_begin) return;
  payload_checksum_.update({buffer(chunk_) + payload_begin, payload_end - payload_begin});
}

// Submits the chunk and changes to the next buffer.
void Stream::send() {
  MEMLITH_ASSERT(chunk_used_ > 0 && chunk_used_ <= buffer_bytes_);
  if (chunk_ == 0) {
    // The header is written first, so everything before the frame must be sealed by now.
    chain_.await_turn(sequence_);
    chain_.link(header_, owner_.durable_lsn());
    std::memcpy(buffer(0), &header_, sizeof header_);
  }
  if (status_.ok()) status_ = write();
  if (status_.category == Errc::poisoned) {  // refused because of an earlier transfer
    if (const Status cause = queue_->wait_all(); !cause.ok()) status_ = cause;
  }
  ++chunk_;
  chunk_used_ = 0;
  // The next buffer may still be in flight.
  if (chunk_ >= kChunks) {
    const Status status = queue_->wait(slot(chunk_));
    if (status_.ok()) status_ = status;
  }
}

Status Stream::write() {
  owner_.lay_out(begin_.advance(chunk_ * chunk_bytes_), chunk_used_, stretches_);
  for (const Stretch& stretch : stretches_) {
    if (stretch.with_slot_header) {
      const std::span<std::byte> block = slot_header_.span().first(geometry_.block_bytes);
      chain_.fill_slot_header(block, stretch.segment);
      MEMLITH_TRY(device_.write(stretch.device_offset - block.size(), block));
    }
    MEMLITH_TRY(queue_->write(slot(chunk_), stretch.device_offset, {buffer(chunk_) + stretch.begin, stretch.bytes}));
  }
  return kOk;
}

void Stream::fill_to(std::uint64_t end) {
  MEMLITH_ASSERT(chunk_used_ <= end && end <= buffer_bytes_);
  std::memset(buffer(chunk_) + chunk_used_, 0, end - chunk_used_);
  chunk_used_ = end;
}

std::uint64_t Stream::finish() {
  hash(chunk_used_);
  std::uint64_t frame_end = geometry_.frame_bytes(header_.payload_bytes) - chunk_ * chunk_bytes_;
  if (frame_end > chunk_bytes_) {  // the payload ends in this chunk, the frame in the next
    fill_to(chunk_bytes_);
    send();
    frame_end -= chunk_bytes_;
  }
  fill_to(frame_end);
  const FrameTrailer trailer{payload_checksum_.digest()};
  std::memcpy(buffer(chunk_) + frame_end - sizeof trailer, &trailer, sizeof trailer);
  send();
  chain_.add(header_, trailer);
  return chain_.last();
}

Status Stream::make_durable() {
  Status status = status_;
  if (const Status rest = queue_->wait_all(); status.ok()) status = rest;
  if (status.ok()) status = device_.flush();
  return status;
}

}  // namespace memlith::core
