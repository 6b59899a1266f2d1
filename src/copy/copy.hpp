// Copies a store by its path, whether a process uses it or not. Floor: copy. docs/backup.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/units.hpp"
#include "copy/sink.hpp"

namespace memlith::core {

struct CopyRequest {
  std::string from;  // a folder, a block device or a file
  std::string to;    // a folder or a file that does not exist; of a folder store also a block device without a store
  CopyProgress progress;
  bool takes_damaged = false;  // homes are copied as they are, even if they are not as they were written
};

struct CopyReport {
  Lsn lsn;                   // of the copied store: the copy has every commit before it, and no other
  std::uint64_t bytes = 0;   // of the objects
  std::uint64_t shared = 0;  // of them, in files that share blocks with the originals (reflink)
};

struct DataReport {
  Lsn lsn;                    // of the store: every commit before it was looked at
  std::uint64_t blocks = 0;   // of kSummedBytes
  std::uint64_t unknown = 0;  // of them, those without a sum
  std::uint64_t damaged = 0;  // those that are not as they were written
};

// Reads every home and compares it with its sums, whether a process uses the store or not. `found` is called with a
// sentence for each run of damaged blocks. Errors: those of copy_store(); unsupported (a one-file store, which has no
// sums).
Result<DataReport> check_data(const std::string& path, const CopyProgress& progress,
                              const std::function<void(const std::string& sentence)>& found);

// The copy is there, whole and durable, on ok; otherwise nothing is there, except what the next copy to the same place
// removes. The store is not changed. Errors: exists (`to`); not_found (no store at `from`; the store was removed or
// replaced meanwhile); busy (another copy to the same place; the writer goes too fast); no_space; unsupported (a SQLite
// database); corrupt (the store is damaged, or its data was not what had been written, unless damage is taken); io;
// permission.
Result<CopyReport> copy_store(const CopyRequest& request);

}  // namespace memlith::core
