// The workloads of YCSB, and plainer ones, and which records they take.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kit/random.hpp"
#include "kv_bench.hpp"

namespace memlith::tool {

enum class Operation : std::uint8_t { read, update, insert, scan, modify };  // modify: read and update

struct YcsbWorkload {
  const char* name;
  const char* what;
  Operation often;
  unsigned often_percent;  // else `other`
  Operation other;
  bool latest = false;  // reads look for records that were inserted last
};
const std::vector<YcsbWorkload>& ycsb_workloads();
std::vector<std::string> ycsb_workload_names();

// Chooses the record of an operation.
class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual std::uint64_t next(Random& random, std::uint64_t records) const = 0;
};
// Zipfian with 0.99, over a fixed count of records, which are strewn over all keys; or uniform.
std::unique_ptr<Chooser> make_chooser(const std::string& distribution, std::uint64_t records);
// The latest records are the most frequent.
std::unique_ptr<Chooser> make_latest_chooser(std::uint64_t records);

// How long memlith takes to open the records: after a clean close, and after a crash with so much log.
[[nodiscard]] MaybeFailure run_recovery(const KvBenchArguments& arguments);

}  // namespace memlith::tool
