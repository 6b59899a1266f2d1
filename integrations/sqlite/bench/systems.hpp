// The systems compared: SQLite on memlith, and plain SQLite as people configure it. Each says what it promises.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"

namespace memlith::sqlite_bench {

using tool::Failure;
using tool::Format;
using tool::Json;
using tool::MaybeFailure;
using tool::Result;

struct System {
  std::string name;  // as --systems takes it
  bool memlith = false;
  bool weak = false;  // memlith only
  std::string journal_mode;
  std::string synchronous;
  bool durable_at_return = false;
  std::string durability;     // in words
  bool shared = false;        // memlith only: mode shared
  bool reads_latest = false;  // of it: readers do not wait for flushes
};

// The settings that all benchmarks share.
struct Settings {
  std::string plugin;
  std::string folder = ".";
  std::vector<std::string> systems{"memlith", "memlith-weak", "wal-full", "wal-normal", "wal-off", "delete-full"};
  std::string memlith_journal = "delete";  // SQLite's default: what changes nothing but the VFS
  std::uint64_t window_ms = 100;
  std::uint64_t log_mib = 0;    // 0: the plugin's own choice
  std::uint64_t cache_kib = 0;  // 0: SQLite's own choice, 2000
  std::uint64_t mmap_mib = 0;
  bool calls = false;  // count what SQLite asks of its VFS
  std::uint64_t repetitions = 5;
  std::string record;  // a file that takes the JSON lines too; may be empty
  Format format = Format::text;
};

// "memlith" and "memlith-weak" may have a journal mode behind them, "memlith/wal"; INVALID for a name that there is
// not.
[[nodiscard]] Result<std::vector<System>> systems_of(const Settings& settings);

}  // namespace memlith::sqlite_bench
