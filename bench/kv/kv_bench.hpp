// The suites of memlith-kv-bench, and what they take. Floor: kv-bench.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/backend.hpp"
#include "kit/report.hpp"
#include "kit/scratch.hpp"

namespace memlith::tool {

// The options of all suites; each suite takes some of them, and has its own defaults (main.cpp).
struct KvBenchArguments {
  std::string folder = ".";
  std::vector<std::string> sides = {};  // empty: all that the suite has
  std::vector<std::string> workloads = {};
  std::string durability = "both";
  std::vector<std::string> backends{"file"};
  BackendDevices devices = {};
  std::uint64_t records = 1'000'000;
  std::uint64_t value_bytes = 100;
  std::uint64_t repetitions = 1;
  std::uint64_t rounds = 0;
  double seconds = 0;  // of each side in a line
  std::vector<std::uint64_t> threads{1};
  // table2, table2-large
  std::uint64_t operations = 1000;
  std::uint64_t turn = 100;   // operations of a side, one after the other
  std::uint64_t rest_us = 0;  // before each operation
  // entries
  std::vector<std::uint64_t> changes{1, 10, 100};  // of a round
  // allocate, open
  std::uint64_t trace_mib = 32;       // bytes in use in the trace
  std::uint64_t heap_mib = 4096;      // of the heap
  std::uint64_t blocks = 10'000'000;  // in use
  // ycsb
  std::string distribution = "uniform";
  std::vector<std::uint64_t> windows_ms{1000};
  std::uint64_t window_mib = 16;
  std::uint64_t memory_mib = 0;  // 0: as much as there is
  std::uint64_t cgroup_mib = 0;  // of all memory of a side, page cache included; 0: no limit
  std::vector<std::uint64_t> transaction_records{1};
  std::uint64_t flush_delay_us = 0;                  // added to each flush of all sides
  std::vector<std::uint64_t> recovery_log_mib = {};  // not empty: opening is measured, and nothing else
  // kvcalls
  std::uint64_t range_records = 1000;          // removed by one remove-range
  std::uint64_t long_records = 200;            // that a long transaction reads and writes
  std::uint64_t short_writers = 7;             // beside it
  std::vector<std::uint64_t> think_us{0, 50};  // between reading and writing a record
  std::uint64_t wait_ms = 10'000;              // of memlith-wait
  // applog
  std::vector<std::uint64_t> entry_bytes{100, 1024, 4096, 65536};
  std::vector<std::uint64_t> log_mib{1, 4, 16, 64};
  // processes
  std::string redb = {};  // the program of that side's processes; empty: the side is left out
  Format format = Format::text;

  // Nothing was asked for by name, or this was.
  [[nodiscard]] bool wants(const std::string& side) const {
    return sides.empty() || std::ranges::find(sides, side) != sides.end();
  }
};

[[nodiscard]] MaybeFailure run_table2(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_table2_large(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_entries(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_threads(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_allocate(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_open(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_ycsb(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_dbbench(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_kvcalls(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_applog(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_processes(const KvBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_invariant(const KvBenchArguments& arguments);  // of one side, until it is killed

}  // namespace memlith::tool
