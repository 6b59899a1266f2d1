// An object that knows of no SQLite, linked to one that opens databases for it.
struct sqlite3;
int module_open_by_jump(const char* name, struct sqlite3** db);

__attribute__((visibility("default"))) int user_open(const char* name, struct sqlite3** db) {
  const int code = module_open_by_jump(name, db);
  return code == 0 ? 0 : 1000 + code;  // no jump here
}
