// Suites table2, table2-large, entries and threads: a map on a heap beside key-value stores.
//
// All sides do the same operations on the same keys in the same order, in turns of a few operations, in an order of
// sides that is drawn anew for each turn. Each side's contents are compared with what they must be afterwards; a side
// that is wrong ends the run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "allocators/allocators.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "contender.hpp"
#include "kit/raw_device.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "kit/workload.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kPhaseNs = 100'000'000;
constexpr std::uint64_t kKeysSpaceFactor = 30;  // each of the sides, and what it keeps of older versions

std::vector<std::uint64_t> shuffled(std::vector<std::uint64_t> values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  return values;
}

std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

// The key-value sides, memlith's first.
std::vector<KvPeer> heap_sides(KvDurability durability) {
  std::vector<KvPeer> sides = heap_map_sides();
  if (durability == KvDurability::none) std::ranges::move(heap_map_window_sides(), std::back_inserter(sides));
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  return sides;
}

// Those of `entries`: what a program gets that says nothing of its stores, the kv store, and the peers.
std::vector<KvPeer> entries_sides() {
  std::vector<KvPeer> sides = heap_map_default_sides();
  sides.push_back(memlith_side());
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  return sides;
}

std::vector<KvDurability> durabilities_of(const KvBenchArguments& arguments) {
  if (arguments.durability == "both") return {KvDurability::sync, KvDurability::none};
  return {arguments.durability == "sync" ? KvDurability::sync : KvDurability::none};
}

enum class Change : std::uint8_t { insert, replace, erase };
constexpr const char* kChangeNames[] = {"insert", "replace", "delete"};

class HeapRun {
 public:
  HeapRun(const KvBenchArguments& arguments, const ScratchFolder& scratch, std::string suite, KvDurability durability,
          std::vector<KvPeer> peers)
      : arguments_(arguments),
        scratch_(scratch),
        suite_(std::move(suite)),
        durability_(durability),
        values_(arguments.value_bytes),
        options_{
            .durability = durability,
            .bytes_expected = (arguments.records + arguments.operations) * (arguments.value_bytes + kTextKeyBytes)} {
    for (KvPeer& peer : peers) {
      if (arguments.wants(peer.name)) contenders_.push_back({.peer = std::move(peer), .durability = durability_});
    }
    for (std::vector<Line>& lines : lines_) {
      const char* const name = kChangeNames[&lines - lines_];
      for (const Contender& contender : contenders_) {
        lines.push_back(line_of(contender, name));
        if (arguments.rest_us > 0) lines.back().requested["rest_us"] = arguments.rest_us;
      }
    }
  }

  // Each side empty, in a folder of its own.
  [[nodiscard]] MaybeFailure open() {
    for (Contender& contender : contenders_) MEMLITH_TOOL_TRY(contender.make(scratch_, options_));
    return {};
  }
  // The same with the first keys, loaded without a flush for each, and opened again.
  [[nodiscard]] MaybeFailure open_loaded() {
    Random random(kSeed);
    const std::vector<std::uint64_t> order = shuffled(numbers(0, arguments_.records), random);
    KvOptions loading = options_;
    loading.durability = KvDurability::none;
    for (Contender& contender : contenders_) {
      MEMLITH_TOOL_TRY(contender.make(scratch_, loading));
      for (const std::uint64_t key : order) {
        if (interrupted()) return interrupted_failure();
        MEMLITH_TOOL_TRY(contender.session->put(scattered_key(key), value_of(key, 0)));
      }
      MEMLITH_TOOL_TRY(contender.close());
      MEMLITH_TOOL_TRY(contender.open(scratch_, options_));
    }
    return {};
  }
  [[nodiscard]] MaybeFailure close() {
    for (Contender& contender : contenders_) MEMLITH_TOOL_TRY(contender.close());
    return {};
  }

  // The change of each of these keys, in this order, on each side; and whether each then holds what it must.
  [[nodiscard]] MaybeFailure measure(Change change, const std::vector<std::uint64_t>& order, std::uint64_t version) {
    std::vector<Side> sides(contenders_.size());
    std::vector<std::size_t> next(contenders_.size(), 0);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      sides[i].round = [&, i](std::size_t, std::uint64_t& elapsed_ns) {
        const std::uint64_t key = order[next[i]++];
        const std::string name = scattered_key(key);
        const std::string_view value = value_of(key, version);
        KvSession& session = *contenders_[i].session;
        if (arguments_.rest_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(arguments_.rest_us));
        const std::uint64_t start = now_ns();
        MaybeFailure failure = change == Change::erase ? session.remove(name) : session.put(name, value);
        elapsed_ns = now_ns() - start;
        return failure;
      };
    }
    MEMLITH_TOOL_TRY(measure_in_turns(sides, {.rounds_min = order.size(),
                                              .rounds_of_turn = arguments_.turn,
                                              .order_of_sides = &turns_}));
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Line& line = lines_[static_cast<std::size_t>(change)][i];
      if (line.repetitions.empty()) line.repetitions.emplace_back();  // all samples together, as in the paper
      auto& samples = line.repetitions.front().samples_ns;
      samples.insert(samples.end(), sides[i].samples_ns.begin(), sides[i].samples_ns.end());
      MEMLITH_TOOL_TRY(check(contenders_[i], order, change != Change::erase, version));
    }
    return {};
  }
  void print() {
    for (std::vector<Line>& lines : lines_) {
      for (Line& line : lines) line.repetitions.front().count_samples();
      const std::string title =
          fmt::format("{}, {}, durability {}", suite_, kChangeNames[&lines - lines_], name_of(durability_));
      print_lines(arguments_.format, title, lines, "leveldb");
    }
  }
  // Threads replace the values of random keys, each side in phases of its own.
  [[nodiscard]] MaybeFailure measure_threads(std::uint64_t threads) {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    const auto once = [this](Contender&, Worker& worker, std::uint64_t& elapsed_ns) {
      const std::uint64_t key = worker.random.below(arguments_.records);
      const std::string name = scattered_key(key);
      const std::string_view value = value_of(key, worker.random.below(8));
      const std::uint64_t start = now_ns();
      MaybeFailure failure = worker.session->put(name, value);
      elapsed_ns = now_ns() - start;
      return failure;
    };
    const auto phases = static_cast<std::uint64_t>(std::max(1.0, arguments_.seconds * 1e9 / kPhaseNs));
    std::vector<Side> sides;
    MEMLITH_TOOL_TRY(measure_workers(all, {threads, phases, kPhaseNs}, kSeed, once, sides));
    std::vector<Line> lines;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      lines.push_back(line_of(contenders_[i], "replace"));
      lines.back().threads = threads;
      lines.back().repetitions.push_back(repetition_of(sides[i]));
    }
    const std::string title = fmt::format("threads, replace, durability {}, {} thread{}", name_of(durability_), threads,
                                          threads == 1 ? "" : "s");
    print_lines(arguments_.format, title, lines, "leveldb");
    return {};
  }

  // The values of `changes` random keys are replaced and made durable at once, beside a plain write of a page.
  [[nodiscard]] MaybeFailure measure_entries(std::uint64_t changes) {
    MEMLITH_TOOL_GET(RawWriter raw, RawWriter::create(scratch_.path_of("raw"), kRawFileBytes, kPageBytes));
    raw.set_round_bytes(kPageBytes);
    std::vector<Changes> rounds(contenders_.size());
    std::vector<Side> sides(contenders_.size() + 1);
    sides.back().round = [&raw](std::size_t, std::uint64_t& elapsed_ns) { return raw.round(elapsed_ns); };
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      sides[i].round = [this, changes, &round = rounds[i], &contender = contenders_[i]](std::size_t,
                                                                                        std::uint64_t& elapsed_ns) {
        choose(round, changes);
        const std::uint64_t start = now_ns();
        MaybeFailure failure = contender.session->put_all(round.pairs);
        elapsed_ns = now_ns() - start;
        return failure;
      };
    }
    MEMLITH_TOOL_TRY(measure_in_turns(sides, {kWarmUpTurns, 0}));
    for (Side& side : sides) side.clear();
    const std::uint64_t turns = arguments_.rounds > 0 ? arguments_.rounds : kTurnsMin;
    const double seconds = arguments_.rounds > 0 ? 0 : arguments_.seconds;
    MEMLITH_TOOL_TRY(measure_in_turns(sides, {.rounds_min = turns,
                                              .duration_ns_min = static_cast<std::uint64_t>(seconds * 1e9),
                                              .order_of_sides = &turns_}));
    std::vector<Line> lines;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      if (i < contenders_.size()) MEMLITH_TOOL_TRY(check(contenders_[i], rounds[i].keys, true, rounds[i].version));
      lines.push_back(entries_line(i, changes));
      lines.back().found = {{"ratio_per_turn", ratio_per_turn(sides[i], sides.back())}};
    }
    for (std::size_t i = 0; i < sides.size(); ++i) lines[i].repetitions.push_back(repetition_of(sides[i]));
    print_lines(arguments_.format, fmt::format("entries, {} of {} changed", changes, arguments_.records), lines, "raw");
    scratch_.remove("raw");
    return {};
  }

 private:
  // One side's of a round.
  struct Changes {
    Random random{kSeed};
    std::uint64_t version = 0;
    std::vector<std::uint64_t> keys;
    std::vector<KvPair> pairs;
  };
  void choose(Changes& round, std::uint64_t count) const {
    ++round.version;
    round.keys.clear();
    round.pairs.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      round.keys.push_back(round.random.below(arguments_.records));
      round.pairs.emplace_back(scattered_key(round.keys.back()), value_of(round.keys.back(), round.version));
    }
  }
  [[nodiscard]] Line entries_line(std::size_t side, std::uint64_t changes) const {
    const std::string workload = fmt::format("replace {}", changes);
    Line line;
    if (side < contenders_.size()) {
      line = line_of(contenders_[side], workload);
    } else {
      line.suite = suite_;
      line.side = "raw";
      line.version = memlith_version();
      line.workload = workload;
      line.durability = "sync";
      line.does = "one write of 4 KiB, one fdatasync";
      line.requested = {{"keys", arguments_.records}, {"value_bytes", arguments_.value_bytes}};
    }
    line.requested["changes"] = changes;
    return line;
  }
  [[nodiscard]] std::string_view value_of(std::uint64_t key, std::uint64_t version) const {
    return values_.at(Random(key * 8 + version).next());
  }
  [[nodiscard]] MaybeFailure check(Contender& contender, const std::vector<std::uint64_t>& keys, bool there,
                                   std::uint64_t version) const {
    std::string value;
    for (const std::uint64_t key : keys) {
      bool found = false;
      MEMLITH_TOOL_TRY(contender.session->get(scattered_key(key), value, found));
      if (found == there && (!there || value == value_of(key, version))) continue;
      return tool_failure(MEMLITH_CORRUPT,
                          fmt::format("{}: key {} is not as it was left", contender.peer.name, scattered_key(key)));
    }
    return {};
  }
  [[nodiscard]] Line line_of(const Contender& contender, std::string workload) const {
    Line line = contender.line(suite_, std::move(workload));
    line.requested = {{"keys", arguments_.records}, {"value_bytes", arguments_.value_bytes}};
    return line;
  }

  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  std::string suite_;
  KvDurability durability_;
  Values values_;
  KvOptions options_;
  std::vector<Contender> contenders_;
  std::vector<Line> lines_[3];  // of each Change
  Random turns_{kSeed + 1};
};

// All keys are inserted, replaced and deleted, each time in another order.
MaybeFailure change_all(HeapRun& run, std::uint64_t keys, Random& random) {
  const std::vector<std::uint64_t> all = numbers(0, keys);
  MEMLITH_TOOL_TRY(run.open());
  MEMLITH_TOOL_TRY(run.measure(Change::insert, shuffled(all, random), 0));
  MEMLITH_TOOL_TRY(run.measure(Change::replace, shuffled(all, random), 1));
  MEMLITH_TOOL_TRY(run.measure(Change::erase, shuffled(all, random), 0));
  return run.close();
}

// A store with many keys: new ones are inserted, some of the others replaced, and some deleted.
MaybeFailure change_some(HeapRun& run, std::uint64_t keys, std::uint64_t operations, Random& random) {
  const std::vector<std::uint64_t> fresh = shuffled(numbers(keys, operations), random);
  std::vector<std::uint64_t> some = shuffled(numbers(0, keys), random);
  some.resize(operations);
  MEMLITH_TOOL_TRY(run.open_loaded());
  MEMLITH_TOOL_TRY(run.measure(Change::insert, fresh, 0));
  MEMLITH_TOOL_TRY(run.measure(Change::replace, some, 1));
  MEMLITH_TOOL_TRY(run.measure(Change::erase, shuffled(some, random), 0));
  return run.close();
}

}  // namespace

MaybeFailure run_table2(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names_of(heap_sides(KvDurability::none))));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} keys of 16 bytes, values of {} bytes, {} repetitions, all sides in turns",
                            arguments.records, arguments.value_bytes, arguments.repetitions));
  for (const KvDurability durability : durabilities_of(arguments)) {
    HeapRun run(arguments, scratch, "table2", durability, heap_sides(durability));
    Random random(kSeed);
    for (std::uint64_t i = 0; i < arguments.repetitions; ++i) {
      MEMLITH_TOOL_TRY(change_all(run, arguments.records, random));
    }
    run.print();
  }
  return {};
}

MaybeFailure run_table2_large(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names_of(heap_sides(KvDurability::none))));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  const std::uint64_t operations = std::min(arguments.operations, arguments.records);
  const std::uint64_t bytes = arguments.records * arguments.value_bytes * kKeysSpaceFactor;
  MEMLITH_TOOL_TRY(require_space(scratch.path(), bytes + kStoreSlackBytes));
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} keys of 16 bytes, values of {} bytes, {} operations of each kind, all sides in turns",
                            arguments.records, arguments.value_bytes, operations));
  for (const KvDurability durability : durabilities_of(arguments)) {
    HeapRun run(arguments, scratch, "table2-large", durability, heap_sides(durability));
    Random random(kSeed);
    MEMLITH_TOOL_TRY(change_some(run, arguments.records, operations, random));
    run.print();
  }
  return {};
}

MaybeFailure run_entries(const KvBenchArguments& arguments) {
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names_of(entries_sides())));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} keys of 16 bytes, values of {} bytes; some are replaced and made durable at once, one "
                            "round of each side in turn; ratio_per_turn: time over that of raw",
                            arguments.records, arguments.value_bytes));
  HeapRun run(arguments, scratch, "entries", KvDurability::sync, entries_sides());
  MEMLITH_TOOL_TRY(run.open_loaded());
  for (const std::uint64_t changes : arguments.changes) MEMLITH_TOOL_TRY(run.measure_entries(changes));
  return run.close();
}

MaybeFailure run_threads(const KvBenchArguments& arguments) {
  std::vector<std::string> names = names_of(heap_sides(KvDurability::none));
  std::ranges::move(allocator_names(), std::back_inserter(names));
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder,
                fmt::format("threads that replace values of {} bytes of {} keys, each side in phases of {} ms",
                            arguments.value_bytes, arguments.records, kPhaseNs / 1'000'000));
  for (const KvDurability durability : durabilities_of(arguments)) {
    for (const std::uint64_t threads : arguments.threads) {
      HeapRun run(arguments, scratch, "threads", durability, heap_sides(durability));
      MEMLITH_TOOL_TRY(run.open_loaded());
      MEMLITH_TOOL_TRY(run.measure_threads(threads));
      MEMLITH_TOOL_TRY(run.close());
    }
  }
  for (const std::uint64_t threads : arguments.threads) {
    MEMLITH_TOOL_TRY(measure_allocators_with_threads(arguments, scratch, threads));
  }
  return {};
}

}  // namespace memlith::tool
