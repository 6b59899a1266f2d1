// The benchmark of key-value stores: the workloads of YCSB, and some plainer ones. Floor: ycsb-bench.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/random.hpp"
#include "peers/kv/kv.hpp"
#include "peers/kv/memlith_side.hpp"

namespace memlith::tool {

struct YcsbArguments {
  std::string folder = ".";
  std::vector<std::string> sides;  // empty: all
  std::string durability = "relaxed";
  std::vector<std::string> workloads{"write", "read", "scan", "a", "b", "c", "d", "e", "f"};
  std::string distribution = "uniform";
  std::uint64_t records = 1'000'000;
  std::uint64_t value_bytes = 100;
  std::vector<std::uint64_t> windows_ms{1000};
  std::uint64_t window_mib = 16;
  std::uint64_t memory_mib = 0;                 // 0: as much as there is
  std::uint64_t flush_delay_us = 0;             // added to each flush of all sides
  std::vector<std::uint64_t> recovery_log_mib;  // not empty: opening is measured, and nothing else
  std::uint64_t rounds = 3;                     // turns of each side in a workload
  double seconds = 6;                           // of each side and workload
  std::vector<std::uint64_t> threads{1};
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_ycsb(const YcsbArguments& arguments);
// How long memlith takes to open the records: after a clean close, and after a crash with so much log.
[[nodiscard]] MaybeFailure run_recovery(const YcsbArguments& arguments);

// The key of a record: 16 bytes, in no order of the numbers.
[[nodiscard]] std::string key_of(std::uint64_t number);

// ---- what is done ----------------------------------------------------------------------------------------------

enum class Operation : std::uint8_t { read, update, insert, scan, modify };  // modify: read, then update

struct Workload {
  const char* name;
  const char* what;
  Operation often;
  unsigned often_percent;  // else `other`
  Operation other;
  bool latest = false;  // reads look for records that were inserted last
};
const std::vector<Workload>& ycsb_workloads();

// Which record an operation takes.
class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual std::uint64_t next(Random& random, std::uint64_t records) const = 0;
};
// Zipfian with 0.99, over a fixed count of records, which are strewn over all keys; or uniform.
std::unique_ptr<Chooser> make_chooser(const std::string& distribution, std::uint64_t records);
// The latest records are the most frequent.
std::unique_ptr<Chooser> make_latest_chooser(std::uint64_t records);

}  // namespace memlith::tool
