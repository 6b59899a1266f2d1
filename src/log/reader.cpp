#include "log/reader.hpp"

#include <cstring>

#include "base/checksum.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kTransferBytes = 1 * kMiB;  // one read
}  // namespace

LogReader::LogReader(Device& device, const LogGeometry& geometry, SlotMap slots, std::uint64_t log_id, LogPosition from,
                     Lsn limit, std::uint64_t window_bytes, Lsn begun, std::uint64_t incarnation)
    : device_(device),
      geometry_(geometry),
      slots_(std::move(slots)),
      log_id_(log_id),
      position_(from),
      limit_(limit),
      window_bytes_(round_up(window_bytes, kPageBytes)),
      begun_(begun),
      incarnation_(incarnation),
      buffered_begin_(from.lsn),
      arrived_end_(from.lsn),
      started_end_(from.lsn),
      wanted_end_(from.lsn) {}

std::uint64_t LogReader::readable_from(Lsn lsn) const {
  const Lsn mapped_end{slots_.end() * geometry_.segment_bytes()};
  const Lsn end = std::min(mapped_end, limit_);
  if (slots_.at(geometry_.segment_of(lsn)) == SlotMap::kNone || lsn >= end) return 0;
  return bytes_between(lsn, end);
}

Result<bool> LogReader::fill(std::uint64_t bytes) {
  const Lsn end = position_.lsn.advance(bytes);
  if (end <= arrived_end_) return true;
  if (bytes > readable_from(position_.lsn)) return false;
  if (end > wanted_end_) MEMLITH_TRY(read_ahead(bytes));
  while (end > arrived_end_) {
    MEMLITH_TRY(start_transfers());
    const auto index = static_cast<std::uint32_t>(transfers_arrived_++ % kTransfers);
    MEMLITH_TRY(queue_->wait(index));
    arrived_end_ = transfer_ends_[index];
  }
  MEMLITH_TRY(start_transfers());
  return true;
}

// Moves the window to the position: keeps the bytes that it has, and requests everything up to the window's end.
Status LogReader::read_ahead(std::uint64_t bytes) {
  if (queue_ == nullptr) queue_ = device_.make_queue(kTransfers);
  MEMLITH_TRY(queue_->wait_all());
  arrived_end_ = started_end_;
  transfers_arrived_ = transfers_started_;
  const Lsn begin = position_.lsn;
  const std::uint64_t wanted = std::min(std::max(round_up(bytes, kPageBytes), window_bytes_), readable_from(begin));
  const std::uint64_t kept = begin < arrived_end_ ? bytes_between(begin, arrived_end_) : 0;
  const std::byte* const kept_at = kept > 0 ? buffer_.data() + bytes_between(buffered_begin_, begin) : nullptr;
  if (buffer_.size() < wanted) {
    MEMLITH_TRY_ASSIGN(AlignedBuffer bigger, AlignedBuffer::allocate(wanted));
    if (kept > 0) std::memcpy(bigger.data(), kept_at, kept);
    buffer_ = std::move(bigger);
    queue_->register_memory(buffer_.span());
  } else if (kept > 0) {
    std::memmove(buffer_.data(), kept_at, kept);
  }
  buffered_begin_ = begin;
  arrived_end_ = started_end_ = begin.advance(kept);
  wanted_end_ = begin.advance(wanted);
  return kOk;
}

Status LogReader::start_transfers() {
  while (started_end_ < wanted_end_ && transfers_started_ - transfers_arrived_ < kTransfers) {
    const std::uint32_t slot = slots_.at(geometry_.segment_of(started_end_));
    MEMLITH_ASSERT(slot != SlotMap::kNone);
    const std::uint64_t step =
        std::min({bytes_between(started_end_, wanted_end_), geometry_.left_in_segment(started_end_), kTransferBytes});
    const std::uint64_t offset =
        geometry_.slot_offset(slot) + geometry_.block_bytes + geometry_.offset_in_segment(started_end_);
    const auto index = static_cast<std::uint32_t>(transfers_started_ % kTransfers);
    MEMLITH_TRY(queue_->read(index, offset, {buffer_.data() + bytes_between(buffered_begin_, started_end_), step}));
    started_end_ = started_end_.advance(step);
    transfer_ends_[index] = started_end_;
    ++transfers_started_;
  }
  return kOk;
}

namespace {

// Null: the header is that of the frame at this position.
const char* fault_of(const FrameHeader& header, LogPosition at, std::uint64_t log_id) {
  if (header.magic != kFrameMagic) return "no frame starts here";
  if (header.checksum != header_checksum(header, log_id)) return "the checksum of the frame's header is wrong";
  if (header.lsn != at.lsn.value) return "the frame belongs to another place";
  // CHAIN: a frame that was in flight behind a lost one may be intact; only the chain shows that its predecessor is not
  // the one that it was written after. [log/stale_frame]
  if (header.previous != at.previous) return "the frame does not follow the frame before it (stale)";
  return nullptr;
}

// Checks a frame that is complete in memory, with a header without fault.
std::optional<Frame> take_frame(const FrameHeader& header, const std::byte* start, std::uint64_t frame_bytes,
                                std::uint64_t log_id, const char*& why) {
  const std::span<const std::byte> payload{start + sizeof header, header.payload_bytes};
  FrameTrailer trailer;
  std::memcpy(&trailer, start + frame_bytes - sizeof trailer, sizeof trailer);
  const Lsn lsn{header.lsn};
  if (checksum(payload, payload_seed(log_id, lsn, header.incarnation)) != trailer.payload_checksum) {
    why = "the checksum of the payload is wrong";
    return std::nullopt;
  }
  Frame frame;
  frame.lsn = lsn;
  frame.kind = header.kind;
  frame.incarnation = header.incarnation;
  frame.durable = std::min(Lsn{header.durable_lsn}, lsn);
  frame.payload = payload;
  frame.bytes = {start, frame_bytes};
  frame.after = {lsn.advance(frame_bytes), chain_value(header, trailer, log_id)};
  return frame;
}

}  // namespace

std::optional<Frame> read_frame(std::span<const std::byte> bytes, LogPosition at, const LogGeometry& geometry,
                                std::uint64_t log_id, const char*& why) {
  FrameHeader header;
  why = "the frame is longer than the log";
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (const char* const fault = fault_of(header, at, log_id); fault != nullptr) {
    why = fault;
    return std::nullopt;
  }
  if (header.payload_bytes > bytes.size()) return std::nullopt;
  const std::uint64_t frame_bytes = geometry.frame_bytes(header.payload_bytes);
  if (frame_bytes > bytes.size()) return std::nullopt;
  return take_frame(header, bytes.data(), frame_bytes, log_id, why);
}

Result<std::optional<Frame>> LogReader::next() {
  MEMLITH_TRY_ASSIGN(const bool header_here, fill(geometry_.block_bytes));
  if (!header_here) return stop("the log ends here");

  FrameHeader header;
  std::memcpy(&header, buffer_.data() + bytes_between(buffered_begin_, position_.lsn), sizeof header);
  if (const char* const fault = fault_of(header, position_, log_id_); fault != nullptr) return stop(fault);
  // A lost frame that is written again and torn can make the old frame intact: if only sectors of the same payload were
  // kept, nothing of the new frame is visible. Frames that were in flight behind the old one follow it, so the chain
  // does not help; the incarnation does, which had ended before this place. [crash/killed]
  if (position_.lsn >= begun_ && header.incarnation < incarnation_) {
    return stop("the frame was written by an earlier opening (stale)");
  }
  const std::uint64_t readable = readable_from(position_.lsn);
  if (header.payload_bytes > readable) return stop("the frame is longer than the log");

  const std::uint64_t frame_bytes = geometry_.frame_bytes(header.payload_bytes);
  MEMLITH_TRY_ASSIGN(const bool all_here, fill(frame_bytes));
  if (!all_here) return stop("the frame is longer than the log");
  const std::byte* start = buffer_.data() + bytes_between(buffered_begin_, position_.lsn);
  const std::optional<Frame> frame = take_frame(header, start, frame_bytes, log_id_, why_);
  if (frame.has_value()) position_ = frame->after;
  return frame;
}

}  // namespace memlith::core
