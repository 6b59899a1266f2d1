// The benchmark of small records: LevelDB's db_bench, as FASL's Tables 2 and 3 use it. Floor: dbbench-bench.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/backend.hpp"
#include "peers/kv/kv.hpp"

namespace memlith::tool {

struct DbBenchArguments {
  std::string folder = ".";
  std::vector<std::string> sides;  // empty: all
  std::vector<std::string> workloads{"fillseq", "fillrandom", "readseq", "readrandom"};
  std::vector<std::string> backends{"file", "file-uring"};
  BackendDevices devices;
  std::uint64_t records = 100'000;
  std::uint64_t value_bytes = 100;
  double seconds = 5;        // of each side in a workload
  std::uint64_t rounds = 0;  // instead of seconds, if not 0: puts, or reads
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_dbbench(const DbBenchArguments& arguments);

// A kv store of memlith behind an application log: a change is durable when its entry is in the log. A thread moves the
// entries into the kv store, a hundred a commit. The first session's finish() waits until all of them are there.
Result<std::unique_ptr<KvStore>> open_logged_kv(const KvOptions& options, const Backend& backend);

}  // namespace memlith::tool
