// MEMLITH_SQLITE_LOG: a line for each database and each error, because SQLite's interface shows neither the VFS nor a
// message. Part of the SQLite plugin; docs/sqlite.md, "Is it on memlith?".
//
// INVARIANT: a line never harms the program. It is written by one write() to standard error, or to the end of a file
//            that is opened for
// it; where that is not possible at once, the line is dropped. Descriptor 2 is used only as long as it is the file that
// it was when the plugin was loaded: a program that closes it may open any other file there.
//
// Threads: any; also in a forked child.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace memlith::sqlite {

// Reads the environment; only the first call counts. To be called when the plugin is loaded.
void start_line_log();

[[nodiscard]] bool line_log_wanted();

// "memlith PID: TEXT", with control characters as \xNN. Takes no lock, changes no errno. May throw std::bad_alloc.
void write_log_line(std::string_view text);

// The same, composed as by fmt::format() and only if a line is wanted. Drops the line where there is no memory for it.
template <class... Arguments>
void log_line(fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
  try {
    if (line_log_wanted()) write_log_line(fmt::format(format, std::forward<Arguments>(arguments)...));
  } catch (...) {  // std::bad_alloc
  }
}

}  // namespace memlith::sqlite
