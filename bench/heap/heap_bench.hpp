// The suites of memlith-heap-bench, and the line that each of them prints. Floor: heap-bench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "peers/kv/kv.hpp"

namespace memlith::tool {

struct HeapBenchArguments {
  std::string folder = ".";
  std::vector<std::string> sides;  // empty: all that the suite has
  std::string durability = "both";
  std::uint64_t keys = 0;  // in the store; 0: what the suite has
  std::uint64_t operations = 1000;
  std::uint64_t value_bytes = 1024;
  std::uint64_t repetitions = 2;
  std::uint64_t turn = 100;           // operations of a side, one after the other
  std::uint64_t rounds = 2000;        // allocate: turns of each side
  std::uint64_t trace_mib = 32;       // allocate: bytes in use in the trace
  std::uint64_t heap_mib = 4096;      // open: of the heap
  std::uint64_t blocks = 10'000'000;  // open: in use
  double seconds = 1;                 // threads: of each side
  std::vector<std::uint64_t> threads{1, 2, 4};
  Format format = Format::text;

  // Nothing was asked for by name, or this was.
  [[nodiscard]] bool wants(const std::string& side) const;
};

[[nodiscard]] MaybeFailure run_heap_table2(const HeapBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_heap_table2_large(const HeapBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_heap_allocate(const HeapBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_heap_open(const HeapBenchArguments& arguments);
[[nodiscard]] MaybeFailure run_heap_threads(const HeapBenchArguments& arguments);

// One side's figures for one workload.
struct HeapLine {
  std::string suite;
  std::string side;
  std::string version;
  std::string workload;
  std::string durability;
  std::string done;  // what the side does for that
  std::uint64_t threads = 1;
  std::vector<std::uint64_t> samples_ns;  // of one operation each
  double ops_per_s = 0;
  Json more = Json::object();  // fields of this suite
};

// Prints the lines of one workload, as a table or as JSON, each with its operations a second over those of `base`.
void print_lines(Format format, const std::string& base, const std::vector<HeapLine>& lines);
// What was measured, where and when; text only.
void print_heading(const HeapBenchArguments& arguments, const std::string& what);

// Whether every side that was asked for by name is one of these.
[[nodiscard]] MaybeFailure check_sides(const HeapBenchArguments& arguments, const std::vector<std::string>& there);

// The key-value sides that take part, memlith's first.
std::vector<KvPeer> kv_sides(const HeapBenchArguments& arguments, KvDurability durability);
[[nodiscard]] std::vector<KvDurability> durabilities_of(const HeapBenchArguments& arguments);

}  // namespace memlith::tool
