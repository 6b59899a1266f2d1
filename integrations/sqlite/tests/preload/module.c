// A shared object such as a language's SQLite module, for preload_test.py: a few calls of SQLite, bound as the linker
// was told. It is built several times: with a SQLite of its own that it exports, with one that it hides, with the
// system's, and others.
#include <sqlite3.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef OLD_VERSION
EXPORT int sqlite3_libversion_number(void) { return OLD_VERSION; }
#endif
#ifdef ENCRYPTS
EXPORT int sqlite3_key(sqlite3* db, const void* key, int bytes) { return db != 0 && key != 0 && bytes > 0 ? 0 : 1; }
#endif

EXPORT int module_open(const char* name, sqlite3** db, int flags, const char* vfs) {
  const int code = sqlite3_open_v2(name, db, flags, vfs);
  sqlite3_extended_result_codes(*db, 1);  // the call above is no jump
  return code;
}

EXPORT int module_open_simply(const char* name, sqlite3** db) {
  const int code = sqlite3_open(name, db);
  sqlite3_extended_result_codes(*db, 1);
  return code;
}

EXPORT int module_open16(const void* name, sqlite3** db) {
  const int code = sqlite3_open16(name, db);
  sqlite3_extended_result_codes(*db, 1);
  return code;
}

// The compiler makes a jump of the call: the caller of this function appears to call SQLite.
EXPORT int module_open_by_jump(const char* name, sqlite3** db) { return sqlite3_open(name, db); }

// Returns the answer, rows and columns in lines and with bars between them, or "error CODE: MESSAGE".
EXPORT const char* module_run(sqlite3* db, const char* sql) {
  static _Thread_local char text[65536];
  sqlite3_stmt* statement = 0;
  size_t used = 0;
  text[0] = 0;
  while (sql != 0 && *sql != 0) {
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, &sql);
    if (code == SQLITE_OK && statement == 0) break;
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        const char* const value = (const char*)sqlite3_column_text(statement, i);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 i > 0      ? "|"
                                 : used > 0 ? "\n"
                                            : "",
                                 value != 0 ? value : "");
        if (used >= sizeof text) return "error: too long";
      }
      code = SQLITE_OK;
    }
    if (code != SQLITE_DONE) {
      snprintf(text, sizeof text, "error %d: %s", sqlite3_extended_errcode(db), sqlite3_errmsg(db));
      sqlite3_finalize(statement);
      return text;
    }
    sqlite3_finalize(statement);
  }
  return text;
}

EXPORT int module_load(sqlite3* db, const char* extension, const char* entry) {
  sqlite3_enable_load_extension(db, 1);
  char* message = 0;
  const int code = sqlite3_load_extension(db, extension, entry, &message);
  if (message != 0) fprintf(stderr, "%s\n", message);
  sqlite3_free(message);
  return code;
}

EXPORT int module_has_vfs(const char* name) { return sqlite3_vfs_find(name) != 0; }
EXPORT int module_shutdown(void) { return sqlite3_shutdown(); }
EXPORT int module_close(sqlite3* db) { return sqlite3_close(db); }
EXPORT void module_wait(sqlite3* db, int ms) { sqlite3_busy_timeout(db, ms); }
