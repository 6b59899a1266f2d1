// Suite ycsb: the workloads on all sides, in turns.
#include "ycsb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "contender.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "records.hpp"
#include "slow_medium.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kScanMax = 100;
constexpr std::uint64_t kYcsbSpaceFactor = 30;  // all sides, and what they keep of older versions

struct YcsbContender : Contender {
  std::unique_ptr<std::atomic<std::uint64_t>> records;
  std::unique_ptr<std::atomic<std::uint64_t>> aborts = std::make_unique<std::atomic<std::uint64_t>>(0);
};

class YcsbRun {
 public:
  explicit YcsbRun(const KvBenchArguments& arguments) : arguments_(arguments), values_(arguments.value_bytes) {}

  void add(KvPeer peer, KvDurability durability, const char* told) {
    if (!arguments_.wants(peer.name)) return;
    contenders_.push_back({{.peer = std::move(peer), .durability = durability, .told = told},
                           std::make_unique<std::atomic<std::uint64_t>>(arguments_.records)});
  }
  // Each side with the first records, put there without a flush for each.
  [[nodiscard]] MaybeFailure load(const ScratchFolder& scratch) {
    for (YcsbContender& each : contenders_) {
      KvOptions options{.durability = KvDurability::none,
                        .bytes_expected = arguments_.records * (arguments_.value_bytes + kTextKeyBytes) * 2,
                        .cache_bytes = arguments_.memory_mib << 20};
      MEMLITH_TOOL_TRY(each.make(scratch, options));
      MEMLITH_TOOL_TRY(load(each));
      if (each.durability == KvDurability::none) continue;
      each.session.reset();
      each.store.reset();
      options.durability = each.durability;
      MEMLITH_TOOL_TRY(each.open(scratch, options));
    }
    return {};
  }
  // All sides; of a later window only those to which it matters.
  [[nodiscard]] MaybeFailure measure(const YcsbWorkload& workload, std::uint64_t threads, std::uint64_t window_ms) {
    const std::unique_ptr<Chooser> chooser = workload.latest
                                                 ? make_latest_chooser(arguments_.records)
                                                 : make_chooser(arguments_.distribution, arguments_.records);
    std::vector<Contender*> all;
    std::vector<KvCounts> before;
    for (YcsbContender& each : contenders_) {
      const bool weak = each.told == "weak";
      if (!weak && window_ms != arguments_.windows_ms.front()) continue;
      if (weak) MEMLITH_TOOL_TRY(each.store->set_window(window_ms, arguments_.window_mib << 20));
      *each.aborts = 0;
      all.push_back(&each);
      before.push_back(each.store->counts().value_or(KvCounts()));
    }
    const auto act = [&](Contender& contender, Worker& worker, std::uint64_t& elapsed_ns) {
      return once(static_cast<YcsbContender&>(contender), worker, workload, *chooser, elapsed_ns);
    };
    const auto phase_ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9 / static_cast<double>(arguments_.rounds));
    std::vector<Side> sides;
    MEMLITH_TOOL_TRY(measure_workers(all, {threads, arguments_.rounds, phase_ns}, act, sides));
    const std::string window = arguments_.windows_ms.size() == 1 ? "" : fmt::format(", window of {} ms", window_ms);
    const std::string title = fmt::format("{}: {}, {}, {} thread{}{}", workload.name, workload.what,
                                          arguments_.distribution, threads, threads == 1 ? "" : "s", window);
    std::vector<Line> lines;
    for (std::size_t i = 0; i < all.size(); ++i) {
      Line line =
          line_of(static_cast<const YcsbContender&>(*all[i]), workload, threads, before[i], sides[i].samples_ns.size());
      if (line.durability == "weak") line.requested["window_ms"] = window_ms;
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
  [[nodiscard]] MaybeFailure load(const Contender& contender) {
    Random random(kSeed);
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < arguments_.records; ++i) {
      if (i % 1000 == 0 && interrupted()) return interrupted_failure();
      MEMLITH_TOOL_TRY(contender.session->put(scattered_key(i), value(random)));
    }
    if (arguments_.format == Format::text) {
      write_line(fmt::format("loaded {} ({}): {:.0f} inserts/s", contender.peer.name, contender.told,
                             ratio_of(static_cast<double>(arguments_.records), seconds_of(now_ns() - start))));
    }
    return contender.session->finish();
  }
  [[nodiscard]] MaybeFailure once(YcsbContender& contender, Worker& worker, const YcsbWorkload& workload,
                                  const Chooser& chooser, std::uint64_t& elapsed_ns) const {
    const Operation operation = worker.random.below(100) < workload.often_percent ? workload.often : workload.other;
    const bool inserts = operation == Operation::insert;
    const std::uint64_t number = inserts ? contender.records->fetch_add(1, std::memory_order_relaxed)
                                         : chooser.next(worker.random, contender.records->load());
    const std::string key = scattered_key(number);
    const std::string_view content = value(worker.random);
    const std::uint64_t count = 1 + worker.random.below(kScanMax);
    std::uint64_t seen_bytes = 0;
    bool found = true;
    MaybeFailure failure;
    const std::uint64_t aborts = worker.session->aborts().value_or(0);
    const std::uint64_t start = now_ns();
    switch (operation) {
      case Operation::modify: failure = worker.session->modify(key, content, worker.value, found); break;
      case Operation::update:
      case Operation::insert: failure = worker.session->put(key, content); break;
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
    if (!failure && !found && number < arguments_.records) {
      return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: record {} is not there", contender.peer.name, key));
    }
    return failure;
  }
  [[nodiscard]] Line line_of(const YcsbContender& contender, const YcsbWorkload& workload, std::uint64_t threads,
                             const KvCounts& before, std::size_t operations) const {
    Line line = contender.line("ycsb", workload.name);
    line.threads = threads;
    line.requested = {{"distribution", arguments_.distribution},
                      {"records", arguments_.records},
                      {"value_bytes", arguments_.value_bytes},
                      {"flush_delay_us", arguments_.flush_delay_us},
                      {"memory_mib", arguments_.memory_mib}};
    const bool modifies = workload.often == Operation::modify || workload.other == Operation::modify;
    if (modifies) line.found = {{"aborts", contender.session->aborts() ? Json(contender.aborts->load()) : Json()}};
    if (const std::optional<KvCounts> now = contender.store->counts()) {
      const auto logged = static_cast<double>(now->logged_bytes - before.logged_bytes);
      const auto data = static_cast<double>(now->data_bytes);
      line.found["logged_bytes_per_op"] = rounded(ratio_of(logged, static_cast<double>(operations)));
      line.found["data_bytes_per_record"] = rounded(ratio_of(data, static_cast<double>(now->records)));
      line.found["checkpoints"] = now->checkpoints - before.checkpoints;
    }
    return line;
  }

  const KvBenchArguments& arguments_;
  Values values_;
  std::vector<YcsbContender> contenders_;
};

}  // namespace

MaybeFailure run_ycsb(const KvBenchArguments& arguments) {
  std::vector<KvPeer> sides{memlith_side(), waiting_side(), volatile_side(), memtable_side()};
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names_of(sides)));
  if (!arguments.recovery_log_mib.empty()) return run_recovery(arguments);
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + kTextKeyBytes) * kYcsbSpaceFactor;
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes + kStoreSlackBytes));
  const std::string delay =
      arguments.flush_delay_us == 0 ? "" : fmt::format("; {} us more for each flush", arguments.flush_delay_us);
  const std::string caches = arguments.memory_mib == 0 ? "" : fmt::format("; caches of {} MiB", arguments.memory_mib);
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} records, keys of 16 bytes, values of {} bytes{}{}", arguments.records,
                            arguments.value_bytes, delay, caches));
  YcsbRun run(arguments);
  if (arguments.durability != "sync") {
    run.add(memlith_side(), KvDurability::none, "weak");
    run.add(volatile_side(), KvDurability::none, "none");
    run.add(memtable_side(), KvDurability::none, "weak");
    for (KvPeer& peer : kv_peers()) run.add(std::move(peer), KvDurability::none, "none");
  }
  if (arguments.durability != "relaxed") {
    run.add(memlith_side(), KvDurability::sync, "sync");
    run.add(waiting_side(), KvDurability::sync, "sync");
    run.add(memtable_side(), KvDurability::sync, "sync");
    for (KvPeer& peer : kv_peers()) run.add(std::move(peer), KvDurability::sync, "sync");
  }
  MEMLITH_TOOL_TRY(run.load(scratch));
  slow_flushes_down(arguments.flush_delay_us);  // from here on; loading flushes nothing that is measured
  for (const std::uint64_t threads : arguments.threads) {
    for (const std::string& name : arguments.workloads) {
      const auto workload = std::ranges::find(ycsb_workloads(), name, &YcsbWorkload::name);
      for (const std::uint64_t window_ms : arguments.windows_ms) {
        MEMLITH_TOOL_TRY(run.measure(*workload, threads, window_ms));
      }
    }
  }
  return {};
}

}  // namespace memlith::tool
