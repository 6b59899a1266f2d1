// One side after the other, each with a fresh store: two stores never share a device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <system_error>

#include "cli/clock.hpp"
#include "dbbench.hpp"
#include "kit/measure.hpp"
#include "kit/random.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "peers/kv/memlith_side.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kSpaceFactor = 8;  // of the space that a store may take for its records
constexpr std::uint64_t kSeed = 17;
constexpr std::uint64_t kReadAtOnce = 1000;

struct Contender {
  std::string side;
  std::string backend;
  std::string version;
  std::string does;
  std::function<Result<std::unique_ptr<KvStore>>(const KvOptions&)> open;
};

std::string key_of(std::uint64_t number) { return fmt::format("{:016}", number); }

class DbBench {
 public:
  DbBench(const DbBenchArguments& arguments, const ScratchFolder& scratch) : arguments_(arguments), scratch_(scratch) {
    value_.resize((arguments.value_bytes + 7) / 8 * 8);
    Random(kSeed).fill(std::as_writable_bytes(std::span(value_)));
    value_.resize(arguments.value_bytes);
  }

  [[nodiscard]] MaybeFailure measure(const std::string& workload, const Contender& contender) {
    std::error_code ignored;
    std::filesystem::create_directory(scratch_.path_of("side"), ignored);
    auto failure = measure_open(workload, contender);
    scratch_.remove("side");
    return failure;
  }

 private:
  // Reads do not depend on what was durable when, so the records are put unsynchronised and not timed.
  [[nodiscard]] MaybeFailure measure_open(const std::string& workload, const Contender& contender) {
    const bool fills = workload.starts_with("fill");
    const bool in_order = workload.ends_with("seq");
    const KvOptions options{scratch_.path_of("side"), fills ? KvDurability::sync : KvDurability::none,
                            arguments_.records * (16 + arguments_.value_bytes)};
    auto store = contender.open(options);
    if (!store.ok()) return std::move(store.failure());
    auto session = (*store)->session();
    if (!session.ok()) return std::move(session.failure());
    KvSession& use = **session;
    for (std::uint64_t i = 0; !fills && i < arguments_.records; ++i) {
      if (auto failure = use.put(key_of(i), value_)) return failure;
    }
    if (!fills) {
      if (auto failure = use.finish()) return failure;
    }
    Random random(kSeed);
    std::uint64_t next = 0;
    std::array<Side, 1> sides;
    const auto number = [&] { return in_order ? next++ % arguments_.records : random.below(arguments_.records); };
    const bool scans = !fills && in_order;
    if (fills) {
      sides[0].round = [&](std::size_t, std::uint64_t& elapsed_ns) {
        const std::string key = key_of(number());
        const std::uint64_t start = now_ns();
        auto failure = use.put(key, value_);
        elapsed_ns = now_ns() - start;
        return failure;
      };
    } else if (!scans) {
      sides[0].round = [&](std::size_t, std::uint64_t& elapsed_ns) -> MaybeFailure {
        const std::string key = key_of(number());
        std::string value;
        bool found = false;
        const std::uint64_t start = now_ns();
        if (auto failure = use.get(key, value, found)) return failure;
        elapsed_ns = now_ns() - start;
        return found && value == value_ ? MaybeFailure() : wrong(contender, key);
      };
    } else {
      // A round is a run of records, from where the one before ended.
      sides[0].round = [&](std::size_t, std::uint64_t& elapsed_ns) -> MaybeFailure {
        const std::uint64_t from = next;
        const std::uint64_t count = std::min(kReadAtOnce, arguments_.records - from);
        std::uint64_t seen = 0;
        std::uint64_t bytes = 0;
        const std::uint64_t start = now_ns();
        auto failure = use.scan(key_of(from), count, [&](std::string_view, std::string_view value) {
          ++seen;
          bytes += value.size();
        });
        elapsed_ns = now_ns() - start;
        if (failure) return failure;
        next = (from + count) % arguments_.records;
        return seen == count && bytes == count * value_.size() ? MaybeFailure() : wrong(contender, key_of(from));
      };
    }
    const auto ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9);
    auto measured =
        arguments_.rounds > 0 ? measure_in_turns(sides, {arguments_.rounds, 0}) : measure_in_phases(sides, {1, 1, ns});
    if (measured) return measured;
    if (fills) {
      if (auto failure = use.finish()) return failure;
    }
    print(workload, contender, sides[0], scans ? std::min(kReadAtOnce, arguments_.records) : 1);
    return {};
  }

  static MaybeFailure wrong(const Contender& contender, const std::string& key) {
    return tool_failure(MEMLITH_CORRUPT,
                        fmt::format("{} does not have the record {} as it was put", contender.side, key));
  }

  void print(const std::string& workload, const Contender& contender, const Side& side, std::uint64_t per_round) const {
    const Percentiles latency = percentiles_of(side.samples_ns);
    const double each = static_cast<double>(per_round);
    const double ops = side.rounds_per_second() * each;
    const std::uint64_t max_ns = side.samples_ns.empty() ? 0 : *std::ranges::max_element(side.samples_ns);
    const double max_us = static_cast<double>(max_ns) / 1000 / each;
    const bool fills = workload.starts_with("fill");
    if (arguments_.format == Format::text) {
      write_line(fmt::format("{:<12}{:<17}{:<12}{:>12.0f}{:>11.3f}{:>11.3f}{:>11.3f}{:>11.0f}", workload,
                             contender.side, contender.backend, ops, latency.p50_us / each, latency.p99_us / each,
                             latency.p999_us / each, max_us));
      return;
    }
    write_json({{"suite", "dbbench"},
                {"side", contender.side},
                {"workload", workload},
                {"durability", fills ? "sync" : "none"},
                {"threads", 1},
                {"ops_per_s", rounded(ops)},
                {"p50_us", latency.p50_us / each},
                {"p99_us", latency.p99_us / each},
                {"p999_us", latency.p999_us / each},
                {"max_us", max_us},
                {"samples", side.samples_ns.size()},
                {"backend", contender.backend},
                {"records", arguments_.records},
                {"value_bytes", arguments_.value_bytes},
                {"side_version", contender.version},
                {"does", contender.does},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
  }

  const DbBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  std::string value_;
};

std::vector<Contender> contenders_of(const std::vector<Backend>& backends) {
  std::vector<Contender> all;
  for (const Backend& backend : backends) {
    all.push_back({"memlith-log", backend.name, memlith_version(),
                   "a put is an entry of an application log, durable when the call returns; a thread moves the entries "
                   "into the kv store",
                   [&backend](const KvOptions& options) { return open_logged_kv(options, backend); }});
    all.push_back({"memlith", backend.name, memlith_version(),
                   "a put is a transaction of the kv store with a sync commit: durable when the call returns",
                   [&backend](const KvOptions& options) { return open_memlith_kv(options, backend); }});
  }
  for (const KvPeer& peer : kv_peers()) {
    all.push_back({peer.name, "file", peer.version, peer.sync_text, peer.open});
  }
  return all;
}

}  // namespace

MaybeFailure run_dbbench(const DbBenchArguments& arguments) {
  Result<std::vector<Backend>> backends = backends_of(arguments.backends, arguments.devices);
  if (!backends.ok()) return std::move(backends.failure());
  const std::vector<Contender> all = contenders_of(*backends);
  for (const std::string& side : arguments.sides) {
    if (std::ranges::any_of(all, [&](const Contender& each) { return each.side == side; })) continue;
    return tool_failure(MEMLITH_INVALID, fmt::format("there is no side {}", side),
                        "There are memlith-log, memlith, and the peers whose libraries were there when this program "
                        "was built: leveldb, lmdb, sqlite, kyoto-tree-tran, rocksdb. `./dev bench dbbench` installs "
                        "them.");
  }
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + 16) * kSpaceFactor;
  if (auto failure = require_space(scratch->path(), bytes + kStoreSlackBytes)) return failure;
  if (arguments.format == Format::text) {
    write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                           printable(arguments.folder), utc_now()));
    write_line(fmt::format("{} records, keys of 16 bytes, values of {} bytes; fills are synchronous", arguments.records,
                           arguments.value_bytes));
    write_line(fmt::format("{:<12}{:<17}{:<12}{:>12}{:>11}{:>11}{:>11}{:>11}", "workload", "side", "backend", "ops/s",
                           "p50 us", "p99 us", "p99.9 us", "max us"));
  }
  DbBench bench(arguments, *scratch);
  for (const std::string& workload : arguments.workloads) {
    for (const Contender& contender : all) {
      const bool wanted =
          arguments.sides.empty() || std::ranges::find(arguments.sides, contender.side) != arguments.sides.end();
      if (!wanted) continue;
      if (auto failure = bench.measure(workload, contender)) return failure;
    }
  }
  return {};
}

}  // namespace memlith::tool
