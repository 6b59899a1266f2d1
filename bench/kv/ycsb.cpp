// Suite ycsb: the workloads on all sides, in turns.
#include "ycsb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "contender.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "memory_limit.hpp"
#include "records.hpp"
#include "slow_medium.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kScanMax = 100;
constexpr std::uint64_t kYcsbSpaceFactor = 3;  // of a side, and what it keeps of older versions

struct YcsbSide {
  KvPeer peer;
  KvDurability durability;
  const char* told;
};

struct YcsbContender : Contender {
  std::unique_ptr<std::atomic<std::uint64_t>> records;
  std::unique_ptr<std::atomic<std::uint64_t>> aborts = std::make_unique<std::atomic<std::uint64_t>>(0);

  [[nodiscard]] bool has_window() const { return told == "weak" || peer.name == "memlith-group"; }
};

// One workload, in one way.
struct YcsbPhase {
  const YcsbWorkload& workload;
  std::uint64_t threads;
  std::uint64_t window_ms;
  std::uint64_t transaction_records;  // that an update, an insert or a modify changes

  [[nodiscard]] bool has(Operation operation) const {
    return workload.often == operation || workload.other == operation;
  }
  [[nodiscard]] bool changes() const {
    return has(Operation::update) || has(Operation::insert) || has(Operation::modify);
  }
};

class YcsbRun {
 public:
  YcsbRun(const KvBenchArguments& arguments, const ScratchFolder& scratch)
      : arguments_(arguments), scratch_(scratch), values_(arguments.value_bytes) {}

  void add(const YcsbSide& side) {
    contenders_.push_back({{.peer = side.peer, .durability = side.durability, .told = side.told},
                           std::make_unique<std::atomic<std::uint64_t>>(arguments_.records)});
  }
  // Each side with the first records, put there without a flush for each.
  // Where memory is limited, the limit begins before the stores are opened for what is measured.
  [[nodiscard]] MaybeFailure load(const LimitMemory& limit) {
    for (YcsbContender& each : contenders_) {
      KvOptions options = options_of(KvDurability::none);
      if (arguments_.cgroup_mib > 0) options.cache_bytes = options.memory_bytes = 0;
      MEMLITH_TOOL_TRY(each.make(scratch_, options));
      MEMLITH_TOOL_TRY(load(each));
      if (each.durability == KvDurability::none && arguments_.cgroup_mib == 0) continue;
      MEMLITH_TOOL_TRY(each.close());
      MEMLITH_TOOL_TRY(limit());
      MEMLITH_TOOL_TRY(each.open(scratch_, options_of(each.durability)));
    }
    return {};
  }
  // All sides; of a later window, or a later size of transactions, only what it matters to.
  [[nodiscard]] MaybeFailure measure(const YcsbPhase& phase) {
    const YcsbWorkload& workload = phase.workload;
    const bool again = phase.transaction_records != arguments_.transaction_records.front();
    if (again && !phase.changes()) return {};
    const bool windows = arguments_.windows_ms.size() > 1;
    const std::unique_ptr<Chooser> chooser = workload.latest
                                                 ? make_latest_chooser(arguments_.records)
                                                 : make_chooser(arguments_.distribution, arguments_.records);
    std::vector<Contender*> all;
    std::vector<KvCounts> before;
    for (YcsbContender& each : contenders_) {
      if (!each.has_window() && phase.window_ms != arguments_.windows_ms.front()) continue;
      if (phase.transaction_records > 1 && phase.has(Operation::modify) && !each.session->aborts()) {
        std::fprintf(stderr, "%s is left out of %s: it has no transactions that read\n", each.peer.name.c_str(),
                     workload.name);
        continue;
      }
      // A store counts from its opening on.
      if (windows && counts_waits(each)) MEMLITH_TOOL_TRY(reopen(each));
      if (each.has_window()) {
        MEMLITH_TOOL_TRY(each.store->set_window(phase.window_ms, arguments_.window_mib << 20));
      }
      *each.aborts = 0;
      all.push_back(&each);
      before.push_back(each.store->counts().value_or(KvCounts()));
    }
    const auto act = [&](Contender& contender, Worker& worker, std::uint64_t& elapsed_ns) {
      return once(static_cast<YcsbContender&>(contender), worker, phase, *chooser, elapsed_ns);
    };
    const auto phase_ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9 / static_cast<double>(arguments_.rounds));
    std::vector<Side> sides;
    MEMLITH_TOOL_TRY(measure_workers(all, {phase.threads, arguments_.rounds, phase_ns}, seed_, act, sides));
    seed_ += kThreadsMax;  // or the next workload would meet the records of this one, in the same order

    const std::string window = windows ? fmt::format(", window of {} ms", phase.window_ms) : "";
    const std::string records =
        phase.transaction_records > 1 ? fmt::format(", {} records a transaction", phase.transaction_records) : "";
    const std::string title =
        fmt::format("{}: {}, {}, {} thread{}{}{}", workload.name, workload.what, arguments_.distribution, phase.threads,
                    phase.threads == 1 ? "" : "s", records, window);
    std::vector<Line> lines;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& contender = static_cast<const YcsbContender&>(*all[i]);
      const bool waits = windows && counts_waits(contender);
      if (waits) MEMLITH_TOOL_TRY(contender.session->finish());
      Line line = line_of(contender, phase, before[i], sides[i].samples_ns.size(), waits);
      line.repetitions.push_back(repetition_of(sides[i]));
      lines.push_back(std::move(line));
    }
    // A table for each durability: no side that flushes is compared with one that does not.
    const auto synced = std::ranges::find(lines, "sync", &Line::durability);
    print_lines(arguments_.format, title, {lines.begin(), synced}, "memlith");
    print_lines(arguments_.format, synced == lines.begin() ? title : "", {synced, lines.end()}, "memlith");
    return {};
  }

 private:
  [[nodiscard]] std::string_view value(Random& random) const { return values_.at(random.next()); }
  [[nodiscard]] KvOptions options_of(KvDurability durability) const {
    const std::uint64_t cache_mib = arguments_.cgroup_mib > 0 ? arguments_.cgroup_mib / 2 : arguments_.memory_mib;
    return {.durability = durability,
            .bytes_expected = arguments_.records * (arguments_.value_bytes + kTextKeyBytes) * 2,
            .cache_bytes = cache_mib << 20,
            .memory_bytes = arguments_.cgroup_mib << 20};
  }
  [[nodiscard]] MaybeFailure reopen(YcsbContender& contender) const {
    MEMLITH_TOOL_TRY(contender.close());
    return contender.open(scratch_, options_of(contender.durability));
  }
  // Weak commits of a kv store.
  [[nodiscard]] static bool counts_waits(const YcsbContender& contender) {
    return contender.told == "weak" && contender.store->counts();
  }
  [[nodiscard]] MaybeFailure load(const Contender& contender) {
    Random random(kSeed);
    const std::uint64_t start = now_ns();
    std::vector<KvPair> pairs;
    for (std::uint64_t i = 0; i < arguments_.records;) {
      if (interrupted()) return interrupted_failure();
      pairs.clear();
      const std::uint64_t end = std::min(arguments_.records, i + kBatchRecords);
      for (; i < end; ++i) pairs.emplace_back(scattered_key(i), value(random));
      MEMLITH_TOOL_TRY(contender.session->put_all(pairs));
    }
    if (arguments_.format == Format::text) {
      write_line(fmt::format("loaded {} ({}): {:.0f} inserts/s", contender.peer.name, contender.told,
                             ratio_of(static_cast<double>(arguments_.records), seconds_of(now_ns() - start))));
    }
    return contender.session->finish();
  }
  [[nodiscard]] MaybeFailure once(YcsbContender& contender, Worker& worker, const YcsbPhase& phase,
                                  const Chooser& chooser, std::uint64_t& elapsed_ns) const {
    const YcsbWorkload& workload = phase.workload;
    const Operation operation = worker.random.below(100) < workload.often_percent ? workload.often : workload.other;
    const bool reads = operation == Operation::read || operation == Operation::scan;
    std::uint64_t newest = 0;
    std::vector<KvPair> pairs;
    for (std::uint64_t i = 0; i < (reads ? 1 : phase.transaction_records); ++i) {
      const std::uint64_t number = operation == Operation::insert
                                       ? contender.records->fetch_add(1, std::memory_order_relaxed)
                                       : chooser.next(worker.random, contender.records->load());
      newest = std::max(newest, number);
      pairs.emplace_back(scattered_key(number), value(worker.random));
    }
    const auto& [key, content] = pairs.front();
    const std::uint64_t count = 1 + worker.random.below(kScanMax);
    std::uint64_t seen_bytes = 0;
    bool found = true;
    MaybeFailure failure;
    const std::uint64_t aborts = worker.session->aborts().value_or(0);
    const std::uint64_t start = now_ns();
    switch (operation) {
      case Operation::modify: failure = worker.session->modify(pairs, worker.value, found); break;
      case Operation::update:
      case Operation::insert:
        failure = pairs.size() == 1 ? worker.session->put(key, content) : worker.session->put_all(pairs);
        break;
      case Operation::read: failure = worker.session->get(key, worker.value, found); break;
      case Operation::scan:
        failure = worker.session->scan(key, count, [&seen_bytes](std::string_view name, std::string_view bytes) {
          seen_bytes += name.size() + bytes.size();
        });
        found = seen_bytes > 0;
    }
    elapsed_ns = now_ns() - start;
    contender.aborts->fetch_add(worker.session->aborts().value_or(0) - aborts, std::memory_order_relaxed);
    // With several threads a record may be counted before it is there.
    if (!failure && !found && newest < arguments_.records) {
      return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: record {} is not there", contender.peer.name, key));
    }
    return failure;
  }
  [[nodiscard]] Line line_of(const YcsbContender& contender, const YcsbPhase& phase, const KvCounts& before,
                             std::size_t operations, bool waits) const {
    Line line = contender.line("ycsb", phase.workload.name);
    line.threads = phase.threads;
    line.requested = {{"distribution", arguments_.distribution},
                      {"records", arguments_.records},
                      {"value_bytes", arguments_.value_bytes},
                      {"flush_delay_us", arguments_.flush_delay_us},
                      {"memory_mib", arguments_.memory_mib},
                      {"cgroup_mib", arguments_.cgroup_mib},
                      {"transaction_records", phase.transaction_records}};
    if (contender.has_window()) line.requested["window_ms"] = phase.window_ms;
    const bool meets = phase.has(Operation::modify) || (phase.transaction_records > 1 && phase.changes());
    if (meets) line.found = {{"aborts", contender.session->aborts() ? Json(contender.aborts->load()) : Json()}};
    if (const std::optional<KvCounts> now = contender.store->counts()) {
      const auto logged = static_cast<double>(now->logged_bytes - before.logged_bytes);
      const auto data = static_cast<double>(now->data_bytes);
      line.found["logged_bytes_per_op"] = rounded(ratio_of(logged, static_cast<double>(operations)));
      line.found["data_bytes_per_record"] = rounded(ratio_of(data, static_cast<double>(now->records)));
      line.found["checkpoints"] = now->checkpoints - before.checkpoints;
      const auto ms = [](std::uint64_t ns) { return rounded(static_cast<double>(ns) / 1e6); };
      if (waits) {
        line.found["weak_wait_p50_ms"] = ms(now->weak_wait_p50_ns);
        line.found["weak_wait_p99_ms"] = ms(now->weak_wait_p99_ns);
        line.found["weak_wait_max_ms"] = ms(now->weak_wait_max_ns);
      }
    }
    return line;
  }

  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  Values values_;
  std::uint64_t seed_ = kSeed;
  std::vector<YcsbContender> contenders_;
};

// Those that were asked for, with each durability. memlith-group only by name: it is as slow as its window.
std::vector<YcsbSide> ycsb_sides(const KvBenchArguments& arguments) {
  std::vector<YcsbSide> sides;
  if (arguments.durability != "sync") {
    sides.push_back({memlith_side(), KvDurability::none, "weak"});
    // Which would have lost its records when memory is limited.
    if (arguments.cgroup_mib == 0) sides.push_back({volatile_side(), KvDurability::none, "none"});
    sides.push_back({memtable_side(), KvDurability::none, "weak"});
    for (KvPeer& peer : kv_peers()) sides.push_back({std::move(peer), KvDurability::none, "none"});
  }
  if (arguments.durability != "relaxed") {
    sides.push_back({memlith_side(), KvDurability::sync, "sync"});
    sides.push_back({waiting_side(), KvDurability::sync, "sync"});
    if (!arguments.sides.empty()) sides.push_back({group_side(), KvDurability::sync, "sync"});
    sides.push_back({memtable_side(), KvDurability::sync, "sync"});
    for (KvPeer& peer : kv_peers()) sides.push_back({std::move(peer), KvDurability::sync, "sync"});
  }
  std::erase_if(sides, [&](const YcsbSide& side) { return !arguments.wants(side.peer.name); });
  return sides;
}

MaybeFailure measure_ycsb(const KvBenchArguments& arguments, const ScratchFolder& scratch,
                          std::span<const YcsbSide> sides, const LimitMemory& limit) {
  YcsbRun run(arguments, scratch);
  for (const YcsbSide& side : sides) run.add(side);
  MEMLITH_TOOL_TRY(run.load(limit));
  slow_flushes_down(arguments.flush_delay_us);  // from here on; loading flushes nothing that is measured
  for (const std::uint64_t threads : arguments.threads) {
    for (const std::string& name : arguments.workloads) {
      const auto workload = std::ranges::find(ycsb_workloads(), name, &YcsbWorkload::name);
      for (const std::uint64_t records : arguments.transaction_records) {
        for (const std::uint64_t window_ms : arguments.windows_ms) {
          MEMLITH_TOOL_TRY(run.measure({*workload, threads, window_ms, records}));
        }
      }
    }
  }
  return {};
}

}  // namespace

MaybeFailure run_ycsb(const KvBenchArguments& arguments) {
  std::vector<KvPeer> known{memlith_side(), waiting_side(), group_side(), volatile_side(), memtable_side()};
  std::ranges::move(kv_peers(), std::back_inserter(known));
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names_of(known)));
  if (!arguments.recovery_log_mib.empty()) return run_recovery(arguments);
  const std::vector<YcsbSide> sides = ycsb_sides(arguments);
  const bool limited = arguments.cgroup_mib > 0;
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + kTextKeyBytes) * kYcsbSpaceFactor;
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes * (limited ? 1 : sides.size()) + kStoreSlackBytes));
  const std::string delay =
      arguments.flush_delay_us == 0 ? "" : fmt::format("; {} us more for each flush", arguments.flush_delay_us);
  const std::string caches = arguments.memory_mib == 0 ? "" : fmt::format("; caches of {} MiB", arguments.memory_mib);
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} records, keys of 16 bytes, values of {} bytes{}{}{}", arguments.records,
                            arguments.value_bytes, delay, caches, memory_text(arguments.cgroup_mib)));
  if (!limited) return measure_ycsb(arguments, scratch, sides, [] { return MaybeFailure(); });
  for (const YcsbSide& side : sides) {
    MEMLITH_TOOL_TRY(with_limited_memory(arguments.cgroup_mib << 20, [&](const LimitMemory& limit) {
      return measure_ycsb(arguments, scratch, {&side, 1}, limit);
    }));
    scratch.remove(Contender{.peer = side.peer, .told = side.told}.folder_name());
  }
  return {};
}

}  // namespace memlith::tool
