// memlith bench transparent: what plain memory costs that says nothing of its stores.
//
// A region with the default tracker, opened at its size, and one that has grown to it in the same run; a round stores
// to random pages and persists, and the stores count. Beside them, in turn: regions of programs that say what they
// store, pwrite + fsync of the pages, the least that any program can do (kit/bare_capture.hpp), and raw. A region
// beyond --filled-mib is sparse: only what rounds store to is in memory. The sides beside it work on regions, on a file
// and on memory of at most --filled-mib.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench_store.hpp"
#include "cli/clock.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "kit/bare_capture.hpp"
#include "kit/measure.hpp"
#include "kit/raw_device.hpp"
#include "kit/report.hpp"
#include "kit/scratch.hpp"
#include "peers/peers.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kFirstRounds = 300;  // of one page, before a region is measured: its tracker may change

struct OurKind {
  const char* side;
  std::uint32_t tracker;
  bool grows;
  bool may_be_sparse;
};
constexpr OurKind kOurs[] = {{"auto", MEMLITH_TRACKER_AUTO, false, true},
                             {"auto, grown", MEMLITH_TRACKER_AUTO, true, true},
                             {"explicit", MEMLITH_TRACKER_EXPLICIT, false, false},
                             {"instrumented", MEMLITH_TRACKER_INSTRUMENTED, false, false}};

struct PageChange {
  std::uint64_t pages = 0;
  std::uint64_t bytes_per_page = 0;
};

struct Ours {
  const OurKind* kind;
  std::uint64_t region_mib = 0;
  StoreHandle store;
  memlith_region* region = nullptr;
  std::vector<Workload> workload;  // one
};

class Transparent {
 public:
  explicit Transparent(const BenchTransparentArguments& arguments) : arguments_(arguments) {}

  MaybeFailure run() {
    print_heading(arguments_.format, arguments_.folder,
                  "bytes in each of random pages, stores included, one round of each side in turn; ratio_per_turn: "
                  "time over that of raw");
    for (const std::uint64_t region_mib : arguments_.region_mib) {
      if (MaybeFailure failure = run_size(region_mib)) return failure;
    }
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t filled_mib(std::uint64_t region_mib) const {
    return std::min(region_mib, arguments_.filled_mib);
  }
  [[nodiscard]] static RoundShape shape_of(const PageChange& change, std::uint32_t tracker) {
    RoundShape shape;
    shape.pages = change.pages;
    shape.bytes_per_page = change.bytes_per_page;
    shape.tracker = tracker;
    shape.scope = Scope::stores;
    shape.process_scope = true;
    return shape;
  }
  [[nodiscard]] std::uint64_t pages_max() const { return *std::ranges::max_element(arguments_.pages); }

  MaybeFailure run_size(std::uint64_t region_mib) {
    Result<ScratchFolder> scratch = ScratchFolder::make(arguments_.folder);
    if (!scratch.ok()) return std::move(scratch.failure());
    std::vector<Ours> ours;
    std::uint64_t needed = filled_mib(region_mib) * kMiB + kRawFileBytes + 5 * pages_max() * kPageBytes;
    for (const OurKind& kind : kOurs) {
      ours.push_back({&kind, kind.may_be_sparse ? region_mib : filled_mib(region_mib), {}, nullptr, {}});
      needed += ours.back().region_mib * kMiB + kStoreSlackBytes;
    }
    if (MaybeFailure failure = require_space(scratch->path(), needed)) return failure;
    for (Ours& each : ours) {
      if (MaybeFailure failure = make_ours(*scratch, each)) return failure;
    }
    Result<PeerFile> file = PeerFile::create(scratch->path_of("pwrite"), filled_mib(region_mib) * kMiB);
    if (!file.ok()) return std::move(file.failure());
    for (const std::uint64_t pages : arguments_.pages) {
      for (const std::uint64_t bytes : arguments_.bytes_per_page) {
        if (MaybeFailure failure = measure(*scratch, region_mib, {pages, bytes}, ours, *file)) return failure;
        if (pages == 0) break;
      }
    }
    for (Ours& each : ours) {
      if (MaybeFailure failure = close_store(std::move(each.store))) return failure;
    }
    return {};
  }

  MaybeFailure make_ours(const ScratchFolder& scratch, Ours& ours) {
    const std::string path = scratch.path_of(fmt::format("store-{}", ours.kind - kOurs));
    Result<StoreHandle> store = make_bench_store(path, arguments_.log_mib);
    if (!store.ok()) return std::move(store.failure());
    ours.store = std::move(*store);
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE | MEMLITH_REGION_PROCESS_SCOPE;
    options.tracker = ours.kind->tracker;
    options.size = (ours.kind->grows ? 1 : ours.region_mib) * kMiB;
    options.max_size = ours.region_mib * kMiB;
    std::int32_t code = memlith_region_open(ours.store.get(), "transparent", &options, &ours.region);
    if (code == MEMLITH_OK) code = memlith_region_grow(ours.region, ours.region_mib * kMiB);
    if (code != MEMLITH_OK) return library_failure(code, "making a region");
    ours.workload.emplace_back(ours.store.get(), ours.region, shape_of({pages_max(), kPageBytes}, ours.kind->tracker),
                               kSeed);
    if (ours.region_mib <= arguments_.filled_mib) {
      if (MaybeFailure failure = ours.workload.front().fill()) return failure;
    }
    ours.workload.front().set_pages(1);
    for (std::uint64_t i = 0, ns = 0; i < kFirstRounds; ++i) {
      if (MaybeFailure failure = ours.workload.front().round(ns)) return failure;
    }
    code = memlith_store_checkpoint(ours.store.get());
    return code == MEMLITH_OK ? MaybeFailure{} : library_failure(code, "persisting a region");
  }

  MaybeFailure measure(const ScratchFolder& scratch, std::uint64_t region_mib, const PageChange& change,
                       std::vector<Ours>& ours, PeerFile& file) {
    const std::uint64_t pages = change.pages;
    std::vector<Side> sides;
    const auto add = [&sides](std::function<MaybeFailure(std::uint64_t& ns)> round) {
      sides.emplace_back();
      sides.back().round = [run = std::move(round)](std::size_t, std::uint64_t& ns) { return run(ns); };
    };
    for (Ours& each : ours) {
      each.workload.front().set_pages(pages);
      each.workload.front().set_bytes_per_page(change.bytes_per_page);
      add([&each](std::uint64_t& ns) { return each.workload.front().round(ns); });
    }
    std::vector<RawWriter> writers;
    std::vector<BareCapture> captures;
    if (pages > 0) {
      const RoundShape shape = shape_of(change, MEMLITH_TRACKER_AUTO);
      for (const char* name : {"captured", "raw"}) {
        const std::string path = scratch.path_of(fmt::format("{}-{}", name, pages));
        Result<RawWriter> writer = RawWriter::create(path, kRawFileBytes, shape.bytes());
        if (!writer.ok()) return std::move(writer.failure());
        writer->set_round_bytes(shape.bytes());
        writers.push_back(std::move(*writer));
      }
      Result<BareCapture> capture = BareCapture::create(writers.front(), filled_mib(region_mib), shape, kSeed);
      if (!capture.ok()) return std::move(capture.failure());
      captures.push_back(std::move(*capture));
      add([&file, pages](std::uint64_t& ns) { return file.pwrite_round(pages, ns); });
      add([&captures](std::uint64_t& ns) { return captures.front().round(ns); });
      add([&writers](std::uint64_t& ns) { return writers.back().round(ns); });
    }
    if (MaybeFailure failure = measure_in_turns(sides, {kWarmUpTurns, 0})) return failure;
    for (Side& side : sides) side.clear();
    const auto duration_ns = static_cast<std::uint64_t>(arguments_.seconds * static_cast<double>(kNsPerSecond));
    const TurnLimits limits =
        arguments_.rounds > 0 ? TurnLimits{arguments_.rounds, 0} : TurnLimits{kTurnsMin, duration_ns};
    if (MaybeFailure failure = measure_in_turns(sides, limits)) return failure;
    std::vector<Line> lines;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      lines.push_back(i < ours.size() ? line_of_ours(ours[i]) : line_beside(i - ours.size()));
      lines.back().suite = "transparent";
      lines.back().workload = workload_of(change);
      lines.back().durability = "sync";
      lines.back().requested = {
          {"region_mib", region_mib}, {"pages", pages}, {"bytes_per_page", pages > 0 ? change.bytes_per_page : 0}};
      if (pages > 0) lines.back().found["ratio_per_turn"] = ratio_per_turn(sides[i], sides.back());
    }
    for (std::size_t i = 0; i < sides.size(); ++i) lines[i].repetitions.push_back(repetition_of(sides[i]));
    print_lines(arguments_.format, fmt::format("{} MiB, {}", region_mib, workload_of(change)), lines, "raw");
    for (const char* name : {"captured", "raw"}) {
      if (pages > 0) scratch.remove(fmt::format("{}-{}", name, pages));
    }
    return {};
  }

  static std::string workload_of(const PageChange& change) {
    if (change.pages == 0) return "nothing";
    return fmt::format("{} x {} bytes", change.pages, change.bytes_per_page);
  }
  static Line line_of_ours(const Ours& ours) {
    memlith_region_info info{};
    info.struct_size = sizeof info;
    (void)memlith_region_get_info(ours.region, &info);
    Line line;
    line.side = ours.kind->side;
    line.version = memlith_version();
    line.does = info.tracker_detail;
    for (const TrackerName& each : kTrackers) {
      if (each.tracker == info.tracker) line.found["tracker"] = each.name;
    }
    return line;
  }
  static Line line_beside(std::size_t number) {
    constexpr const char* kBeside[] = {"pwrite+fsync", "captured", "raw"};
    constexpr const char* kDoes[] = {"a pwrite of each page, then one fsync",
                                     "copy, checksum, one write, one fdatasync",
                                     "one write of as many bytes, one fdatasync"};
    Line line;
    line.side = kBeside[number];
    line.does = kDoes[number];
    line.found = {{"tracker", "none"}};
    return line;
  }

  const BenchTransparentArguments& arguments_;
};

}  // namespace

MaybeFailure run_bench_transparent(const BenchTransparentArguments& arguments) {
  for (const std::uint64_t region_mib : arguments.region_mib) {
    const std::uint64_t pages_max = std::min(region_mib, arguments.filled_mib) * kMiB / kPageBytes;
    if (*std::ranges::max_element(arguments.pages) <= pages_max) continue;
    return tool_failure(MEMLITH_INVALID, fmt::format("the pages of a round do not fit {} MiB", region_mib),
                        "Lower --pages, or raise --region-mib and --filled-mib.");
  }
  return Transparent(arguments).run();
}

}  // namespace memlith::tool
