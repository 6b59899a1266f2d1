// sqlite3_file for databases in mode shared and their write-ahead logs. Part of the SQLite plugin.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>
#include <string_view>

#include "../options.hpp"
#include "../vfs.hpp"

namespace memlith::sqlite::shared {

extern const int kSharedFileBytes;  // of the largest sqlite3_file

// Instead of a code of SQLite: this process has the database with the engine, or opens it, or an engine marked it.
inline constexpr int kForTheEngine = -2;

// As xOpen. The caller catches exceptions.
// `for_checkpoint`: for the thread that makes checkpoints (checkpointer.hpp). `or_engine`: a mark of the engine is no
// error, but kForTheEngine.
int open_shared(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags, const Options& options,
                bool for_checkpoint, bool or_engine);
int open_shared_wal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);

// True if the file is an ordinary database in WAL mode.
bool is_in_wal_mode(sqlite3_vfs& real, const char* name);
// True if a database of this name is open here in mode shared.
bool is_open_here(std::string_view name);
// Lets the engine of this process have the database: no connection here opens it in mode shared until the result is
// destroyed. Null if one has it in mode shared.
std::shared_ptr<void> claim_for_engine(const std::string& path);
// True if `name` is the journal or the write-ahead log of a database that is open in mode shared.
bool belongs_to_shared(std::string_view name);

}  // namespace memlith::sqlite::shared
