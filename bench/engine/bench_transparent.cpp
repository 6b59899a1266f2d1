// memlith bench transparent: what plain memory costs that says nothing of its stores.
//
// A region with the default tracker, opened at its size, and one that has grown to it in the same run; a round stores
// to random pages and persists, and the stores count. Beside them, in turn: pwrite + fsync of the pages, the least that
// any program can do (kit/bare_capture.hpp), and raw. A region beyond --filled-mib is sparse: only what rounds store to
// is in memory. The sides beside it work on a file and on memory of --filled-mib.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench_store.hpp"
#include "cli/clock.hpp"
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

struct Ours {
  std::string side;
  StoreHandle store;
  memlith_region* region = nullptr;
  std::vector<Workload> workload;  // one
};

class Transparent {
 public:
  explicit Transparent(const BenchTransparentArguments& arguments) : arguments_(arguments) {}

  MaybeFailure run() {
    print_heading(arguments_.format, arguments_.folder,
                  fmt::format("{} bytes in each of random pages, stores included, one round of each side in turn; "
                              "ratio: over raw",
                              arguments_.bytes_per_page));
    for (const std::uint64_t region_mib : arguments_.region_mib) {
      if (MaybeFailure failure = run_size(region_mib)) return failure;
    }
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t filled_mib(std::uint64_t region_mib) const {
    return std::min(region_mib, arguments_.filled_mib);
  }
  [[nodiscard]] RoundShape shape_of(std::uint64_t pages) const {
    RoundShape shape;
    shape.pages = pages;
    shape.bytes_per_page = arguments_.bytes_per_page;
    shape.tracker = MEMLITH_TRACKER_AUTO;
    shape.scope = Scope::stores;
    shape.process_scope = true;
    return shape;
  }
  [[nodiscard]] std::uint64_t pages_max() const { return *std::ranges::max_element(arguments_.pages); }

  MaybeFailure run_size(std::uint64_t region_mib) {
    Result<ScratchFolder> scratch = ScratchFolder::make(arguments_.folder);
    if (!scratch.ok()) return std::move(scratch.failure());
    const std::uint64_t beside = 2 * filled_mib(region_mib) * kMiB + kRawFileBytes + 5 * pages_max() * kPageBytes;
    const std::uint64_t needed = 2 * (region_mib * kMiB + kStoreSlackBytes) + beside;
    if (MaybeFailure failure = require_space(scratch->path(), needed)) return failure;
    std::vector<Ours> ours(2);
    for (Ours& each : ours) {
      each.side = &each == ours.data() ? "auto" : "auto, grown";
      if (MaybeFailure failure = make_ours(*scratch, region_mib, each)) return failure;
    }
    Result<PeerFile> file = PeerFile::create(scratch->path_of("pwrite"), filled_mib(region_mib) * kMiB);
    if (!file.ok()) return std::move(file.failure());
    std::vector<Line> lines;
    for (const std::uint64_t pages : arguments_.pages) {
      if (MaybeFailure failure = measure(*scratch, region_mib, pages, ours, *file, lines)) return failure;
    }
    for (Ours& each : ours) {
      if (MaybeFailure failure = close_store(std::move(each.store))) return failure;
    }
    return {};
  }

  MaybeFailure make_ours(const ScratchFolder& scratch, std::uint64_t region_mib, Ours& ours) {
    const bool grown = ours.side != "auto";
    Result<StoreHandle> store = make_bench_store(scratch.path_of(grown ? "store-grown" : "store"), arguments_.log_mib);
    if (!store.ok()) return std::move(store.failure());
    ours.store = std::move(*store);
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE | MEMLITH_REGION_PROCESS_SCOPE;
    options.size = (grown ? 1 : region_mib) * kMiB;
    options.max_size = region_mib * kMiB;
    std::int32_t code = memlith_region_open(ours.store.get(), "transparent", &options, &ours.region);
    if (code == MEMLITH_OK) code = memlith_region_grow(ours.region, region_mib * kMiB);
    if (code != MEMLITH_OK) return library_failure(code, "making a region");
    ours.workload.emplace_back(ours.store.get(), ours.region, shape_of(pages_max()), kSeed);
    if (region_mib <= arguments_.filled_mib) {
      if (MaybeFailure failure = ours.workload.front().fill()) return failure;
    }
    ours.workload.front().set_pages(1);
    for (std::uint64_t i = 0, ns = 0; i < kFirstRounds; ++i) {
      if (MaybeFailure failure = ours.workload.front().round(ns)) return failure;
    }
    code = memlith_store_checkpoint(ours.store.get());
    return code == MEMLITH_OK ? MaybeFailure{} : library_failure(code, "persisting a region");
  }

  MaybeFailure measure(const ScratchFolder& scratch, std::uint64_t region_mib, std::uint64_t pages,
                       std::vector<Ours>& ours, PeerFile& file, std::vector<Line>& lines) {
    std::vector<Side> sides;
    const auto add = [&sides](std::function<MaybeFailure(std::uint64_t& ns)> round) {
      sides.emplace_back();
      sides.back().round = [run = std::move(round)](std::size_t, std::uint64_t& ns) { return run(ns); };
    };
    for (Ours& each : ours) {
      each.workload.front().set_pages(pages);
      add([&each](std::uint64_t& ns) { return each.workload.front().round(ns); });
    }
    std::vector<RawWriter> writers;
    std::vector<BareCapture> captures;
    if (pages > 0) {
      const RoundShape shape = shape_of(pages);
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
    lines.clear();
    for (std::size_t i = 0; i < sides.size(); ++i) {
      lines.push_back(line_of(region_mib, pages, i < ours.size() ? &ours[i] : nullptr, i, sides[i]));
    }
    print_lines(arguments_.format, fmt::format("{} MiB, {} pages", region_mib, pages), lines, "raw");
    for (const char* name : {"captured", "raw"}) {
      if (pages > 0) scratch.remove(fmt::format("{}-{}", name, pages));
    }
    return {};
  }

  Line line_of(std::uint64_t region_mib, std::uint64_t pages, const Ours* ours, std::size_t number, Side& side) const {
    constexpr const char* kBeside[] = {"pwrite+fsync", "captured", "raw"};
    constexpr const char* kDoes[] = {"a pwrite of each page, then one fsync",
                                     "copy, checksum, one write, one fdatasync",
                                     "one write of as many bytes, one fdatasync"};
    Line line;
    line.suite = "transparent";
    line.workload = fmt::format("{} pages", pages);
    line.durability = "sync";
    line.requested = {{"region_mib", region_mib}, {"pages", pages}, {"bytes_per_page", arguments_.bytes_per_page}};
    if (ours == nullptr) {
      line.side = kBeside[number - 2];
      line.does = kDoes[number - 2];
      line.found = {{"tracker", "none"}};
    } else {
      memlith_region_info info{};
      info.struct_size = sizeof info;
      (void)memlith_region_get_info(ours->region, &info);
      line.side = ours->side;
      line.version = memlith_version();
      line.does = info.tracker_detail;
      line.found = {{"tracker", info.tracker == MEMLITH_TRACKER_SCAN ? "scan" : "fault"}};
    }
    line.repetitions.push_back(repetition_of(side));
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
