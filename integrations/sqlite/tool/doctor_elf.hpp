// Reads from an executable or a library which SQLite is in it.
#pragma once

#include <string>
#include <vector>

#include "cli/failure.hpp"

namespace memlith::tool {

struct ElfLook {
  bool is_elf = false;  // of 64 bits
  bool is_program = false;
  bool loads = false;            // the dynamic loader starts it, or loads it
  bool contains_sqlite = false;  // SQLite's code is in it
  bool exports_sqlite = false;   // its dynamic symbols define sqlite3_open_v2
  bool is_plugin = false;        // memlith_sqlite.so
  bool is_go = false;
  bool is_rust = false;
  std::string interpreter;  // of a script that begins with #!; empty: it is none
  std::vector<std::string> needed;

  [[nodiscard]] bool needs(std::string_view library) const;
};

// Errors: no such file, no permission, a failed read. A file that is damaged is none of 64 bits.
Result<ElfLook> look_at_elf(const std::string& path);

}  // namespace memlith::tool
