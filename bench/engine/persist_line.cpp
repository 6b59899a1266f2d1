// Making a store in its steady state, and measuring rounds of it.
#include "persist_line.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/store_path.hpp"
#include "kit/bare_capture.hpp"
#include "kit/measure.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kAloneNsMin = kNsPerSecond / 4;
constexpr std::uint64_t kPhaseNs = kNsPerSecond / 10;
constexpr std::uint64_t kAlternationsMin = 20;
constexpr std::uint64_t kAlonePhases = 5;

// Which of the two ways of measuring.
struct Limits {
  std::size_t threads = 1;
  TurnLimits turns;
  std::uint64_t alternations = 0;
};

MaybeFailure measure(std::span<Side> sides, const Limits& limits) {
  if (limits.threads == 1) return measure_in_turns(sides, limits.turns);
  return measure_in_phases(sides, {limits.threads, limits.alternations, kPhaseNs});
}

Limits limits_of(const BenchPersistArguments& arguments) {
  Limits limits;
  limits.threads = arguments.threads;
  if (arguments.rounds > 0) {
    limits.turns = {arguments.rounds, 0};
    limits.alternations = arguments.rounds;
    return limits;
  }
  const auto duration_ns = static_cast<std::uint64_t>(arguments.seconds * static_cast<double>(kNsPerSecond));
  limits.turns = {kTurnsMin, duration_ns};
  limits.alternations = std::max(kAlternationsMin, duration_ns / (2 * kPhaseNs));
  return limits;
}

Limits alone_limits(const BenchPersistArguments& arguments) {
  if (arguments.rounds == 0) return {arguments.threads, {kTurnsMin, kAloneNsMin}, kAlonePhases};
  // If few rounds are requested, few of these are made, too.
  return {arguments.threads, {std::min(arguments.rounds, kTurnsMin), 0}, std::min(arguments.rounds, kAlonePhases)};
}
Limits warm_up_limits(std::size_t threads) { return {threads, {kWarmUpTurns, 0}, 1}; }

SideResult result_of(const Side& side) { return {percentiles_of(side.samples_ns), side.rounds_per_second()}; }

// The sides beside memlith: the raw writers, or bare captures that write by them.
struct Raws {
  std::vector<RawWriter>& writers;
  std::vector<BareCapture> captures;
};

Side raw_side(Raws& raws) {
  Side side;
  side.round = [&raws](std::size_t thread, std::uint64_t& elapsed_ns) {
    return raws.captures.empty() ? raws.writers[thread].round(elapsed_ns) : raws.captures[thread].round(elapsed_ns);
  };
  return side;
}

MaybeFailure make_captures(const BenchPersistArguments& arguments, const RoundShape& shape, Raws& raws) {
  if (arguments.raw != RawSide::captured) return {};
  for (RawWriter& writer : raws.writers) {
    Result<BareCapture> capture =
        BareCapture::create(writer, arguments.region_mib, shape, kSeed + raws.captures.size());
    if (!capture.ok()) return std::move(capture.failure());
    raws.captures.push_back(std::move(*capture));
  }
  return {};
}

Side memlith_side(std::vector<Workload>& workloads) {
  Side side;
  side.round = [&workloads](std::size_t thread, std::uint64_t& ns) { return workloads[thread].round(ns); };
  return side;
}

// One region a thread, each of them written all over, persisted and checkpointed.
MaybeFailure make_workloads(memlith_store* store, const BenchPersistArguments& arguments, const RoundShape& shape,
                            std::vector<Workload>& workloads, std::string& tracker_detail) {
  for (std::uint64_t thread = 0; thread < arguments.threads; ++thread) {
    Result<Workload> workload = make_workload(store, thread, arguments.region_mib, shape, tracker_detail);
    if (!workload.ok()) return std::move(workload.failure());
    workloads.push_back(std::move(*workload));
  }
  const std::int32_t code = memlith_store_checkpoint(store);
  if (code != MEMLITH_OK) return library_failure(code, "checkpointing the new store");
  return {};
}

// The checkpoints that follow then write home only what was persisted after this point.
Result<memlith_store_info> checkpoint_and_look(memlith_store* store) {
  const std::int32_t code = memlith_store_checkpoint(store);
  if (code != MEMLITH_OK) return library_failure(code, "checkpointing");
  return info_of(store);
}

Result<std::uint64_t> checkpoints_begun(memlith_store* store) {
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  const std::int32_t code = memlith_store_get_stats(store, &stats);
  if (code != MEMLITH_OK) return library_failure(code, "looking at the store's counters");
  return stats.checkpoints + (stats.checkpoint_total_bytes != 0 ? 1 : 0);
}

// The comparison: memlith and raw interleaved, after a warm-up that does not count.
MaybeFailure measure_interleaved(memlith_store* store, const Limits& limits, std::vector<Workload>& workloads,
                                 Raws& raws, PersistLine& line) {
  std::array<Side, 2> sides{memlith_side(workloads), raw_side(raws)};
  if (MaybeFailure failure = measure(sides, warm_up_limits(limits.threads))) return failure;
  for (Side& side : sides) side.clear();

  Result<memlith_store_info> before = checkpoint_and_look(store);
  if (!before.ok()) return std::move(before.failure());
  if (MaybeFailure failure = measure(sides, limits)) return failure;
  Result<std::uint64_t> begun = checkpoints_begun(store);
  if (!begun.ok()) return std::move(begun.failure());
  Result<memlith_store_info> after = checkpoint_and_look(store);
  if (!after.ok()) return std::move(after.failure());

  line.memlith = result_of(sides[0]);
  line.raw = result_of(sides[1]);
  line.rounds = sides[0].samples_ns.size();
  line.alternations = limits.threads == 1 ? 0 : limits.alternations;
  line.bytes_logged =
      ratio_of(static_cast<double>(after->logged_bytes - before->logged_bytes), static_cast<double>(line.rounds));
  line.checkpoints = after->checkpoints - before->checkpoints;
  line.checkpoints_beside = *begun - before->checkpoints;
  line.home_bytes = after->home_bytes - before->home_bytes;
  line.direct_io = after->direct_io != 0;
  return {};
}

}  // namespace

double PersistLine::write_amplification() const { return ratio_of(bytes_logged, static_cast<double>(shape.bytes())); }

double PersistLine::home_share() const {
  return ratio_of(static_cast<double>(home_bytes), static_cast<double>(rounds * shape.bytes()));
}

Result<PersistLine> measure_persist_line(const BenchPersistArguments& arguments, const RoundShape& shape,
                                         const ScratchFolder& scratch, std::vector<RawWriter>& writers) {
  PersistLine line;
  line.shape = shape;
  const std::uint64_t raw_bytes = arguments.raw == RawSide::pages ? shape.pages * kPageBytes : shape.bytes();
  for (RawWriter& writer : writers) writer.set_round_bytes(raw_bytes);
  line.raw_bytes = writers.front().round_bytes();
  line.raw_direct_io = writers.front().file().direct();
  Raws raws{writers, {}};
  if (MaybeFailure failure = make_captures(arguments, shape, raws)) return *failure;

  // Before the store exists, so that nothing of memlith's can slow it.
  std::array<Side, 1> alone{raw_side(raws)};
  if (MaybeFailure failure = measure(alone, warm_up_limits(arguments.threads))) return *failure;
  alone[0].clear();
  if (MaybeFailure failure = measure(alone, alone_limits(arguments))) return *failure;
  line.raw_alone = result_of(alone[0]);

  constexpr std::string_view kStoreName = "store";
  Result<StoreHandle> store = make_bench_store(scratch.path_of(kStoreName), arguments.log_mib, arguments.io);
  if (!store.ok()) return std::move(store.failure());
  std::vector<Workload> workloads;
  workloads.reserve(arguments.threads);
  if (MaybeFailure failure = make_workloads(store->get(), arguments, shape, workloads, line.tracker_detail)) {
    return *failure;
  }
  if (MaybeFailure failure = measure_interleaved(store->get(), limits_of(arguments), workloads, raws, line)) {
    return *failure;
  }
  if (MaybeFailure failure = close_store(std::move(*store))) return *failure;
  scratch.remove(kStoreName);
  return line;
}

}  // namespace memlith::tool
