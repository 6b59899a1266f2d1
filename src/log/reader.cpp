#include "log/reader.hpp"

#include <cstring>

#include "base/checksum.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kTransferBytes = 1 * kMiB;  // one read; several of them run side by side
constexpr std::uint32_t kTransfers = 4;
}  // namespace

LogReader::LogReader(Device& device, const LogGeometry& geometry, SlotMap slots, std::uint64_t log_id, LogPosition from,
                     Lsn limit, std::uint64_t window_bytes)
    : device_(device),
      geometry_(geometry),
      slots_(std::move(slots)),
      log_id_(log_id),
      position_(from),
      limit_(limit),
      window_bytes_(round_up(window_bytes, kPageBytes)),
      buffered_begin_(from.lsn),
      buffered_end_(from.lsn) {}

std::uint64_t LogReader::readable_from(Lsn lsn) const {
  const Lsn mapped_end{slots_.end() * geometry_.segment_bytes()};
  const Lsn end = std::min(mapped_end, limit_);
  if (slots_.at(geometry_.segment_of(lsn)) == SlotMap::kNone || lsn >= end) return 0;
  return bytes_between(lsn, end);
}

Result<bool> LogReader::fill(std::uint64_t bytes) {
  const Lsn begin = position_.lsn;
  if (begin.advance(bytes) <= buffered_end_) return true;
  const std::uint64_t readable = readable_from(begin);
  if (bytes > readable) return false;

  // Keep what is already here, then read on to the end of the window.
  const std::uint64_t kept = begin < buffered_end_ ? bytes_between(begin, buffered_end_) : 0;
  const std::uint64_t wanted = std::min(std::max(round_up(bytes, kPageBytes), window_bytes_), readable);
  const std::byte* kept_at = kept > 0 ? buffer_.data() + bytes_between(buffered_begin_, begin) : nullptr;
  if (buffer_.size() < wanted) {
    MEMLITH_TRY_ASSIGN(AlignedBuffer bigger, AlignedBuffer::allocate(wanted));
    if (kept > 0) std::memcpy(bigger.data(), kept_at, kept);
    buffer_ = std::move(bigger);
  } else if (kept > 0) {
    std::memmove(buffer_.data(), kept_at, kept);
  }
  buffered_begin_ = begin;
  buffered_end_ = begin.advance(kept);

  // A small window is one plain read; a queue of transfers pays from several megabytes on.
  const bool queued = wanted - kept > kTransferBytes;
  if (queued && queue_ == nullptr) queue_ = device_.make_queue(kTransfers);
  std::uint32_t slot_index = 0;
  Lsn at = buffered_end_;
  const Lsn end = begin.advance(wanted);
  while (at < end) {
    const std::uint32_t slot = slots_.at(geometry_.segment_of(at));
    MEMLITH_ASSERT(slot != SlotMap::kNone);
    const std::uint64_t step =
        std::min({bytes_between(at, end), geometry_.left_in_segment(at), queued ? kTransferBytes : ~std::uint64_t{0}});
    const std::uint64_t offset = geometry_.slot_offset(slot) + geometry_.block_bytes + geometry_.offset_in_segment(at);
    const std::span<std::byte> target{buffer_.data() + bytes_between(begin, at), step};
    if (queued) {
      MEMLITH_TRY(queue_->read(slot_index++ % kTransfers, offset, target));
    } else {
      MEMLITH_TRY(device_.read(offset, target));
    }
    at = at.advance(step);
  }
  if (queued) MEMLITH_TRY(queue_->wait_all());
  buffered_end_ = end;
  return true;
}

Result<std::optional<Frame>> LogReader::next() {
  MEMLITH_TRY_ASSIGN(const bool header_here, fill(geometry_.block_bytes));
  if (!header_here) return stop("the log ends here");

  FrameHeader header;
  std::memcpy(&header, buffer_.data() + bytes_between(buffered_begin_, position_.lsn), sizeof header);
  if (header.magic != kFrameMagic) return stop("no frame starts here");
  if (header.checksum != header_checksum(header, log_id_)) return stop("the checksum of the frame's header is wrong");
  if (header.lsn != position_.lsn.value) return stop("the frame belongs to another place");
  // CHAIN: a frame that was in flight behind a lost one may be whole; only the chain tells that its predecessor is
  // not the one it was written after. [log/stale_frame]
  if (header.previous != position_.previous) return stop("the frame follows another one than the last (stale)");
  const std::uint64_t readable = readable_from(position_.lsn);
  if (header.payload_bytes > readable) return stop("the frame is longer than the log");

  const std::uint64_t frame_bytes = geometry_.frame_bytes(header.payload_bytes);
  MEMLITH_TRY_ASSIGN(const bool all_here, fill(frame_bytes));
  if (!all_here) return stop("the frame is longer than the log");
  const std::byte* start = buffer_.data() + bytes_between(buffered_begin_, position_.lsn);
  const std::span<const std::byte> payload{start + sizeof header, header.payload_bytes};
  FrameTrailer trailer;
  std::memcpy(&trailer, start + frame_bytes - sizeof trailer, sizeof trailer);
  if (checksum(payload, payload_seed(log_id_, position_.lsn)) != trailer.payload_checksum) {
    return stop("the checksum of the payload is wrong");
  }

  Frame frame;
  frame.lsn = position_.lsn;
  frame.kind = header.kind;
  frame.incarnation = header.incarnation;
  frame.payload = payload;
  frame.after = {position_.lsn.advance(frame_bytes), chain_value(header, trailer, log_id_)};
  position_ = frame.after;
  return std::optional(frame);
}

}  // namespace memlith::core
