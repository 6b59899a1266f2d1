// The locks that every SQLite honours, on the bytes where SQLite itself has them.
#pragma once

#include <cstdint>
#include <string>

#include "cli/failure.hpp"

namespace memlith::tool {

enum class SqliteLock : std::uint8_t {
  shared,     // no process changes the file, unless it is in WAL mode
  exclusive,  // no other process has it open; the descriptor is open for writing
};

// Locks the open file description: closing the descriptor unlocks. Does not wait. BUSY: names the process that is
// in the way, as far as the kernel or the holder's note in the log tells.
[[nodiscard]] MaybeFailure lock_sqlite(int descriptor, const std::string& path, SqliteLock lock);

}  // namespace memlith::tool
