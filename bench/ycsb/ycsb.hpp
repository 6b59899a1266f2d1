// The benchmark of key-value stores: the workloads of YCSB, and some plainer ones. Floor: ycsb-bench.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kit/failure.hpp"
#include "kit/output.hpp"
#include "kit/random.hpp"
#include "peers/kv/kv.hpp"

namespace memlith::tool {

struct YcsbArguments {
  std::string folder = ".";
  std::vector<std::string> sides;  // empty: all
  std::string durability = "relaxed";
  std::vector<std::string> workloads{"write", "read", "scan", "a", "b", "c", "d", "e", "f"};
  std::string distribution = "uniform";
  std::uint64_t records = 1'000'000;
  std::uint64_t value_bytes = 100;
  std::uint64_t window_ms = 1000;
  std::uint64_t rounds = 3;  // turns of each side in a workload
  double seconds = 6;        // of each side and workload
  std::vector<std::uint64_t> threads{1};
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_ycsb(const YcsbArguments& arguments);

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

// ---- memlith's sides -------------------------------------------------------------------------------------------

// What a kv store of memlith counts, for the fields that only it has.
struct KvCounts {
  std::uint64_t logged_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t records = 0;
  std::uint64_t checkpoints = 0;
};
class CountedKvStore : public KvStore {
 public:
  virtual KvCounts counts() = 0;
};

// memlith with weak or sync commits, and the same tree without any durability.
KvPeer memlith_side(std::uint64_t window_ms);
KvPeer volatile_side();

}  // namespace memlith::tool
