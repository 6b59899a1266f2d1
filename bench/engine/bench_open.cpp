// memlith bench open: how long a program with a large, clean region waits before it can use the first byte.
//
// The files are dropped from the page cache before each repetition, as a restart of the machine would. The three
// steps are timed in one go, and shown one by one as well.
#include <fmt/format.h>

#include <vector>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/store_path.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kOpenings = 5;
constexpr char kOpenedRegion[] = "bench";
constexpr unsigned char kFirstByte = 0x5a;

struct Opening {
  double store_ms = 0;
  double region_ms = 0;
  double read_ms = 0;
  double total_ms = 0;
};

double milliseconds(std::uint64_t begin_ns, std::uint64_t end_ns) { return seconds_of(end_ns - begin_ns) * 1000; }

memlith_region_options region_options(const BenchOpenArguments& arguments) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.tracker = tracker_of(arguments.tracker);
  options.size = arguments.region_mib * kMiB;
  return options;
}

MaybeFailure make_store(const BenchOpenArguments& arguments, const std::string& path) {
  memlith_store_options store_options{};
  store_options.struct_size = sizeof store_options;
  store_options.flags = MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE;
  Result<StoreHandle> store = open_store({path, StoreKind::folder}, store_options);
  if (!store.ok()) return std::move(store.failure());
  memlith_region_options options = region_options(arguments);
  options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
  memlith_region* region = nullptr;
  std::int32_t code = memlith_region_open(store->get(), kOpenedRegion, &options, &region);
  if (code != MEMLITH_OK) return library_failure(code, "making the region");
  auto* const first = static_cast<unsigned char*>(memlith_region_address(region));
  *first = kFirstByte;
  code = memlith_touch(region, first, 1);
  if (code != MEMLITH_OK) return library_failure(code, "touching the region");
  code = memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS);
  if (code != MEMLITH_OK) return library_failure(code, "persisting the region");
  return close_store(std::move(*store));
}

MaybeFailure open_once(const BenchOpenArguments& arguments, const std::string& path, Opening& result) {
  if (interrupted()) return interrupted_failure();
  if (MaybeFailure failure = drop_page_cache(path)) return failure;
  memlith_store_options store_options{};
  store_options.struct_size = sizeof store_options;
  const memlith_region_options options = region_options(arguments);
  memlith_region* region = nullptr;

  const std::uint64_t start = now_ns();
  Result<StoreHandle> store = open_store({path, StoreKind::folder}, store_options);
  const std::uint64_t store_opened = now_ns();
  if (!store.ok()) return std::move(store.failure());
  const std::int32_t code = memlith_region_open(store->get(), kOpenedRegion, &options, &region);
  const std::uint64_t region_opened = now_ns();
  if (code != MEMLITH_OK) return library_failure(code, "opening the region");
  const unsigned char first = *static_cast<const volatile unsigned char*>(memlith_region_address(region));
  const std::uint64_t end = now_ns();

  if (first != kFirstByte) return tool_failure(MEMLITH_CORRUPT, "the first byte is not as it was persisted");
  result = {milliseconds(start, store_opened), milliseconds(store_opened, region_opened),
            milliseconds(region_opened, end), milliseconds(start, end)};
  return close_store(std::move(*store));
}

double median_over(const std::vector<Opening>& repetitions, double Opening::* member) {
  std::vector<double> values;
  for (const Opening& repetition : repetitions) values.push_back(repetition.*member);
  return median_of(std::move(values));
}

void report(const BenchOpenArguments& arguments, const std::vector<Opening>& repetitions) {
  const double store_ms = median_over(repetitions, &Opening::store_ms);
  const double region_ms = median_over(repetitions, &Opening::region_ms);
  const double read_ms = median_over(repetitions, &Opening::read_ms);
  const double total_ms = median_over(repetitions, &Opening::total_ms);
  if (arguments.format == Format::json) {
    write_json({{"region_mib", arguments.region_mib},
                {"tracker", arguments.tracker},
                {"total_ms", total_ms},
                {"store_open_ms", store_ms},
                {"region_open_ms", region_ms},
                {"first_read_ms", read_ms},
                {"repetitions", repetitions.size()},
                {"page_cache", "dropped"},
                {"kernel", kernel_release()},
                {"version", memlith_version()}});
    return;
  }
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(fmt::format("a clean store with a region of {} MiB, tracker {}, page cache cold; medians of {}",
                         arguments.region_mib, arguments.tracker, repetitions.size()));
  write_line(fmt::format("store open   {:9.3f} ms", store_ms));
  write_line(fmt::format("region open  {:9.3f} ms", region_ms));
  write_line(fmt::format("first byte   {:9.3f} ms", read_ms));
  write_line(fmt::format("together     {:9.3f} ms", total_ms));
}

}  // namespace

MaybeFailure run_bench_open(const BenchOpenArguments& arguments) {
  catch_interrupts();
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  if (MaybeFailure failure = require_space(scratch->path(), arguments.region_mib * kMiB + kStoreSlackBytes)) {
    return failure;
  }
  const std::string path = scratch->path_of("store");
  if (MaybeFailure failure = make_store(arguments, path)) return failure;
  std::vector<Opening> repetitions(kOpenings);
  for (Opening& repetition : repetitions) {
    if (MaybeFailure failure = open_once(arguments, path, repetition)) return failure;
  }
  report(arguments, repetitions);
  return {};
}

}  // namespace memlith::tool
