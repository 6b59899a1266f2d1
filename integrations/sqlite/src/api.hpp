// The functions of SQLite that the plugin calls. Part of the SQLite plugin.
//
// The plugin is not linked to a SQLite: a program may contain its own, and a VFS registered with another copy would
// have no effect. A loaded extension receives the functions of the SQLite that loads it; LD_PRELOAD and
// memlith_sqlite_register() look them up in the library that the process has loaded (callers.hpp); tests use those that
// they are linked to. Functions of two SQLites must never be mixed.
#pragma once

#include <sqlite3.h>

#include <cstddef>

namespace memlith::sqlite {

struct Api {
  sqlite3_vfs* (*vfs_find)(const char*) = nullptr;
  int (*vfs_register)(sqlite3_vfs*, int) = nullptr;
  int (*vfs_unregister)(sqlite3_vfs*) = nullptr;
  const char* (*uri_parameter)(const char*, const char*) = nullptr;
  char* (*mprintf)(const char*, ...) = nullptr;
  void (*log)(int, const char*, ...) = nullptr;
  const char* (*libversion)() = nullptr;        // only for messages; may be null
  int (*auto_extension)(void (*)()) = nullptr;  // only for memlith_error(); may be null
  // Only for foresight (shared/foresight.hpp); may be null.
  sqlite3_stmt* (*next_stmt)(sqlite3*, sqlite3_stmt*) = nullptr;
  int (*stmt_busy)(sqlite3_stmt*) = nullptr;
  const char* (*sql)(sqlite3_stmt*) = nullptr;
  int (*get_autocommit)(sqlite3*) = nullptr;
  // Only for checkpoints by a thread (shared/checkpointer.hpp); may be null.
  int (*open_v2)(const char*, sqlite3**, int, const char*) = nullptr;
  int (*close)(sqlite3*) = nullptr;
  int (*exec)(sqlite3*, const char*, int (*)(void*, int, char**, char**), void*, char**) = nullptr;
  int (*wal_checkpoint_v2)(sqlite3*, const char*, int, int*, int*) = nullptr;
  int (*threadsafe)() = nullptr;
  sqlite3_mutex* (*mutex_alloc)(int) = nullptr;

  [[nodiscard]] bool complete() const {
    return vfs_find != nullptr && vfs_register != nullptr && vfs_unregister != nullptr && uri_parameter != nullptr &&
           mprintf != nullptr && log != nullptr;
  }
};

inline const char* version_of(const Api& api) {
  return api.libversion != nullptr ? api.libversion() : "of an unknown version";
}

}  // namespace memlith::sqlite
