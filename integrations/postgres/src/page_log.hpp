// The page log: what the keeper does with sealed batches. Floor: postgres.
//
// A batch goes to the log first; when it is durable there, its pages are written home, through the page cache and
// without a flush. Before the log is full, the homes are flushed, and the log gives up the batches that were home then
// (checkpoint). Flushing takes long when much is dirty, so batches go on meanwhile, in another thread. After a crash,
// replay brings what the log has home: a page is whole then, with everything that was acknowledged.
//
// The log and the homes are parameters here, so that the tests run this code on the simulated disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memlith/memlith.hpp"
#include "pages.hpp"
#include "settled/settled_log.hpp"

namespace memlith_postgres {

using memlith::Error;
using memlith::Result;
using memlith_settled::EntryLog;
using memlith_settled::SettledLog;

class HomeFile {
 public:
  virtual ~HomeFile() = default;
  virtual Result<std::uint64_t> blocks() = 0;
  virtual Result<void> read(std::uint32_t block, std::byte* page) = 0;
  virtual Result<void> write(std::uint32_t block,
                             const std::byte* page) = 0;  // a page beyond the end lengthens the file
  virtual Result<void> cut(std::uint32_t blocks) = 0;
  virtual Result<void> flush() = 0;
};

class Homes {
 public:
  virtual ~Homes() = default;
  // Null if there is no such file.
  virtual Result<std::unique_ptr<HomeFile>> open(const std::string& path) = 0;
  // The names of files in the folder are durable on return. A folder that is gone is fine.
  virtual Result<void> flush_folder_of(const std::string& path) = 0;
};

struct Replayed {
  std::uint64_t batches = 0;
  std::uint64_t pages = 0;
  std::uint64_t skipped = 0;  // records of files that are gone, or of pages that were cut off
  std::uint64_t bytes = 0;
};

class PageLog {
 public:
  PageLog(EntryLog& log, Homes& homes, std::uint64_t checkpoint_bytes) : log_(log, checkpoint_bytes), homes_(homes) {}

  // Before the server starts: brings home what the log has, flushes it, and leaves the log empty.
  // Errors: CORRUPT - a batch is damaged; the log stays as it is.
  Result<Replayed> replay();
  // In the place of replay, when an earlier keeper has died and the server goes on.
  void resume(const Pages& pages);
  // Brings a batch home. False: there was none.
  Result<bool> step(Pages& pages);
  // A checkpoint, if one is wanted. False: none was. Threads: one calls it beside the one that calls step().
  Result<bool> settle(Pages& pages);
  // Everything home, flushed, and the log empty.
  Result<void> finish(Pages& pages);

 private:
  using FileKey = std::pair<std::uint32_t, std::uint32_t>;  // FileRef
  struct Dirty {
    FileRef file;
    std::string path;
    std::uint32_t blocks = 0;
    std::uint32_t dirtied = 0;
  };

  Result<void> replay_batches(Replayed& replayed);
  Result<void> replay_batch(std::string_view bytes, Replayed& replayed);
  Result<void> replay_record(const BatchReader::Record& record, Replayed& replayed);
  Result<HomeFile*> home_to_replay(std::string_view path);
  Result<void> log_batch(Pages& pages, const Batch& batch);
  Result<void> write_homes(Pages& pages, const Batch& batch);
  Result<HomeFile*> home_of(Pages& pages, std::uint32_t index);
  void assemble(Pages& pages, const Batch& batch);
  Result<void> checkpoint(Pages& pages);
  Result<void> await_home(Pages& pages);
  Result<void> flush_homes(Pages& pages, const std::vector<Dirty>& dirty, std::set<std::string>& removed);

  SettledLog log_;
  // The newest batch that the log may have; set before the log gets it.
  std::atomic<std::uint64_t> logged_{0};
  Homes& homes_;
  std::string entry_;
  std::map<FileKey, std::unique_ptr<HomeFile>> open_;                       // while the server runs
  std::map<std::string, std::unique_ptr<HomeFile>, std::less<>> replayed_;  // while replaying; null: there is none
};

}  // namespace memlith_postgres
