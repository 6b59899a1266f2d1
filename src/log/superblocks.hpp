// The superblock of a log, of which the medium has two copies. Floor: log.
//
// Threads: the caller of write() and of current() holds mutex(); the log takes mutex() before its own mutex.
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
  Status read() MEMLITH_EXCLUDES(mutex_);
  // Allocates what write() needs.
  Status allocate() MEMLITH_REQUIRES(mutex_);
  // Writes both copies, one after the other; durable on ok. `head`: the end of the log if it is closed or held,
  // otherwise how far it is durable.
  Status write(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end) MEMLITH_REQUIRES(mutex_);
  // The first superblock of a log that has no name yet: nothing is lost if a crash tears both copies, so one flush is
  // enough for them.
  Status write_first(LogPosition beginning, const ClientBytes& client, LogEnd end) MEMLITH_REQUIRES(mutex_);

  // As last read or written; what the caller changes is in the next write().
  [[nodiscard]] Superblock& current() MEMLITH_REQUIRES(mutex_) { return current_; }
  // The same, to look at while no thread writes, which the analysis cannot know.
  [[nodiscard]] const Superblock& unshared() const MEMLITH_NO_THREAD_SAFETY_ANALYSIS { return current_; }
  [[nodiscard]] ClientBytes client_bytes() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Mutex& mutex() MEMLITH_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // As read() found them; constant after it.
  [[nodiscard]] LogEnd found_end() const { return found_end_; }
  [[nodiscard]] std::uint32_t copies() const { return copies_; }  // intact ones

 private:
  // Puts the next superblock into block_; how many bytes of it to write.
  Result<std::uint64_t> prepare(LogPosition tail, const ClientBytes& client, LogPosition head, LogEnd end)
      MEMLITH_REQUIRES(mutex_);

  Device& device_;
  Mutex mutex_;
  Superblock current_ MEMLITH_GUARDED_BY(mutex_){};
  int at_ MEMLITH_GUARDED_BY(mutex_) = 1;  // the copy that was read or written last
  AlignedBuffer block_ MEMLITH_GUARDED_BY(mutex_);
  LogEnd found_end_ = LogEnd::open;
  std::uint32_t copies_ = 0;
};

}  // namespace memlith::core
