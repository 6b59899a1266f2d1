// Suites table2, table2-large and threads: a map on a heap beside key-value stores.
//
// All sides do the same operations on the same keys in the same order, in turns of a few operations, in an order of
// sides that is drawn anew for each turn. Each side's contents are compared with what they must be afterwards; a side
// that is wrong ends the run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "allocate_suite.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "heap_bench.hpp"
#include "kit/measure.hpp"
#include "kit/random.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kTable2Keys = 1000;
constexpr std::uint64_t kLargeKeys = 100'000;
constexpr std::uint64_t kPhaseNs = 100'000'000;
constexpr std::uint64_t kVersionLoaded = 0;

// ---- keys and values -------------------------------------------------------------------------------------------

// 16 bytes, in no order of the numbers.
std::string key_of(std::uint64_t number) { return fmt::format("{:016x}", Random(number + 1).next()); }

// The bytes that a key has after so many replacements.
class Values {
 public:
  explicit Values(std::uint64_t bytes) : bytes_(bytes) {
    pool_.resize(bytes + kSpread * sizeof(std::uint64_t));
    Random(kSeed).fill(std::as_writable_bytes(std::span(pool_)));
  }
  [[nodiscard]] std::string_view at(std::uint64_t key, std::uint64_t version) const {
    return std::string_view(pool_).substr(Random(key * 8 + version).below(kSpread) * sizeof(std::uint64_t), bytes_);
  }

 private:
  static constexpr std::uint64_t kSpread = 512;
  std::string pool_;
  std::uint64_t bytes_;
};

std::vector<std::uint64_t> shuffled(std::vector<std::uint64_t> values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  return values;
}

std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

// ---- sides -----------------------------------------------------------------------------------------------------

enum Operation : std::uint8_t { kInsert, kReplace, kDelete, kOperations };
constexpr const char* kOperationNames[] = {"insert", "replace", "delete"};

struct Contender {
  KvPeer peer;
  std::string folder;
  std::unique_ptr<KvStore> store;
  std::unique_ptr<KvSession> session;
  std::array<std::vector<std::uint64_t>, kOperations> samples_ns;  // of all repetitions
};

class KvRun {
 public:
  KvRun(const HeapBenchArguments& arguments, std::string suite, KvDurability durability, std::uint64_t keys)
      : arguments_(arguments),
        suite_(std::move(suite)),
        durability_(durability),
        keys_(keys),
        values_(arguments.value_bytes) {
    for (KvPeer& peer : kv_sides(arguments_, durability_)) {
      contenders_.emplace_back();
      contenders_.back().peer = std::move(peer);
    }
  }

  // Each side empty, in a folder of its own.
  [[nodiscard]] MaybeFailure open(const ScratchFolder& scratch) {
    for (Contender& contender : contenders_) {
      scratch.remove(contender.peer.name);
      contender.folder = scratch.path_of(contender.peer.name);
      std::error_code error;
      std::filesystem::create_directory(contender.folder, error);
      if (error) return errno_failure(error.value(), "making a folder");
      if (MaybeFailure failure = open(contender, durability_)) return failure;
    }
    return {};
  }
  // The same with the first keys, loaded without a flush for each, and opened again.
  [[nodiscard]] MaybeFailure open_loaded(const ScratchFolder& scratch) {
    if (MaybeFailure failure = open(scratch)) return failure;
    Random random(kSeed);
    const std::vector<std::uint64_t> order = shuffled(numbers(0, keys_), random);
    for (Contender& contender : contenders_) {
      if (MaybeFailure failure = close(contender)) return failure;
      if (MaybeFailure failure = open(contender, KvDurability::none)) return failure;
      for (const std::uint64_t key : order) {
        if (interrupted()) return interrupted_failure();
        if (auto failure = contender.session->put(key_of(key), values_.at(key, kVersionLoaded))) return failure;
      }
      if (MaybeFailure failure = close(contender)) return failure;
      if (MaybeFailure failure = open(contender, durability_)) return failure;
    }
    return {};
  }
  [[nodiscard]] MaybeFailure close() {
    for (Contender& contender : contenders_) {
      if (MaybeFailure failure = close(contender)) return failure;
    }
    return {};
  }

  // The operation on each of these keys, in this order, on each side.
  [[nodiscard]] MaybeFailure measure(Operation operation, const std::vector<std::uint64_t>& order,
                                     std::uint64_t version) {
    const std::uint64_t turn = arguments_.turn;
    std::vector<std::uint64_t> sides = numbers(0, contenders_.size());
    for (std::size_t begin = 0; begin < order.size(); begin += turn) {
      const std::span keys = std::span(order).subspan(begin, std::min<std::size_t>(turn, order.size() - begin));
      sides = shuffled(std::move(sides), turns_);
      for (const std::uint64_t side : sides) {
        if (interrupted()) return interrupted_failure();
        for (const std::uint64_t key : keys) {
          if (MaybeFailure failure = once(contenders_[side], operation, key, version)) return failure;
        }
      }
    }
    return {};
  }
  // Each side holds these keys with that version, or has none of them.
  [[nodiscard]] MaybeFailure check(const std::vector<std::uint64_t>& keys, bool there, std::uint64_t version) {
    std::string value;
    for (Contender& contender : contenders_) {
      for (const std::uint64_t key : keys) {
        bool found = false;
        if (MaybeFailure failure = contender.session->get(key_of(key), value, found)) return failure;
        if (found == there && (!there || value == values_.at(key, version))) continue;
        return tool_failure(MEMLITH_CORRUPT,
                            fmt::format("{}: key {} is not as it was left", contender.peer.name, key_of(key)));
      }
    }
    return {};
  }
  void print() const {
    for (std::size_t operation = 0; operation < kOperations; ++operation) {
      std::vector<HeapLine> lines;
      for (const Contender& contender : contenders_) {
        HeapLine line = line_of(contender, kOperationNames[operation], 1);
        line.samples_ns = contender.samples_ns[operation];
        const double sum_ns = std::accumulate(line.samples_ns.begin(), line.samples_ns.end(), 0.0);
        line.ops_per_s = ratio_of(static_cast<double>(line.samples_ns.size()) * 1e9, sum_ns);
        lines.push_back(std::move(line));
      }
      print_lines(arguments_.format, "leveldb", lines);
    }
  }
  // Threads replace the values of random keys, each side in phases of its own.
  [[nodiscard]] MaybeFailure measure_threads(std::uint64_t threads);

 private:
  [[nodiscard]] MaybeFailure open(Contender& contender, KvDurability durability) const {
    const std::uint64_t bytes = (keys_ + arguments_.operations) * (arguments_.value_bytes + key_of(0).size());
    Result<std::unique_ptr<KvStore>> store = contender.peer.open({contender.folder, durability, bytes});
    if (!store.ok()) return std::move(store.failure());
    contender.store = std::move(*store);
    Result<std::unique_ptr<KvSession>> session = contender.store->session();
    if (!session.ok()) return std::move(session.failure());
    contender.session = std::move(*session);
    return {};
  }
  [[nodiscard]] static MaybeFailure close(Contender& contender) {
    MaybeFailure failure = contender.session->finish();
    contender.session.reset();
    contender.store.reset();
    return failure;
  }
  [[nodiscard]] MaybeFailure once(Contender& contender, Operation operation, std::uint64_t key,
                                  std::uint64_t version) const {
    const std::string name = key_of(key);
    const std::string_view value = values_.at(key, version);
    const std::uint64_t start = now_ns();
    MaybeFailure failure = operation == kDelete ? contender.session->remove(name) : contender.session->put(name, value);
    contender.samples_ns[operation].push_back(now_ns() - start);
    return failure;
  }
  [[nodiscard]] HeapLine line_of(const Contender& contender, std::string workload, std::uint64_t threads) const {
    HeapLine line;
    line.suite = suite_;
    line.side = contender.peer.name;
    line.version = contender.peer.version;
    line.workload = std::move(workload);
    line.durability = name_of(durability_);
    line.done = contender.peer.text_of(durability_);
    line.threads = threads;
    line.more = {{"keys", keys_}, {"value_bytes", arguments_.value_bytes}};
    return line;
  }

  const HeapBenchArguments& arguments_;
  std::string suite_;
  KvDurability durability_;
  std::uint64_t keys_;
  Values values_;
  std::vector<Contender> contenders_;
  Random turns_{kSeed + 1};
};

MaybeFailure KvRun::measure_threads(std::uint64_t threads) {
  // A session and a generator for each thread of each side.
  struct Worker {
    std::unique_ptr<KvSession> session;
    Random random;
  };
  std::vector<std::vector<Worker>> workers(contenders_.size());
  std::vector<Side> sides(contenders_.size());
  for (std::size_t side = 0; side < contenders_.size(); ++side) {
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      Result<std::unique_ptr<KvSession>> session = contenders_[side].store->session();
      if (!session.ok()) return std::move(session.failure());
      workers[side].push_back({std::move(*session), Random(kSeed + thread)});
    }
    sides[side].round = [this, &crew = workers[side]](std::size_t thread, std::uint64_t& elapsed_ns) {
      Worker& worker = crew[thread];
      const std::uint64_t key = worker.random.below(keys_);
      const std::string name = key_of(key);
      const std::string_view value = values_.at(key, worker.random.below(8));
      const std::uint64_t start = now_ns();
      MaybeFailure failure = worker.session->put(name, value);
      elapsed_ns = now_ns() - start;
      return failure;
    };
  }
  const auto phases = static_cast<std::uint64_t>(std::max(1.0, arguments_.seconds * 1e9 / kPhaseNs));
  if (MaybeFailure failure = measure_in_phases(sides, {threads, phases, kPhaseNs})) return failure;
  std::vector<HeapLine> lines;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    lines.push_back(line_of(contenders_[side], "replace", threads));
    lines.back().samples_ns = std::move(sides[side].samples_ns);
    lines.back().ops_per_s =
        ratio_of(static_cast<double>(lines.back().samples_ns.size()), seconds_of(sides[side].wall_ns));
  }
  print_lines(arguments_.format, "leveldb", lines);
  return {};
}

std::vector<std::string> kv_side_names() {
  std::vector<std::string> names;
  for (const KvPeer& side : kv_sides({}, KvDurability::none)) names.push_back(side.name);
  return names;
}

// ---- suites ----------------------------------------------------------------------------------------------------

// All keys are inserted, replaced and deleted, each time in another order.
MaybeFailure table2_once(KvRun& run, std::uint64_t keys, const ScratchFolder& scratch, Random& random) {
  const std::vector<std::uint64_t> all = numbers(0, keys);
  if (MaybeFailure failure = run.open(scratch)) return failure;
  if (MaybeFailure failure = run.measure(kInsert, shuffled(all, random), 0)) return failure;
  if (MaybeFailure failure = run.check(all, true, 0)) return failure;
  if (MaybeFailure failure = run.measure(kReplace, shuffled(all, random), 1)) return failure;
  if (MaybeFailure failure = run.check(all, true, 1)) return failure;
  if (MaybeFailure failure = run.measure(kDelete, shuffled(all, random), 0)) return failure;
  if (MaybeFailure failure = run.check(all, false, 0)) return failure;
  return run.close();
}

// A store with many keys: new ones are inserted, some of the others replaced, and some deleted.
MaybeFailure table2_large_once(KvRun& run, std::uint64_t keys, std::uint64_t operations, Random& random) {
  const std::vector<std::uint64_t> fresh = shuffled(numbers(keys, operations), random);
  std::vector<std::uint64_t> some = shuffled(numbers(0, keys), random);
  some.resize(operations);
  if (MaybeFailure failure = run.measure(kInsert, fresh, 0)) return failure;
  if (MaybeFailure failure = run.check(fresh, true, 0)) return failure;
  if (MaybeFailure failure = run.measure(kReplace, some, 1)) return failure;
  if (MaybeFailure failure = run.check(some, true, 1)) return failure;
  some = shuffled(std::move(some), random);
  if (MaybeFailure failure = run.measure(kDelete, some, 0)) return failure;
  if (MaybeFailure failure = run.check(some, false, 0)) return failure;
  return run.close();
}

}  // namespace

MaybeFailure run_heap_table2(const HeapBenchArguments& arguments) {
  if (MaybeFailure failure = check_sides(arguments, kv_side_names())) return failure;
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t keys = arguments.keys == 0 ? kTable2Keys : arguments.keys;
  print_heading(arguments, fmt::format("{} keys of 16 bytes, values of {} bytes, {} repetitions, all sides in turns",
                                       keys, arguments.value_bytes, arguments.repetitions));
  for (const KvDurability durability : durabilities_of(arguments)) {
    KvRun run(arguments, "table2", durability, keys);
    Random random(kSeed);
    for (std::uint64_t i = 0; i < arguments.repetitions; ++i) {
      if (MaybeFailure failure = table2_once(run, keys, *scratch, random)) return failure;
    }
    run.print();
  }
  return {};
}

MaybeFailure run_heap_table2_large(const HeapBenchArguments& arguments) {
  if (MaybeFailure failure = check_sides(arguments, kv_side_names())) return failure;
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t keys = arguments.keys == 0 ? kLargeKeys : arguments.keys;
  const std::uint64_t operations = std::min(arguments.operations, keys);
  // Each of the sides, and what it keeps of older versions.
  if (auto failure = require_space(scratch->path(), keys * arguments.value_bytes * 30 + kStoreSlackBytes))
    return failure;
  print_heading(arguments,
                fmt::format("{} keys of 16 bytes, values of {} bytes, {} operations of each kind, all sides in "
                            "turns",
                            keys, arguments.value_bytes, operations));
  for (const KvDurability durability : durabilities_of(arguments)) {
    KvRun run(arguments, "table2-large", durability, keys);
    Random random(kSeed);
    if (MaybeFailure failure = run.open_loaded(*scratch)) return failure;
    if (MaybeFailure failure = table2_large_once(run, keys, operations, random)) return failure;
    run.print();
  }
  return {};
}

MaybeFailure run_heap_threads(const HeapBenchArguments& arguments) {
  std::vector<std::string> names = kv_side_names();
  std::ranges::move(allocator_names(), std::back_inserter(names));
  if (MaybeFailure failure = check_sides(arguments, names)) return failure;
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t keys = arguments.keys == 0 ? kTable2Keys : arguments.keys;
  print_heading(arguments,
                fmt::format("threads that replace values of {} bytes of {} keys, each side in phases of {} ms",
                            arguments.value_bytes, keys, kPhaseNs / 1'000'000));
  for (const KvDurability durability : durabilities_of(arguments)) {
    for (const std::uint64_t threads : arguments.threads) {
      KvRun run(arguments, "threads", durability, keys);
      if (MaybeFailure failure = run.open_loaded(*scratch)) return failure;
      if (MaybeFailure failure = run.measure_threads(threads)) return failure;
      if (MaybeFailure failure = run.close()) return failure;
    }
  }
  for (const std::uint64_t threads : arguments.threads) {
    if (MaybeFailure failure = measure_allocators_with_threads(arguments, *scratch, threads)) return failure;
  }
  return {};
}

}  // namespace memlith::tool
