// SQLite's connections and statements, with failures as values.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "systems.hpp"

namespace memlith::sqlite_bench {

// Loads the plugin into this process as any program does: sqlite3_load_extension() on a connection of no importance.
[[nodiscard]] MaybeFailure load_plugin(const std::string& path);

class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  // Parameters count from 1, columns from 0. What is bound has to live until the statement was run.
  void bind(int parameter, std::int64_t value) { sqlite3_bind_int64(statement_, parameter, value); }
  void bind(int parameter, std::string_view text) {
    sqlite3_bind_text(statement_, parameter, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  void bind(int parameter, std::span<const std::byte> bytes) {
    sqlite3_bind_blob(statement_, parameter, bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC);
  }
  // Runs it to its end and makes it ready to be run again; `rows` gets how many it gave, of which none is kept.
  [[nodiscard]] MaybeFailure run(std::uint64_t* rows = nullptr);
  // One row; `found` says whether there was one. After the last one it is ready to be run again.
  [[nodiscard]] MaybeFailure step(bool& found);
  void reset() { sqlite3_reset(statement_); }

  [[nodiscard]] std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  [[nodiscard]] std::string_view text(int column) const {
    const auto* const at = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return at == nullptr ? std::string_view{}
                         : std::string_view(at, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
  }
  [[nodiscard]] std::span<const std::byte> blob(int column) const {
    const auto* const at = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
    return {at, at == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }
  [[nodiscard]] sqlite3_stmt* get() const { return statement_; }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

class Connection {
 public:
  // As the system has it: VFS, journal mode, synchronous, cache. The file is made if it is not there.
  static Result<Connection> open(const std::string& path, const System& system, const Settings& settings);
  // As a SQLite that knows nothing of memlith opens it.
  static Result<Connection> open_plain(const std::string& path);
  Connection(Connection&& other) noexcept : db_(std::exchange(other.db_, nullptr)), path_(std::move(other.path_)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() { sqlite3_close_v2(db_); }

  [[nodiscard]] Result<Statement> prepare(std::string_view sql);
  [[nodiscard]] MaybeFailure prepare(Statement& target, std::string_view sql);
  [[nodiscard]] MaybeFailure execute(const std::string& sql);
  // Until one of them fails.
  [[nodiscard]] MaybeFailure for_each_row(std::string_view sql,
                                          const std::function<MaybeFailure(const Statement& row)>& body);
  // The first column of the first row; empty if there is none.
  [[nodiscard]] Result<std::string> text_of(std::string_view sql);
  [[nodiscard]] std::int64_t changes() { return sqlite3_changes64(db_); }
  // All statements must be gone.
  [[nodiscard]] MaybeFailure close();

 private:
  Connection(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  sqlite3* db_;
  std::string path_;
};

// SQLite's checks of the whole database; empty if it found nothing.
[[nodiscard]] MaybeFailure check_integrity(Connection& connection);

// A checksum of content, over all values in order. Not cryptographic.
class Checksum {
 public:
  void add(std::uint64_t value) { state_ = mix(state_ ^ value); }
  void add(std::span<const std::byte> bytes) {
    add(bytes.size());
    std::size_t i = 0;
    for (; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) add_word(bytes.data() + i, 8);
    if (i < bytes.size()) add_word(bytes.data() + i, bytes.size() - i);
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // Every value of the row that the statement stands on.
  void add_row(const Statement& statement);
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x *= 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
  }
  void add_word(const std::byte* at, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, bytes);
    add(word);
  }
  std::uint64_t state_ = 0x6d656d6c697468u;
};

}  // namespace memlith::sqlite_bench
