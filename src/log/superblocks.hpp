// The superblock of a log, of which the medium has two copies. Floor: log.
//
// Threads: whoever calls write() holds mutex(), once the log is started; the log takes mutex() before its own mutex.
#pragma once

#include <array>
#include <cstdint>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "base/sync.hpp"
#include "device/device.hpp"
#include "log/format.hpp"
#include "log/reader.hpp"

namespace memlith::core {

using ClientBytes = std::array<std::uint8_t, kClientBytes>;

inline constexpr std::uint64_t kSlotBytesMax = 1 * kGiB;
inline constexpr std::uint64_t kSlotCountMax = 1u << 20;
inline constexpr std::uint64_t kIncarnationMax = 1ull << 62;  // the largest number that opening accepts

class Superblocks {
 public:
  explicit Superblocks(Device& device) : device_(device) {}

  // Takes the newer intact copy.
  Status read();
  // Allocates what write() needs.
  Status allocate();
  // Writes both copies, one after the other; durable on ok. `head`: the end of the log if it is closed or held,
  // otherwise how far it is durable.
  Status write(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end);
  // The first superblock of a log that has no name yet: nothing is lost if a crash tears both copies, so one flush is
  // enough for them.
  Status write_first(LogPosition beginning, const ClientBytes& client, LogEnd end);

  // As last read or written; what the caller changes is in the next write().
  [[nodiscard]] Superblock& current() { return current_; }
  [[nodiscard]] const Superblock& current() const { return current_; }
  [[nodiscard]] ClientBytes client_bytes() const;
  [[nodiscard]] Mutex& mutex() { return mutex_; }

  // As read() found them.
  [[nodiscard]] LogEnd found_end() const { return found_end_; }
  [[nodiscard]] std::uint32_t copies() const { return copies_; }  // intact ones
  [[nodiscard]] bool agree() const { return agree_; }             // both are intact and equal

 private:
  // Puts the next superblock into block_; how many bytes of it to write.
  Result<std::uint64_t> prepare(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end);

  Device& device_;
  Mutex mutex_;
  Superblock current_{};
  int at_ = 1;  // the copy that was read or written last
  LogEnd found_end_ = LogEnd::open;
  std::uint32_t copies_ = 0;
  bool agree_ = false;
  AlignedBuffer block_;
};

}  // namespace memlith::core
