// memlith bench tail: the slowest persists while checkpoints run, against the slowest raw write + flush beside the same
// load.
//
// One thread persists without a pause (or at a --rate), so that the log fills and a checkpoint runs nearly all the
// time. The raw side writes and flushes as many bytes in the same way, while a second thread puts the load of that
// checkpoint on the disk, made by hand (background.hpp). The third side is raw with nothing beside it. Sides take turns
// in phases, each of which begins with nothing owed to home; the rounds before the first checkpoint of a phase begins
// do not count. With --pause-ms the phases are bursts: each begins after a pause, in which a store does what it does
// when it is idle, and all rounds count.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "background.hpp"
#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

namespace {

struct TailSide {
  std::vector<std::uint64_t> samples_ns;
  std::uint64_t checkpoints = 0;
  std::uint64_t home_bytes = 0;
  std::uint64_t rounds = 0;  // those that do not count too
};

struct TailResult {
  std::array<TailSide, 3> sides;  // by Which
  std::vector<std::uint64_t> raw_with_waits_ns;
  std::uint64_t raw_waits = 0;
  std::uint64_t raw_waited_ns = 0;
};

void sleep_until(std::uint64_t ns) {
  const timespec time{static_cast<time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
  (void)::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);  // a signal shows at the next look
}

enum Which : std::size_t { kMemlith, kRawLoaded, kRawQuiet };

class TailBench {
 public:
  explicit TailBench(const BenchTailArguments& arguments)
      : arguments_(arguments), random_(kSeed), pages_(region_pages()) {}

  MaybeFailure run(const ScratchFolder& scratch, TailResult& result) {
    if (MaybeFailure failure = make_raw(scratch)) return failure;
    if (MaybeFailure failure = make_store(scratch)) return failure;
    for (std::uint64_t phase = 0; phase < arguments_.phases; ++phase) {
      if (MaybeFailure failure = memlith_phase(result)) return failure;
      if (MaybeFailure failure = loaded_phase(result)) return failure;
      if (MaybeFailure failure = quiet_phase(result)) return failure;
    }
    return close_store(std::move(store_));
  }

  [[nodiscard]] const std::string& tracker_detail() const { return tracker_detail_; }
  [[nodiscard]] std::uint64_t raw_bytes() const { return raw_->round_bytes(); }
  [[nodiscard]] bool raw_direct() const { return raw_->file().direct(); }

 private:
  [[nodiscard]] std::uint64_t log_bytes() const { return arguments_.log_mib * kMiB; }
  [[nodiscard]] bool bursts() const { return arguments_.pause_ms > 0; }
  [[nodiscard]] std::uint64_t region_pages() const { return arguments_.region_mib * kMiB / kPageBytes; }

  MaybeFailure make_raw(const ScratchFolder& scratch) {
    const std::uint64_t round_bytes = arguments_.pages * arguments_.bytes_per_page;
    Result<RawWriter> raw = RawWriter::create(scratch.path_of("raw"), log_bytes(), round_bytes);
    if (!raw.ok()) return std::move(raw.failure());
    raw_ = std::make_unique<RawWriter>(std::move(*raw));
    raw_->set_round_bytes(round_bytes);
    Result<PeerFile> home = PeerFile::create(scratch.path_of("home"), arguments_.region_mib * kMiB);
    if (!home.ok()) return std::move(home.failure());
    home_ = std::make_unique<PeerFile>(std::move(*home));
    Result<HugeBuffer> buffer = HugeBuffer::random(kSequentialBytes);
    if (!buffer.ok()) return std::move(buffer.failure());
    load_ = std::make_unique<CheckpointLoad>(raw_->file(), *home_, arguments_.bytes_per_page, std::move(*buffer));
    return {};
  }

  MaybeFailure make_store(const ScratchFolder& scratch) {
    Result<StoreHandle> store = make_bench_store(scratch.path_of("store"), arguments_.log_mib);
    if (!store.ok()) return std::move(store.failure());
    store_ = std::move(*store);
    RoundShape shape;
    shape.pages = arguments_.pages;
    shape.bytes_per_page = arguments_.bytes_per_page;
    shape.tracker = tracker_of(arguments_.tracker);
    shape.scope = resolve_scope(Scope::automatic, shape.tracker);
    Result<Workload> workload = make_workload(store_.get(), 0, arguments_.region_mib, shape, tracker_detail_);
    if (!workload.ok()) return std::move(workload.failure());
    workload_ = std::make_unique<Workload>(std::move(*workload));
    return {};
  }

  // Rounds until the phase is over. `owed` says, after each, how many bytes of log the side has written since the phase
  // began; `count` takes note of one that counts.
  template <class Round, class Owed, class Counted>
  MaybeFailure phase(TailSide& side, const Round& round, const Owed& owed, const Counted& count) {
    const auto length_ns =
        static_cast<std::uint64_t>(arguments_.seconds * static_cast<double>(kNsPerSecond)) / arguments_.phases;
    std::uint64_t counted = 0;
    if (bursts()) sleep_until(now_ns() + arguments_.pause_ms * (kNsPerSecond / 1000));
    std::uint64_t counting_since_ns = bursts() ? now_ns() : 0;
    std::uint64_t due_ns = now_ns();
    for (;;) {
      if (interrupted()) return interrupted_failure();
      if (arguments_.rate > 0) {
        sleep_until(due_ns);
        // Late calls are not made up for: the rate is a ceiling, and latencies are those of the calls.
        due_ns = std::max(due_ns, now_ns()) + kNsPerSecond / arguments_.rate;
      }
      std::uint64_t elapsed_ns = 0;
      if (MaybeFailure failure = round(elapsed_ns)) return failure;
      ++side.rounds;
      if (counting_since_ns == 0) {
        if (owed() >= log_bytes() / 2) counting_since_ns = now_ns();
        continue;
      }
      side.samples_ns.push_back(elapsed_ns);
      count(elapsed_ns);
      ++counted;
      if (arguments_.rounds > 0 ? counted >= arguments_.rounds : now_ns() - counting_since_ns >= length_ns) return {};
    }
  }

  MaybeFailure memlith_phase(TailResult& result) {
    TailSide& side = result.sides[kMemlith];
    Result<memlith_store_info> before = look();
    if (!before.ok()) return std::move(before.failure());
    std::uint64_t written = 0;
    const auto round = [&](std::uint64_t& ns) { return workload_->round(ns); };
    const auto owed = [&] { return written += raw_bytes(); };
    if (MaybeFailure failure = phase(side, round, owed, [](std::uint64_t) {})) return failure;
    Result<memlith_store_info> after = look();
    if (!after.ok()) return std::move(after.failure());
    side.checkpoints += after->checkpoints - before->checkpoints;
    side.home_bytes += after->home_bytes - before->home_bytes;
    return {};
  }

  MaybeFailure loaded_phase(TailResult& result) {
    TailSide& side = result.sides[kRawLoaded];
    const CheckpointLoad::Counters before = load_->counters();
    std::uint64_t written = 0;
    std::uint64_t waited_ns = 0;
    const auto round = [&](std::uint64_t& ns) -> MaybeFailure {
      waited_ns = 0;
      if (load_->full(raw_bytes())) {
        const std::uint64_t start = now_ns();
        load_->wait_for_room(raw_bytes());
        waited_ns = now_ns() - start;
      }
      const std::span<const std::uint32_t> chosen = pages_.choose(random_, arguments_.pages);
      if (MaybeFailure failure = raw_->round(ns)) return failure;
      load_->note(chosen, raw_bytes());
      return {};
    };
    const auto owed = [&] { return written += raw_bytes(); };
    const auto count = [&](std::uint64_t ns) {
      result.raw_with_waits_ns.push_back(ns + waited_ns);
      result.raw_waits += waited_ns > 0 ? 1 : 0;
      result.raw_waited_ns += waited_ns;
    };
    if (MaybeFailure failure = phase(side, round, owed, count)) return failure;
    if (MaybeFailure failure = load_->drain()) return failure;
    const CheckpointLoad::Counters after = load_->counters();
    side.checkpoints += after.checkpoints - before.checkpoints;
    side.home_bytes += after.home_bytes - before.home_bytes;
    return {};
  }

  MaybeFailure quiet_phase(TailResult& result) {
    const auto round = [&](std::uint64_t& ns) { return raw_->round(ns); };
    return phase(result.sides[kRawQuiet], round, [this] { return log_bytes(); }, [](std::uint64_t) {});
  }

  Result<memlith_store_info> look() {
    const std::int32_t code = bursts() ? MEMLITH_OK : memlith_store_checkpoint(store_.get());
    if (code != MEMLITH_OK) return library_failure(code, "checkpointing between two phases");
    return info_of(store_.get());
  }

  const BenchTailArguments& arguments_;
  Random random_;
  RandomPages pages_;
  std::unique_ptr<RawWriter> raw_;
  std::unique_ptr<PeerFile> home_;
  std::unique_ptr<CheckpointLoad> load_;  // destroyed before the files it uses
  StoreHandle store_;
  std::unique_ptr<Workload> workload_;
  std::string tracker_detail_;
};

double max_us(const std::vector<std::uint64_t>& samples_ns) {
  return samples_ns.empty() ? 0 : static_cast<double>(*std::max_element(samples_ns.begin(), samples_ns.end())) / 1000;
}

Json json_of(const TailSide& side) {
  const Percentiles latency = percentiles_of(side.samples_ns);
  return {{"p50_us", rounded(latency.p50_us)},   {"p99_us", rounded(latency.p99_us)},
          {"p999_us", rounded(latency.p999_us)}, {"max_us", rounded(max_us(side.samples_ns))},
          {"counted", side.samples_ns.size()},   {"rounds", side.rounds},
          {"checkpoints", side.checkpoints},     {"home_bytes", side.home_bytes}};
}

void print_json(const BenchTailArguments& arguments, const TailBench& bench, const TailResult& result) {
  const Percentiles ours = percentiles_of(result.sides[kMemlith].samples_ns);
  const Percentiles raw = percentiles_of(result.sides[kRawLoaded].samples_ns);
  const Percentiles with_waits = percentiles_of(result.raw_with_waits_ns);
  write_json({{"bench", "tail"},
              {"tracker", arguments.tracker},
              {"pages", arguments.pages},
              {"bytes_per_page", arguments.bytes_per_page},
              {"region_mib", arguments.region_mib},
              {"log_mib", arguments.log_mib},
              {"phases", arguments.phases},
              {"rate", arguments.rate},
              {"pause_ms", arguments.pause_ms},
              {"memlith", json_of(result.sides[kMemlith])},
              {"raw_loaded", json_of(result.sides[kRawLoaded])},
              {"raw_quiet", json_of(result.sides[kRawQuiet])},
              {"raw_with_waits_p999_us", rounded(with_waits.p999_us)},
              {"raw_waits", result.raw_waits},
              {"raw_waited_ms", rounded(static_cast<double>(result.raw_waited_ns) / 1e6)},
              {"ratio_p50", rounded(ratio_of(ours.p50_us, raw.p50_us))},
              {"ratio_p99", rounded(ratio_of(ours.p99_us, raw.p99_us))},
              {"ratio_p999", rounded(ratio_of(ours.p999_us, raw.p999_us))},
              {"ratio_p999_with_waits", rounded(ratio_of(ours.p999_us, with_waits.p999_us))},
              {"raw_bytes", bench.raw_bytes()},
              {"raw_direct_io", bench.raw_direct()},
              {"tracker_detail", bench.tracker_detail()},
              {"kernel", kernel_release()},
              {"version", memlith_version()}});
}

void print_text(const BenchTailArguments& arguments, const TailBench& bench, const TailResult& result) {
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  const std::string pace =
      arguments.rate == 0 ? "as fast as it can" : fmt::format("at {} rounds a second", arguments.rate);
  const std::string pause =
      arguments.pause_ms == 0 ? "" : fmt::format(" after a pause of {} ms each", arguments.pause_ms);
  write_line(
      fmt::format("{} bytes in each of {} random pages of {} MiB, log of {} MiB, one thread {}, {} phases of each "
                  "side in turn{}",
                  arguments.bytes_per_page, arguments.pages, arguments.region_mib, arguments.log_mib, pace,
                  arguments.phases, pause));
  write_line(fmt::format("memlith: {} ({}), checkpoints running; durable, atomic", arguments.tracker,
                         bench.tracker_detail()));
  write_line(
      "raw loaded: pwrite + fdatasync of as many bytes, while a second thread loads the disk as a checkpoint does");
  write_line("raw quiet: the same with nothing beside it");
  write_line(fmt::format("{:<11} {:>10} {:>10} {:>10} {:>10} {:>9} {:>11} {:>12}", "side", "p50 us", "p99 us",
                         "p999 us", "max us", "counted", "checkpoints", "home B/round"));
  constexpr std::array<std::string_view, 3> kNames{"memlith", "raw loaded", "raw quiet"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const TailSide& side = result.sides[i];
    const Percentiles latency = percentiles_of(side.samples_ns);
    write_line(fmt::format("{:<11} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>9} {:>11} {:>12.0f}", kNames[i],
                           latency.p50_us, latency.p99_us, latency.p999_us, max_us(side.samples_ns),
                           side.samples_ns.size(), side.checkpoints,
                           ratio_of(static_cast<double>(side.home_bytes), static_cast<double>(side.rounds))));
  }
  const Percentiles ours = percentiles_of(result.sides[kMemlith].samples_ns);
  const Percentiles raw = percentiles_of(result.sides[kRawLoaded].samples_ns);
  const Percentiles with_waits = percentiles_of(result.raw_with_waits_ns);
  write_line(fmt::format("memlith / raw loaded: p50 {:.2f}, p99 {:.2f}, p99.9 {:.2f}",
                         ratio_of(ours.p50_us, raw.p50_us), ratio_of(ours.p99_us, raw.p99_us),
                         ratio_of(ours.p999_us, raw.p999_us)));
  write_line(fmt::format(
      "# raw loaded waited {} times, {:.1f} ms in all, until its log had room; not in its figures. memlith's waits are "
      "in its own; with raw's counted too, p99.9 is {:.1f} us, the ratio {:.2f}",
      result.raw_waits, static_cast<double>(result.raw_waited_ns) / 1e6, with_waits.p999_us,
      ratio_of(ours.p999_us, with_waits.p999_us)));
}

MaybeFailure check(const BenchTailArguments& arguments) {
  const std::uint64_t round_bytes = arguments.pages * arguments.bytes_per_page;
  if (arguments.pages > arguments.region_mib * kMiB / kPageBytes || 8 * round_bytes > arguments.log_mib * kMiB) {
    Failure failure =
        tool_failure(MEMLITH_INVALID,
                     fmt::format("{} pages of {} bytes do not fit a region of {} MiB and, eight times, a log of {} MiB",
                                 arguments.pages, arguments.bytes_per_page, arguments.region_mib, arguments.log_mib));
    failure.advice = "Lower --pages, or raise --region-mib or --log-mib.";
    return failure;
  }
  return {};
}

}  // namespace

MaybeFailure run_bench_tail(const BenchTailArguments& arguments) {
  if (MaybeFailure failure = check(arguments)) return failure;
  catch_interrupts();
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t needed = 2 * (arguments.region_mib + arguments.log_mib) * kMiB + kStoreSlackBytes;
  if (MaybeFailure failure = require_space(scratch->path(), needed)) return failure;
  TailBench bench(arguments);
  TailResult result;
  if (MaybeFailure failure = bench.run(*scratch, result)) return failure;
  if (arguments.format == Format::json) {
    print_json(arguments, bench, result);
  } else {
    print_text(arguments, bench, result);
  }
  return {};
}

}  // namespace memlith::tool
