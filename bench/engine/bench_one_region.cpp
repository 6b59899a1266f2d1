// memlith bench persist --one-region: threads with pages of their own in one region. Each persists what it stored
// (thread scope); or all of them change the region under one lock and persist what anyone stored (process scope), by
// the recipe of docs/threads.md: capture with the lock, wait for the disk without it. The two take turns in one store.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
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
#include "memlith/track.h"
#include "persist_line.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kPhaseNs = kNsPerSecond / 10;
constexpr std::uint64_t kAlternationsMin = 20;

// The region that all threads share, and the lock of process scope.
struct Shared {
  memlith_store* store = nullptr;
  memlith_region* region = nullptr;
  RoundShape shape;
  std::mutex lock;
};

// A thread and its part of the region, `pages` pages from `first_page` on.
class Part {
 public:
  Part(Shared& shared, std::uint64_t first_page, std::uint64_t pages, std::uint64_t seed)
      : shared_(shared),
        base_(static_cast<std::byte*>(memlith_region_address(shared.region)) + first_page * kPageBytes),
        random_(seed),
        pages_(pages),
        source_(kPageBytes) {
    random_.fill(source_);
  }

  [[nodiscard]] MaybeFailure round(Whose whose, std::uint64_t& elapsed_ns) {
    const auto chosen = pages_.choose(random_, shared_.shape.pages);
    random_.fill({source_.data(), sizeof(std::uint64_t)});  // other bytes than the round before
    const std::uint64_t start = now_ns();
    const std::int32_t code = whose == Whose::thread ? persist_own(chosen) : persist_all(chosen);
    elapsed_ns = now_ns() - start;
    return code == MEMLITH_OK ? MaybeFailure{} : library_failure(code, "persisting the region");
  }

 private:
  std::int32_t persist_own(std::span<const std::uint32_t> pages) const {
    if (const std::int32_t code = store(pages); code != MEMLITH_OK) return code;
    return memlith_persist(&shared_.region, 1, MEMLITH_SCOPE_THREAD);
  }

  std::int32_t persist_all(std::span<const std::uint32_t> pages) const {
    std::uint64_t ticket = 0;
    std::unique_lock lock(shared_.lock);
    std::int32_t code = store(pages);
    if (code == MEMLITH_OK) code = memlith_persist_async(&shared_.region, 1, MEMLITH_SCOPE_PROCESS, &ticket);
    lock.unlock();
    return code == MEMLITH_OK ? memlith_wait(shared_.store, ticket) : code;
  }

  std::int32_t store(std::span<const std::uint32_t> pages) const {
    std::int32_t code = MEMLITH_OK;
    for (const std::uint32_t page : pages) {
      std::byte* const place = base_ + std::uint64_t{page} * kPageBytes;
      std::memcpy(place, source_.data(), shared_.shape.bytes_per_page);
      if (shared_.shape.tracker == MEMLITH_TRACKER_INSTRUMENTED) {
        memlith_track_store(place, shared_.shape.bytes_per_page);
      }
      if (shared_.shape.tracker != MEMLITH_TRACKER_EXPLICIT) continue;
      const std::int32_t touched = memlith_touch(shared_.region, place, shared_.shape.bytes_per_page);
      if (touched != MEMLITH_OK) code = touched;
    }
    return code;
  }

  Shared& shared_;
  std::byte* base_;
  Random random_;
  RandomPages pages_;
  std::vector<std::byte> source_;
};

const char* name_of(Whose whose) { return whose == Whose::thread ? "thread" : "process"; }

// The sides of one number of threads and pages.
struct Line {
  std::string tracker;
  RoundShape shape;
  std::uint64_t threads = 0;
  std::uint64_t alternations = 0;
  std::string tracker_detail;
  bool direct_io = false;
  std::vector<SideResult> sides;  // as arguments.whose
  std::vector<std::uint64_t> rounds;

  // Thread scope over process scope; 0 if one of them was not measured.
  [[nodiscard]] double ratio(const std::vector<Whose>& whose, double (*value)(const SideResult&)) const {
    double thread = 0;
    double process = 0;
    for (std::size_t i = 0; i < whose.size(); ++i) (whose[i] == Whose::thread ? thread : process) = value(sides[i]);
    return ratio_of(thread, process);
  }
};

double commits_of(const SideResult& side) { return side.commits_per_s; }
double p99_of(const SideResult& side) { return side.latency.p99_us; }

void write_one_region_heading(const BenchPersistArguments& arguments) {
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(fmt::format(
      "one region; each thread changes {} bytes in each page, random ones of its own {} MiB, and is durable",
      arguments.bytes_per_page, arguments.region_mib));
  write_line(
      "thread: memlith_persist of the thread's own stores; process: change and memlith_persist_async under one lock, "
      "then memlith_wait; phases of each in turn; ratios: thread over process");
  write_line(fmt::format("{:<8} {:>6} {:>7} {:<8} {:>9} {:>9} {:>9} {:>10} {:>10} {:>8} {:>8}", "tracker", "pages",
                         "threads", "whose", "p50 us", "p99 us", "p999 us", "commits/s", "c ratio", "p99 rat",
                         "rounds"));
}

void write_one_region_line(const Line& line, const BenchPersistArguments& arguments) {
  const double ratio_commits = line.ratio(arguments.whose, commits_of);
  const double ratio_p99 = line.ratio(arguments.whose, p99_of);
  for (std::size_t i = 0; i < line.sides.size(); ++i) {
    const SideResult& side = line.sides[i];
    if (arguments.format == Format::json) {
      write_json({{"bench", "one-region"},
                  {"tracker", line.tracker},
                  {"pages", line.shape.pages},
                  {"bytes_per_page", line.shape.bytes_per_page},
                  {"region_mib", arguments.region_mib},
                  {"log_mib", arguments.log_mib},
                  {"io", arguments.io},
                  {"threads", line.threads},
                  {"whose", name_of(arguments.whose[i])},
                  {"p50_us", rounded(side.latency.p50_us)},
                  {"p99_us", rounded(side.latency.p99_us)},
                  {"p999_us", rounded(side.latency.p999_us)},
                  {"commits_per_s", rounded(side.commits_per_s)},
                  {"ratio_commits", rounded(ratio_commits)},
                  {"ratio_p99", rounded(ratio_p99)},
                  {"rounds", line.rounds[i]},
                  {"alternations", line.alternations},
                  {"direct_io", line.direct_io},
                  {"tracker_detail", line.tracker_detail},
                  {"kernel", kernel_release()},
                  {"version", memlith_version()}});
      continue;
    }
    write_line(fmt::format("{:<8} {:>6} {:>7} {:<8} {:>9.1f} {:>9.1f} {:>9.1f} {:>10.0f} {:>10.2f} {:>8.2f} {:>8}",
                           line.tracker, line.shape.pages, line.threads, name_of(arguments.whose[i]),
                           side.latency.p50_us, side.latency.p99_us, side.latency.p999_us, side.commits_per_s,
                           ratio_commits, ratio_p99, line.rounds[i]));
  }
}

// All sides, in phases that take turns, after a warm-up that does not count.
MaybeFailure measure_sides(Shared& shared, const BenchPersistArguments& arguments, Line& line) {
  const std::uint64_t pages_each = arguments.region_mib * kMiB / kPageBytes;
  std::vector<std::unique_ptr<Part>> parts;
  for (std::uint64_t thread = 0; thread < line.threads; ++thread) {
    parts.push_back(std::make_unique<Part>(shared, thread * pages_each, pages_each, kSeed + thread));
  }
  std::vector<Side> sides;
  for (const Whose whose : arguments.whose) {
    Side side;
    side.round = [&parts, whose](std::size_t thread, std::uint64_t& ns) { return parts[thread]->round(whose, ns); };
    sides.push_back(std::move(side));
  }
  if (MaybeFailure failure = measure_in_phases(sides, {line.threads, 1, kPhaseNs})) return failure;
  for (Side& side : sides) side.clear();
  const auto duration_ns = static_cast<std::uint64_t>(arguments.seconds * static_cast<double>(kNsPerSecond));
  line.alternations =
      arguments.rounds > 0 ? arguments.rounds : std::max(kAlternationsMin, duration_ns / (2 * kPhaseNs));
  if (MaybeFailure failure = measure_in_phases(sides, {line.threads, line.alternations, kPhaseNs})) return failure;
  for (const Side& side : sides) {
    line.sides.push_back({percentiles_of(side.samples_ns), side.rounds_per_second()});
    line.rounds.push_back(side.samples_ns.size());
  }
  return {};
}

// A store with a region that has pages for every thread, and a line for each number of pages.
MaybeFailure run_threads(const std::string& tracker, std::uint64_t threads, const BenchPersistArguments& arguments,
                         const ScratchFolder& scratch) {
  const std::string name = fmt::format("store-{}-{}", tracker, threads);
  Result<StoreHandle> store = make_bench_store(scratch.path_of(name), arguments.log_mib, arguments.io);
  if (!store.ok()) return std::move(store.failure());
  Shared shared;
  shared.store = store->get();
  shared.shape.bytes_per_page = arguments.bytes_per_page;
  shared.shape.tracker = tracker_of(tracker);
  shared.shape.thread_scope = true;
  std::string detail;
  Result<memlith_region*> region =
      make_bench_region(store->get(), 0, threads * arguments.region_mib, shared.shape, detail);
  if (!region.ok()) return std::move(region.failure());
  shared.region = *region;
  const std::int32_t code = memlith_store_checkpoint(store->get());
  if (code != MEMLITH_OK) return library_failure(code, "checkpointing the new store");
  for (const std::uint64_t pages : arguments.pages) {
    shared.shape.pages = pages;
    Line line{tracker, shared.shape, threads, 0, detail, false, {}, {}};
    if (MaybeFailure failure = measure_sides(shared, arguments, line)) return failure;
    Result<memlith_store_info> info = info_of(store->get());
    if (!info.ok()) return std::move(info.failure());
    line.direct_io = info->direct_io != 0;
    write_one_region_line(line, arguments);
  }
  if (MaybeFailure failure = close_store(std::move(*store))) return failure;
  scratch.remove(name);
  return {};
}

}  // namespace

MaybeFailure run_bench_one_region(const BenchPersistArguments& arguments) {
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t most = *std::max_element(arguments.thread_counts.begin(), arguments.thread_counts.end());
  const std::uint64_t needed = (most * arguments.region_mib + arguments.log_mib) * kMiB + kStoreSlackBytes;
  if (MaybeFailure failure = require_space(scratch->path(), needed)) return failure;
  if (arguments.format == Format::text) write_one_region_heading(arguments);
  for (const std::string& tracker : arguments.trackers) {
    for (const std::uint64_t threads : arguments.thread_counts) {
      if (MaybeFailure failure = run_threads(tracker, threads, arguments, *scratch)) return failure;
    }
  }
  return {};
}

}  // namespace memlith::tool
