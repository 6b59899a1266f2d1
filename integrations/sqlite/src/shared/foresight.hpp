// Foresight: a transaction that begins by reading and writes later takes the write lock before its snapshot, as BEGIN
// IMMEDIATE does. Part of the SQLite plugin.
//
// SQLite refuses such a transaction at its first write, whatever the busy timeout, if another connection has committed
// since it began. A transaction whose first statement was followed by a write before is expected to write again.
#pragma once

#include <sqlite3.h>

#include <cstdint>

#include "../api.hpp"
#include "control_block.hpp"

namespace memlith::sqlite::shared {

// One for each connection. Threads: the connection's.
class Foresight {
 public:
  explicit Foresight(const Api& api)
      : api_(api),
        on_(api.next_stmt != nullptr && api.stmt_busy != nullptr && api.sql != nullptr &&
            api.get_autocommit != nullptr) {}

  void set_on(bool on) { on_ = on && api_.get_autocommit != nullptr; }
  [[nodiscard]] bool is_on() const { return on_; }
  // As SQLite tells a file of them: where the connection is noted that uses the file. Connections that share a cache
  // come and go there.
  void set_connection(sqlite3* const* connection) { connection_ = connection; }
  [[nodiscard]] sqlite3* connection() const { return connection_ != nullptr ? *connection_ : nullptr; }
  void set_busy_handler(int (*handler)(void*), void* argument) {
    handler_ = handler;
    argument_ = argument;
  }

  // A transaction begins to read; whether it is expected to write.
  bool begin(const ControlBlock& control);
  // It writes, or has ended without a write although one was expected.
  void note_write(ControlBlock& control) const;
  void note_no_write(ControlBlock& control) const;
  // Calls the busy handler as SQLite does: false if it gives up.
  [[nodiscard]] bool wait() const { return handler_ != nullptr && handler_(argument_) != 0; }

 private:
  Api api_;
  bool on_;
  sqlite3* const* connection_ = nullptr;
  int (*handler_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint32_t statement_ = kStatements;  // the transaction's first one; kStatements: none
};

}  // namespace memlith::sqlite::shared
