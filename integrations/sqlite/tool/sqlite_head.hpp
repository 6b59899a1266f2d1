// Reads a file's header as a SQLite database, and tells if the log beside it may be believed
// (memlith/sqlite_file.h).
#pragma once

#include <cstdint>
#include <string>

#include "cli/failure.hpp"
#include "cli/store_path.hpp"
#include "memlith/sqlite_file.h"

namespace memlith::tool {

struct SqliteLook {
  memlith_sqlite_head head{};
  std::uint64_t bytes = 0;
  [[nodiscard]] bool is(std::int32_t kind) const { return head.kind == kind; }
};

// Changes nothing. Errors: no such file, no permission, a failed read.
Result<SqliteLook> look_at_sqlite(const std::string& path);
Result<SqliteLook> look_at_sqlite(int descriptor, const std::string& path);

// The journal of a transaction over several databases that a crash left undecided. Errors: cannot be examined.
std::string undecided_journal_of(const std::string& path);
Result<bool> file_is_there(const std::string& path);

// A file without a log beside it: fails where the file is marked, and its newest commits are in that log.
[[nodiscard]] MaybeFailure check_log_not_missed(const StorePath& path);

// Before the log of a one-file store is replayed into its file: fails where the file is a SQLite database that is
// complete by itself, or whose mark names another log. Opens the store read-only to see, if it is a database at all.
[[nodiscard]] MaybeFailure check_sqlite_before_replay(const StorePath& path);

}  // namespace memlith::tool
