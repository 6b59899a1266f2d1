// PRAGMA memlith_share on a connection of the engine. Part of the SQLite plugin.
#pragma once

#include <string>

#include "files.hpp"

namespace memlith::sqlite {

// A main database that the engine has open.
struct EngineFile {
  Vfs& vfs;
  const std::string path;
  const char* name;  // as xOpen got it
  int flags;
  sqlite3_file* file;
  int (*close)(sqlite3_file*);  // null: SQLite has begun to use the database, and its file must stay
};

// Which mode, and = 1: from the engine to mode shared. SQLite knows nothing of the change: the file is closed, and
// opened in its place. As SQLITE_FCNTL_PRAGMA.
int share_pragma(const EngineFile& engine, char** arguments);

}  // namespace memlith::sqlite
