// The options of a log, and its counters. Floor: log.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/units.hpp"

namespace memlith::core {

struct LogOptions {
  std::uint64_t slot_count_max = 128;             // the log grows up to this
  std::uint64_t bytes_max = 0;                    // or, if not 0, to this many bytes
  std::uint32_t in_flight_max = 2;                // batches being written at a time
  std::uint64_t pipeline_bytes_min = 128 * kKiB;  // a smaller batch waits for the batch before it, and grows meanwhile
  std::uint32_t turns_awake = 60;                 // how often a waiting committer yields before it blocks
  std::uint64_t batch_bytes = 1280 * kKiB;
  // The capacity of a batch while all frames are small, so that a log with small frames needs little memory.
  std::uint64_t small_batch_bytes = 64 * kKiB;
  // Payloads of this kind and up to this size share frames, unless one that is waited for could be written at once. The
  // owner must be able to tell where each payload of a frame ends.
  std::uint32_t packed_kind = ~0u;  // none
  std::uint64_t packed_bytes_max = 0;
  std::uint64_t stream_bytes_min = 384 * kKiB;  // from this size on, a frame of a single committer is streamed
  std::uint64_t stream_chunk_bytes = 256 * kKiB;
  std::uint64_t window_bytes = 4 * kMiB;            // read ahead by a checkpoint
  std::uint64_t recovery_window_bytes = 32 * kMiB;  // and by recovery
  std::uint64_t follow_window_bytes = 512 * kKiB;   // and by a follower, mostly beyond the end
  // For a follower: the segments from here on are looked for, even before the tail. They may be gone.
  Lsn followed_to{~std::uint64_t{0}};
};

// Counters of a log since it was opened. All only rise.
struct LogCounters {
  std::atomic<std::uint64_t> frames{0};   // a packed payload counts as a frame
  std::atomic<std::uint64_t> batches{0};  // = writes + flushes on the commit path
  std::atomic<std::uint64_t> bytes{0};    // written to the log by frames, headers and padding included
  std::atomic<std::uint64_t> trims{0};
};

}  // namespace memlith::core
