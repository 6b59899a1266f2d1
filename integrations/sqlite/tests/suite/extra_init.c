// Built into SQLite's own testfixture with SQLITE_EXTRA_INIT=memlith_extra_init: makes memlith the default VFS whenever
// SQLite is initialised, if MEMLITH_SQLITE_PLUGIN says where the plugin is, which its tests do again and again. The
// plugin gets the functions of this SQLite, as one that is loaded does.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3ext.h>

typedef int (*entry_point)(sqlite3*, char**, const sqlite3_api_routines*);

int memlith_extra_init(const char* unused) {
  static sqlite3_api_routines routines;
  static entry_point entry;
  (void)unused;
  if (entry == NULL) {
    const char* const plugin = getenv("MEMLITH_SQLITE_PLUGIN");
    if (plugin == NULL) return SQLITE_OK;  // plain SQLite, to compare with
    void* const library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      exit(1);
    }
    entry = (entry_point)dlsym(library, "sqlite3_memlithdefault_init");
    if (entry == NULL) exit(1);
    memset(&routines, 0, sizeof routines);
    routines.vfs_find = sqlite3_vfs_find;
    routines.vfs_register = sqlite3_vfs_register;
    routines.vfs_unregister = sqlite3_vfs_unregister;
    routines.uri_parameter = sqlite3_uri_parameter;
    routines.mprintf = sqlite3_mprintf;
    routines.log = sqlite3_log;
    routines.next_stmt = sqlite3_next_stmt;
    routines.stmt_busy = sqlite3_stmt_busy;
    routines.sql = sqlite3_sql;
    routines.get_autocommit = sqlite3_get_autocommit;
  }
  return entry(NULL, NULL, &routines) == SQLITE_OK_LOAD_PERMANENTLY ? SQLITE_OK : SQLITE_ERROR;
}
