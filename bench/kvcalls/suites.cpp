// The suites that have the same sides: a map that is removed beside commits, one that is filled in order, records that
// are compared and swapped, ranges that are removed. Each repetition has a turn of every side.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/measure.hpp"
#include "kit/random.hpp"
#include "kvcalls.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kSpaceFactor = 12;      // of the space that a store may take for its records
constexpr std::uint64_t kBesideRecords = 1000;  // of the map that is changed beside a removal
constexpr std::uint64_t kWarmUpCommits = 100;
constexpr std::uint64_t kPhases = 10;  // of each side in a repetition of put-if and remove-range
constexpr std::uint64_t kKeyBytes = 8;
constexpr const char* kMap = "map";
constexpr const char* kBeside = "beside";

// A side, its store while that is open, and its line of the workload.
struct Contender {
  CallsSide side;
  std::unique_ptr<CallsStore> store;
  CallsLine line;
  std::vector<std::uint64_t> versions;  // put-if: the number in each value
};

class CallsRun {
 public:
  CallsRun(const KvCallsArguments& arguments, const ScratchFolder& scratch, Call call, std::string workload)
      : arguments_(arguments), scratch_(scratch), workload_(std::move(workload)), values_(arguments.value_bytes) {
    const auto& wanted = arguments.sides;
    for (CallsSide& side : calls_sides()) {
      const std::string& does = side.does[static_cast<std::size_t>(call)];
      const bool named = wanted.empty() || std::ranges::find(wanted, side.name) != wanted.end();
      if (does.empty() || !named) continue;
      Contender& each = contenders_.emplace_back();
      each.line = line_of(side, does);
      each.side = std::move(side);
    }
  }

  [[nodiscard]] std::vector<Contender>& contenders() { return contenders_; }
  [[nodiscard]] Values& values() { return values_; }
  [[nodiscard]] CallsLine line_of(const CallsSide& side, const std::string& does) const {
    CallsLine line;
    line.workload = workload_;
    line.side = side.name;
    line.version = side.version;
    line.durability = side.name == "lmdb" ? "none" : "weak";
    line.does = does;
    line.records = arguments_.records;
    return line;
  }
  // An empty store in a folder of its own.
  [[nodiscard]] MaybeFailure open(Contender& contender) const {
    std::error_code error;
    std::filesystem::create_directory(scratch_.path_of(contender.side.name), error);
    if (error) return errno_failure(error.value(), "making a folder");
    auto store = contender.side.open(scratch_.path_of(contender.side.name),
                                     arguments_.records * (arguments_.value_bytes + kKeyBytes));
    if (!store.ok()) return std::move(store.failure());
    contender.store = std::move(*store);
    return contender.store->open_map(kMap);
  }
  [[nodiscard]] MaybeFailure fill(Contender& contender) {
    std::vector<std::uint64_t> untold;
    return contender.store->fill(kMap, arguments_.records, values_, untold);
  }
  void close(Contender& contender) const {
    contender.store.reset();
    scratch_.remove(contender.side.name);
  }
  void print(RatioOf what) const {
    for (const Contender& each : contenders_) {
      print_line(arguments_, each.line, contenders_.front().line, what);
    }
  }

 private:
  const KvCallsArguments& arguments_;
  const ScratchFolder& scratch_;
  const std::string workload_;
  Values values_;
  std::vector<Contender> contenders_;
};

MaybeFailure wrong(const Contender& contender, std::string_view what) {
  return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: {}", contender.side.name, what));
}

// ---- remove-map ------------------------------------------------------------------------------------------------

// Commits of one put each by a thread; those that `beside` overlaps are the samples.
[[nodiscard]] MaybeFailure commit_beside(Contender& contender, Values& values,
                                         const std::function<MaybeFailure()>& beside, Repetition& repetition) {
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
        committing = contender.store->put(kBeside, key_of(i % kBesideRecords), values.at(i));
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
  repetition.operations = repetition.samples_ns.size();
  repetition.wall_ns = end_ns - begin_ns;
  return {};
}

// One repetition of a side: beside the removal, and for as long without one, in an order that changes.
[[nodiscard]] MaybeFailure remove_once(CallsRun& run, Contender& contender, std::uint64_t& removal_ns, bool alone_first,
                                       CallsLine& alone) {
  CallsStore& store = *contender.store;
  if (auto failure = run.fill(contender)) return failure;
  const auto measure_alone = [&]() -> MaybeFailure {
    const auto rest = [&]() -> MaybeFailure {
      std::this_thread::sleep_for(std::chrono::nanoseconds(removal_ns));
      return {};
    };
    return commit_beside(contender, run.values(), rest, alone.repetitions.emplace_back());
  };
  if (alone_first) {
    if (auto failure = measure_alone()) return failure;
  }
  Repetition& repetition = contender.line.repetitions.emplace_back();
  const auto removal = [&store] { return store.remove_map(kMap); };
  if (auto failure = commit_beside(contender, run.values(), removal, repetition)) return failure;
  repetition.call_ns = removal_ns = repetition.wall_ns;
  return alone_first ? MaybeFailure() : measure_alone();
}

// ---- put-if and remove-range -----------------------------------------------------------------------------------

using Once = std::function<MaybeFailure(Contender& contender, Random& random, std::uint64_t& elapsed_ns)>;

// Phases of each side, in several repetitions: in turns of one operation, who comes behind LMDB would find its code and
// pages out of the processor's caches. `each` is what an operation counts for.
[[nodiscard]] MaybeFailure measure_calls(const KvCallsArguments& arguments, CallsRun& run, std::uint64_t each,
                                         const Once& once) {
  for (Contender& contender : run.contenders()) {
    if (auto failure = run.open(contender)) return failure;
    if (auto failure = run.fill(contender)) return failure;
  }
  std::vector<Side> sides(run.contenders().size());
  std::vector<Random> random(sides.size(), Random(kSeed));  // each side takes the same records
  for (std::size_t i = 0; i < sides.size(); ++i) {
    sides[i].round = [&, i](std::size_t, std::uint64_t& elapsed_ns) {
      return once(run.contenders()[i], random[i], elapsed_ns);
    };
  }
  const auto phase_ns = static_cast<std::uint64_t>(arguments.seconds * 1e9 / kPhases);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    if (auto failure = measure_in_phases(sides, {1, kPhases, phase_ns})) return failure;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Repetition& done = run.contenders()[i].line.repetitions.emplace_back();
      done.samples_ns = std::move(sides[i].samples_ns);
      done.operations = done.samples_ns.size() * each;
      for (const std::uint64_t sample_ns : done.samples_ns) done.wall_ns += sample_ns;
      sides[i].clear();
    }
  }
  run.print(RatioOf::operations_per_s);
  for (Contender& contender : run.contenders()) run.close(contender);
  return {};
}

}  // namespace

MaybeFailure measure_removal(const KvCallsArguments& arguments, const ScratchFolder& scratch) {
  print_calls_heading(arguments, fmt::format("removing a map of {} records: commits beside it, and without it; ratio: "
                                             "the longest commit, over the longest without it",
                                             arguments.records));
  CallsRun run(arguments, scratch, Call::remove_map, "remove-map");
  std::vector<CallsLine> alone;
  for (Contender& each : run.contenders()) {
    alone.push_back(run.line_of(each.side, each.line.does + "; without the removal"));
    alone.back().workload = "no-removal";
  }
  std::vector<std::uint64_t> removal_ns(alone.size(), 0);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (interrupted()) return interrupted_failure();
      Contender& contender = run.contenders()[i];
      if (auto failure = run.open(contender)) return failure;
      if (auto failure = contender.store->open_map(kBeside)) return failure;
      if (auto failure = remove_once(run, contender, removal_ns[i], repetition % 2 == 1, alone[i])) return failure;
      run.close(contender);
    }
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    print_line(arguments, alone[i], alone[i], RatioOf::longest);
    print_line(arguments, run.contenders()[i].line, alone[i], RatioOf::longest);
  }
  return {};
}

MaybeFailure measure_append(const KvCallsArguments& arguments, const ScratchFolder& scratch) {
  print_calls_heading(arguments, fmt::format("filling a map with {} records in order; times of {} records",
                                             arguments.records, kBatchRecords));
  CallsRun run(arguments, scratch, Call::append, "append");
  const auto records = static_cast<double>(arguments.records);
  for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    for (Contender& contender : run.contenders()) {
      if (interrupted()) return interrupted_failure();
      if (auto failure = run.open(contender)) return failure;
      Result<std::optional<std::uint64_t>> before = contender.store->logged_bytes();
      if (!before.ok()) return std::move(before.failure());
      Repetition& done = contender.line.repetitions.emplace_back();
      const std::uint64_t start = now_ns();
      if (auto failure = contender.store->fill(kMap, arguments.records, run.values(), done.samples_ns)) return failure;
      done.wall_ns = now_ns() - start;
      done.operations = arguments.records;
      Result<std::optional<std::uint64_t>> after = contender.store->logged_bytes();
      if (!after.ok()) return std::move(after.failure());
      if (after->has_value()) done.logged_bytes_per_op = static_cast<double>(**after - **before) / records;
      Result<std::uint64_t> data = contender.store->data_bytes();
      if (!data.ok()) return std::move(data.failure());
      done.data_bytes_per_record = static_cast<double>(*data) / records;
      run.close(contender);
    }
  }
  run.print(RatioOf::operations_per_s);
  return {};
}

MaybeFailure measure_put_if(const KvCallsArguments& arguments, const ScratchFolder& scratch) {
  print_calls_heading(arguments, fmt::format("comparing and swapping one of {} records", arguments.records));
  CallsRun run(arguments, scratch, Call::put_if, "put-if");
  for (Contender& contender : run.contenders()) {
    for (std::uint64_t i = 0; i < arguments.records; ++i) contender.versions.push_back(i);  // as it was filled
  }
  const auto once = [&](Contender& contender, Random& random, std::uint64_t& elapsed_ns) -> MaybeFailure {
    const std::uint64_t record = random.below(arguments.records);
    const std::string key = key_of(record);
    const std::string expected(run.values().at(contender.versions[record]));
    const std::string_view value = run.values().at(++contender.versions[record]);
    bool done = false;
    const std::uint64_t start = now_ns();
    if (auto failure = contender.store->put_if(kMap, key, expected, value, done)) return failure;
    elapsed_ns = now_ns() - start;
    return done ? MaybeFailure() : wrong(contender, "a record is not as it was put");
  };
  return measure_calls(arguments, run, 1, once);
}

MaybeFailure measure_remove_range(const KvCallsArguments& arguments, const ScratchFolder& scratch) {
  print_calls_heading(arguments, fmt::format("removing {} records in a row; times of one such transaction",
                                             arguments.range_records));
  CallsRun run(arguments, scratch, Call::remove_range, "remove-range");
  const auto once = [&](Contender& contender, Random& random, std::uint64_t& elapsed_ns) -> MaybeFailure {
    const std::uint64_t first = random.below(arguments.records - arguments.range_records + 1);
    const std::string from = key_of(first);
    const std::string to = key_of(first + arguments.range_records);
    std::uint64_t count = 0;
    const std::uint64_t start = now_ns();
    if (auto failure = contender.store->remove_range(kMap, from, to, count)) return failure;
    elapsed_ns = now_ns() - start;
    if (count != arguments.range_records) return wrong(contender, "records of a range were missing");
    return contender.store->put_range(kMap, first, count, run.values());
  };
  return measure_calls(arguments, run, arguments.range_records, once);
}

MaybeFailure run_kvcalls(const KvCallsArguments& arguments) {
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + kKeyBytes) * kSpaceFactor;
  if (auto failure = require_space(scratch->path(), bytes + kStoreSlackBytes)) return failure;
  if (arguments.format == Format::text) {
    write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                           printable(arguments.folder), utc_now()));
    write_line(fmt::format("keys of {} bytes, values of {} bytes; medians of {} repetitions, sides in turns", kKeyBytes,
                           arguments.value_bytes, arguments.repetitions));
  }
  using Measure = MaybeFailure (*)(const KvCallsArguments&, const ScratchFolder&);
  constexpr std::pair<std::string_view, Measure> kSuites[] = {{"remove-map", measure_removal},
                                                              {"fairness", measure_fairness},
                                                              {"append", measure_append},
                                                              {"put-if", measure_put_if},
                                                              {"remove-range", measure_remove_range}};
  for (const auto& [name, measure] : kSuites) {
    if (std::ranges::find(arguments.calls, name) == arguments.calls.end()) continue;
    if (auto failure = measure(arguments, *scratch)) return failure;
  }
  return {};
}

}  // namespace memlith::tool
