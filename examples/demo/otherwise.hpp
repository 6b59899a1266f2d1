// The ways to keep the index without memlith, measured in the same run on the same disk.
//
//   msync    the index in a file that is mapped shared: as many scattered pages as a commit has, stored to and
//            msync'ed. Not atomic: a crash in the middle leaves some of the pages new and some old
//   SQLite   a table of postings with a write-ahead log, durable at each COMMIT (synchronous=FULL): a batch of text of
//            the same size, added to a table that holds half of the text
//   a file   the whole index written to a new file, fsync, rename, fsync of the folder
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"
#include "corpus.hpp"
#include "index.hpp"

namespace demo {

struct Otherwise {
  std::vector<std::uint64_t> msync_ns;
  std::vector<std::uint64_t> sqlite_ns;         // statements and COMMIT
  std::vector<std::uint64_t> sqlite_commit_ns;  // COMMIT alone
  std::uint64_t sqlite_rows = 0;                // in the table before
  std::vector<std::uint64_t> file_ns;
  std::uint64_t file_bytes = 0;
};

struct Commit {                  // the median one of the demo
  std::uint64_t pages = 0;       // stored to
  std::uint64_t text_bytes = 0;  // indexed
};

// Each is measured some hundred times, or for some seconds. Its files lie in `folder`, and are removed again.
// `index_bytes`: what the index takes in memory.
Result<Otherwise> measure_otherwise(const std::string& folder, const Corpus& corpus, const MemoryIndex& index,
                                    std::uint64_t index_bytes, const Commit& commit);

}  // namespace demo
