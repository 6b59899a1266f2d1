// Runs the workloads on all sides, in turns.
#include "ycsb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/measure.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "memlith/memlith.h"
#include "slow_medium.hpp"

namespace memlith::tool {

std::string key_of(std::uint64_t number) { return fmt::format("{:016x}", Random(number + 1).next()); }

namespace {

constexpr std::uint64_t kScanMax = 100;
constexpr std::uint64_t kSpread = 512;
constexpr std::uint64_t kSpaceFactor = 30;  // all sides, and what they keep of older versions

struct Contender {
  KvPeer peer;
  KvDurability durability = KvDurability::none;
  std::string told_durability;
  std::unique_ptr<KvStore> store;
  std::unique_ptr<std::atomic<std::uint64_t>> records;
};

class YcsbRun {
 public:
  explicit YcsbRun(const YcsbArguments& arguments) : arguments_(arguments) {
    pool_.resize(arguments.value_bytes + kSpread * sizeof(std::uint64_t));
    Random(kSeed).fill(std::as_writable_bytes(std::span(pool_)).first(pool_.size() / 8 * 8));
  }

  void add(KvPeer peer, KvDurability durability, std::string told) {
    if (!arguments_.sides.empty() && std::ranges::find(arguments_.sides, peer.name) == arguments_.sides.end()) return;
    contenders_.push_back({std::move(peer), durability, std::move(told), nullptr,
                           std::make_unique<std::atomic<std::uint64_t>>(arguments_.records)});
  }

  // Each side with the first records, put there without a flush for each.
  [[nodiscard]] MaybeFailure load(const ScratchFolder& scratch) {
    for (Contender& each : contenders_) {
      const std::string name = each.peer.name + "-" + each.told_durability;
      const std::string folder = scratch.path_of(name);
      std::error_code error;
      std::filesystem::create_directory(folder, error);
      if (error) return errno_failure(error.value(), "making a folder");
      const std::uint64_t bytes = arguments_.records * (arguments_.value_bytes + key_of(0).size()) * 2;
      Result<std::unique_ptr<KvStore>> store = each.peer.open({folder, KvDurability::none, bytes, cache_bytes()});
      if (!store.ok()) return std::move(store.failure());
      if (MaybeFailure failure = load(each, **store)) return failure;
      if (each.durability == KvDurability::sync) {
        (*store).reset();
        store = each.peer.open({folder, each.durability, bytes, cache_bytes()});
        if (!store.ok()) return std::move(store.failure());
      }
      each.store = std::move(*store);
    }
    return {};
  }
  // All sides; of a later window only those to which it matters.
  [[nodiscard]] MaybeFailure measure(const Workload& workload, std::uint64_t threads, std::uint64_t window_ms);

 private:
  [[nodiscard]] std::uint64_t cache_bytes() const { return arguments_.memory_mib << 20; }
  [[nodiscard]] std::string_view value(Random& random) const {
    return std::string_view(pool_).substr(random.below(kSpread) * sizeof(std::uint64_t), arguments_.value_bytes);
  }
  [[nodiscard]] MaybeFailure load(const Contender& contender, KvStore& store) {
    Result<std::unique_ptr<KvSession>> session = store.session();
    if (!session.ok()) return std::move(session.failure());
    Random random(kSeed);
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < arguments_.records; ++i) {
      if (i % 1000 == 0 && interrupted()) return interrupted_failure();
      if (auto failure = (*session)->put(key_of(i), value(random))) return failure;
    }
    if (arguments_.format == Format::text) {
      write_line(fmt::format("loaded {} ({}): {:.0f} inserts/s", contender.peer.name, contender.told_durability,
                             ratio_of(static_cast<double>(arguments_.records), seconds_of(now_ns() - start))));
    }
    return (*session)->finish();
  }
  struct Worker {
    std::unique_ptr<KvSession> session;
    Random random;
    std::string value;
  };
  [[nodiscard]] MaybeFailure once(Contender& contender, Worker& worker, const Workload& workload,
                                  const Chooser& chooser, std::uint64_t& elapsed_ns) const;
  // What was measured of one side.
  struct Measured {
    Contender* contender = nullptr;
    std::vector<Worker> workers;
    KvCounts before;
  };
  [[nodiscard]] Result<std::vector<Measured>> take_part(std::uint64_t threads, std::uint64_t window_ms);
  void print(const Measured& measured, const Workload& workload, std::uint64_t window_ms, const Side& side) const;

  const YcsbArguments& arguments_;
  std::string pool_;
  std::vector<Contender> contenders_;
};

MaybeFailure YcsbRun::once(Contender& contender, Worker& worker, const Workload& workload, const Chooser& chooser,
                           std::uint64_t& elapsed_ns) const {
  const Operation operation = worker.random.below(100) < workload.often_percent ? workload.often : workload.other;
  const bool inserts = operation == Operation::insert;
  const std::uint64_t number = inserts ? contender.records->fetch_add(1, std::memory_order_relaxed)
                                       : chooser.next(worker.random, contender.records->load());
  const std::string key = key_of(number);
  const std::string_view content = value(worker.random);
  const std::uint64_t count = 1 + worker.random.below(kScanMax);
  std::uint64_t seen_bytes = 0;
  bool found = true;
  MaybeFailure failure;
  const std::uint64_t start = now_ns();
  switch (operation) {
    case Operation::modify: failure = worker.session->get(key, worker.value, found); [[fallthrough]];
    case Operation::update:
    case Operation::insert:
      if (!failure) failure = worker.session->put(key, content);
      break;
    case Operation::read: failure = worker.session->get(key, worker.value, found); break;
    case Operation::scan:
      failure = worker.session->scan(key, count, [&seen_bytes](std::string_view name, std::string_view bytes) {
        seen_bytes += name.size() + bytes.size();
      });
      found = seen_bytes > 0;
  }
  elapsed_ns = now_ns() - start;
  // With several threads a record may be counted before it is there.
  if (!failure && !found && number < arguments_.records) {
    return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: record {} is not there", contender.peer.name, key));
  }
  return failure;
}

Result<std::vector<YcsbRun::Measured>> YcsbRun::take_part(std::uint64_t threads, std::uint64_t window_ms) {
  std::vector<Measured> all;
  for (Contender& each : contenders_) {
    auto* const counted = dynamic_cast<CountedKvStore*>(each.store.get());
    const bool weak = each.told_durability == "weak";
    if (!weak && window_ms != arguments_.windows_ms.front()) continue;
    if (weak && counted != nullptr) {
      if (MaybeFailure failure = counted->set_window(window_ms, arguments_.window_mib << 20)) return *failure;
    }
    Measured measured{&each, {}, counted != nullptr ? counted->counts() : KvCounts()};
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      Result<std::unique_ptr<KvSession>> session = each.store->session();
      if (!session.ok()) return std::move(session.failure());
      measured.workers.push_back({std::move(*session), Random(kSeed + thread), {}});
    }
    all.push_back(std::move(measured));
  }
  return all;
}

MaybeFailure YcsbRun::measure(const Workload& workload, std::uint64_t threads, std::uint64_t window_ms) {
  const std::unique_ptr<Chooser> chooser = workload.latest ? make_latest_chooser(arguments_.records)
                                                           : make_chooser(arguments_.distribution, arguments_.records);
  Result<std::vector<Measured>> taken = take_part(threads, window_ms);
  if (!taken.ok()) return std::move(taken.failure());
  std::vector<Measured>& all = *taken;
  std::vector<Side> sides(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sides[i].round = [&, i](std::size_t thread, std::uint64_t& elapsed_ns) {
      return once(*all[i].contender, all[i].workers[thread], workload, *chooser, elapsed_ns);
    };
  }
  const auto phase_ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9 / static_cast<double>(arguments_.rounds));
  if (auto failure = measure_in_phases(sides, {threads, arguments_.rounds, phase_ns})) return failure;
  if (arguments_.format == Format::text) {
    const std::string window = arguments_.windows_ms.size() == 1 ? "" : fmt::format(", window of {} ms", window_ms);
    write_line(fmt::format("\n{}: {}, {}, {} thread{}{}", workload.name, workload.what, arguments_.distribution,
                           threads, threads == 1 ? "" : "s", window));
    write_line(fmt::format("{:<24}{:<8}{:>12}{:>11}{:>11}{:>11}{:>11}", "side", "durable", "ops/s", "p50 us", "p99 us",
                           "p99.9 us", "max us"));
  }
  for (std::size_t i = 0; i < all.size(); ++i) print(all[i], workload, window_ms, sides[i]);
  return {};
}

void YcsbRun::print(const Measured& measured, const Workload& workload, std::uint64_t window_ms,
                    const Side& side) const {
  const Contender& contender = *measured.contender;
  const KvCounts& before = measured.before;
  const Percentiles percentiles = percentiles_of(side.samples_ns);
  const std::uint64_t max_ns = side.samples_ns.empty() ? 0 : *std::ranges::max_element(side.samples_ns);
  const double max_us = static_cast<double>(max_ns) / 1000;
  const double ops = side.rounds_per_second();
  Json object{{"suite", "ycsb"},
              {"side", contender.peer.name},
              {"workload", workload.name},
              {"durability", contender.told_durability},
              {"threads", measured.workers.size()},
              {"ops_per_s", rounded(ops)},
              {"p50_us", percentiles.p50_us},
              {"p99_us", percentiles.p99_us},
              {"p999_us", percentiles.p999_us},
              {"max_us", max_us},
              {"samples", side.samples_ns.size()},
              {"distribution", arguments_.distribution},
              {"records", arguments_.records},
              {"value_bytes", arguments_.value_bytes},
              {"flush_delay_us", arguments_.flush_delay_us},
              {"memory_mib", arguments_.memory_mib}};
  if (contender.told_durability == "weak") object["window_ms"] = window_ms;
  std::string more;
  if (auto* const counted = dynamic_cast<CountedKvStore*>(contender.store.get())) {
    const KvCounts now = counted->counts();
    const double logged = ratio_of(static_cast<double>(now.logged_bytes - before.logged_bytes),
                                   static_cast<double>(side.samples_ns.size()));
    const double data = ratio_of(static_cast<double>(now.data_bytes), static_cast<double>(now.records));
    object["logged_bytes_per_op"] = rounded(logged);
    object["data_bytes_per_record"] = rounded(data);
    object["checkpoints"] = now.checkpoints - before.checkpoints;
    more = fmt::format("  log {:.0f} B/op, {:.0f} B/record, {} checkpoints", logged, data,
                       now.checkpoints - before.checkpoints);
  }
  if (arguments_.format == Format::text) {
    write_line(fmt::format("{:<24}{:<8}{:>12.0f}{:>11.3f}{:>11.3f}{:>11.3f}{:>11.0f}{}", contender.peer.name,
                           contender.told_durability, ops, percentiles.p50_us, percentiles.p99_us, percentiles.p999_us,
                           max_us, more));
    return;
  }
  object["side_version"] = contender.peer.version;
  object["does"] = contender.peer.text_of(contender.durability);
  object["kernel"] = kernel_release();
  object["version"] = memlith_version();
  write_json(object);
}

[[nodiscard]] MaybeFailure check_names(const YcsbArguments& arguments) {
  std::vector<std::string> sides{"memlith", "memlith-wait", "memlith-no-durability"};
  for (const KvPeer& peer : kv_peers()) sides.push_back(peer.name);
  for (const std::string& side : arguments.sides) {
    if (std::ranges::find(sides, side) != sides.end()) continue;
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("there is no side {}; there are: {}", side, fmt::join(sides, ", ")),
                        "A side whose library was missing when this program was built is left out: "
                        "`./dev bench ycsb` installs all of them.");
  }
  for (const std::string& name : arguments.workloads) {
    const auto& all = ycsb_workloads();
    if (std::ranges::any_of(all, [&](const Workload& each) { return each.name == name; })) continue;
    std::string there;
    for (const Workload& each : all) there += (there.empty() ? "" : ", ") + std::string(each.name);
    return tool_failure(MEMLITH_INVALID, fmt::format("there is no workload {}; there are: {}", name, there));
  }
  return {};
}

}  // namespace

MaybeFailure run_ycsb(const YcsbArguments& arguments) {
  if (MaybeFailure failure = check_names(arguments)) return failure;
  if (!arguments.recovery_log_mib.empty()) return run_recovery(arguments);
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t bytes = arguments.records * (arguments.value_bytes + 16) * kSpaceFactor;
  if (auto failure = require_space(scratch->path(), bytes + kStoreSlackBytes)) return failure;
  if (arguments.format == Format::text) {
    write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                           printable(arguments.folder), utc_now()));
    write_line(fmt::format("{} records, keys of 16 bytes, values of {} bytes{}{}", arguments.records,
                           arguments.value_bytes,
                           arguments.flush_delay_us == 0
                               ? ""
                               : fmt::format("; {} us more for each flush", arguments.flush_delay_us),
                           arguments.memory_mib == 0 ? "" : fmt::format("; caches of {} MiB", arguments.memory_mib)));
  }
  YcsbRun run(arguments);
  if (arguments.durability != "sync") {
    run.add(memlith_side(), KvDurability::none, "weak");
    run.add(volatile_side(), KvDurability::none, "none");
    for (KvPeer& peer : kv_peers()) run.add(std::move(peer), KvDurability::none, "none");
  }
  if (arguments.durability != "relaxed") {
    run.add(memlith_side(), KvDurability::sync, "sync");
    run.add(waiting_side(), KvDurability::sync, "sync");
    for (KvPeer& peer : kv_peers()) run.add(std::move(peer), KvDurability::sync, "sync");
  }
  if (MaybeFailure failure = run.load(*scratch)) return failure;
  slow_flushes_down(arguments.flush_delay_us);  // from here on; loading flushes nothing that is measured
  for (const std::uint64_t threads : arguments.threads) {
    for (const std::string& name : arguments.workloads) {
      const auto workload = std::ranges::find_if(ycsb_workloads(), [&](const Workload& w) { return w.name == name; });
      for (const std::uint64_t window_ms : arguments.windows_ms) {
        if (MaybeFailure failure = run.measure(*workload, threads, window_ms)) return failure;
      }
    }
  }
  return {};
}

}  // namespace memlith::tool
