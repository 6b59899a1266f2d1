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

#include "file_calls.hpp"
#include "files.hpp"
#include "page_log.hpp"
#include "pages.hpp"

namespace memlith_postgres {

inline constexpr const char* kKeeperVariable = "MEMLITH_POSTGRES_KEEPER";        // "MEMORY READY": descriptors
inline constexpr const char* kInheritedVariable = "MEMLITH_POSTGRES_INHERITED";  // "MEMORY LIFE": descriptors
inline constexpr const char* kLogVariable = "MEMLITH_POSTGRES_LOG";              // the folder of the log
inline constexpr const char* kLogMibVariable = "MEMLITH_POSTGRES_LOG_MIB";       // size of a new log

// Memory for a server, which the processes that inherit the descriptor can map.
Result<Descriptor> make_memory(const std::string& data, const std::string& log);
// Null if it cannot be mapped.
SharedMemory* map_memory(int descriptor);

// Starts a keeper and returns when it is ready. Errors: what the keeper says.
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

// A process of the server waits, and sees to it that there is a keeper.
class KeeperWaiting final : public Waiting {
 public:
  KeeperWaiting(Pages& pages, int memory) : pages_(pages), memory_(memory) {}
  bool wait(For what, std::uint64_t batch) override;
  // Has the keeper end, with an ordinary data directory. False: it could not.
  bool finish();

 private:
  [[nodiscard]] std::uint64_t counter(For what) const;
  void look_after_keeper();

  Pages& pages_;
  const int memory_;
};

// Writes "memlith: ..." to standard error, which is the server's log.
void say(const std::string& sentence);

}  // namespace memlith_postgres
