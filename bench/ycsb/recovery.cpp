// How long a program waits for its records when it starts: after a clean close, and after a crash at full load.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/killed_process.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "memlith/kv.hpp"
#include "ycsb.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr std::uint64_t kFilesFactor = 6;
constexpr std::uint64_t kBatch = 1000;  // records of a transaction while the store is filled

template <class T>
MaybeFailure failure_of(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

struct OpenKv {
  std::optional<Store> store;  // closed after the kv store
  std::optional<Kv> kv;
  KvMap map = 0;
};

class RecoveryRun {
 public:
  RecoveryRun(const YcsbArguments& arguments, std::string path, std::uint64_t log_bytes)
      : arguments_(arguments), path_(std::move(path)), log_bytes_(log_bytes), value_(arguments.value_bytes, 'v') {}

  [[nodiscard]] MaybeFailure fill() {
    OpenKv open;
    if (MaybeFailure failure = this->open(open, {.create = true, .log_bytes = log_file_bytes()})) return failure;
    for (std::uint64_t i = 0; i < arguments_.records;) {
      if (interrupted()) return interrupted_failure();
      auto transaction = open.kv->begin();
      if (MaybeFailure failure = failure_of(transaction, "beginning a transaction")) return failure;
      for (const std::uint64_t end = std::min(arguments_.records, i + kBatch); i < end; ++i) {
        if (MaybeFailure failure = failure_of(transaction->put(open.map, key_of(i), value_), "putting")) return failure;
      }
      if (MaybeFailure failure = failure_of(transaction->commit(Durability::weak), "committing")) return failure;
    }
    return {};
  }
  // Random updates at full speed, none of which a checkpoint brings home, until the log has as much as wanted.
  [[nodiscard]] MaybeFailure crash() const {
    return in_a_killed_process([this]() -> MaybeFailure {
      OpenKv open;
      if (MaybeFailure failure = this->open(open, {.manual_checkpoint = true})) return failure;
      Random random(kSeed);
      for (std::uint64_t i = 0;; ++i) {
        if (i % kBatch == 0 && open.store->info().log_used_bytes >= log_bytes_) return {};
        auto transaction = open.kv->begin();
        if (MaybeFailure failure = failure_of(transaction, "beginning a transaction")) return failure;
        const std::string key = key_of(random.below(arguments_.records));
        if (MaybeFailure failure = failure_of(transaction->put(open.map, key, value_), "putting")) return failure;
        if (MaybeFailure failure = failure_of(transaction->commit(Durability::weak), "committing")) return failure;
      }
    });
  }
  [[nodiscard]] MaybeFailure measure(std::string_view workload) const {
    if (MaybeFailure failure = drop_page_cache(path_)) return failure;
    OpenKv open;
    const std::uint64_t start = now_ns();
    if (MaybeFailure failure = this->open(open, {})) return failure;
    const std::uint64_t opened = now_ns();
    auto reader = open.kv->begin({.read_only = true});
    if (MaybeFailure failure = failure_of(reader, "beginning a transaction")) return failure;
    const auto found = reader->find(open.map, key_of(0));
    if (MaybeFailure failure = failure_of(found, "reading")) return failure;
    if (!found->has_value()) return tool_failure(MEMLITH_CORRUPT, "record 0 is not there");
    const std::uint64_t read = now_ns();
    const auto info = open.kv->info();
    if (MaybeFailure failure = failure_of(info, "asking for counts")) return failure;
    if (info->records != arguments_.records) {
      return tool_failure(MEMLITH_CORRUPT,
                          fmt::format("{} records are there; expected {}", info->records, arguments_.records));
    }
    const std::uint64_t log_bytes = workload == "after-crash" ? log_bytes_ : 0;
    const double open_ms = seconds_of(opened - start) * 1e3;
    const double first_us = seconds_of(read - opened) * 1e6;
    if (arguments_.format == Format::text) {
      write_line(fmt::format("{:<14}{:>12}{:>12}{:>12.1f}{:>14.0f}", workload, arguments_.records, log_bytes / kMib,
                             open_ms, first_us));
      return {};
    }
    write_json(Json{{"suite", "ycsb-recovery"},
                    {"side", "memlith"},
                    {"workload", workload},
                    {"durability", "weak"},
                    {"threads", 1},
                    {"records", arguments_.records},
                    {"value_bytes", arguments_.value_bytes},
                    {"log_mib", log_bytes / kMib},
                    {"data_bytes", info->pages * info->page_bytes},
                    {"open_ms", rounded(open_ms)},
                    {"first_get_us", rounded(first_us)},
                    {"kernel", kernel_release()},
                    {"version", memlith_version()}});
    return {};
  }

 private:
  // Room for the wanted bytes, so that no checkpoint is needed before they are there.
  [[nodiscard]] std::uint64_t log_file_bytes() const { return log_bytes_ + log_bytes_ / 4 + 32 * kMib; }
  [[nodiscard]] MaybeFailure open(OpenKv& open, const StoreOptions& options) const {
    auto store = Store::open(path_, options);
    if (MaybeFailure failure = failure_of(store, "opening a store")) return failure;
    open.store.emplace(std::move(*store));
    auto kv = Kv::open(*open.store, "kv", {.create = options.create});
    if (MaybeFailure failure = failure_of(kv, "opening a kv store")) return failure;
    open.kv.emplace(std::move(*kv));
    const auto map = open.kv->map("map", {.create = options.create});
    if (MaybeFailure failure = failure_of(map, "opening a map")) return failure;
    open.map = *map;
    return {};
  }

  const YcsbArguments& arguments_;
  std::string path_;
  std::uint64_t log_bytes_;
  std::string value_;
};

}  // namespace

MaybeFailure run_recovery(const YcsbArguments& arguments) {
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t data_bytes = arguments.records * (arguments.value_bytes + 16) * kFilesFactor;
  if (arguments.format == Format::text) {
    write_line(fmt::format("{:<14}{:>12}{:>12}{:>12}{:>14}", "opening", "records", "log, MiB", "open ms",
                           "first get us"));
  }
  for (const std::uint64_t log_mib : arguments.recovery_log_mib) {
    if (auto failure = require_space(scratch->path(), data_bytes + 2 * log_mib * kMib + kStoreSlackBytes)) {
      return failure;
    }
    RecoveryRun run(arguments, scratch->path_of("store"), log_mib * kMib);
    if (MaybeFailure failure = run.fill()) return failure;
    if (MaybeFailure failure = run.measure("clean")) return failure;
    if (MaybeFailure failure = run.crash()) return failure;
    if (MaybeFailure failure = run.measure("after-crash")) return failure;
    scratch->remove("store");
  }
  return {};
}

}  // namespace memlith::tool
