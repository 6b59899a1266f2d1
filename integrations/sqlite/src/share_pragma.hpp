// PRAGMA memlith_share on a connection of the engine. Part of the SQLite plugin.
#pragma once

#include <string>

#include "files.hpp"

namespace memlith::sqlite {

// Where SQLite notes the connection that uses a file, and its busy handler: what it tells a file once, when it is open.
struct Told {
  void* connection = nullptr;
  void* busy_handler = nullptr;
};

// A main database that the engine has open.
struct EngineFile {
  Vfs& vfs;
  const std::string path;
  const char* name;  // as xOpen got it
  int flags;
  Told told;
  sqlite3_file* file;
  int (*close)(sqlite3_file*);  // null: SQLite has begun to use the database, and its file must stay
};

// From the engine to mode shared. SQLite knows nothing of the change: the file is closed, and opened in its place.
// Where that fails, it is with the engine again, or it is not open any more, and all calls fail.
int move_to_shared(const EngineFile& engine, bool& is_open);

// Which mode, and = 1: to mode shared. As SQLITE_FCNTL_PRAGMA.
int share_pragma(const EngineFile& engine, void* argument);

}  // namespace memlith::sqlite
