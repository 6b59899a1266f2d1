// The journal in front of a database's logs. Floor: rocksdb.
//
// A log stays an ordinary file, which every append reaches at once, through the page cache: readers of live logs,
// backups and a killed process find it as RocksDB leaves it. What the disk is asked to keep goes another way: a sync of
// few bytes puts them into an application log of a memlith store as well, which costs one write and one flush where the
// growing file would cost three and two. A thread behind makes checkpoints: it flushes the files, notes their length
// and checksum in the journal, and consumes what the journal has for them. A sync of many bytes flushes the file
// itself.
//
// PROMISE. When sync() has returned without an error, every byte that was appended to the log before the call survives
// a power cut, once recover() has run. After a failed flush nothing is acknowledged any more.
//
// Any number of threads; one at a time appends to the same log.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "entries.hpp"
#include "files.hpp"
#include "memlith/rocksdb.hpp"
#include "settled/settled_log.hpp"

namespace memlith_rocksdb {

using memlith::RocksdbOptions;
using memlith_settled::SettledLog;
using memlith_settled::StoredLog;

// A log that this process writes.
class LogFile {
 public:
  LogFile(std::uint64_t number, File file);
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  friend class Journal;
  [[nodiscard]] Claim claim() const { return {number_, bytes_, XXH3_64bits_digest(hash_.get())}; }

  const std::uint64_t number_;
  const File file_;   // to flush
  std::mutex mutex_;  // guards what follows; is taken after no lock of the journal
  struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;  // of all that was appended
  std::uint64_t bytes_ = 0;
  std::string entry_;          // a head, and what was appended since the last sync; without the latter, if that is much
  bool is_much_ = false;       // more than entry_bytes_max
  std::optional<Claim> owed_;  // the file was flushed beyond what the journal tells
};

class Journal {
 public:
  // Makes the store. `folder` holds the logs.
  static Result<std::shared_ptr<Journal>> open(const std::string& folder, const RocksdbOptions& options);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  // The file of the new, empty log is there already, at kept_path(). Its names are durable on return.
  Result<std::shared_ptr<LogFile>> add(std::uint64_t number);
  // Call this after the bytes were appended to the file.
  Result<void> append(LogFile& log, std::string_view bytes);
  Result<void> sync(const std::shared_ptr<LogFile>& log);
  // Makes durable what was appended to any log of the folder before.
  Result<void> sync_all();
  // Before the log is removed or renamed on purpose. With `flush`, the file has everything on the medium.
  Result<void> forget(std::uint64_t number, bool flush);
  // The content of the log's file is on the medium on return, such as before a link is made to it.
  Result<void> flush(std::uint64_t number);
  // Flushes the files and leaves the journal without a claim; recover() then only gives the files back.
  Result<void> finish();

 private:
  Journal(std::string folder, const RocksdbOptions& options, FolderLock lock, std::unique_ptr<StoredLog> log);

  Result<void> healthy();
  std::vector<std::shared_ptr<LogFile>> all_logs();
  // With the log's mutex held: brings what was appended into the journal's memory, or flushes the file.
  Result<void> hand_over(LogFile& log);
  Result<void> flush_file(LogFile& log);
  Result<void> append_claim(LogFile& log);
  // After hand_over: makes it durable.
  Result<void> write_or_flush(const std::vector<std::shared_ptr<LogFile>>& logs);
  Result<void> checkpoint();
  Result<void> bring_home();
  void end_checkpointer();

  const std::string folder_;
  const RocksdbOptions options_;
  FolderLock folder_lock_;
  const std::unique_ptr<StoredLog> stored_;
  SettledLog log_;

  std::mutex mutex_;  // guards what follows; a log's mutex is not taken while it is held
  std::map<std::uint64_t, std::shared_ptr<LogFile>> logs_;

  std::thread checkpointer_;
};

}  // namespace memlith_rocksdb
