// The commands of the tool: what each takes, and one function each.
//
// A command prints its results itself, in the format it was asked for, and returns its failure to main(), which shows
// it and turns it into an exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "failure.hpp"
#include "output.hpp"

namespace memlith::tool {

struct StoreArguments {
  std::string path;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_info(const StoreArguments& arguments);
[[nodiscard]] MaybeFailure run_verify(const StoreArguments& arguments);
[[nodiscard]] MaybeFailure run_recover(const StoreArguments& arguments);

struct StatArguments {
  std::string path;
  bool watch = false;
  double interval_s = 1;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_stat(const StatArguments& arguments);

// A SQLite database and the file that the copy shall be.
struct SqliteCopyArguments {
  std::string source;
  std::string target;
  bool force = false;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_sqlite_export(const SqliteCopyArguments& arguments);
[[nodiscard]] MaybeFailure run_sqlite_import(const SqliteCopyArguments& arguments);

// What the latency of a persist contains besides the call. `usual` depends on the tracker: whoever says what it
// stored pays for saying so (touch); for the others the stores themselves cost something, so they count (stores).
enum class Scope : std::uint8_t { usual, stores, touch, persist };
// What it is compared with: a write of as many bytes, of the whole pages they lie in, or of a copy that is made and checksummed
// first.
enum class RawSide : std::uint8_t { bytes, pages, captured };

struct BenchPersistArguments {
  std::vector<std::string> trackers{"explicit"};
  std::vector<std::uint64_t> pages{1, 16, 256};
  std::uint64_t bytes_per_page = 4096;
  std::uint64_t region_mib = 64;
  std::uint64_t log_mib = 0;  // 0: the library's own choice
  std::uint64_t threads = 1;
  std::string io = "auto";
  std::string folder = ".";
  double seconds = 2;
  std::uint64_t rounds = 0;  // 0: as many as `seconds` allow
  Scope scope = Scope::usual;
  bool asynchronous = false;
  RawSide raw = RawSide::bytes;
  bool same_pages = false;
  bool breakdown = false;                  // the steps of a persist instead
  bool peers = false;                      // the table with all peers instead
  std::vector<std::string> fsync_folders;  // --peers: where else pwrite + fsync is measured
  std::string record;                      // --peers: a file that takes the JSON lines too; may be empty
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
  std::uint64_t rate = 0;    // rounds a second, on each side; 0: without a pause
  double seconds = 10;       // of rounds that count, a side
  std::uint64_t rounds = 0;  // that count, a phase; 0: as many as `seconds` allow
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

[[nodiscard]] MaybeFailure run_bench_persist(const BenchPersistArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_peers(const BenchPersistArguments& arguments);      // called by run_bench_persist
[[nodiscard]] MaybeFailure run_bench_breakdown(const BenchPersistArguments& arguments);  // likewise
[[nodiscard]] MaybeFailure run_bench_tail(const BenchTailArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_recovery(const BenchRecoveryArguments& arguments);
[[nodiscard]] MaybeFailure run_bench_open(const BenchOpenArguments& arguments);

}  // namespace memlith::tool
