// Finds the SQLite that a call of this process is meant for. Part of the SQLite plugin, preloaded (entry.cpp).
//
// A process may have several SQLites: for example, Python's module uses the system's library, and a package contains a
// copy of its own. All of them export the same names. A preloaded plugin's sqlite3_open() precedes each of them, and a
// database that one SQLite opened must not reach another. Therefore the plugin finds the calling shared object, and
// then the SQLite to which the loader would have bound that object without the plugin.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace memlith::sqlite {

// A shared object, or the program, that defines a SQLite's functions.
struct Library {
  void* handle = nullptr;      // from dlopen(), never closed, so that the library stays loaded
  const void* base = nullptr;  // identifies the library
  std::string path;

  // The exported definition of that name in this library itself; null if there is none.
  [[nodiscard]] void* find(const char* name) const;
};

// The SQLite that the caller means; `return_address` lies in the caller's code. Nothing where that cannot be told for
// certain. Throws std::bad_alloc.
//   - The object of the caller refers to sqlite3_open itself: the SQLite to which its other references were bound; if
//     none was bound yet, the first in the order in which the loader searches.
//   - It does not, so that the call came through a pointer, or from a function that the compiler let end in a jump: the
//     only SQLite to which the references of the libraries lead that the caller needs, or those of all objects; else,
//     where none refers to it, the program's, or the only one that there is.
// The first call for a library also puts the library's own functions back into its table for extensions
// (sqlite3_api_routines), where the loader had put the plugin's: an extension calls through that table, and is no
// object that refers to a SQLite.
std::optional<Library> find_sqlite_of(const void* return_address);

// Every SQLite of the process that exports its functions.
std::vector<Library> find_all_sqlites();

}  // namespace memlith::sqlite
