// SQLite in WAL mode: one table, a transaction for each change.
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "kit/try.hpp"
#include "peer.hpp"

namespace memlith::tool {

namespace {

struct SqliteStatementEnd {
  void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, SqliteStatementEnd>;
struct SqliteClose {
  void operator()(sqlite3* db) const { ::sqlite3_close(db); }
};
using SqliteDb = std::unique_ptr<sqlite3, SqliteClose>;

constexpr int kSqliteBusyMs = 60'000;

Failure sqlite_failure(sqlite3* db, std::string_view doing) {
  return peer_failure("sqlite", doing, db == nullptr ? "out of memory" : ::sqlite3_errmsg(db));
}

void sqlite_bind(const SqliteStatement& statement, int place, std::string_view text) {
  // Every caller keeps the text until the statement is reset.
  ::sqlite3_bind_blob(statement.get(), place, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
}

std::string_view sqlite_column(const SqliteStatement& statement, int place) {
  return {static_cast<const char*>(::sqlite3_column_blob(statement.get(), place)),
          static_cast<std::size_t>(::sqlite3_column_bytes(statement.get(), place))};
}

// A connection for each thread. Writers take turns by a lock of the process: SQLite's own waiting sleeps.
class SqliteSession final : public KvSession {
 public:
  SqliteSession(SqliteDb db, std::mutex& writers) : db_(std::move(db)), writers_(writers) {}

  [[nodiscard]] MaybeFailure prepare() {
    const std::pair<SqliteStatement*, const char*> wanted[] = {
        {&put_, "INSERT INTO kv VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"},
        {&begin_, "BEGIN IMMEDIATE"},
        {&commit_, "COMMIT"},
        {&get_, "SELECT value FROM kv WHERE key = ?1"},
        {&remove_, "DELETE FROM kv WHERE key = ?1"},
        {&scan_, "SELECT key, value FROM kv WHERE key >= ?1 ORDER BY key LIMIT ?2"}};
    for (const auto& [statement, text] : wanted) {
      sqlite3_stmt* made = nullptr;
      if (::sqlite3_prepare_v2(db_.get(), text, -1, &made, nullptr) != SQLITE_OK) return failed("preparing");
      statement->reset(made);
    }
    return {};
  }
  MaybeFailure put(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(writers_);
    return put_one(key, value);
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    const std::lock_guard lock(writers_);
    MEMLITH_TOOL_TRY(step(begin_));
    for (const auto& [key, value] : pairs) MEMLITH_TOOL_TRY(put_one(key, value));
    return step(commit_);
  }
  MaybeFailure remove(std::string_view key) override {
    const std::lock_guard lock(writers_);
    sqlite_bind(remove_, 1, key);
    return step(remove_);
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    sqlite_bind(get_, 1, key);
    const int code = ::sqlite3_step(get_.get());
    found = code == SQLITE_ROW;
    if (found) value.assign(sqlite_column(get_, 0));
    MaybeFailure failure = found || code == SQLITE_DONE ? MaybeFailure() : failed("reading");
    ::sqlite3_reset(get_.get());
    return failure;
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    const std::lock_guard lock(writers_);
    MEMLITH_TOOL_TRY(step(begin_));
    bool all = true;
    for (const auto& [key, value] : pairs) {
      MEMLITH_TOOL_TRY(get(key, seen, found));
      all = all && found;
      MEMLITH_TOOL_TRY(put_one(key, value));
    }
    found = all;
    return step(commit_);
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return 0; }  // writers wait for each other
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    sqlite_bind(scan_, 1, from);
    ::sqlite3_bind_int64(scan_.get(), 2, static_cast<sqlite3_int64>(count));
    int code = ::sqlite3_step(scan_.get());
    for (; code == SQLITE_ROW; code = ::sqlite3_step(scan_.get())) {
      visit(sqlite_column(scan_, 0), sqlite_column(scan_, 1));
    }
    MaybeFailure failure = code == SQLITE_DONE ? MaybeFailure() : failed("reading");
    ::sqlite3_reset(scan_.get());
    return failure;
  }

 private:
  MaybeFailure put_one(std::string_view key, std::string_view value) {
    sqlite_bind(put_, 1, key);
    sqlite_bind(put_, 2, value);
    return step(put_);
  }
  MaybeFailure step(const SqliteStatement& statement) {
    MaybeFailure failure = ::sqlite3_step(statement.get()) == SQLITE_DONE ? MaybeFailure() : failed("writing");
    ::sqlite3_reset(statement.get());
    return failure;
  }
  [[nodiscard]] MaybeFailure failed(std::string_view doing) { return sqlite_failure(db_.get(), doing); }

  SqliteDb db_;
  std::mutex& writers_;
  SqliteStatement begin_;
  SqliteStatement commit_;
  SqliteStatement put_;
  SqliteStatement get_;
  SqliteStatement remove_;
  SqliteStatement scan_;
};

std::string sqlite_plugin() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "lib" / "memlith_sqlite.so").string();
}

// Registers the VFS "memlith" for this process.
MaybeFailure load_sqlite_plugin() {
  sqlite3* opened = nullptr;
  const int code = ::sqlite3_open(":memory:", &opened);
  const SqliteDb db(opened);
  if (code != SQLITE_OK) return sqlite_failure(opened, "opening");
  ::sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, nullptr);
  if (::sqlite3_load_extension(opened, sqlite_plugin().c_str(), nullptr, nullptr) == SQLITE_OK) return {};
  return sqlite_failure(opened, "loading memlith_sqlite.so");
}

template <bool kOnMemlith>
class SqliteStore final : public KvStore {
 public:
  // The first session makes the table, and stays, so that the WAL is not made anew between others.
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    options_ = options;
    if (kOnMemlith) MEMLITH_TOOL_TRY(load_sqlite_plugin());
    MEMLITH_TOOL_GET(first_, session());
    return {};
  }
  Result<std::unique_ptr<KvSession>> session() override {
    sqlite3* opened = nullptr;
    const std::string path = options_.folder + "/peer.db";
    const std::string name = kOnMemlith ? "file:" + path + "?share=1" : path;
    constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    const int code = ::sqlite3_open_v2(name.c_str(), &opened, kFlags, kOnMemlith ? "memlith" : nullptr);
    SqliteDb db(opened);
    if (code != SQLITE_OK) return sqlite_failure(opened, "opening");
    ::sqlite3_busy_timeout(opened, kSqliteBusyMs);
    const std::uint64_t cache_kib = options_.cache_bytes / 1024;  // 0: SQLite's default
    const std::string settings = std::string("PRAGMA journal_mode=WAL; PRAGMA synchronous=") +
                                 (options_.durability == KvDurability::sync ? "FULL" : "OFF") +
                                 (cache_kib != 0 ? "; PRAGMA cache_size=-" + std::to_string(cache_kib) : "") +
                                 "; CREATE TABLE IF NOT EXISTS kv (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID";
    if (::sqlite3_exec(opened, settings.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      return sqlite_failure(opened, "setting up");
    }
    auto session = std::make_unique<SqliteSession>(std::move(db), writers_);
    MEMLITH_TOOL_TRY(session->prepare());
    return std::unique_ptr<KvSession>(std::move(session));
  }

 private:
  KvOptions options_;
  std::mutex writers_;
  std::unique_ptr<KvSession> first_;
};

}  // namespace

KvPeer sqlite_peer() {
  return {"sqlite", ::sqlite3_libversion(),
          "WAL, synchronous=FULL: each commit appends its pages to the WAL and calls fdatasync",
          "WAL, synchronous=OFF: nothing is flushed", open_as<SqliteStore<false>>};
}

std::optional<KvPeer> sqlite_on_memlith() {
  if (::access(sqlite_plugin().c_str(), R_OK) != 0) return std::nullopt;
  return KvPeer{"sqlite-memlith", ::sqlite3_libversion(),
                "WAL, synchronous=FULL, on memlith in mode shared: commits of all processes share flushes",
                "WAL, synchronous=OFF, on memlith in mode shared: nothing is flushed", open_as<SqliteStore<true>>};
}

}  // namespace memlith::tool
