// memlith bench persist --breakdown: what the steps of a persist take, as far as they show from outside.
//
// stores: with `fault` and `scan`, what the first store to a page costs is in here. touch: memlith_touch. call:
// memlith_persist, until durable, or memlith_persist_async, until the bytes are captured. wait: memlith_wait behind the
// latter. Three kinds of persist take turns: the difference between an asynchronous call that finds nothing on its way,
// and so wakes the store's flusher, and one within a flush window that another has opened, which does not, is what the
// waking takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "kit/measure.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kWindowMs = 60'000;  // longer than any round: the wait behind it flushes

struct Kind {
  std::string_view name;
  bool asynchronous;
  std::uint64_t window_ms;
};
constexpr std::array kKinds{Kind{"synchronous", false, 0}, Kind{"asynchronous", true, 0},
                            Kind{"within_window", true, kWindowMs}};

struct Step {
  std::string_view name;
  std::uint64_t RoundParts::* time_ns;
};
constexpr std::array kSteps{Step{"stores", &RoundParts::stores_ns}, Step{"touch", &RoundParts::touch_ns},
                            Step{"call", &RoundParts::call_ns}, Step{"wait", &RoundParts::wait_ns}};

using Measured = std::array<std::vector<RoundParts>, kKinds.size()>;

MaybeFailure one_round(memlith_store* store, Workload& workload, const Kind& kind, std::vector<RoundParts>& rounds) {
  const std::int32_t code = memlith_store_set_window(store, kind.window_ms, 0);
  if (code != MEMLITH_OK) return library_failure(code, "setting the flush window");
  if (kind.window_ms > 0) {
    if (MaybeFailure failure = workload.capture()) return failure;  // opens the window
  }
  RoundParts parts;
  if (MaybeFailure failure = workload.round_in_parts(kind.asynchronous, parts)) return failure;
  rounds.push_back(parts);
  return {};
}

MaybeFailure measure(memlith_store* store, Workload& workload, const BenchPersistArguments& arguments,
                     Measured& measured) {
  std::vector<Side> sides;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    Side side;
    side.round = [&, i](std::size_t, std::uint64_t&) { return one_round(store, workload, kKinds[i], measured[i]); };
    sides.push_back(std::move(side));
  }
  if (MaybeFailure failure = measure_in_turns(sides, {kWarmUpTurns, 0})) return failure;
  for (std::vector<RoundParts>& rounds : measured) rounds.clear();
  const auto duration_ns = static_cast<std::uint64_t>(arguments.seconds * static_cast<double>(kNsPerSecond));
  return measure_in_turns(sides,
                          arguments.rounds > 0 ? TurnLimits{arguments.rounds, 0} : TurnLimits{kTurnsMin, duration_ns});
}

Percentiles percentiles_of_step(const std::vector<RoundParts>& rounds, const Step& step) {
  std::vector<std::uint64_t> times_ns;
  for (const RoundParts& parts : rounds) times_ns.push_back(parts.*step.time_ns);
  return percentiles_of(std::move(times_ns));
}

void write_kind(const std::string& tracker, std::uint64_t pages, const BenchPersistArguments& arguments,
                const std::string& detail, const Kind& kind, const std::vector<RoundParts>& rounds) {
  Json steps;
  std::string text;
  for (const Step& step : kSteps) {
    const bool there = step.name != "wait" || kind.asynchronous;
    const Percentiles times = percentiles_of_step(rounds, step);
    const Json value = {{"p50_us", rounded(times.p50_us)}, {"p99_us", rounded(times.p99_us)}};
    steps[std::string(step.name)] = there ? value : Json(nullptr);
    text +=
        there ? fmt::format(" {:>9.1f} {:>9.1f}", times.p50_us, times.p99_us) : fmt::format(" {:>9} {:>9}", "-", "-");
  }
  if (arguments.format == Format::json) {
    write_json({{"bench", "breakdown"},
                {"tracker", tracker},
                {"pages", pages},
                {"bytes_per_page", arguments.bytes_per_page},
                {"region_mib", arguments.region_mib},
                {"persist", kind.name},
                {"rounds", rounds.size()},
                {"steps", steps},
                {"tracker_detail", detail},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::format("{:<9} {:>6} {:<14}{} {:>7}", tracker, pages, kind.name, text, rounds.size()));
}

void write_breakdown_heading(const BenchPersistArguments& arguments) {
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(fmt::format("{} bytes in each page, random ones of {} MiB; a round of each kind of persist in turn",
                         arguments.bytes_per_page, arguments.region_mib));
  write_line(
      "stores, touch: memlith_touch, call: memlith_persist[_async], wait: memlith_wait; p50 and p99 in us of each");
  std::string titles;
  for (const Step& step : kSteps) titles += fmt::format(" {:>9} {:>9}", step.name, "p99");
  write_line(fmt::format("{:<9} {:>6} {:<14}{} {:>7}", "tracker", "pages", "persist", titles, "rounds"));
}

MaybeFailure run_tracker(const std::string& tracker, const BenchPersistArguments& arguments,
                         const ScratchFolder& scratch) {
  const std::string name = "store-" + tracker;
  Result<StoreHandle> store = make_bench_store(scratch.path_of(name), arguments.log_mib);
  if (!store.ok()) return std::move(store.failure());
  RoundShape shape;
  shape.pages = *std::max_element(arguments.pages.begin(), arguments.pages.end());
  shape.bytes_per_page = arguments.bytes_per_page;
  shape.tracker = tracker_of(tracker);
  std::string detail;
  Result<Workload> workload = make_workload(store->get(), 0, arguments.region_mib, shape, detail);
  if (!workload.ok()) return std::move(workload.failure());
  for (const std::uint64_t pages : arguments.pages) {
    workload->set_pages(pages);
    Measured measured;
    if (MaybeFailure failure = measure(store->get(), *workload, arguments, measured)) return failure;
    for (std::size_t i = 0; i < kKinds.size(); ++i)
      write_kind(tracker, pages, arguments, detail, kKinds[i], measured[i]);
  }
  if (MaybeFailure failure = close_store(std::move(*store))) return failure;
  scratch.remove(name);
  return {};
}

}  // namespace

MaybeFailure run_bench_breakdown(const BenchPersistArguments& arguments) {
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t needed = (arguments.region_mib + arguments.log_mib) * kMiB + kStoreSlackBytes;
  if (MaybeFailure failure = require_space(scratch->path(), needed)) return failure;
  if (arguments.format == Format::text) write_breakdown_heading(arguments);
  for (const std::string& tracker : arguments.trackers) {
    if (MaybeFailure failure = run_tracker(tracker, arguments, *scratch)) return failure;
  }
  return {};
}

}  // namespace memlith::tool
