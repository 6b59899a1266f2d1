#include "share_pragma.hpp"

#include "errors.hpp"
#include "pragma_call.hpp"

namespace memlith::sqlite {

namespace {

// A file that could be opened in neither mode.
int closed_close(sqlite3_file* file) {
  file->pMethods = nullptr;
  return SQLITE_OK;
}
constexpr sqlite3_io_methods kClosedMethods = {
    1,
    closed_close,
    [](sqlite3_file*, void*, int, sqlite3_int64) { return SQLITE_IOERR_READ; },
    [](sqlite3_file*, const void*, int, sqlite3_int64) { return SQLITE_IOERR_WRITE; },
    [](sqlite3_file*, sqlite3_int64) { return SQLITE_IOERR_TRUNCATE; },
    [](sqlite3_file*, int) { return SQLITE_IOERR_FSYNC; },
    [](sqlite3_file*, sqlite3_int64*) { return SQLITE_IOERR_FSTAT; },
    [](sqlite3_file*, int) { return SQLITE_IOERR_LOCK; },
    [](sqlite3_file*, int) { return SQLITE_OK; },
    [](sqlite3_file*, int*) { return SQLITE_IOERR_CHECKRESERVEDLOCK; },
    [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
    [](sqlite3_file*) { return 512; },
    [](sqlite3_file*) { return 0; },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

int move_to_shared(const EngineFile& engine, bool& is_open) {
  is_open = false;
  if (const int code = engine.close(engine.file); code != SQLITE_OK) {
    engine.file->pMethods = &kClosedMethods;
    return code;
  }
  const int code = open_to_share(engine.vfs, engine.name, engine.file, engine.flags);
  const auto tell = [&](int op, void* what) {
    if (code == SQLITE_OK && what != nullptr) (void)engine.file->pMethods->xFileControl(engine.file, op, what);
  };
  tell(SQLITE_FCNTL_PDB, engine.told.connection);
  tell(SQLITE_FCNTL_BUSYHANDLER, engine.told.busy_handler);
  is_open = code == SQLITE_OK || open_main(engine.vfs, engine.name, engine.file, engine.flags, nullptr) == SQLITE_OK;
  if (!is_open) engine.file->pMethods = &kClosedMethods;
  return code;
}

int share_pragma(const EngineFile& engine, void* argument) {
  const PragmaCall call(engine.vfs.api(), argument);
  const auto wanted = parse_share(call.value("0"));
  if (!wanted.ok()) return call.refused(wanted.error());
  if (!*wanted) return call.answer("engine");
  if (engine.close == nullptr) {
    return call.failed(core::fail(core::Errc::busy, core::Detail::open,
                                  "{}: PRAGMA memlith_share = 1 has to be the first statement of a connection, because "
                                  "SQLite has begun to use the database; open it with share=1",
                                  engine.path));
  }
  bool is_open = false;
  const int code = move_to_shared(engine, is_open);
  (void)call.answer(code == SQLITE_OK ? "shared" : last_report());
  return code;
}

}  // namespace memlith::sqlite
