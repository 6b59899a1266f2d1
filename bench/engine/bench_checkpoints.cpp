// memlith bench persist --checkpoints: persists of a thread beside checkpoints of all threads (peers/checkpoints.hpp),
// while other threads store to memory of the same side. The lines also tell how long none of these could.
//
// Each turn does one round of every side. The pause of a round is measured on every side in the same way, raw's
// included, on which nothing stops a thread: what is told there is what the scheduler and the clock do.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
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
#include "peers/checkpoints.hpp"
#include "region_rounds.hpp"

namespace memlith::tool {

namespace {

struct Paused {
  std::string name;
  std::string detail;
  Storers::Memory memory;
  std::function<MaybeFailure(std::uint64_t pages, std::uint64_t& elapsed_ns)> round;
  std::vector<std::uint64_t> pauses_ns;
};

// The sides of one number of threads.
class PausedSides {
 public:
  PausedSides(const BenchPersistArguments& arguments, std::uint64_t threads)
      : arguments_(arguments), threads_(threads) {}

  MaybeFailure run() {
    Result<ScratchFolder> scratch = ScratchFolder::make(arguments_.folder);
    if (!scratch.ok()) return std::move(scratch.failure());
    scratch_.emplace(std::move(*scratch));
    const std::uint64_t store_bytes = region_bytes() + kStoreSlackBytes + arguments_.log_mib * kMiB;
    const std::uint64_t needed = kRawFileBytes + 13 * bytes_max() + arguments_.trackers.size() * store_bytes;
    if (MaybeFailure failure = require_space(scratch_->path(), needed)) return failure;
    storers_.emplace(threads_);
    if (MaybeFailure failure = make_sides()) return failure;
    for (const std::uint64_t pages : arguments_.pages) {
      if (MaybeFailure failure = measure(pages)) return failure;
    }
    storers_.reset();
    sides_.clear();
    for (StoreHandle& store : stores_) {
      if (MaybeFailure failure = close_store(std::move(store))) return failure;
    }
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t region_bytes() const { return arguments_.region_mib * kMiB; }
  // The last pages of the memory are the storing threads'.
  [[nodiscard]] std::uint64_t free_pages() const { return region_bytes() / kPageBytes - threads_; }
  [[nodiscard]] std::uint64_t bytes_max() const {
    const std::uint64_t pages = *std::max_element(arguments_.pages.begin(), arguments_.pages.end());
    return (pages + threads_) * std::max(kPageBytes, kernel_page_bytes());
  }
  [[nodiscard]] PageStores stores_in(std::byte* base) const {
    return {base, free_pages(), arguments_.bytes_per_page, PageOrder::random};
  }
  [[nodiscard]] Storers::Memory memory_at(std::byte* base, memlith_region* touched) const {
    return {base + free_pages() * kPageBytes, touched};
  }

  MaybeFailure make_sides() {
    for (const std::string& tracker : arguments_.trackers) {
      if (MaybeFailure failure = add_memlith(tracker)) return failure;
    }
    for (const auto& [name, of] :
         {std::pair{"region", Checkpoints::Of::region}, std::pair{"process", Checkpoints::Of::process}}) {
      if (MaybeFailure failure = add_checkpoints(name, of)) return failure;
    }
    return add_raw();
  }

  MaybeFailure add_memlith(const std::string& tracker) {
    Result<StoreHandle> store = make_bench_store(scratch_->path_of("store-" + tracker), arguments_.log_mib);
    if (!store.ok()) return std::move(store.failure());
    stores_.push_back(std::move(*store));
    RoundShape shape;
    shape.tracker = tracker_of(tracker);
    shape.thread_scope = true;
    Paused side;
    Result<memlith_region*> region =
        make_bench_region(stores_.back().get(), 0, arguments_.region_mib, shape, side.detail);
    if (!region.ok()) return std::move(region.failure());
    std::byte* const base = static_cast<std::byte*>(memlith_region_address(*region));
    // The process that a side forks is that of its own memory.
    if (::madvise(base, region_bytes(), MADV_DONTFORK) != 0) return errno_failure(errno, "keeping a region from forks");
    const std::int32_t code = memlith_store_checkpoint(stores_.back().get());
    if (code != MEMLITH_OK) return library_failure(code, "checkpointing the new store");
    side.name = tracker;
    side.memory = memory_at(base, shape.tracker == MEMLITH_TRACKER_EXPLICIT ? *region : nullptr);
    const auto rounds = std::make_shared<RegionRounds>(*region, shape.tracker, MEMLITH_SCOPE_THREAD, stores_in(base));
    side.round = [rounds](std::uint64_t pages, std::uint64_t& ns) { return rounds->round(pages, ns); };
    sides_.push_back(std::move(side));
    return {};
  }

  MaybeFailure add_checkpoints(const std::string& name, Checkpoints::Of of) {
    Result<Checkpoints> made = Checkpoints::create(scratch_->path_of(name), region_bytes(), bytes_max(), of, *storers_);
    if (!made.ok() && made.failure().code == MEMLITH_UNSUPPORTED) {
      fmt::print(stderr, "# {} is left out: {}\n", name, made.failure().message);
      return {};
    }
    if (!made.ok()) return std::move(made.failure());
    const auto checkpoints = std::make_shared<Checkpoints>(std::move(*made));
    Paused side;
    side.name = name;
    side.detail = of == Checkpoints::Of::region
                      ? "threads stopped while the dirty pages are found (PAGEMAP_SCAN) and copied, then one write"
                      : "threads stopped while the dirty pages are found and the process is forked; the child writes";
    side.memory = memory_at(checkpoints->data(), nullptr);
    const auto stores = std::make_shared<PageStores>(stores_in(checkpoints->data()));
    side.round = [checkpoints, stores](std::uint64_t pages, std::uint64_t& ns) {
      stores->choose(pages);
      const std::uint64_t start = now_ns();
      stores->store();
      MaybeFailure failure = checkpoints->take();
      ns = now_ns() - start;
      if (!failure && checkpoints->bytes() < pages * kPageBytes) {
        failure =
            tool_failure(MEMLITH_UNSUPPORTED, fmt::format("the kernel found {} bytes dirty, of {} pages stored to",
                                                          checkpoints->bytes(), pages));
      }
      return failure;
    };
    sides_.push_back(std::move(side));
    return {};
  }

  MaybeFailure add_raw() {
    Result<RawWriter> raw = RawWriter::create(scratch_->path_of("raw"), kRawFileBytes, bytes_max());
    if (!raw.ok()) return std::move(raw.failure());
    Result<SmallPages> pages = SmallPages::make(threads_ * kernel_page_bytes());
    if (!pages.ok()) return std::move(pages.failure());
    const auto writer = std::make_shared<RawWriter>(std::move(*raw));
    const auto memory = std::make_shared<SmallPages>(std::move(*pages));
    Paused side;
    side.name = "raw";
    side.detail = "one write of as many bytes and one flush; no memory is captured";
    side.memory = {memory->data(), nullptr};
    side.round = [writer, memory](std::uint64_t changed, std::uint64_t& ns) {
      if (writer->round_bytes() != changed * kPageBytes) writer->set_round_bytes(changed * kPageBytes);
      return writer->round(ns);
    };
    sides_.push_back(std::move(side));
    return {};
  }

  MaybeFailure round(Paused& side, std::uint64_t pages, std::uint64_t& ns) {
    storers_->begin(side.memory);
    MaybeFailure failure = side.round(pages, ns);
    side.pauses_ns.push_back(storers_->longest_pause_ns());
    storers_->stop();
    return failure ? std::move(failure) : storers_->failure();
  }

  MaybeFailure measure(std::uint64_t pages) {
    std::vector<Side> sides;
    for (Paused& each : sides_) {
      Side side;
      side.round = [this, &each, pages](std::size_t, std::uint64_t& ns) { return round(each, pages, ns); };
      sides.push_back(std::move(side));
    }
    if (MaybeFailure failure = measure_in_turns(sides, {kWarmUpTurns, 0})) return failure;
    for (Side& side : sides) side.clear();
    for (Paused& each : sides_) each.pauses_ns.clear();
    const auto duration_ns = static_cast<std::uint64_t>(arguments_.seconds * static_cast<double>(kNsPerSecond));
    if (MaybeFailure failure = measure_in_turns(sides, arguments_.rounds > 0 ? TurnLimits{arguments_.rounds, 0}
                                                                             : TurnLimits{kTurnsMin, duration_ns})) {
      return failure;
    }
    const double raw_us = percentiles_of(sides.back().samples_ns).p50_us;
    for (std::size_t i = 0; i < sides.size(); ++i) write(sides_[i], sides[i], pages, raw_us);
    return {};
  }

  void write(const Paused& paused, const Side& side, std::uint64_t pages, double raw_us) const {
    const Percentiles latency = percentiles_of(side.samples_ns);
    const Percentiles pause = percentiles_of(paused.pauses_ns);
    const double ratio = ratio_of(latency.p50_us, raw_us);
    if (arguments_.format == Format::json) {
      write_json({{"bench", "checkpoints"},
                  {"side", paused.name},
                  {"kib", pages * kPageBytes / kKiB},
                  {"pages", pages},
                  {"bytes_per_page", arguments_.bytes_per_page},
                  {"region_mib", arguments_.region_mib},
                  {"threads", threads_},
                  {"rounds", side.samples_ns.size()},
                  {"p50_us", rounded(latency.p50_us)},
                  {"p99_us", rounded(latency.p99_us)},
                  {"p999_us", rounded(latency.p999_us)},
                  {"ratio_p50", rounded(ratio)},
                  {"pause_us", rounded(pause.p50_us)},
                  {"pause_p99_us", rounded(pause.p99_us)},
                  {"detail", paused.detail},
                  {"kernel", kernel_release()},
                  {"version", memlith_version()}});
      return;
    }
    write_line(fmt::format("{:<12} {:>7} {:>8} {:>9.1f} {:>9.1f} {:>9.1f} {:>8.2f} {:>9.1f} {:>10.1f} {:>7}",
                           paused.name, threads_, pages * kPageBytes / kKiB, latency.p50_us, latency.p99_us,
                           latency.p999_us, ratio, pause.p50_us, pause.p99_us, side.samples_ns.size()));
  }

  const BenchPersistArguments& arguments_;
  std::uint64_t threads_;
  std::optional<ScratchFolder> scratch_;
  std::vector<StoreHandle> stores_;
  std::optional<Storers> storers_;  // stopped between rounds
  std::vector<Paused> sides_;       // raw is the last
};

void write_checkpoints_heading(const BenchPersistArguments& arguments) {
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(fmt::format(
      "{} bytes in each page, random ones of {} MiB, stores included, until durable; a round of each side in turn",
      arguments.bytes_per_page, arguments.region_mib));
  write_line("# trackers: memlith_persist() of the thread's own stores, atomic; beside it other threads store");
  write_line("# region: a checkpoint with all threads stopped while the dirty pages are found and copied");
  write_line("# process: the same, but the process is forked and the child writes; its other memory is not written");
  write_line("# both: the least of their class, one write and one flush, without checksums; nothing recovers from it");
  write_line("# pause: the longest time of a round in which none of the storing threads could, median and p99");
  write_line(fmt::format("{:<12} {:>7} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9} {:>10} {:>7}", "side", "threads", "KiB",
                         "p50 us", "p99 us", "p999 us", "p50/raw", "pause us", "pause p99", "rounds"));
}

}  // namespace

MaybeFailure run_bench_checkpoints(const BenchPersistArguments& arguments) {
  if (arguments.format == Format::text) write_checkpoints_heading(arguments);
  for (const std::uint64_t threads : arguments.thread_counts) {
    if (MaybeFailure failure = PausedSides(arguments, threads).run()) return failure;
  }
  return {};
}

}  // namespace memlith::tool
