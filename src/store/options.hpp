// How a store is opened. Floor: store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/units.hpp"
#include "device/volume.hpp"
#include "log/log.hpp"
#include "store/format.hpp"

namespace memlith::core {

// How long an asynchronous commit may wait for its flush. 0 ms: none longer than the flush before it takes.
struct FlushWindow {
  std::uint64_t interval_ms = 0;
  std::uint64_t bytes = 16 * kMiB;  // of frames; beyond them the flush comes at once
};

struct StoreOptions {
  StoreKind kind = StoreKind::folder;
  std::string file_name;  // one_file: the file, in the volume; its log is file_log_name()
  // one_file: the same file, open already, for writing if the store is; null: the store opens it by its name.
  std::shared_ptr<OpenFile> file;
  bool keeps_mark = false;  // one_file: where the file begins with kFileMark, replay writes its moment behind that
  bool create = false;
  bool exclusive = false;  // with create: fail where there is one
  bool read_only = false;
  bool direct_io = true;  // past the page cache, where the file system takes that: the log, and a recovery's homes
  bool manual_checkpoint = false;  // none in the background
  std::uint64_t log_bytes = 0;     // 0 = 1 MiB
  std::uint64_t log_max_bytes = 0;
  // A log that commits fill within a minute grows to so much, at most log_max_bytes, as it earns it; 0 = where log_bytes is 0, at once
  // to 128 MiB, of one file to half of the file, from 16 to 64 MiB, and from there to 1 GiB; else not at all.
  std::uint64_t log_busy_bytes = 0;
  std::uint64_t slot_bytes = 0;  // 0 = chosen from log_bytes
  // Of a new store: how much a power cut may spoil around what is being written. 0 or 512: what is written and nothing beside it
  // (powersafe overwrite); 4096: the whole block.
  std::uint32_t physical_block_bytes = 0;
  LogOptions log;                               // slot_count_max is set from log_max_bytes
  std::uint64_t replay_bytes_max = 256 * kMiB;  // memory that a checkpoint or recovery gathers before it writes home
  std::uint64_t direct_replay_bytes_min = 4 * kMiB;  // recovery writes home past the page cache from here on
  std::uint64_t home_flush_bytes = 2 * kMiB;         // a checkpoint flushes homes after so much of them, at most
  bool manual_flush = false;                         // flush_soon() does nothing
  std::uint32_t flusher_looks =
      10;  // how many times, 100 us apart, a thread that has flushed looks whether there is more to flush
  FlushWindow flush_window;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

}  // namespace memlith::core
