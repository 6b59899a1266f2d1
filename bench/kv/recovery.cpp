// How long a program waits for its records when it starts: after a clean close, and after a crash at full load.
#include <fmt/format.h>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/killed_process.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "peers/memlith.hpp"
#include "records.hpp"
#include "ycsb.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kFilesFactor = 3;
constexpr std::uint64_t kFillBatch = 1000;  // records of a transaction while the store is filled

class RecoveryRun {
 public:
  RecoveryRun(const KvBenchArguments& arguments, std::string path)
      : arguments_(arguments), path_(std::move(path)), value_(arguments.value_bytes, 'v') {}

  [[nodiscard]] MaybeFailure fill(std::uint64_t log_bytes) const {
    OpenedKv open;
    // Room for the wanted bytes, so that no checkpoint is needed before they are there.
    MEMLITH_TOOL_TRY(open.open(path_, {.create = true, .log_bytes = log_bytes + log_bytes / 4 + 32 * kMiB}));
    for (std::uint64_t i = 0; i < arguments_.records;) {
      if (interrupted()) return interrupted_failure();
      const std::uint64_t end = std::min(arguments_.records, i + kFillBatch);
      MEMLITH_TOOL_TRY(commit(open, [&](KvTransaction& txn) {
        for (; i < end; ++i) {
          if (auto put = txn.put(open.map, scattered_key(i), value_); !put) return put;
        }
        return memlith::Result<void>();
      }));
    }
    return {};
  }
  // Random updates at full speed, none of which a checkpoint brings home, until the log has as much as wanted.
  [[nodiscard]] MaybeFailure crash(std::uint64_t log_bytes) const {
    return in_a_killed_process([this, log_bytes]() -> MaybeFailure {
      OpenedKv open;
      MEMLITH_TOOL_TRY(open.open(path_, {.manual_checkpoint = true}));
      Random random(kSeed);
      for (std::uint64_t i = 0;; ++i) {
        if (i % kFillBatch == 0 && open.store->info().log_used_bytes >= log_bytes) return {};
        const std::string key = scattered_key(random.below(arguments_.records));
        MEMLITH_TOOL_TRY(commit(open, [&](KvTransaction& txn) { return txn.put(open.map, key, value_); }));
      }
    });
  }
  [[nodiscard]] Result<Line> measure(const std::string& workload, std::uint64_t log_mib) const {
    MEMLITH_TOOL_TRY(drop_page_cache(path_));
    OpenedKv open;
    const std::uint64_t start = now_ns();
    MEMLITH_TOOL_TRY(open.open(path_, {}));
    const std::uint64_t opened = now_ns();
    MEMLITH_TOOL_GET(KvTransaction reader, checked(open.kv->begin({.read_only = true}), "beginning a transaction"));
    MEMLITH_TOOL_GET(const auto found, checked(reader.find(open.map, scattered_key(0)), "reading"));
    if (!found.has_value()) return tool_failure(MEMLITH_CORRUPT, "record 0 is not there");
    const std::uint64_t read = now_ns();
    MEMLITH_TOOL_GET(const memlith_kv_info info, checked(open.kv->info(), "asking for counts"));
    if (info.records != arguments_.records) {
      return tool_failure(MEMLITH_CORRUPT,
                          fmt::format("{} records are there; expected {}", info.records, arguments_.records));
    }
    Line line;
    line.suite = "ycsb-recovery";
    line.side = "memlith";
    line.version = memlith_version();
    line.workload = workload;
    line.durability = "weak";
    line.does = "opens the store, the kv store and its map";
    line.repetitions.push_back({{opened - start}});
    line.repetitions.back().count_samples();
    line.requested = {{"records", arguments_.records},
                      {"value_bytes", arguments_.value_bytes},
                      {"data_bytes", info.pages * info.page_bytes}};
    line.found = {{"log_mib", log_mib},
                  {"open_ms", rounded(seconds_of(opened - start) * 1e3)},
                  {"first_get_us", rounded(seconds_of(read - opened) * 1e6)}};
    return line;
  }

 private:
  // `act` in a transaction with a weak commit.
  template <class Act>
  [[nodiscard]] static MaybeFailure commit(const OpenedKv& open, const Act& act) {
    MEMLITH_TOOL_GET(KvTransaction txn, checked(open.kv->begin(), "beginning a transaction"));
    MEMLITH_TOOL_TRY(failure_of(act(txn), "putting"));
    return failure_of(txn.commit(Durability::weak), "committing");
  }

  const KvBenchArguments& arguments_;
  std::string path_;
  std::string value_;
};

}  // namespace

MaybeFailure run_recovery(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t data_bytes = arguments.records * (arguments.value_bytes + kTextKeyBytes) * kFilesFactor;
  const std::uint64_t log_mib_max = std::ranges::max(arguments.recovery_log_mib);
  MEMLITH_TOOL_TRY(require_space(scratch.path(), data_bytes + 2 * log_mib_max * kMiB + kStoreSlackBytes));
  const RecoveryRun run(arguments, scratch.path_of("store"));
  MEMLITH_TOOL_TRY(run.fill(log_mib_max * kMiB));
  std::string title = fmt::format("opening {} records", arguments.records);
  for (const std::uint64_t log_mib : arguments.recovery_log_mib) {
    MEMLITH_TOOL_GET(const Line clean, run.measure("clean", 0));
    MEMLITH_TOOL_TRY(run.crash(log_mib * kMiB));
    MEMLITH_TOOL_GET(const Line crashed, run.measure("after-crash", log_mib));
    print_lines(arguments.format, std::exchange(title, {}), {clean, crashed}, "memlith");
  }
  return {};
}

}  // namespace memlith::tool
