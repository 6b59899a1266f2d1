// How a store is opened. Floor: store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/units.hpp"
#include "device/volume.hpp"
#include "log/log.hpp"
#include "store/format.hpp"

namespace memlith::core {

// How long an asynchronous commit may wait for its flush. 0 ms: only while the flush before it is under way.
struct FlushWindow {
  std::uint64_t interval_ms = 0;
  std::uint64_t bytes = 16 * kMiB;  // bytes of frames that may wait before the flush starts at once
};

struct StoreOptions {
  StoreKind kind = StoreKind::folder;
  std::string file_name;  // one_file: the file, in the volume; its log is file_log_name()
  // one_file: the same file, open already, for writing if the store is; null: the store opens it by its name.
  std::shared_ptr<OpenFile> file;
  // one_file. `guard`: from its first commit to a clean close the file begins with an in-use header instead of its own
  // bytes, which the log keeps; only for working images (FileImage). `caller`: the caller's commits may put an in-use
  // header of its own kind at the beginning of the file, and take it away; replay writes the moment.
  InUse in_use = InUse::none;
  // one_file: a hole of the file gets its disk space when a commit changes it; otherwise all do at opening.
  bool keeps_holes = false;
  bool create = false;
  bool exclusive = false;  // with create: fail if the store exists
  bool read_only = false;
  // While the store is locked elsewhere, opening tries again for so long.
  std::chrono::milliseconds open_wait{0};
  // Also on a network file system: a copy or a restored store, which this process finishes and closes.
  bool any_medium = false;
  bool accept_copy = false;  // also the files of a folder store that were copied while it was not closed
  // The store is a copy that an archive keeps up to date: its log is held (LogEnd), and recovery leaves it so. Only for
  // the archive's own work.
  bool held = false;
  bool follow = false;               // with read_only: a view of the store, which takes no lock (store/view.hpp)
  std::uint64_t view_bytes_max = 0;  // follow: of the objects that are shown; 0: no limit
  // read_only: of what the log has over the homes, which takes memory twice where a region shows it; 0: no limit
  std::uint64_t overlay_bytes_max = 0;
  // follow: how long a move waits for commits that are in the log and not known to be durable, and at least how long it
  // begins anew while another process opens or closes the store, or fills its log.
  std::chrono::milliseconds follow_patience{200};
  // For a folder store: homes without sums get them (store/sums.hpp). Sums that are there are kept in any case.
  bool makes_sums = false;
  // Bypass the page cache if the file system accepts it: for the log, and for home files during recovery.
  bool direct_io = true;
  bool manual_checkpoint = false;  // no checkpoints in the background
  std::uint64_t log_bytes = 0;     // 0 = 1 MiB
  std::uint64_t log_max_bytes = 0;
  // The size to which a log under load grows, at most log_max_bytes, as checkpoints cost more than growth. 0 = if
  // log_bytes is 0: at once to 128 MiB (for one file to half of its size, 16 to 64 MiB), from there to 1 GiB; otherwise
  // no growth.
  std::uint64_t log_busy_bytes = 0;
  std::uint64_t slot_bytes = 0;  // 0 = chosen from log_bytes
  // For a new store: how much a power cut may damage around the bytes that are being written. 0 or 512: nothing else
  // (powersafe overwrite); 4096: the whole physical block.
  std::uint32_t physical_block_bytes = 0;
  LogOptions log;                               // slot_count_max is set from log_max_bytes
  std::uint64_t replay_bytes_max = 256 * kMiB;  // memory that replay fills before it writes home
  // From this many bytes on, recovery writes home past the page cache.
  std::uint64_t direct_replay_bytes_min = 4 * kMiB;
  // Pages that a checkpoint of an idle store brings home before it looks for commits again.
  std::uint64_t idle_pages = 256;
  // A checkpoint flushes home files at least once per this many bytes.
  std::uint64_t home_flush_bytes = 2 * kMiB;
  bool manual_flush = false;         // flush_soon() does nothing
  std::uint32_t flusher_looks = 10;  // how many times, 100 us apart, a thread that has flushed looks for more to flush
  FlushWindow flush_window;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

}  // namespace memlith::core
