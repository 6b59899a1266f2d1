// A small vocabulary over the C interface of SQLite: open a database on a VFS, run SQL, ask for one value, for
// everything.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sqlite/src/vfs.hpp"

namespace memlith::test {

inline sqlite::Api linked_api() {
  sqlite::Api api;
  api.vfs_find = sqlite3_vfs_find;
  api.vfs_register = sqlite3_vfs_register;
  api.vfs_unregister = sqlite3_vfs_unregister;
  api.uri_parameter = sqlite3_uri_parameter;
  api.mprintf = sqlite3_mprintf;
  api.log = sqlite3_log;
  api.next_stmt = sqlite3_next_stmt;
  api.stmt_busy = sqlite3_stmt_busy;
  api.sql = sqlite3_sql;
  api.get_autocommit = sqlite3_get_autocommit;
  api.open_v2 = sqlite3_open_v2;
  api.close = sqlite3_close;
  api.exec = sqlite3_exec;
  api.wal_checkpoint_v2 = sqlite3_wal_checkpoint_v2;
  api.threadsafe = sqlite3_threadsafe;
  api.mutex_alloc = sqlite3_mutex_alloc;
  return api;
}

// The messages of sqlite3_log(), newest last; the last thousand. The lines of one sentence are one line here.
class SqliteLog {
 public:
  static SqliteLog& get() {
    static SqliteLog* const log = new SqliteLog;
    return *log;
  }
  [[nodiscard]] std::string last() {
    const std::lock_guard lock(mutex_);
    return lines_.empty() ? "" : lines_.back();
  }
  [[nodiscard]] std::string all() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const std::string& line : lines_) text += (text.empty() ? "" : "\n    ") + line;
    return text;
  }
  // True if a line holds all of this.
  [[nodiscard]] bool told(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  SqliteLog() { sqlite3_config(SQLITE_CONFIG_LOG, &SqliteLog::add, this); }
  static void add(void* to, int, const char* text) {
    auto& log = *static_cast<SqliteLog*>(to);
    const std::lock_guard lock(log.mutex_);
    constexpr std::string_view kFurther = "memlith, further: ";
    if (std::string_view(text).starts_with(kFurther) && !log.lines_.empty()) {
      log.lines_.back() += text + kFurther.size();
      return;
    }
    log.lines_.emplace_back(text);
    if (log.lines_.size() > 1000) log.lines_.pop_front();
  }
  std::mutex mutex_;
  std::deque<std::string> lines_;
};
inline SqliteLog& sqlite_log = SqliteLog::get();  // SQLite has to be told before it is used

// Registers "memlith" over real files, once, and "memlith-default", which is not SQLite's default in a test.
inline sqlite::Vfs& registered_vfs() {
  static sqlite::Vfs* const vfs = [] {
    ::setenv("MEMLITH_SQLITE_OPEN_WAIT_MS", "0", 0);  // a test that expects BUSY does not wait for it
    ::setenv("MEMLITH_SQLITE_IDLE_MS", "0", 0);       // the mark stays where a test looks for it
    ::setenv("MEMLITH_SQLITE_SHARE", "0", 0);         // the engine, unless a test asks for mode shared
    auto made = sqlite::Vfs::make(linked_api(), sqlite::real_databases(), "memlith");
    sqlite3_vfs* const before = sqlite3_vfs_find(nullptr);
    EXPECT_EQ(made->register_it(true), SQLITE_OK);
    EXPECT_EQ(sqlite3_vfs_register(before, 1), SQLITE_OK);
    return made.release();
  }();
  return *vfs;
}

class Db {
 public:
  Db() = default;
  // `vfs` null: plain SQLite.
  Db(const std::string& name, const char* vfs, int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) {
    code_ = sqlite3_open_v2(name.c_str(), &db_, flags | SQLITE_OPEN_URI, vfs);
    sqlite3_extended_result_codes(db_, 1);
  }
  Db(Db&& other) noexcept : db_(std::exchange(other.db_, nullptr)), code_(other.code_) {}
  Db& operator=(Db&& other) noexcept {
    std::swap(db_, other.db_);
    std::swap(code_, other.code_);
    return *this;
  }
  ~Db() { close(); }

  [[nodiscard]] int open_code() const { return code_; }
  [[nodiscard]] sqlite3* get() const { return db_; }
  [[nodiscard]] std::string message() const { return sqlite3_errmsg(db_); }
  int close() { return sqlite3_close(std::exchange(db_, nullptr)); }

  // The code; rows are dropped.
  int run(const std::string& sql) const { return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr); }
  // All rows, columns separated by '|', rows by line ends; "error N: text" if it failed.
  [[nodiscard]] std::string all(const std::string& sql) const {
    std::string text;
    char* error = nullptr;
    const auto add = [](void* to, int count, char** values, char**) {
      auto& target = *static_cast<std::string*>(to);
      if (!target.empty()) target += '\n';
      for (int i = 0; i < count; ++i) {
        if (i > 0) target += '|';
        target += values[i] != nullptr ? values[i] : "NULL";
      }
      return 0;
    };
    const int code = sqlite3_exec(db_, sql.c_str(), add, &text, &error);
    if (code != SQLITE_OK) text = "error " + std::to_string(code) + ": " + (error != nullptr ? error : "");
    sqlite3_free(error);
    return text;
  }

 private:
  sqlite3* db_ = nullptr;
  int code_ = SQLITE_OK;
};

#define EXPECT_RUNS(db, sql) EXPECT_EQ((db).run(sql), SQLITE_OK) << (db).message() << "\n  " << (sql)
#define ASSERT_RUNS(db, sql) ASSERT_EQ((db).run(sql), SQLITE_OK) << (db).message() << "\n  " << (sql)
#define EXPECT_OPEN(db) EXPECT_EQ((db).open_code(), SQLITE_OK) << (db).message()
#define ASSERT_OPEN(db) ASSERT_EQ((db).open_code(), SQLITE_OK) << (db).message()

// Schema and rows of everything, in order of the rowids.
inline std::string dump(const Db& db, const std::string& schema = "main") {
  const std::string in = schema + ".sqlite_schema where name not like 'sqlite_%'";
  std::string text = db.all("select type, name, sql from " + in + " order by name");
  std::vector<std::string> tables;
  const std::string names = db.all("select name from " + in + " and type = 'table' order by 1");
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find('\n', begin), names.size());
    const std::string table = names.substr(begin, end - begin);
    text += "\n" + table + ":\n" + db.all("select * from " + schema + "." + table);
    begin = end + 1;
  }
  return text;
}

inline std::string integrity(const Db& db) { return db.all("pragma integrity_check"); }

}  // namespace memlith::test
