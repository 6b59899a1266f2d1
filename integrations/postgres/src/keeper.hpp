// The keeper: a process beside the server that owns the log and writes pages home. Floor: postgres.
//
// It is no child of the postmaster, has none of PostgreSQL's memory, and ignores the signals that end a server. It ends
// when the postmaster asks it to, or when no process of the server is left; both times the data directory is an
// ordinary one afterwards: after a clean stop a clean one, else one that crashed with every page whole.
//
// If the keeper dies, a process that waits for it starts another one, which goes on with what is in shared memory. If
// the log or a home cannot be written, the keeper says why and ends; the server then gets EIO for each write and flush.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "files.hpp"
#include "page_log.hpp"
#include "pages.hpp"

namespace memlith_postgres {

inline constexpr const char* kKeeperVariable = "MEMLITH_POSTGRES_KEEPER";        // "MEMORY READY": descriptors
inline constexpr const char* kInheritedVariable = "MEMLITH_POSTGRES_INHERITED";  // "MEMORY LIFE": descriptors
inline constexpr const char* kLogVariable = "MEMLITH_POSTGRES_LOG";              // the folder of the log
inline constexpr const char* kLogMibVariable = "MEMLITH_POSTGRES_LOG_MIB";       // size of a new log

// Starts a keeper and returns when it is ready. `memory` is the descriptor of the shared memory. Errors: those that the
// keeper tells.
Result<void> start_keeper(int memory);

// The body of the process that start_keeper has started. Returns its exit code.
int keep(int memory, int ready);

struct Recovered {
  bool was_marked = false;  // if not, there was nothing to do
  Replayed replayed;
};
// Replays the log, and leaves an ordinary data directory.
Result<Recovered> recover(const std::string& data, const std::string& log);
std::string describe(const Replayed& replayed);

}  // namespace memlith_postgres
