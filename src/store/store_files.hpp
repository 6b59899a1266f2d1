// The state that all parts of a store share: its volume, its log and the home files of its objects. Floor: store.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/volume.hpp"
#include "log/log.hpp"
#include "store/dead_bytes.hpp"
#include "store/homes.hpp"
#include "store/names.hpp"
#include "store/objects.hpp"
#include "store/options.hpp"
#include "store/sums.hpp"
#include "store/vacant.hpp"

namespace memlith::core {

class CommonLog;

// Set while the store is opened; constant afterwards, except for members with a lock of their own.
struct StoreFiles {
  Volume& volume;
  StoreOptions options;
  const StoreNames names{options.kind, options.file_name};
  std::unique_ptr<OpenFile> log_file;
  std::unique_ptr<VolumeLock> lock;       // of log_file
  std::unique_ptr<VolumeLock> file_lock;  // of the file of a one-file store
  std::unique_ptr<Device> log_device;
  std::unique_ptr<Log> log;
  Homes homes{volume, names, options.read_only, options.file};
  bool was_clean = false;
  std::uint64_t closed_stamp = 0;  // of the file when the store was closed cleanly
  bool file_was_changed = false;   // or may have been, since then
  bool made_log = false;           // by this opening, which has flushed everything that it found and made
  // The in-use header with which the file may begin; changes between checkpoints, before its commit.
  InUse in_use = options.in_use == InUse::caller ? InUse::caller : InUse::none;
  std::uint32_t physical_block_bytes = 0;  // as in the store's header
  std::uint64_t origin = 0;                // likewise
  std::shared_ptr<CommonLog> common;       // during an opening: has commits of the file that its log lacks
  StoreCounters counters;
  Vacant vacant;
  DeadBytes dead;
  Sums sums{volume, names};

  StoreFiles(Volume& where, StoreOptions given) : volume(where), options(std::move(given)) {}
  StoreFiles(const StoreFiles&) = delete;
  StoreFiles& operator=(const StoreFiles&) = delete;

  [[nodiscard]] bool read_only() const { return options.read_only; }
  [[nodiscard]] bool whole_blocks() const { return physical_block_bytes != 0; }
  [[nodiscard]] bool one_file() const { return options.kind == StoreKind::one_file; }
  [[nodiscard]] std::string path() const { return volume.path_of(names.file); }
  [[nodiscard]] Caching log_caching() const { return options.direct_io ? Caching::direct : Caching::buffered; }
  // Releases the locks. The log and the home files must not be in use any more.
  void unlock() {
    file_lock = nullptr;
    lock = nullptr;
  }
};

}  // namespace memlith::core
