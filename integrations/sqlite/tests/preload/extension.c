// An extension that opens a database by the functions that its host handed over: SELECT opens_itself(NAME) says which
// VFS it is on.
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

static void opens_itself(sqlite3_context* context, int count, sqlite3_value** values) {
  sqlite3* db = 0;
  char* vfs = 0;
  (void)count;
  const int code = sqlite3_open((const char*)sqlite3_value_text(values[0]), &db);
  if (code == SQLITE_OK) sqlite3_file_control(db, "main", SQLITE_FCNTL_VFSNAME, &vfs);
  sqlite3_result_text(context, vfs != 0 ? vfs : sqlite3_errstr(code), -1, SQLITE_TRANSIENT);
  sqlite3_free(vfs);
  if (sqlite3_close(db) != SQLITE_OK) sqlite3_result_error(context, "cannot be closed", -1);
}

__attribute__((visibility("default"))) int sqlite3_extension_init(sqlite3* db, char** message,
                                                                  const sqlite3_api_routines* api) {
  (void)message;
  SQLITE_EXTENSION_INIT2(api);
  return sqlite3_create_function(db, "opens_itself", 1, SQLITE_UTF8, 0, opens_itself, 0, 0);
}
