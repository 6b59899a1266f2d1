#include "connection.hpp"

#include <fmt/format.h>

#include "calls.hpp"
#include "memlith/memlith.h"

namespace memlith::sqlite_bench {

namespace {

std::int32_t category_of(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return MEMLITH_BUSY;
    case SQLITE_FULL: return MEMLITH_NO_SPACE;
    case SQLITE_NOMEM: return MEMLITH_NO_MEMORY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return MEMLITH_CORRUPT;
    case SQLITE_READONLY: return MEMLITH_READ_ONLY;
    case SQLITE_ERROR:
    case SQLITE_MISUSE: return MEMLITH_INVALID;
    default: return MEMLITH_IO;
  }
}

Failure sqlite_failure(sqlite3* db, std::string_view doing) {
  return tool::tool_failure(category_of(sqlite3_errcode(db)),
                            fmt::format("{}: {} ({})", doing, sqlite3_errmsg(db), sqlite3_extended_errcode(db)));
}

// Characters with a meaning in a URI are written as numbers.
std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      text += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

Result<sqlite3*> open_it(const std::string& name, const char* vfs) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(name.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, vfs) ==
      SQLITE_OK) {
    return db;
  }
  Failure failure = sqlite_failure(db, fmt::format("cannot open {}", name));
  sqlite3_close_v2(db);
  return failure;
}

}  // namespace

MaybeFailure load_plugin(const std::string& path) {
  auto opened = open_it(":memory:", nullptr);
  if (!opened.ok()) return opened.failure();
  sqlite3* const db = *opened;
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, nullptr);
  char* message = nullptr;
  MaybeFailure failure;
  if (sqlite3_load_extension(db, path.c_str(), nullptr, &message) != SQLITE_OK) {
    failure =
        tool::tool_failure(MEMLITH_NOT_FOUND, fmt::format("cannot load {}: {}", path,
                                                          message != nullptr ? message : "SQLite gives no reason"));
    failure->advice = "Build it (./dev build), or name it with --plugin.";
  }
  sqlite3_free(message);
  sqlite3_close_v2(db);
  return failure;
}

MaybeFailure Statement::run(std::uint64_t* rows) {
  std::uint64_t count = 0;
  int code = sqlite3_step(statement_);
  for (; code == SQLITE_ROW; code = sqlite3_step(statement_)) ++count;
  if (rows != nullptr) *rows = count;
  sqlite3_reset(statement_);
  if (code == SQLITE_DONE) return {};
  return sqlite_failure(sqlite3_db_handle(statement_), sqlite3_sql(statement_));
}

MaybeFailure Statement::step(bool& found) {
  const int code = sqlite3_step(statement_);
  found = code == SQLITE_ROW;
  if (found) return {};
  sqlite3_reset(statement_);
  if (code == SQLITE_DONE) return {};
  return sqlite_failure(sqlite3_db_handle(statement_), sqlite3_sql(statement_));
}

Result<Connection> Connection::open(const std::string& path, const System& system, const Settings& settings) {
  std::string name = "file:" + escaped(path);
  if (system.memlith) {
    name += system.weak ? fmt::format("?durability=weak&window_ms={}", settings.window_ms) : "?durability=full";
    name += system.shared ? "&share=1" : "&share=0";
    if (system.reads_latest) name += "&read=latest";
    if (settings.log_mib > 0) name += fmt::format("&log_mib={}", settings.log_mib);
  }
  const char* vfs = system.memlith ? "memlith" : "unix";
  if (settings.calls) {
    auto counted = counted_vfs(vfs);
    if (!counted.ok()) return counted.failure();
    vfs = *counted;
  }
  auto opened = open_it(name, vfs);
  if (!opened.ok()) return opened.failure();
  Connection connection(*opened, path);
  // One that opens a log that another connection is just making has to wait.
  if (MaybeFailure failure = connection.execute("PRAGMA busy_timeout=10000")) return *failure;
  auto mode = connection.text_of("PRAGMA journal_mode=" + system.journal_mode);
  if (!mode.ok()) return mode.failure();
  if (*mode != system.journal_mode) {
    return tool::tool_failure(MEMLITH_UNSUPPORTED, fmt::format("{}: {} stays in journal mode {}; expected {}", path,
                                                               system.name, *mode, system.journal_mode));
  }
  std::string pragmas = "PRAGMA synchronous=" + system.synchronous + ";";
  if (settings.cache_kib > 0) pragmas += fmt::format("PRAGMA cache_size=-{};", settings.cache_kib);
  pragmas += fmt::format("PRAGMA mmap_size={};", settings.mmap_mib << 20);
  if (MaybeFailure failure = connection.execute(pragmas)) return *failure;
  return connection;
}

Result<Connection> Connection::open_plain(const std::string& path) {
  auto opened = open_it("file:" + escaped(path), "unix");
  if (!opened.ok()) return opened.failure();
  return Connection(*opened, path);
}

Result<Statement> Connection::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement,
                         nullptr) != SQLITE_OK) {
    return sqlite_failure(db_, sql);
  }
  return Statement(statement);
}

MaybeFailure Connection::prepare(Statement& target, std::string_view sql) {
  auto prepared = prepare(sql);
  if (!prepared.ok()) return prepared.failure();
  target = std::move(*prepared);
  return {};
}

MaybeFailure Connection::execute(const std::string& sql) {
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return sqlite_failure(db_, sql);
}

MaybeFailure Connection::for_each_row(std::string_view sql,
                                      const std::function<MaybeFailure(const Statement& row)>& body) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.failure();
  for (bool found = true;;) {
    if (MaybeFailure failure = statement->step(found)) return failure;
    if (!found) return {};
    if (MaybeFailure failure = body(*statement)) return failure;
  }
}

Result<std::string> Connection::text_of(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.failure();
  bool found = false;
  if (MaybeFailure failure = statement->step(found)) return *failure;
  return found ? std::string(statement->text(0)) : std::string();
}

MaybeFailure Connection::close() {
  if (sqlite3_close(db_) != SQLITE_OK) return sqlite_failure(db_, fmt::format("cannot close {}", path_));
  db_ = nullptr;
  return {};
}

MaybeFailure check_integrity(Connection& connection) {
  auto answer = connection.text_of("PRAGMA integrity_check(1)");
  if (!answer.ok()) return answer.failure();
  if (*answer == "ok") return {};
  return tool::tool_failure(MEMLITH_CORRUPT, fmt::format("integrity_check says: {}", *answer));
}

void Checksum::add_row(const Statement& statement) {
  const int columns = sqlite3_column_count(statement.get());
  for (int i = 0; i < columns; ++i) {
    const int type = sqlite3_column_type(statement.get(), i);
    add(static_cast<std::uint64_t>(type));
    if (type == SQLITE_INTEGER) {
      add(static_cast<std::uint64_t>(statement.integer(i)));
    } else if (type != SQLITE_NULL) {
      add(statement.blob(i));
    }
  }
}

}  // namespace memlith::sqlite_bench
