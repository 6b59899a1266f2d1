// The journals that this process has open, one a folder with logs. Floor: rocksdb.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "journal.hpp"

namespace memlith_rocksdb {

// For the life of the process, whatever number of file systems there are.
class Registry {
 public:
  static Registry& of_process();

  enum class As : std::uint8_t { reader, writer };
  // Before the folder is looked at: if a crash left logs in it, gives them back. A reader takes a folder that another
  // process writes as it is; a writer waits for a reader that is giving back.
  Result<void> attend(const std::string& folder, As as);
  // A log of a database is to be written: makes the journal, or counts one writer more.
  Result<std::shared_ptr<Journal>> begin_writer(const std::string& folder, const RocksdbOptions& options);
  // The last writer of a folder has closed its log: gives the logs back.
  Result<void> end_writer(const std::string& folder);
  // Null: this process writes no log there.
  std::shared_ptr<Journal> find(const std::string& folder);

 private:
  struct Open {
    std::shared_ptr<Journal> journal;
    std::uint64_t writers = 0;
  };
  static Result<void> give_back_unless_busy(const std::string& folder, As as);

  std::mutex mutex_;                  // guards open_; is held while a folder is given back
  std::map<std::string, Open> open_;  // by the folder without links
};

}  // namespace memlith_rocksdb
