// How the plugin gets into a process: as an extension that SQLite loads, by a call from Python or C, or by LD_PRELOAD.
//
// These functions, and nothing else, are exported. See docs/sqlite.md.
#include <dlfcn.h>
#include <sqlite3.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "vfs.hpp"

#define SQLITE_CORE 1  // the struct of functions, without macros that put it in the place of their names
#include <sqlite3ext.h>

#define MEMLITH_EXPORT extern "C" [[gnu::visibility("default")]]

namespace memlith::sqlite {
namespace {

constexpr const char* kName = "memlith";

bool is_ours(const void* symbol) {
  Dl_info its{};
  Dl_info mine{};
  return ::dladdr(symbol, &its) != 0 && ::dladdr(kName, &mine) != 0 && its.dli_fbase == mine.dli_fbase;
}

void* find_symbol(const char* name) {
  if (void* const found = ::dlsym(RTLD_NEXT, name); found != nullptr) return found;
  if (void* const found = ::dlsym(RTLD_DEFAULT, name); found != nullptr && !is_ours(found)) return found;
  // Python loads its SQLite out of everybody else's sight.
  static void* const library = [] {
    void* const loaded = ::dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_NOLOAD);
    return loaded != nullptr ? loaded : ::dlopen("libsqlite3.so.0", RTLD_NOW);
  }();
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

template <class Function>
void find_function(const char* name, Function& function) {
  function = reinterpret_cast<Function>(find_symbol(name));
}

Api api_of_process() {
  Api api;
  find_function("sqlite3_vfs_find", api.vfs_find);
  find_function("sqlite3_vfs_register", api.vfs_register);
  find_function("sqlite3_vfs_unregister", api.vfs_unregister);
  find_function("sqlite3_uri_parameter", api.uri_parameter);
  find_function("sqlite3_mprintf", api.mprintf);
  find_function("sqlite3_log", api.log);
  return api;
}

Api api_of_host(const sqlite3_api_routines& routines) {
  Api api;
  api.vfs_find = routines.vfs_find;
  api.vfs_register = routines.vfs_register;
  api.vfs_unregister = routines.vfs_unregister;
  api.uri_parameter = routines.uri_parameter;
  api.mprintf = routines.mprintf;
  api.log = routines.log;
  return api;
}

bool asked_for(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != 0 && std::string_view(value) != "0";
}

// Registered once a process; again only to make it the default.
int register_vfs(const Api& api, bool as_default) {
  static std::mutex mutex;
  static Vfs* vfs = nullptr;  // never destroyed: SQLite keeps what was registered
  if (!api.complete()) return SQLITE_ERROR;
  const std::lock_guard lock(mutex);
  const bool present = api.vfs_find(kName) != nullptr;
  if (present && vfs == nullptr) return SQLITE_OK;  // another copy of this plugin
  if (vfs == nullptr) vfs = Vfs::make(api, real_databases(), kName).release();
  if (vfs == nullptr) return SQLITE_ERROR;
  const bool make_default = as_default || asked_for("MEMLITH_SQLITE_DEFAULT");
  return present && !make_default ? SQLITE_OK : vfs->register_it(make_default);
}

int load(const sqlite3_api_routines* routines, bool as_default) {
  const int code = register_vfs(api_of_host(*routines), as_default);
  return code == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : code;
}

// Whether the program did not ask for us, but whoever started it did.
bool preloaded() {
  const char* const list = std::getenv("LD_PRELOAD");
  return list != nullptr && std::string_view(list).find("memlith_sqlite") != std::string_view::npos;
}

// sqlite3_shutdown() makes SQLite forget what its default was. One that the program chose stays.
void register_when_preloaded() {
  static const bool wanted = preloaded();
  if (!wanted) return;
  static const Api api = api_of_process();
  static sqlite3_vfs* const first = api.complete() ? api.vfs_find(nullptr) : nullptr;
  if (first != nullptr && api.vfs_find(nullptr) == first) (void)register_vfs(api, true);
}

}  // namespace
}  // namespace memlith::sqlite

// The name that SQLite makes of memlith_sqlite.so. Registers the VFS "memlith"; the default stays what it is, unless the
// environment has MEMLITH_SQLITE_DEFAULT=1. The plugin stays loaded.
MEMLITH_EXPORT int sqlite3_memlithsqlite_init(sqlite3*, char**, const sqlite3_api_routines* routines) {
  return memlith::sqlite::load(routines, false);
}

// The same, and makes it the default for connections that name no VFS.
MEMLITH_EXPORT int sqlite3_memlithdefault_init(sqlite3*, char**, const sqlite3_api_routines* routines) {
  return memlith::sqlite::load(routines, true);
}

// For programs that cannot load extensions: dlopen the plugin and call this. Uses the SQLite that the process has loaded, else
// the system's. Returns SQLITE_OK, or SQLITE_ERROR where there is none.
MEMLITH_EXPORT int memlith_sqlite_register(int make_default) {
  return memlith::sqlite::register_vfs(memlith::sqlite::api_of_process(), make_default != 0);
}

// LD_PRELOAD: the first connection that a program opens makes memlith the default, and the first after sqlite3_shutdown().
// Otherwise these only pass on.
MEMLITH_EXPORT int sqlite3_open(const char* name, sqlite3** db) {
  memlith::sqlite::register_when_preloaded();
  static const auto next =
      reinterpret_cast<int (*)(const char*, sqlite3**)>(memlith::sqlite::find_symbol("sqlite3_open"));
  return next != nullptr ? next(name, db) : SQLITE_ERROR;
}

MEMLITH_EXPORT int sqlite3_open16(const void* name, sqlite3** db) {
  memlith::sqlite::register_when_preloaded();
  static const auto next =
      reinterpret_cast<int (*)(const void*, sqlite3**)>(memlith::sqlite::find_symbol("sqlite3_open16"));
  return next != nullptr ? next(name, db) : SQLITE_ERROR;
}

MEMLITH_EXPORT int sqlite3_open_v2(const char* name, sqlite3** db, int flags, const char* vfs) {
  memlith::sqlite::register_when_preloaded();
  static const auto next = reinterpret_cast<int (*)(const char*, sqlite3**, int,
                                                    const char*)>(memlith::sqlite::find_symbol("sqlite3_open_v2"));
  return next != nullptr ? next(name, db, flags, vfs) : SQLITE_ERROR;
}
