// Fairness: a thread whose transactions read and write many records, beside threads that each change one of them; with
// and without memlith_kv_txn_set_wait.
#include "fairness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/try.hpp"
#include "peers/memlith.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

// The work of one thread.
struct Fighter {
  std::vector<std::uint64_t> samples_ns;
  std::uint64_t attempts = 0;
  std::uint64_t successes = 0;
  MaybeFailure failure;
};

class Fairness {
 public:
  explicit Fairness(const KvBenchArguments& arguments) : arguments_(arguments) {}

  [[nodiscard]] MaybeFailure open(const std::string& folder) {
    MEMLITH_TOOL_TRY(opened_.open(folder, {.create = true}));
    const auto put_all = [this](KvTransaction& txn) { return change(txn, 0, arguments_.long_records); };
    return failure_of(opened_.kv->transact(put_all, Durability::weak), "filling a map");
  }

  // All threads for the time of a turn. The samples and operations are those of the short transactions.
  [[nodiscard]] MaybeFailure measure(std::uint64_t wait_ms, std::uint64_t think_us, Line& line) {
    think_us_ = think_us;
    std::vector<Fighter> workers(arguments_.short_writers + 1);
    std::atomic<bool> stopping{false};  // relaxed: only ends loops
    const std::uint64_t start = now_ns();
    const auto end_ns = start + static_cast<std::uint64_t>(arguments_.seconds * 1e9);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < workers.size(); ++i) {
        threads.emplace_back([&, i] { work(workers[i], i, wait_ms, stopping); });
      }
      while (now_ns() < end_ns && !interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stopping.store(true, std::memory_order_relaxed);
    }
    const std::uint64_t wall_ns = now_ns() - start;
    for (const Fighter& each : workers) {
      if (each.failure) return each.failure;
    }
    line.found["attempts"] = line.found.value("attempts", std::uint64_t{0}) + workers.front().attempts;
    line.found["successes"] = line.found.value("successes", std::uint64_t{0}) + workers.front().successes;
    Repetition& repetition = line.repetitions.emplace_back();
    for (const Fighter& each : std::span(workers).subspan(1)) {
      repetition.ops_per_s += static_cast<double>(each.successes) / seconds_of(wall_ns);
      repetition.samples_ns.insert(repetition.samples_ns.end(), each.samples_ns.begin(), each.samples_ns.end());
    }
    return interrupted() ? MaybeFailure(interrupted_failure()) : MaybeFailure();
  }

 private:
  // Worker 0 has the long transactions, which it tries once at least; the others do one at least.
  void work(Fighter& worker, std::uint64_t number, std::uint64_t wait_ms, const std::atomic<bool>& stopping) const {
    Random random(kSeed + number);
    do {
      const bool is_long = number == 0;
      const std::uint64_t first = is_long ? 0 : random.below(arguments_.long_records);
      const std::uint64_t count = is_long ? arguments_.long_records : 1;
      bool given_up = false;
      const auto act = [&](KvTransaction& txn) -> memlith::Result<void> {
        // Between two tries it may end: it has written nothing then, and does not count. A short one succeeds once.
        const std::uint64_t done = is_long ? worker.attempts : worker.successes;
        given_up = done > 0 && stopping.load(std::memory_order_relaxed);
        if (given_up) return {};
        ++worker.attempts;
        return change(txn, first, count);
      };
      const std::uint64_t start = now_ns();
      worker.failure = failure_of(opened_.kv->transact(act, Durability::weak, wait_ms), "changing records");
      if (worker.failure || given_up) return;
      worker.samples_ns.push_back(now_ns() - start);
      ++worker.successes;
    } while (!stopping.load(std::memory_order_relaxed));
  }
  // Reads and writes records, one after the other.
  memlith::Result<void> change(KvTransaction& txn, std::uint64_t first, std::uint64_t count) const {
    for (std::uint64_t i = first; i < first + count; ++i) {
      auto found = txn.find(opened_.map, number_key(i));
      if (!found) return found.error();
      if (think_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(think_us_));
      std::string value(found->value_or(std::string_view()));
      value.resize(arguments_.value_bytes);
      ++value.front();
      if (auto put = txn.put(opened_.map, number_key(i), value); !put) return put;
    }
    return {};
  }

  const KvBenchArguments& arguments_;
  OpenedKv opened_;
  std::uint64_t think_us_ = 0;  // constant while threads run
};

Line line_of(const KvBenchArguments& arguments, const std::string& side, std::uint64_t think_us) {
  Line line;
  line.suite = "kvcalls";
  line.workload = "fairness";
  line.side = side;
  line.version = memlith_version();
  line.durability = "weak";
  line.does = side == "memlith" ? "a lock that another transaction has is a conflict at once; begin again after a pause"
                                : "memlith_kv_txn_set_wait";
  line.threads = arguments.short_writers + 1;
  line.requested = requested_of(arguments, arguments.long_records);
  line.found = {{"think_us", think_us}};
  return line;
}

}  // namespace

MaybeFailure measure_fairness(const KvBenchArguments& arguments, const ScratchFolder& scratch) {
  std::string title = fmt::
      format("{} threads that change one of {} records, beside one that changes all; times and ops/s of the former",
             arguments.short_writers, arguments.long_records);
  Fairness bench(arguments);
  MEMLITH_TOOL_TRY(bench.open(scratch.path_of("fairness")));
  for (const std::uint64_t think_us : arguments.think_us) {
    std::vector<Line> lines;
    for (const std::string side : {"memlith", "memlith-wait"}) {
      if (arguments.wants(side)) lines.push_back(line_of(arguments, side, think_us));
    }
    for (std::uint64_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
      for (Line& line : lines) {
        const std::uint64_t wait_ms = line.side == "memlith" ? 0 : arguments.wait_ms;
        MEMLITH_TOOL_TRY(bench.measure(wait_ms, think_us, line));
      }
    }
    print_lines(arguments.format, std::exchange(title, {}), lines, lines.empty() ? "" : lines.front().side);
  }
  return {};
}

}  // namespace memlith::tool
