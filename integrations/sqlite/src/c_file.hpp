// The common part of every sqlite3_file: a state behind SQLite's own part, and functions that throw nothing. Part of
// the SQLite plugin.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "base/process.hpp"
#include "base/status.hpp"

namespace memlith::sqlite {

// The kind of function that SQLite has called: of a file, or of a VFS or the program.
enum class Caller : std::uint8_t { file, other };

// No exception may pass through SQLite, which is C.
template <Caller caller = Caller::file, class Body>
int guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return caller == Caller::file ? SQLITE_IOERR_NOMEM : SQLITE_NOMEM;
  } catch (...) {
    return caller == Caller::file ? SQLITE_IOERR : SQLITE_ERROR;
  }
}

// The object for which SQLite allocates memory: pMethods, and a pointer to the state of the file.
template <class State>
struct CFile {
  sqlite3_file base;
  State* state;
};
template <class State>
State& state_of(sqlite3_file* file) {
  return *reinterpret_cast<CFile<State>*>(file)->state;
}
template <class State>
void set_state(sqlite3_file* file, const sqlite3_io_methods& methods, std::unique_ptr<State> state) {
  auto* const typed = reinterpret_cast<CFile<State>*>(file);
  typed->state = state.release();
  typed->base.pMethods = &methods;
}
// SQLite does not use the file any more.
template <class State>
std::unique_ptr<State> take_state(sqlite3_file* file) {
  std::unique_ptr<State> state(&state_of<State>(file));
  file->pMethods = nullptr;
  return state;
}

// The process that has opened a connection.
class OpenedHere {
 public:
  [[nodiscard]] bool inherited() const { return process_mark_ != core::process_mark(); }
  // In a forked child: an error that says what to do; ok in the process that opened it.
  [[nodiscard]] core::Status check_own(const std::string& path) const {
    if (!inherited()) return core::kOk;
    return core::fail(core::Errc::invalid, core::Detail::open,
                      "{}: this connection was opened by the process that this one was forked from; open another one "
                      "after the fork",
                      path);
  }

 private:
  const std::uint64_t process_mark_ = core::process_mark();
};

}  // namespace memlith::sqlite
