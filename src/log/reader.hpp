// Reading frames in order. Floor: log.
//
// The reader trusts nothing: a frame is valid only if its magic, its own LSN, its place in the chain of checksums, its
// length and both checksums are right. After the last valid frame comes the end of the log, or damage; the log decides
// which.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "log/geometry.hpp"

namespace memlith::core {

// A place between two frames: where the next frame starts, and the value of its `previous`.
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
  std::span<const std::byte> bytes;    // likewise: all of the frame, from its header to its trailer
  LogPosition after;                   // the place behind this frame
};

// A frame that is kept for later, with a copy of its payload.
struct PendingFrame {
  Frame frame;
  std::vector<std::byte> payload;
};

// The checks of a frame that do not depend on the log around it. `bytes` begins where a frame should and ends with the
// log; empty with `why` set if no whole valid frame starts there.
std::optional<Frame> read_frame(std::span<const std::byte> bytes, LogPosition at, const LogGeometry& geometry,
                                std::uint64_t log_id, const char*& why);

class LogReader {
 public:
  // `slots` and `device` outlive the reader; slots of segments below `limit` do not change meanwhile. `window_bytes` is
  // the read-ahead; a longer frame makes the buffer grow. Frames at the beginning of the window are returned while the
  // rest is still being read. From `begun` on, frames of incarnations before `incarnation` are stale.
  LogReader(Device& device, const LogGeometry& geometry, SlotMap slots, std::uint64_t log_id, LogPosition from,
            Lsn limit, std::uint64_t window_bytes, Lsn begun, std::uint64_t incarnation);

  // The next frame; empty if no valid frame starts here (the end, or damage: see why()); an error only if the device
  // failed.
  Result<std::optional<Frame>> next();

  [[nodiscard]] LogPosition position() const { return position_; }
  [[nodiscard]] const char* why() const { return why_; }

 private:
  static constexpr std::uint32_t kTransfers = 4;  // side by side

  // Loads [position, position + bytes) into the buffer; false if the mapped segments end before that.
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
  Lsn started_end_;  // transfers up to here are in flight
  Lsn wanted_end_;   // and will be up to here
  std::uint64_t transfers_started_ = 0;
  std::uint64_t transfers_arrived_ = 0;
  std::array<Lsn, kTransfers> transfer_ends_{};
  const char* why_ = "";
};

}  // namespace memlith::core
