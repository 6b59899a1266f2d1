// Suite kvcalls: single calls of the kv store, each beside what a program does without the call, and beside LMDB. A map
// that is removed beside commits, one that is filled in order, records that are compared and swapped, ranges that are
// removed. Each repetition has a turn of every side. Transactions are not waited for: memlith's are weak, LMDB's are
// not flushed.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "contender.hpp"
#include "fairness.hpp"
#include "kit/try.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kCallsSpaceFactor = 12;  // of the space that a store may take for its records
constexpr std::uint64_t kBesideRecords = 1000;   // of the map that is changed beside a removal
constexpr std::uint64_t kWarmUpCommits = 100;
constexpr std::uint64_t kPhases = 10;  // of each side in a repetition of put-if and remove-range
constexpr const char* kCallMap = "map";
constexpr const char* kBesideMap = "beside";

std::vector<KvPeer> call_sides() {
  std::vector<KvPeer> sides{memlith_side(), without_calls_side()};
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  std::erase_if(sides, [](const KvPeer& side) {
    return std::ranges::all_of(side.calls, [](const std::string& text) { return text.empty(); });
  });
  return sides;
}

// A side, what it does in its store while that is open, and its line of the workload.
struct Caller : Contender {
  std::unique_ptr<CallSession> map;  // ends before the store closes
  Line line;
  std::vector<std::uint64_t> versions;  // put-if: the number in each value
};

class CallsRun {
 public:
  CallsRun(const KvBenchArguments& arguments, const ScratchFolder& scratch, Call call, const std::string& workload)
      : arguments_(arguments), scratch_(scratch), values_(arguments.value_bytes) {
    for (KvPeer& side : call_sides()) {
      const std::string does = side.calls[static_cast<std::size_t>(call)];
      if (does.empty() || !arguments.wants(side.name)) continue;
      Caller& each = callers_.emplace_back();
      each.told = side.name == "lmdb" ? "none" : "weak";
      each.peer = std::move(side);
      each.line = each.Contender::line("kvcalls", workload);
      each.line.does = does;
      each.line.requested = requested_of(arguments, arguments.records);
    }
  }

  [[nodiscard]] std::vector<Caller>& callers() { return callers_; }
  [[nodiscard]] Values& values() { return values_; }
  // An empty store in a folder of its own, with the map.
  [[nodiscard]] MaybeFailure open(Caller& caller) const {
    MEMLITH_TOOL_TRY(caller.make(scratch_,
                                 {.durability = KvDurability::none,
                                  .bytes_expected = arguments_.records * (arguments_.value_bytes + kNumberKeyBytes)}));
    MEMLITH_TOOL_GET(caller.map, caller.store->calls(kCallMap));
    return {};
  }
  [[nodiscard]] MaybeFailure fill(Caller& caller) {
    std::vector<std::uint64_t> untold;
    return caller.map->fill(arguments_.records, values_, untold);
  }
  void close(Caller& caller) const {
    caller.map.reset();
    caller.session.reset();
    caller.store.reset();
    scratch_.remove(caller.folder_name());
  }
  void print(const std::string& title) const {
    std::vector<Line> lines;
    for (const Caller& each : callers_) lines.push_back(each.line);
    print_lines(arguments_.format, title, lines, lines.empty() ? "" : lines.front().side);
  }

 private:
  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  Values values_;
  std::vector<Caller> callers_;
};

MaybeFailure wrong_call(const Caller& caller, std::string_view what) {
  return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: {}", caller.peer.name, what));
}

// ---- remove-map ------------------------------------------------------------------------------------------------

// Commits of one put each by a thread; those that `beside` overlaps are the samples.
[[nodiscard]] MaybeFailure commit_beside(CallSession& map, Values& values, const std::function<MaybeFailure()>& beside,
                                         Repetition& repetition, std::uint64_t& beside_ns) {
  struct Commit {
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
  };
  std::vector<Commit> commits;
  commits.reserve(1 << 20);
  std::atomic<std::uint64_t> count{0};  // relaxed: of the loop below, the join orders the rest
  std::atomic<bool> stopping{false};    // relaxed: the same
  MaybeFailure committing;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  MaybeFailure failure;
  {
    const std::jthread committer([&] {
      for (std::uint64_t i = 0; !committing && !stopping.load(std::memory_order_relaxed); ++i) {
        const std::uint64_t start = now_ns();
        committing = map.put(number_key(i % kBesideRecords), values.numbered(i));
        commits.push_back({start, now_ns()});
        count.store(committing ? kWarmUpCommits : i + 1, std::memory_order_relaxed);
      }
    });
    while (count.load(std::memory_order_relaxed) < kWarmUpCommits) std::this_thread::yield();
    begin_ns = now_ns();
    failure = beside();
    end_ns = now_ns();
    stopping.store(true, std::memory_order_relaxed);
  }
  if (failure) return failure;
  if (committing) return committing;
  for (const Commit& commit : commits) {
    if (commit.end_ns > begin_ns && commit.begin_ns < end_ns) {
      repetition.samples_ns.push_back(commit.end_ns - commit.begin_ns);
    }
  }
  beside_ns = end_ns - begin_ns;
  repetition.ops_per_s = static_cast<double>(repetition.samples_ns.size()) / seconds_of(beside_ns);
  return {};
}

// One repetition of a side: beside the removal, and for as long without one, in an order that changes.
[[nodiscard]] MaybeFailure remove_once(CallsRun& run, Caller& caller, std::uint64_t& removal_ns, bool alone_first,
                                       Line& alone) {
  MEMLITH_TOOL_GET(const std::unique_ptr<CallSession> beside, caller.store->calls(kBesideMap));
  MEMLITH_TOOL_TRY(run.fill(caller));
  const auto measure_alone = [&]() -> MaybeFailure {
    const auto rest = [&]() -> MaybeFailure {
      std::this_thread::sleep_for(std::chrono::nanoseconds(removal_ns));
      return {};
    };
    std::uint64_t rested_ns = 0;
    return commit_beside(*beside, run.values(), rest, alone.repetitions.emplace_back(), rested_ns);
  };
  if (alone_first) MEMLITH_TOOL_TRY(measure_alone());
  Repetition& repetition = caller.line.repetitions.emplace_back();
  const auto removal = [&caller] { return caller.map->remove_map(); };
  MEMLITH_TOOL_TRY(commit_beside(*beside, run.values(), removal, repetition, removal_ns));
  repetition.more["removal_ms"] = seconds_of(removal_ns) * 1000;
  return alone_first ? MaybeFailure() : measure_alone();
}

MaybeFailure measure_removal(const KvBenchArguments& arguments, const ScratchFolder& scratch) {
  CallsRun run(arguments, scratch, Call::remove_map, "remove-map");
  std::vector<Line> alone;
  for (const Caller& each : run.callers()) {
    alone.push_back(each.line);
    alone.back().workload = "no-removal";
    alone.back().does += "; without the removal";
  }
  std::vector<std::uint64_t> removal_ns(alone.size(), 0);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (interrupted()) return interrupted_failure();
      Caller& caller = run.callers()[i];
      MEMLITH_TOOL_TRY(run.open(caller));
      MEMLITH_TOOL_TRY(remove_once(run, caller, removal_ns[i], repetition % 2 == 1, alone[i]));
      run.close(caller);
    }
  }
  std::string title = fmt::format(
      "removing a map of {} records: commits beside it, and without it; ratio: the longest commit, over the longest "
      "without it",
      arguments.records);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    print_lines(arguments.format, std::exchange(title, {}), {alone[i], run.callers()[i].line}, alone[i].side,
                RatioOf::longest);
  }
  return {};
}

// ---- append ----------------------------------------------------------------------------------------------------

MaybeFailure measure_append(const KvBenchArguments& arguments, const ScratchFolder& scratch) {
  CallsRun run(arguments, scratch, Call::append, "append");
  const auto records = static_cast<double>(arguments.records);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    for (Caller& caller : run.callers()) {
      if (interrupted()) return interrupted_failure();
      MEMLITH_TOOL_TRY(run.open(caller));
      MEMLITH_TOOL_GET(const std::optional<std::uint64_t> before, caller.map->logged_bytes());
      Repetition& done = caller.line.repetitions.emplace_back();
      const std::uint64_t start = now_ns();
      MEMLITH_TOOL_TRY(caller.map->fill(arguments.records, run.values(), done.samples_ns));
      done.ops_per_s = records / seconds_of(now_ns() - start);
      MEMLITH_TOOL_GET(const std::optional<std::uint64_t> after, caller.map->logged_bytes());
      if (after.has_value()) done.more["logged_bytes_per_op"] = static_cast<double>(*after - *before) / records;
      MEMLITH_TOOL_GET(const std::uint64_t data, caller.map->data_bytes());
      done.more["data_bytes_per_record"] = static_cast<double>(data) / records;
      run.close(caller);
    }
  }
  run.print(fmt::format("filling a map with {} records in order; times of {} records", arguments.records,
                        kBatchRecords));
  return {};
}

// ---- put-if and remove-range -----------------------------------------------------------------------------------

using CallOnce = std::function<MaybeFailure(Caller& caller, Random& random, std::uint64_t& elapsed_ns)>;

// Phases of each side, in several repetitions: in turns of one operation, the side behind LMDB would find its code and
// pages out of the processor's caches. `each` is what an operation counts for.
[[nodiscard]] MaybeFailure measure_calls(const KvBenchArguments& arguments, CallsRun& run, std::uint64_t each,
                                         const CallOnce& once) {
  for (Caller& caller : run.callers()) {
    MEMLITH_TOOL_TRY(run.open(caller));
    MEMLITH_TOOL_TRY(run.fill(caller));
  }
  std::vector<Side> sides(run.callers().size());
  std::vector<Random> random(sides.size(), Random(kSeed));  // each side takes the same records
  for (std::size_t i = 0; i < sides.size(); ++i) {
    sides[i].round = [&, i](std::size_t, std::uint64_t& elapsed_ns) {
      return once(run.callers()[i], random[i], elapsed_ns);
    };
  }
  const auto phase_ns = static_cast<std::uint64_t>(arguments.seconds * 1e9 / kPhases);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    MEMLITH_TOOL_TRY(measure_in_phases(sides, {1, kPhases, phase_ns}));
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Repetition& done = run.callers()[i].line.repetitions.emplace_back();
      done.samples_ns = std::move(sides[i].samples_ns);
      done.count_samples();  // without what is put back between two calls
      done.ops_per_s *= static_cast<double>(each);
      sides[i].clear();
    }
  }
  return {};
}

MaybeFailure measure_put_if(const KvBenchArguments& arguments, const ScratchFolder& scratch) {
  CallsRun run(arguments, scratch, Call::put_if, "put-if");
  for (Caller& caller : run.callers()) {
    for (std::uint64_t i = 0; i < arguments.records; ++i) caller.versions.push_back(i);  // as it was filled
  }
  const auto once = [&](Caller& caller, Random& random, std::uint64_t& elapsed_ns) -> MaybeFailure {
    const std::uint64_t record = random.below(arguments.records);
    const std::string key = number_key(record);
    const std::string expected(run.values().numbered(caller.versions[record]));
    const std::string_view value = run.values().numbered(++caller.versions[record]);
    bool done = false;
    const std::uint64_t start = now_ns();
    MEMLITH_TOOL_TRY(caller.map->put_if(key, expected, value, done));
    elapsed_ns = now_ns() - start;
    return done ? MaybeFailure() : wrong_call(caller, "a record is not as it was put");
  };
  MEMLITH_TOOL_TRY(measure_calls(arguments, run, 1, once));
  run.print(fmt::format("comparing and swapping one of {} records", arguments.records));
  for (Caller& caller : run.callers()) run.close(caller);
  return {};
}

MaybeFailure measure_remove_range(const KvBenchArguments& arguments, const ScratchFolder& scratch) {
  CallsRun run(arguments, scratch, Call::remove_range, "remove-range");
  const auto once = [&](Caller& caller, Random& random, std::uint64_t& elapsed_ns) -> MaybeFailure {
    const std::uint64_t first = random.below(arguments.records - arguments.range_records + 1);
    const std::string from = number_key(first);
    const std::string to = number_key(first + arguments.range_records);
    std::uint64_t count = 0;
    const std::uint64_t start = now_ns();
    MEMLITH_TOOL_TRY(caller.map->remove_range(from, to, count));
    elapsed_ns = now_ns() - start;
    if (count != arguments.range_records) return wrong_call(caller, "records of a range were missing");
    return caller.map->put_range(first, count, run.values());
  };
  MEMLITH_TOOL_TRY(measure_calls(arguments, run, arguments.range_records, once));
  run.print(fmt::format("removing {} records in a row; times of one such transaction", arguments.range_records));
  for (Caller& caller : run.callers()) run.close(caller);
  return {};
}

}  // namespace

Json requested_of(const KvBenchArguments& arguments, std::uint64_t records) {
  return {{"repetitions", arguments.repetitions}, {"records", records}, {"value_bytes", arguments.value_bytes}};
}

MaybeFailure run_kvcalls(const KvBenchArguments& arguments) {
  std::vector<std::string> names = names_of(call_sides());
  names.emplace_back("memlith-wait");
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + kNumberKeyBytes) * kCallsSpaceFactor;
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes + kStoreSlackBytes));
  print_heading(arguments.format, arguments.folder,
                fmt::format("keys of {} bytes, values of {} bytes; medians of {} repetitions, sides in turns",
                            kNumberKeyBytes, arguments.value_bytes, arguments.repetitions));
  using Measure = MaybeFailure (*)(const KvBenchArguments&, const ScratchFolder&);
  constexpr std::pair<std::string_view, Measure> kCalls[] = {{"remove-map", measure_removal},
                                                             {"fairness", measure_fairness},
                                                             {"append", measure_append},
                                                             {"put-if", measure_put_if},
                                                             {"remove-range", measure_remove_range}};
  for (const auto& [name, measure] : kCalls) {
    if (std::ranges::find(arguments.workloads, name) == arguments.workloads.end()) continue;
    MEMLITH_TOOL_TRY(measure(arguments, scratch));
  }
  return {};
}

}  // namespace memlith::tool
