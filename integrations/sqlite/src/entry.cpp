// How the plugin gets into a process: as an extension that SQLite loads, by a call from Python or C, or by LD_PRELOAD.
//
// Only these functions are exported. See docs/sqlite.md.
#include <dlfcn.h>
#include <sqlite3.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "c_file.hpp"
#include "callers.hpp"
#include "hosts.hpp"
#include "line_log.hpp"

#define SQLITE_CORE 1  // the struct of functions, without macros that put it in the place of their names
#include <sqlite3ext.h>

#define MEMLITH_EXPORT extern "C" [[gnu::visibility("default")]]

namespace memlith::sqlite {
namespace {

Api api_of_host(const sqlite3_api_routines& routines) {
  Api api;
  api.vfs_find = routines.vfs_find;
  api.vfs_register = routines.vfs_register;
  api.vfs_unregister = routines.vfs_unregister;
  api.uri_parameter = routines.uri_parameter;
  api.mprintf = routines.mprintf;
  api.log = routines.log;
  api.libversion = routines.libversion;
  api.auto_extension = routines.auto_extension;
  api.next_stmt = routines.next_stmt;
  api.stmt_busy = routines.stmt_busy;
  api.sql = routines.sql;
  api.get_autocommit = routines.get_autocommit;
  api.open_v2 = routines.open_v2;
  api.close = routines.close;
  api.exec = routines.exec;
  api.wal_checkpoint_v2 = routines.wal_checkpoint_v2;
  api.threadsafe = routines.xthreadsafe;
  api.mutex_alloc = routines.mutex_alloc;
  return api;
}

int load(const sqlite3_api_routines* routines, bool as_default) {
  return guarded<Caller::other>([&] {
    const int code = register_vfs(api_of_host(*routines), as_default);
    return code == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : code;
  });
}

// Registers with every SQLite of the process.
int register_everywhere(bool as_default) {
  auto libraries = find_all_sqlites();
  if (libraries.empty()) {
    if (::dlopen("libsqlite3.so.0", RTLD_NOW) == nullptr) return SQLITE_ERROR;
    libraries = find_all_sqlites();
  }
  int result = SQLITE_ERROR;
  for (const Library& each : libraries) {
    Host& host = host_of(each);
    if (host.off.empty() && register_vfs(host.api, as_default) == SQLITE_OK) result = SQLITE_OK;
  }
  return result;
}

// True if the plugin was preloaded by the user and not loaded by the program.
bool preloaded() {
  static const bool answer = [] {
    const char* const list = std::getenv("LD_PRELOAD");
    return list != nullptr && std::string_view(list).find("memlith_sqlite") != std::string_view::npos;
  }();
  return answer;
}

[[gnu::constructor]] void at_load() {
  start_line_log();
  (void)preloaded();  // while the environment is unchanged since the start of the program
}

// `open` gets the functions of the SQLite that the caller means.
template <class Open>
int pass_on(const void* caller, sqlite3** db, Open open) {
  if (db != nullptr) *db = nullptr;
  return guarded<Caller::other>([&]() -> int {
    const std::optional<Library> library = find_sqlite_of(caller);
    if (!library.has_value()) {
      log_line("error: refused a call of sqlite3_open, because it is unknown which SQLite it is meant for");
      return SQLITE_ERROR;
    }
    Host& host = host_of(*library);
    if (preloaded()) make_default(host);
    const int code = open(host);
    if (code == SQLITE_OK && db != nullptr && line_log_wanted()) {
      // A lack of memory for a log line must not fail the opening of a database.
      (void)guarded<Caller::other>([&] {
        log_if_elsewhere(host, *db, preloaded());
        return SQLITE_OK;
      });
    }
    return code;
  });
}

}  // namespace
}  // namespace memlith::sqlite

// The name that SQLite makes of memlith_sqlite.so. Registers the VFS "memlith"; the default stays what it is, unless
// the environment has MEMLITH_SQLITE_DEFAULT=1. The plugin stays loaded.
MEMLITH_EXPORT int sqlite3_memlithsqlite_init(sqlite3*, char**, const sqlite3_api_routines* routines) {
  return memlith::sqlite::load(routines, false);
}

// The same, and makes it the default for connections that name no VFS.
MEMLITH_EXPORT int sqlite3_memlithdefault_init(sqlite3*, char**, const sqlite3_api_routines* routines) {
  return memlith::sqlite::load(routines, true);
}

// For programs that cannot load extensions: dlopen the plugin and call this. Registers the VFS with every SQLite that
// the process has loaded and that exports its functions; loads the system's where there is none. Returns SQLITE_OK, or
// SQLITE_ERROR if no SQLite took it.
MEMLITH_EXPORT int memlith_sqlite_register(int make_default) {
  return memlith::sqlite::guarded<memlith::sqlite::Caller::other>([&] {
    return memlith::sqlite::register_everywhere(make_default != 0);
  });
}

// LD_PRELOAD: the first connection that a program opens with a SQLite makes memlith the default there, and the first
// after sqlite3_shutdown(). Otherwise these only pass on, each call to the SQLite that the calling object means.
MEMLITH_EXPORT int sqlite3_open(const char* name, sqlite3** db) {
  return memlith::sqlite::pass_on(__builtin_return_address(0), db, [&](const memlith::sqlite::Host& host) {
    return host.open != nullptr ? host.open(name, db) : SQLITE_ERROR;
  });
}

MEMLITH_EXPORT int sqlite3_open16(const void* name, sqlite3** db) {
  return memlith::sqlite::pass_on(__builtin_return_address(0), db, [&](const memlith::sqlite::Host& host) {
    return host.open16 != nullptr ? host.open16(name, db) : SQLITE_ERROR;
  });
}

MEMLITH_EXPORT int sqlite3_open_v2(const char* name, sqlite3** db, int flags, const char* vfs) {
  return memlith::sqlite::pass_on(__builtin_return_address(0), db, [&](const memlith::sqlite::Host& host) {
    return host.open_v2 != nullptr ? host.open_v2(name, db, flags, vfs) : SQLITE_ERROR;
  });
}
