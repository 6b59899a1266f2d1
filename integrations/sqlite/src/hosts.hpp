// The SQLites of this process, each with a VFS of its own. Part of the SQLite plugin (entry.cpp). Threads: any.
#pragma once

#include <sqlite3.h>

#include <string>

#include "api.hpp"
#include "callers.hpp"

namespace memlith::sqlite {

// A SQLite that exports its functions. Lives as long as the process.
struct Host {
  Library library;
  Api api;
  std::string off;  // why its databases are not on memlith; empty: they may be
  int (*open)(const char*, sqlite3**) = nullptr;
  int (*open16)(const void*, sqlite3**) = nullptr;
  int (*open_v2)(const char*, sqlite3**, int, const char*) = nullptr;
  int (*file_control)(sqlite3*, const char*, int, void*) = nullptr;
  const char* (*db_filename)(sqlite3*, const char*) = nullptr;
  void (*free)(void*) = nullptr;
  sqlite3_vfs* first = nullptr;  // its default when the first database was opened
};

Host& host_of(const Library& library);

// Registers "memlith" with the SQLite of these functions, once; a second time only to make it the default. Returns
// SQLite's code.
int register_vfs(const Api& api, bool as_default);

// Preloaded only. sqlite3_shutdown() makes SQLite forget its default VFS. A default that the program chose stays.
void make_default(Host& host);

// Writes the line for a database that is not on memlith; for others the VFS has written one.
void log_if_elsewhere(const Host& host, sqlite3* db, bool preloaded);

}  // namespace memlith::sqlite
