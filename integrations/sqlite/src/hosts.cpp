#include "hosts.hpp"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "each_connection.hpp"
#include "line_log.hpp"
#include "vfs.hpp"

namespace memlith::sqlite {

namespace {

constexpr const char* kName = "memlith";
constexpr int kOldestVersion = 3022000;  // of 2018; older versions were not tested

template <class Function>
void find_function(const Library& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.find(name));
}

Api api_of_library(const Library& library) {
  Api api;
  find_function(library, "sqlite3_vfs_find", api.vfs_find);
  find_function(library, "sqlite3_vfs_register", api.vfs_register);
  find_function(library, "sqlite3_vfs_unregister", api.vfs_unregister);
  find_function(library, "sqlite3_uri_parameter", api.uri_parameter);
  find_function(library, "sqlite3_mprintf", api.mprintf);
  find_function(library, "sqlite3_log", api.log);
  find_function(library, "sqlite3_libversion", api.libversion);
  find_function(library, "sqlite3_auto_extension", api.auto_extension);
  find_function(library, "sqlite3_next_stmt", api.next_stmt);
  find_function(library, "sqlite3_stmt_busy", api.stmt_busy);
  find_function(library, "sqlite3_sql", api.sql);
  find_function(library, "sqlite3_get_autocommit", api.get_autocommit);
  find_function(library, "sqlite3_open_v2", api.open_v2);
  find_function(library, "sqlite3_close", api.close);
  find_function(library, "sqlite3_exec", api.exec);
  find_function(library, "sqlite3_wal_checkpoint_v2", api.wal_checkpoint_v2);
  find_function(library, "sqlite3_threadsafe", api.threadsafe);
  find_function(library, "sqlite3_mutex_alloc", api.mutex_alloc);
  return api;
}

std::string why_off(const Library& library, const Api& api) {
  int (*version)() = nullptr;
  find_function(library, "sqlite3_libversion_number", version);
  if (version == nullptr || !api.complete()) return "this SQLite does not export the functions that a VFS needs";
  if (version() < kOldestVersion) return "this SQLite is older than 3.22";
  // It encrypts the pages (SQLCipher and others). memlith would not recognise the file as a database.
  if (library.find("sqlite3_key") != nullptr) return "this SQLite encrypts databases";
  return "";
}

bool asked_for(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != 0 && std::string_view(value) != "0";
}

std::mutex& mutex() {
  static std::mutex instance;
  return instance;
}

}  // namespace

Host& host_of(const Library& library) {
  static auto* const hosts = new std::map<const void*, std::unique_ptr<Host>>;  // by base; never destroyed
  {
    const std::lock_guard lock(mutex());
    if (const auto found = hosts->find(library.base); found != hosts->end()) return *found->second;
  }
  // The loader, which is called here, may hold its own lock while it calls a constructor that opens a database.
  auto host = std::make_unique<Host>();
  host->library = library;
  host->api = api_of_library(library);
  host->off = why_off(library, host->api);
  find_function(library, "sqlite3_open", host->open);
  find_function(library, "sqlite3_open16", host->open16);
  find_function(library, "sqlite3_open_v2", host->open_v2);
  find_function(library, "sqlite3_file_control", host->file_control);
  find_function(library, "sqlite3_db_filename", host->db_filename);
  find_function(library, "sqlite3_free", host->free);
  if (host->off.empty()) host->first = host->api.vfs_find(nullptr);
  const std::lock_guard lock(mutex());
  return *hosts->try_emplace(library.base, std::move(host)).first->second;
}

int register_vfs(const Api& api, bool as_default) {
  using Register = int (*)(sqlite3_vfs*, int);
  static auto* const made =
      new std::map<Register, std::unique_ptr<Vfs>>;  // never destroyed: SQLite keeps what was registered
  if (!api.complete()) return SQLITE_ERROR;
  const std::lock_guard lock(mutex());
  auto& vfs = (*made)[api.vfs_register];
  const bool present = api.vfs_find(kName) != nullptr;
  if (present && vfs == nullptr) return SQLITE_OK;  // another copy of this plugin
  if (vfs == nullptr) {
    vfs = Vfs::make(api, real_databases(), kName);
    if (vfs == nullptr) return SQLITE_ERROR;
    prepare_each_connection(api);
  }
  const bool make_default = as_default || asked_for("MEMLITH_SQLITE_DEFAULT");
  return present && !make_default ? SQLITE_OK : vfs->register_it(make_default);
}

void make_default(Host& host) {
  if (!host.off.empty() || host.first == nullptr || host.api.vfs_find(nullptr) != host.first) return;
  if (register_vfs(host.api, true) != SQLITE_OK)
    log_line("error: {}: did not accept the VFS of memlith", host.library.path);
}

void log_if_elsewhere(const Host& host, sqlite3* db, bool preloaded) {
  if (host.file_control == nullptr || host.db_filename == nullptr || host.free == nullptr) return;
  char* given = nullptr;
  (void)host.file_control(db, "main", SQLITE_FCNTL_VFSNAME, &given);
  const std::string vfs = given != nullptr ? given : "";
  host.free(given);
  if (vfs.find(kName) != std::string::npos) return;
  const char* const name = host.db_filename(db, "main");
  std::string why = host.off;
  if (name == nullptr || *name == 0) {
    why = "in memory, or temporary";
  } else if (why.empty() && host.api.vfs_find(kName) == nullptr) {
    why = preloaded ? "the program chose another default VFS before" : "the VFS \"memlith\" is not registered";
  } else if (why.empty()) {
    why = "the program, or its default, asks for another VFS";
  }
  log_line("{}: not on memlith: {} (VFS \"{}\", SQLite {} in {})",
           name != nullptr && *name != 0 ? name : "a database without a name", why, vfs, version_of(host.api),
           host.library.path);
}

}  // namespace memlith::sqlite
