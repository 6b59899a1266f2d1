// memlith sqlite doctor PROGRAM: whether LD_PRELOAD reaches the SQLite of a program.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "doctor.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

bool is_named(const std::string& name, std::string_view runtime) {
  return std::filesystem::path(name).filename().string().starts_with(runtime);
}

bool runs_with_privileges(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return false;
  return (status.st_mode & (S_ISUID | S_ISGID)) != 0 || ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

std::vector<std::string> php_lines() {
  const std::filesystem::path plugin = plugin_path();
  return {
      "PHP loads its modules with RTLD_DEEPBIND, so LD_PRELOAD does nothing there. Once for each process, before the "
      "first database (auto_prepend_file, for servers):",
      fmt::format("    MEMLITH_SQLITE_DEFAULT=1 php -d sqlite3.extension_dir={} -r '(new "
                  "SQLite3(\":memory:\"))->loadExtension(\"{}\"); ...'",
                  plugin.parent_path().string(), plugin.filename().string()),
      "SQLite3 and PDO open every database on memlith after that."};
}

std::vector<std::string> java_lines() {
  return {
      "sqlite-jdbc has a SQLite of its own, which LD_PRELOAD does not reach. With "
      "SQLiteConfig.enableLoadExtension(true), on a connection to :memory:, before the first database:",
      fmt::format("    SELECT load_extension('{}', 'sqlite3_memlithdefault_init')", plugin_path())};
}

std::vector<std::string> node_lines() {
  return {
      "better-sqlite3, sqlite3 of npm and node:sqlite have a SQLite of their own. Before the first database:",
      fmt::format("    new (require('better-sqlite3'))(':memory:').loadExtension('{}', 'sqlite3_memlithdefault_init')",
                  plugin_path()),
      "node:sqlite (Node 22.13 or newer; older than 24: without the second argument, and with "
      "MEMLITH_SQLITE_DEFAULT=1):",
      fmt::format("    new (require('node:sqlite').DatabaseSync)(':memory:', {{allowExtension: true}})"
                  ".loadExtension('{}', 'sqlite3_memlithdefault_init')",
                  plugin_path()),
      "sqlite3 of npm exports its SQLite:",
      fmt::format("    LD_PRELOAD={} node ...", plugin_path())};
}

std::vector<std::string> deno_lines() {
  return {"node:sqlite of Deno has a SQLite of its own. With --allow-ffi, before the first database:",
          fmt::format("    new (await import('node:sqlite')).DatabaseSync(':memory:', {{allowExtension: true}})"
                      ".loadExtension('{}', 'sqlite3_memlithdefault_init')",
                      plugin_path())};
}

std::vector<std::string> bun_lines() {
  return {"bun:sqlite has a SQLite of its own, and refuses `SELECT load_extension`. Before the first database:",
          fmt::format("    new (require('bun:sqlite').Database)(':memory:').loadExtension('{}', "
                      "'sqlite3_memlithdefault_init')",
                      plugin_path())};
}

std::vector<std::string> python_lines(const ElfLook& look) {
  std::vector<std::string> lines;
  if (look.contains_sqlite) {
    lines = {
        "This Python (as uv and mise install it) has a SQLite inside, which LD_PRELOAD does not reach. "
        "memlith.sqlite.connect() of the wheel opens databases there; without it, before the first database:",
        fmt::format("    c = sqlite3.connect(':memory:'); c.enable_load_extension(True); c.execute(\"select "
                    "load_extension('{}', 'sqlite3_memlithdefault_init')\")",
                    plugin_path())};
  } else {
    lines = {"Python's own sqlite3 uses the system's library:",
             fmt::format("    LD_PRELOAD={} python3 ...", plugin_path())};
  }
  lines.insert(lines.end(), {"apsw and others that bring a SQLite along, before the first database:",
                             fmt::format("    c = apsw.Connection(':memory:'); c.enable_load_extension(True); "
                                         "c.load_extension('{}', 'sqlite3_memlithdefault_init')",
                                         plugin_path())});
  return lines;
}

std::vector<std::string> perl_lines() {
  return {"Debian's DBD::SQLite uses the system's library:", fmt::format("    LD_PRELOAD={} perl ...", plugin_path()),
          "CPAN's has a SQLite of its own, which LD_PRELOAD does not reach. Before the first database:",
          fmt::format("    my $d = DBI->connect('dbi:SQLite:dbname=:memory:'); $d->sqlite_enable_load_extension(1); "
                      "$d->do(\"select load_extension('{}', 'sqlite3_memlithdefault_init')\")",
                      plugin_path())};
}

std::vector<std::string> ruby_lines() {
  return {"Debian's ruby-sqlite3 uses the system's library:", fmt::format("    LD_PRELOAD={} ruby ...", plugin_path()),
          "The gem has a SQLite of its own, which LD_PRELOAD does not reach. Before the first database:",
          fmt::format("    d = SQLite3::Database.new(':memory:'); d.enable_load_extension(true); d.execute(\"select "
                      "load_extension('{}', 'sqlite3_memlithdefault_init')\")",
                      plugin_path())};
}

std::vector<std::string> go_lines() {
  return {
      "mattn/go-sqlite3 has a SQLite of its own, which LD_PRELOAD does not reach. In the ConnectHook of a driver, on "
      "a connection to :memory:, before the first database:",
      fmt::format("    conn.LoadExtension(\"{}\", \"sqlite3_memlithdefault_init\")", plugin_path()),
      "Built with the tag libsqlite3 it uses the system's library, and LD_PRELOAD reaches it. modernc.org/sqlite is "
      "Go throughout; nothing reaches it."};
}

// Empty for what is none of these.
std::vector<std::string> runtime_lines(const std::string& name, const ElfLook& look) {
  if (is_named(name, "php")) return php_lines();
  if (is_named(name, "java")) return java_lines();
  if (is_named(name, "node")) return node_lines();
  if (is_named(name, "deno")) return deno_lines();
  if (is_named(name, "bun")) return bun_lines();
  if (is_named(name, "python")) return python_lines(look);
  if (is_named(name, "perl")) return perl_lines();
  if (is_named(name, "ruby")) return ruby_lines();
  return {};
}

std::vector<std::string> own_sqlite_lines(const ElfLook& look) {
  if (look.is_go) return go_lines();
  if (look.is_rust) {
    return {
        "rusqlite with the feature `bundled` has a SQLite of its own, which LD_PRELOAD does not reach. Build without "
        "it, or with `load_extension`, and before the first database:",
        fmt::format("    unsafe {{ Connection::open_in_memory()?.load_extension(\"{}\", "
                    "Some(\"sqlite3_memlithdefault_init\"))? }}",
                    plugin_path())};
  }
  return {
      "It has a SQLite of its own, which LD_PRELOAD does not reach. If it can load extensions, on any connection, "
      "before the database is opened:",
      fmt::format("    SELECT load_extension('{}', 'sqlite3_memlithdefault_init')", plugin_path()),
      "Otherwise link it with the system's libsqlite3."};
}

}  // namespace

std::string plugin_path() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const auto lib = self.parent_path().parent_path() / "lib";
    for (const auto& folder : {lib, lib / "x86_64-linux-gnu", lib / "aarch64-linux-gnu"}) {
      if (std::filesystem::exists(folder / "memlith_sqlite.so", error)) return folder / "memlith_sqlite.so";
    }
  }
  return "/path/to/memlith_sqlite.so";
}

std::vector<std::string> advice_for_program(const std::string& name, const ElfLook& look) {
  if (auto lines = runtime_lines(name, look); !lines.empty()) return lines;
  if (look.contains_sqlite || look.is_go) return own_sqlite_lines(look);
  return {fmt::format("    LD_PRELOAD={} {} ...", plugin_path(), std::filesystem::path(name).filename().string())};
}

Result<std::string> resolve_program(const std::string& name) {
  std::error_code error;
  std::string path = name;
  if (name.find('/') == std::string::npos && !std::filesystem::exists(name, error)) {
    const char* const variable = std::getenv("PATH");
    std::istringstream folders(variable != nullptr ? variable : "/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (::access((folder + "/" + name).c_str(), X_OK) != 0) continue;
      path = folder + "/" + name;
      break;
    }
  }
  const auto real = std::filesystem::canonical(path, error);
  if (error) {
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("{} is no program, process or database", name),
                        "Name a program, the number of a process, or the file of a database.");
  }
  return real.string();
}

Finding examine_program(const std::string& path, const std::string& name) {
  Finding finding{name, Reach::unknown, "", {}};
  Result<ElfLook> looked = look_at_elf(path);
  if (!looked.ok()) {
    finding.text = looked.failure().message;
    return finding;
  }
  const ElfLook& look = *looked;
  if (!look.interpreter.empty()) {
    std::istringstream words(look.interpreter);
    std::string program;
    words >> program;
    if (is_named(program, "env")) words >> program;
    Result<std::string> runs = resolve_program(program);
    if (!runs.ok()) {
      finding.text = fmt::format("is a script for {}, which is not there", program);
      return finding;
    }
    finding = examine_program(*runs, *runs);
    finding.subject = name;
    finding.text = fmt::format("is a script for {}, which {}", *runs, finding.text);
    if (auto lines = runtime_lines(name, look); !lines.empty()) finding.advice = std::move(lines);
    return finding;
  }
  finding.advice = advice_for_program(name, look);
  if (!look.is_elf) {
    finding.text = "is no program of 64 bits";
    finding.advice.clear();
  } else if (!look.loads) {
    finding.reach = Reach::no;
    finding.text = "is linked statically: no dynamic loader starts it, so LD_PRELOAD has no effect";
    if (!look.contains_sqlite) finding.advice = {"Use a build that is linked dynamically with libsqlite3."};
  } else if (runs_with_privileges(path)) {
    finding.reach = Reach::no;
    finding.text =
        "runs with the privileges of its file (set-user-ID, set-group-ID or capabilities), so the dynamic "
        "loader ignores LD_PRELOAD";
    finding.advice = {"Run it without these privileges, or have the program load the extension."};
  } else if (is_named(name, "php")) {
    finding.reach = Reach::no;
    finding.text = "is not reached by LD_PRELOAD";
  } else if (look.contains_sqlite) {
    finding.reach = Reach::no;
    finding.text = "contains a SQLite of its own, which LD_PRELOAD does not reach";
  } else if (look.needs("libsqlite3.so")) {
    finding.reach = Reach::yes;
    finding.text = "is linked with the system's libsqlite3, which LD_PRELOAD reaches";
  } else {
    finding.text = "is linked with no SQLite, but may load one while it runs";
    finding.advice.emplace_back("While it runs, `memlith sqlite doctor PID` says which.");
  }
  return finding;
}

}  // namespace memlith::tool
