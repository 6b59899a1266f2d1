// The commands `memlith bench ...`: what each takes, and one function each.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/cli_words.hpp"
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

// The raw side: a write of as many bytes, of the whole pages, or of a copy with a checksum.
enum class RawSide : std::uint8_t { bytes, pages, captured };

// Whose stores a persist of --one-region covers.
enum class Whose : std::uint8_t { thread, process };

struct BenchPersistArguments {
  std::vector<std::string> trackers{"explicit"};
  std::vector<std::uint64_t> pages{1, 16, 256};
  std::uint64_t bytes_per_page = 4096;
  std::uint64_t region_mib = 64;
  std::uint64_t log_mib = 0;  // 0: the library's own choice
  std::vector<std::uint64_t> thread_counts{1};
  std::uint64_t threads = 1;  // one of these
  std::string io = "auto";
  std::string folder = ".";
  double seconds = 2;
  std::uint64_t rounds = 0;  // 0: as many as `seconds` allow
  Scope scope = Scope::automatic;
  bool asynchronous = false;
  RawSide raw = RawSide::bytes;
  bool same_pages = false;
  std::uint64_t hot_pages = 0;
  bool process_scope = false;
  bool breakdown = false;   // the steps of a persist instead
  bool one_region = false;  // threads that share a region instead
  std::vector<Whose> whose{Whose::thread, Whose::process};
  bool checkpoints = false;                // persists beside checkpoints of all threads instead
  bool peers = false;                      // the table with all peers instead
  bool sequential = false;                 // --peers: the pages of a round lie one behind the other
  std::vector<std::string> fsync_folders;  // --peers: where else pwrite + fsync is measured
  std::string record;                      // --peers: a file that takes the JSON lines too; may be empty
  Format format = Format::text;
};

struct BenchProtectArguments {
  std::vector<std::uint64_t> pages{1, 16, 256, 4096};
  std::uint64_t region_mib = 1024;
  std::uint64_t rounds = 300;
  Format format = Format::text;
};

struct BenchTailArguments {
  std::string folder = ".";
  std::string tracker = "explicit";
  std::uint64_t pages = 16;
  std::uint64_t bytes_per_page = 4096;
  std::uint64_t region_mib = 256;
  std::uint64_t log_mib = 128;  // as the library has it by default
  std::uint64_t phases = 10;
  std::uint64_t rate = 0;      // rounds a second, on each side; 0: without a pause
  std::uint64_t pause_ms = 0;  // before each phase; 0: none, and each phase begins with nothing owed to home
  double seconds = 10;         // of rounds that count, a side
  std::uint64_t rounds = 0;    // that count, a phase; 0: as many as `seconds` allow
  Format format = Format::text;
};

struct BenchTransparentArguments {
  std::string folder = ".";
  std::vector<std::uint64_t> region_mib{64, 1024, 16384};
  std::vector<std::uint64_t> pages{0, 1, 16, 256};
  std::vector<std::uint64_t> bytes_per_page{4, 4096};
  std::uint64_t filled_mib = 1024;  // larger regions are sparse
  std::uint64_t log_mib = 0;        // 0: the library's own choice
  double seconds = 2;
  std::uint64_t rounds = 0;  // 0: as many as `seconds` allow
  Format format = Format::text;
};

struct BenchRecoveryArguments {
  std::string folder = ".";
  std::uint64_t log_mib = 256;
  std::uint64_t region_mib = 256;
  std::string io = "auto";
  Format format = Format::text;
};

struct BenchOpenArguments {
  std::string folder = ".";
  std::uint64_t region_mib = 4096;
  std::string tracker = "auto";
  Format format = Format::text;
};

struct BenchEngineArguments {
  std::string folder = ".";
  std::uint64_t commits = 500'000;  // of a thread, if no checkpoint is to run meanwhile
  std::uint64_t log_mib = 1024;
  std::uint64_t small_log_mib = 32;  // of the line that runs over checkpoints
  std::uint64_t checkpoints = 3;
  std::uint64_t pending = 300'000;  // ranges that another thread has touched
  std::uint64_t rounds = 20'000;    // of the timed calls
  std::uint64_t persists = 20'000;  // of another region, beside rollbacks
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_bench_persist(const BenchPersistArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_peers(const BenchPersistArguments& arguments);       // called by run_bench_persist
[[nodiscard]] MaybeFailure run_bench_breakdown(const BenchPersistArguments& arguments);   // likewise
[[nodiscard]] MaybeFailure run_bench_one_region(const BenchPersistArguments& arguments);  // likewise
[[nodiscard]] MaybeFailure run_bench_checkpoints(const BenchPersistArguments& arguments);  // likewise
[[nodiscard]] MaybeFailure run_bench_protect(const BenchProtectArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_tail(const BenchTailArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_transparent(const BenchTransparentArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_recovery(const BenchRecoveryArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_open(const BenchOpenArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_engine(const BenchEngineArguments& arguments);

// Adds `bench` with its commands; `line` outlives the parsing and the run.
void add_bench_commands(CLI::App& app, CommandLine& line);

}  // namespace memlith::tool
