#include "shared_files.hpp"

#include <memlith/sqlite_file.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "../c_file.hpp"
#include "../errors.hpp"
#include "../line_log.hpp"
#include "../pragma_call.hpp"
#include "../wal_format.hpp"
#include "connection.hpp"

namespace memlith::sqlite::shared {

namespace {

struct State {
  Vfs& vfs;
  std::shared_ptr<Connection> connection;  // null: a log of which no connection was found, as with plain SQLite
  RealFile alone;                          // then
};
State& state_in(sqlite3_file* file) { return state_of<State>(file); }

// Runs `body` on a connection of this process.
template <class Body>
int use(sqlite3_file* file, Body body) {
  return guarded([&] {
    State& state = state_in(file);
    if (const auto own = state.connection->check_own(); !own.ok()) return report(state.vfs.api(), own);
    note_used(state.connection);
    return body(*state.connection, state.connection->database().file());
  });
}

int failed_flush(const State& state, int code) {
  if (code != SQLITE_IOERR_FSYNC) return code;
  return report(state.vfs.api(),
                core::fail(core::Errc::io, core::Detail::flush,
                           "{}: a flush of its write-ahead log failed; which commits took effect is known when all "
                           "connections of all processes are closed",
                           state.connection->path()));
}

// ---- the database --------------------------------------------------------------------------------------------------

int shared_close(sqlite3_file* file) {
  const std::unique_ptr<State> state = take_state<State>(file);
  return guarded([&] {
    const int code = state->connection->close();
    Registry::get().remove(*state->connection);
    return code;
  });
}

// The smallest page size: no other page begins below it.
constexpr sqlite3_int64 kFirstPageEnd = 512;

int shared_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  return use(file, [&](Connection& connection, sqlite3_file* real) {
    const int code = connection.await_page(offset < kFirstPageEnd);
    return code == SQLITE_OK ? real->pMethods->xRead(real, target, bytes, offset) : failed_flush(state_in(file), code);
  });
}
int shared_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return use(file,
             [&](Connection&, sqlite3_file* real) { return real->pMethods->xWrite(real, source, bytes, offset); });
}
int shared_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return use(file, [&](Connection&, sqlite3_file* real) { return real->pMethods->xTruncate(real, bytes); });
}
int shared_sync(sqlite3_file* file, int flags) {
  return use(file, [&](Connection&, sqlite3_file* real) { return real->pMethods->xSync(real, flags); });
}
int shared_size(sqlite3_file* file, sqlite3_int64* bytes) {
  return use(file, [&](Connection&, sqlite3_file* real) { return real->pMethods->xFileSize(real, bytes); });
}
int shared_lock(sqlite3_file* file, int level) {
  return use(file, [&](Connection& connection, sqlite3_file* real) {
    // The last connection takes this lock to remove the log.
    const auto hold = level == SQLITE_LOCK_EXCLUSIVE ? connection.hold_checkpoints() : nullptr;
    return real->pMethods->xLock(real, level);
  });
}
int shared_unlock(sqlite3_file* file, int level) {
  State& state = state_in(file);
  if (state.connection->inherited()) return SQLITE_OK;
  sqlite3_file* const real = state.connection->database().file();
  return real->pMethods->xUnlock(real, level);
}
int shared_check_reserved(sqlite3_file* file, int* result) {
  return use(file, [&](Connection&, sqlite3_file* real) { return real->pMethods->xCheckReservedLock(real, result); });
}

int shared_pragma(const State& state, void* argument) {
  Connection& connection = *state.connection;
  const PragmaCall call(state.vfs.api(), argument);
  const std::string& name = call.name();
  if (name == "wal_checkpoint") connection.note_asked_for_checkpoint();
  if (name == "memlith_stats") return call.answer(connection.describe());
  if (name == "memlith_error") return call.answer(newest_report());
  if (name == "memlith_share") {
    const auto wanted = parse_share(call.value("1"));
    if (!wanted.ok()) return call.refused(wanted.error());
    if (*wanted) return call.answer("shared");
    return call.refused(core::fail(core::Errc::busy, core::Detail::open,
                                   "{}: a connection in mode shared stays there; close it, and open the database "
                                   "without share=1",
                                   connection.path()));
  }
  if (name == "memlith_durability") {
    const auto set = [&](Durability wanted) {
      connection.set_weak(wanted == Durability::weak);
      return core::kOk;
    };
    return call.setting(parse_durability, set, [&] { return connection.is_weak() ? "weak" : "full"; });
  }
  if (name == "memlith_window_ms") {
    const auto set = [&](std::optional<std::uint64_t> wanted) {
      connection.set_window_ms(wanted);
      return core::kOk;
    };
    return call.setting(parse_window, set, [&] {
      const auto window = connection.window_ms();
      return window.has_value() ? std::to_string(*window) : "off";
    });
  }
  if (name == "memlith_persist") {
    const int code = failed_flush(state, connection.persist());
    (void)call.answer(code == SQLITE_OK ? "ok" : last_report());
    return code;
  }
  if (name == "memlith_foresight") {
    const std::string wanted = call.value("");
    if (!wanted.empty()) connection.foresight().set_on(wanted == "on" || wanted == "1");
    return call.answer(connection.foresight().is_on() ? "on" : "off");
  }
  if (name != "memlith_read") return SQLITE_NOTFOUND;
  const auto set = [&](bool latest) {
    connection.set_reads_latest(latest);
    return core::kOk;
  };
  return call.setting(parse_read, set, [&] { return connection.reads_latest() ? "latest" : "durable"; });
}

int shared_control(sqlite3_file* file, int op, void* argument) {
  return use(file, [&](Connection& connection, sqlite3_file* real) {
    const State& state = state_in(file);
    if (op == SQLITE_FCNTL_PRAGMA) {
      const int code = shared_pragma(state, argument);
      if (code != SQLITE_NOTFOUND) return code;
    }
    if (op == SQLITE_FCNTL_PDB) connection.foresight().set_connection(static_cast<sqlite3**>(argument));
    if (op == SQLITE_FCNTL_BUSYHANDLER) {
      void* const* const handler = static_cast<void**>(argument);
      connection.foresight().set_busy_handler(reinterpret_cast<int (*)(void*)>(handler[0]), handler[1]);
    }
    if (op == SQLITE_FCNTL_COMMIT_PHASETWO) {
      const int code = failed_flush(state, connection.end_commit());
      if (code != SQLITE_OK) return code;
    }
    // Another SQLite's memory could not be freed by this one.
    if (connection.foreign() && op == SQLITE_FCNTL_TEMPFILENAME) return SQLITE_NOTFOUND;
    if (connection.foreign() && op == SQLITE_FCNTL_VFSNAME) {
      *static_cast<char**>(argument) = state.vfs.api().mprintf("memlith/%s", connection.vfs().zName);
      return SQLITE_OK;
    }
    const int code = real->pMethods->xFileControl(real, op, argument);
    if (op == SQLITE_FCNTL_VFSNAME && code == SQLITE_OK) {
      // %z frees what it prints.
      *static_cast<char**>(argument) = state.vfs.api().mprintf("memlith/%z", *static_cast<char**>(argument));
    }
    return code;
  });
}

int shared_sector_size(sqlite3_file* file) {
  State& state = state_in(file);
  if (state.connection->inherited()) return 512;
  return state.connection->database()->xSectorSize(state.connection->database().file());
}
int shared_characteristics(sqlite3_file* file) {
  State& state = state_in(file);
  if (state.connection->inherited()) return 0;
  return state.connection->database()->xDeviceCharacteristics(state.connection->database().file());
}

int shared_shm_map(sqlite3_file* file, int region, int bytes, int extend, void volatile** result) {
  return use(file, [&](Connection& connection, sqlite3_file*) {
    return connection.map_index(region, bytes, extend, result);
  });
}
int shared_shm_lock(sqlite3_file* file, int first, int count, int flags) {
  return use(file, [&](Connection& connection, sqlite3_file*) {
    const State& state = state_in(file);
    const int code = connection.lock_index(first, count, flags);
    const bool is_write_lock = first == kWriteLock && count == 1;
    const bool gives_up = code == SQLITE_OK && (flags & SQLITE_SHM_UNLOCK) != 0 && connection.is_stale();
    if (is_write_lock && (code == SQLITE_BUSY || gives_up)) note_refused(state.connection);
    return failed_flush(state, code);
  });
}
void shared_shm_barrier(sqlite3_file* file) {
  (void)use(file, [&](Connection& connection, sqlite3_file*) {
    connection.barrier();
    return SQLITE_OK;
  });
}
int shared_shm_unmap(sqlite3_file* file, int remove) {
  if (state_in(file).connection->inherited()) return SQLITE_OK;
  return use(file, [&](Connection& connection, sqlite3_file*) { return connection.unmap_index(remove); });
}
int shared_fetch(sqlite3_file* file, sqlite3_int64 offset, int bytes, void** result) {
  *result = nullptr;
  return use(file, [&](Connection& connection, sqlite3_file* real) {
    const int code = connection.await_page(offset < kFirstPageEnd);
    return code == SQLITE_OK ? real->pMethods->xFetch(real, offset, bytes, result) : failed_flush(state_in(file), code);
  });
}
int shared_unfetch(sqlite3_file* file, sqlite3_int64 offset, void* page) {
  State& state = state_in(file);
  if (state.connection->inherited()) return SQLITE_OK;
  sqlite3_file* const real = state.connection->database().file();
  return real->pMethods->xUnfetch(real, offset, page);
}

constexpr sqlite3_io_methods kSharedMethods = {
    3,
    shared_close,
    shared_read,
    shared_write,
    shared_truncate,
    shared_sync,
    shared_size,
    shared_lock,
    shared_unlock,
    shared_check_reserved,
    shared_control,
    shared_sector_size,
    shared_characteristics,
    shared_shm_map,
    shared_shm_lock,
    shared_shm_barrier,
    shared_shm_unmap,
    shared_fetch,
    shared_unfetch,
};

// ---- the write-ahead log -------------------------------------------------------------------------------------------

// Runs `body` on the file; with the connection, if it is known.
template <class Body>
int use_wal(sqlite3_file* file, Body body) {
  return guarded([&] {
    State& state = state_in(file);
    Connection* const connection = state.connection.get();
    if (connection == nullptr) return body(nullptr, state.alone.file());
    if (const auto own = connection->check_own(); !own.ok()) return report(state.vfs.api(), own);
    return body(connection, connection->wal().file());
  });
}

int shared_wal_close(sqlite3_file* file) {
  const std::unique_ptr<State> state = take_state<State>(file);
  if (state->connection == nullptr) return state->alone.close();
  if (state->connection->inherited()) return SQLITE_OK;
  const int kept = guarded([&] { return failed_flush(*state, state->connection->keep_promises()); });
  const int code = state->connection->wal().close();
  return kept != SQLITE_OK ? kept : code;
}

// True if the bytes of a frame at `offset` are of page 1.
bool is_page_one(sqlite3_file* real, sqlite3_int64 offset) {
  std::array<unsigned char, 4> number{};
  const sqlite3_int64 at = offset - static_cast<sqlite3_int64>(kFrameHeaderBytes);
  if (at < static_cast<sqlite3_int64>(kWalHeaderBytes)) return true;  // of the log itself
  return real->pMethods->xRead(real, number.data(), 4, at) == SQLITE_OK && number[0] == 0 && number[1] == 0 &&
         number[2] == 0 && number[3] == 1;
}

int shared_wal_read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  return use_wal(file, [&](Connection* connection, sqlite3_file* real) {
    if (connection != nullptr && connection->must_wait(false) && !is_page_one(real, offset)) {
      const int code = connection->await_page(false);
      if (code != SQLITE_OK) return failed_flush(state_in(file), code);
    }
    return connection != nullptr ? connection->read_wal(target, bytes, offset)
                                 : real->pMethods->xRead(real, target, bytes, offset);
  });
}
int shared_wal_write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  return use_wal(file, [&](Connection* connection, sqlite3_file* real) {
    return connection != nullptr ? connection->write_wal(source, bytes, offset)
                                 : real->pMethods->xWrite(real, source, bytes, offset);
  });
}
int shared_wal_truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return use_wal(file, [&](Connection* connection, sqlite3_file* real) {
    const int code = connection != nullptr ? connection->write_kept() : SQLITE_OK;
    return code == SQLITE_OK ? real->pMethods->xTruncate(real, bytes) : code;
  });
}
int shared_wal_sync(sqlite3_file* file, int flags) {
  return use_wal(file, [&](Connection* connection, sqlite3_file* real) {
    if (connection == nullptr) return real->pMethods->xSync(real, flags);
    return failed_flush(state_in(file), connection->sync_wal(flags));
  });
}
int shared_wal_size(sqlite3_file* file, sqlite3_int64* bytes) {
  return use_wal(file, [&](Connection* connection, sqlite3_file* real) {
    const int code = connection != nullptr ? connection->write_kept() : SQLITE_OK;
    return code == SQLITE_OK ? real->pMethods->xFileSize(real, bytes) : code;
  });
}
int shared_wal_control(sqlite3_file* file, int op, void* argument) {
  return use_wal(file,
                 [&](Connection*, sqlite3_file* real) { return real->pMethods->xFileControl(real, op, argument); });
}
int shared_wal_sector_size(sqlite3_file* file) {
  return use_wal(file, [&](Connection*, sqlite3_file* real) { return real->pMethods->xSectorSize(real); });
}
int shared_wal_characteristics(sqlite3_file* file) {
  return use_wal(file, [&](Connection*, sqlite3_file* real) { return real->pMethods->xDeviceCharacteristics(real); });
}
// SQLite locks no log.
int shared_wal_lock(sqlite3_file*, int) { return SQLITE_OK; }
int shared_wal_reserved(sqlite3_file*, int* result) {
  *result = 0;
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kSharedWalMethods = {
    1,
    shared_wal_close,
    shared_wal_read,
    shared_wal_write,
    shared_wal_truncate,
    shared_wal_sync,
    shared_wal_size,
    shared_wal_lock,
    shared_wal_lock,
    shared_wal_reserved,
    shared_wal_control,
    shared_wal_sector_size,
    shared_wal_characteristics,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

// A database that memlith's engine has, or had when it was killed, begins with its mark.
core::Status check_not_marked(RealFile& database, const std::string& path) {
  std::array<unsigned char, MEMLITH_SQLITE_MARK_BYTES> head{};
  const int code = database->xRead(database.file(), head.data(), static_cast<int>(head.size()), 0);
  const std::size_t mark = std::strlen(MEMLITH_SQLITE_MARK);
  if (code != SQLITE_OK || std::memcmp(head.data(), MEMLITH_SQLITE_MARK, mark) != 0) return core::kOk;
  return core::fail(core::Errc::busy, core::Detail::open,
                    "{}: memlith's engine has the database, or had it when it was killed; close it there, or run "
                    "`memlith recover`, before you open it with share=1",
                    path);
}

}  // namespace

const int kSharedFileBytes = sizeof(CFile<State>);

int open_shared(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags, const Options& options,
                bool for_checkpoint, bool or_engine) {
  Registry::get().leave_parent();
  auto connection = Registry::get().add(vfs.api(), *vfs.base(), name, options);
  if (connection == nullptr) return kForTheEngine;
  const auto give_up = [&](int code) {
    (void)connection->database().close();
    Registry::get().remove(*connection);
    return code;
  };
  int given = flags;
  if (const int code = connection->database().open(connection->vfs(), name, flags, &given, connection->foreign());
      code != SQLITE_OK) {
    return give_up(code);
  }
  if (const auto status = check_not_marked(connection->database(), connection->path()); !status.ok()) {
    return give_up(or_engine ? kForTheEngine : report(vfs.api(), status, true));
  }
  if (out_flags != nullptr) *out_flags = given;
  note_used(connection);
  if (!for_checkpoint) {
    connection->leave_checkpoints({vfs.api(), vfs.name()});
    log_line("{}: on memlith: shared (SQLite {})", name, version_of(vfs.api()));
  }
  set_state(file, kSharedMethods, std::unique_ptr<State>(new State{vfs, std::move(connection), {}}));
  return SQLITE_OK;
}

int open_shared_wal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto state = std::unique_ptr<State>(new State{vfs, Registry::get().owner_of_wal(name), {}});
  RealFile& real = state->connection != nullptr ? state->connection->wal() : state->alone;
  if (const int code = real.open(*vfs.base(), name, flags, out_flags); code != SQLITE_OK) return code;
  if (state->connection != nullptr) state->connection->note_wal_opened();
  set_state(file, kSharedWalMethods, std::move(state));
  return SQLITE_OK;
}

bool is_in_wal_mode(sqlite3_vfs& real, const char* name) {
  const auto look = [&] {
    RealFile file;
    if (file.open(real, name, SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK) return false;
    std::array<unsigned char, MEMLITH_SQLITE_LOOK_BYTES> first{};
    sqlite3_int64 bytes = 0;
    const bool has_read = file->xFileSize(file.file(), &bytes) == SQLITE_OK &&
                          file->xRead(file.file(), first.data(), static_cast<int>(first.size()), 0) == SQLITE_OK;
    (void)file.close();
    if (!has_read) return false;
    const auto head = memlith_sqlite_look(first.data(), static_cast<std::uint64_t>(bytes));
    return head.kind == MEMLITH_SQLITE_PLAIN && head.wal_mode != 0;
  };
  return Registry::get().knows_or(name, look);
}

bool is_open_here(std::string_view name) { return Registry::get().knows(name); }

std::shared_ptr<void> claim_for_engine(const std::string& path) {
  Registry::get().leave_parent();
  return Registry::get().claim_for_engine(path);
}

bool belongs_to_shared(std::string_view name) {
  for (const std::string_view suffix : {std::string_view("-journal"), std::string_view("-wal")}) {
    if (name.ends_with(suffix)) return Registry::get().knows(name.substr(0, name.size() - suffix.size()));
  }
  return false;
}

}  // namespace memlith::sqlite::shared
