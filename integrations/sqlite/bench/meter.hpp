// The bytes written, by the process's and the device's counters, and the processor time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "systems.hpp"

namespace memlith::sqlite_bench {

// Counters; the difference of two readings is what happened between them.
struct Reading {
  // /proc/self/io, write_bytes: pages of the page cache that this process made dirty, once until they are written, and
  // what went past the cache (O_DIRECT), counted as it is submitted. Not the file system's own journal. Empty where
  // there is no /proc.
  std::optional<std::uint64_t> process_bytes;
  // Sectors written to the block device by all processes. Empty if the folder is on no block device.
  std::optional<std::uint64_t> device_bytes;
};

class Meter {
 public:
  explicit Meter(std::string folder);
  // First has the file system write whatever it owes, so that nothing of what was before counts afterwards.
  [[nodiscard]] Result<Reading> read() const;

 private:
  std::string folder_;
  std::string stat_path_;  // of the block device; may be empty
};

struct ProcessorTime {
  std::uint64_t user_us = 0;
  std::uint64_t system_us = 0;
};
// The time of all threads of this process.
[[nodiscard]] ProcessorTime processor_time();

}  // namespace memlith::sqlite_bench
