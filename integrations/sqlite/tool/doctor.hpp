// memlith sqlite doctor: what is found about a program, a process or a database, and the lines that help.
#pragma once

#include <string>
#include <vector>

#include "doctor_elf.hpp"

namespace memlith::tool {

enum class Reach : std::uint8_t { yes, no, unknown };  // whether memlith is reached

struct Finding {
  std::string subject;  // of which it is said
  Reach reach = Reach::unknown;
  std::string text;
  std::vector<std::string> advice;  // sentences, and lines to copy, which are indented
};

// Lines that load the plugin, for a program of this name that has this in it.
std::vector<std::string> advice_for_program(const std::string& name, const ElfLook& look);
// `path`: where the file is; `name`: what it is called for the user.
Finding examine_program(const std::string& path, const std::string& name);
Result<std::vector<Finding>> examine_process(int process);
Result<std::vector<Finding>> examine_database(const std::string& path);

// Returns the interpreter of a script, or the program itself.
Result<std::string> resolve_program(const std::string& name);
// memlith_sqlite.so as it is installed beside this program.
std::string plugin_path();

}  // namespace memlith::tool
