// Reading frames in order. Floor: log.
//
// The reader believes nothing: a frame counts only when its magic, its own LSN, its place in the chain of checksums,
// its length and both checksums are right. What follows the last such frame is the end of the log, or damage;
// log.cpp decides which.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

// A place between two frames: where the next one starts, and what its `previous` must say.
struct LogPosition {
  Lsn lsn;
  std::uint64_t previous = 0;
  friend bool operator==(const LogPosition&, const LogPosition&) = default;
};

struct Frame {
  Lsn lsn;
  std::uint32_t kind = 0;
  std::uint64_t incarnation = 0;
  Lsn durable;  // everything before it was durable when the frame was sealed; not beyond the frame itself
  std::span<const std::byte> payload;  // until the next call of next()
  LogPosition after;                   // the place behind this frame
};

class LogReader {
 public:
  // `slots` and `device` outlive the reader; slots of segments below `limit` do not change meanwhile.
  // `window_bytes` is how much is read ahead at a time; a longer frame makes the buffer grow. The frames at its beginning
  // are handed out while the rest is still on its way.
  // From `begun` on, frames of incarnations before `incarnation` are stale.
  LogReader(Device& device, const LogGeometry& geometry, SlotMap slots, std::uint64_t log_id, LogPosition from,
            Lsn limit, std::uint64_t window_bytes, Lsn begun, std::uint64_t incarnation);

  // The next frame; nothing where no valid frame starts (the end, or damage: see why()); an error only when the
  // device failed.
  Result<std::optional<Frame>> next();

  [[nodiscard]] LogPosition position() const { return position_; }
  [[nodiscard]] const char* why() const { return why_; }

 private:
  static constexpr std::uint32_t kTransfers = 4;  // side by side

  // Makes [position, position + bytes) stand in the buffer; false where the mapped segments end before that.
  Result<bool> fill(std::uint64_t bytes);
  Status read_ahead(std::uint64_t bytes);
  Status start_transfers();
  std::optional<Frame> stop(const char* why) {
    why_ = why;
    return std::nullopt;
  }
  [[nodiscard]] std::uint64_t readable_from(Lsn lsn) const;

  Device& device_;
  LogGeometry geometry_;
  SlotMap slots_;
  std::uint64_t log_id_;
  LogPosition position_;
  Lsn limit_;
  std::uint64_t window_bytes_;
  Lsn begun_;
  std::uint64_t incarnation_;
  AlignedBuffer buffer_;
  std::unique_ptr<IoQueue> queue_;
  Lsn buffered_begin_;
  Lsn arrived_end_;  // the buffer holds [buffered_begin_, arrived_end_)
  Lsn started_end_;  // transfers up to here are on their way
  Lsn wanted_end_;   // and will be up to here
  std::uint64_t transfers_started_ = 0;
  std::uint64_t transfers_arrived_ = 0;
  std::array<Lsn, kTransfers> transfer_ends_{};
  const char* why_ = "";
};

}  // namespace memlith::core
