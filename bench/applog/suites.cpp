// The suites: entries of several sizes beside the raw disk; several writers; logs of several sizes with a consumer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "applog_bench.hpp"
#include "cli/clock.hpp"
#include "kit/bare_capture.hpp"
#include "kit/measure.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kLogBytes = 64 * kMiB;
constexpr std::uint64_t kBareMib = 16;
constexpr std::uint64_t kRawSeed = 11;
constexpr std::uint64_t kSmallBytes = 100;

// Pages and bytes in each, which make so many bytes.
RoundShape shape_of(std::uint64_t bytes) {
  RoundShape shape;
  shape.pages = (bytes + kPageBytes - 1) / kPageBytes;
  shape.bytes_per_page = bytes / shape.pages;
  return shape;
}

// The raw disk, one file a thread: a copy of as many bytes and its checksum, then write and flush.
class RawSide {
 public:
  [[nodiscard]] MaybeFailure open(const ScratchFolder& scratch, std::uint64_t bytes, std::size_t threads) {
    const RoundShape shape = shape_of(bytes);
    writers_.reserve(threads);  // the captures keep their addresses
    for (std::size_t i = 0; i < threads; ++i) {
      auto writer = RawWriter::create(scratch.path_of(fmt::format("raw{}", i)), kRawFileBytes, shape.bytes());
      if (!writer.ok()) return std::move(writer.failure());
      writers_.push_back(std::move(*writer));
      writers_.back().set_round_bytes(shape.bytes());
      auto capture = BareCapture::create(writers_.back(), kBareMib, shape, kRawSeed + i);
      if (!capture.ok()) return std::move(capture.failure());
      captures_.push_back(std::move(*capture));
    }
    return {};
  }
  [[nodiscard]] MaybeFailure round(std::size_t thread, std::uint64_t& elapsed_ns) {
    return captures_[thread].round(elapsed_ns);
  }
  void remove(const ScratchFolder& scratch) const {
    for (std::size_t i = 0; i < writers_.size(); ++i) scratch.remove(fmt::format("raw{}", i));
  }

 private:
  std::vector<RawWriter> writers_;
  std::vector<BareCapture> captures_;
};

struct Line {
  std::string side;
  std::string workload;
  std::string durability;
  std::uint64_t threads = 1;
  std::uint64_t entry_bytes = 0;
  std::string backend = {};
  std::optional<std::uint64_t> log_mib = std::nullopt;
  std::optional<double> laps = std::nullopt;
};

class Suites {
 public:
  Suites(const AppLogArguments& arguments, const ScratchFolder& scratch, const Backend& backend)
      : arguments_(arguments), scratch_(scratch), backend_(backend) {}

  [[nodiscard]] MaybeFailure append() {
    heading("append + write of one entry, one thread, in turns with the raw disk");
    for (const std::uint64_t bytes : arguments_.entry_bytes) {
      const auto measure = [this](std::span<Side> sides) {
        const auto ns = static_cast<std::uint64_t>(arguments_.seconds * 2e9);
        return measure_in_turns(sides, {10, ns});
      };
      if (auto failure = beside_raw(fmt::format("append-{}", bytes), bytes, 1, measure)) return failure;
    }
    return {};
  }

  [[nodiscard]] MaybeFailure writers() {
    heading("append + write of 100 bytes by several threads, in phases with the raw disk, which has a file for each");
    for (const std::uint64_t threads : arguments_.threads) {
      const auto measure = [this, threads](std::span<Side> sides) {
        const double ns = arguments_.seconds * 1e9 / static_cast<double>(arguments_.rounds);
        return measure_in_phases(sides, {threads, arguments_.rounds, static_cast<std::uint64_t>(ns)});
      };
      if (auto failure = beside_raw("writers", kSmallBytes, threads, measure)) return failure;
    }
    return {};
  }

  // The consumer takes a processor; where it cannot keep up, the log fills, and the writer has its pace.
  [[nodiscard]] MaybeFailure size() {
    heading("append + write of 100 bytes by one thread, while another moves the entries into a kv store");
    for (const bool wait : {true, false}) {
      for (const std::uint64_t mib : arguments_.log_mib) {
        auto opened = LogSide::open(scratch_.path_of("store"), backend_, {mib * kMiB, kSmallBytes, true, wait});
        if (!opened.ok()) return std::move(opened.failure());
        LogSide& log = **opened;
        std::array<Side, 1> sides;
        sides[0].round = [&log](std::size_t, std::uint64_t& elapsed_ns) { return log.round(elapsed_ns); };
        const auto ns = static_cast<std::uint64_t>(arguments_.seconds * 1e9);
        if (auto failure = measure_in_phases(sides, {1, 1, ns})) return failure;
        if (auto failure = log.stop()) return failure;
        print({"memlith", fmt::format("consumed-{}MiB", mib), wait ? "sync" : "weak", 1, kSmallBytes, backend_.name,
               mib, log.laps()},
              sides[0]);
        opened->reset();
        scratch_.remove("store");
      }
    }
    return {};
  }

 private:
  template <class Measure>
  [[nodiscard]] MaybeFailure beside_raw(const std::string& workload, std::uint64_t bytes, std::uint64_t threads,
                                        Measure&& measure) {
    RawSide raw;
    if (auto failure = raw.open(scratch_, bytes, threads)) return failure;
    auto log = LogSide::open(scratch_.path_of("store"), backend_, {kLogBytes, bytes, false, true});
    if (!log.ok()) return std::move(log.failure());
    std::array<Side, 2> sides;
    sides[0].round = [&log](std::size_t, std::uint64_t& elapsed_ns) { return (*log)->round(elapsed_ns); };
    sides[1].round = [&raw](std::size_t thread, std::uint64_t& elapsed_ns) { return raw.round(thread, elapsed_ns); };
    if (auto failure = measure(std::span<Side>(sides))) return failure;
    print({"memlith", workload, "sync", threads, bytes, backend_.name, kLogBytes / kMiB, (*log)->laps()}, sides[0]);
    print({"raw-captured", workload, "sync", threads, bytes}, sides[1]);
    log->reset();
    scratch_.remove("store");
    raw.remove(scratch_);
    return {};
  }

  void heading(std::string_view what) const {
    if (arguments_.format != Format::text) return;
    write_line(fmt::format("\n{}; backend {}", what, backend_.name));
    write_line(fmt::format("{:<14}{:<16}{:<6}{:>8}{:>11}{:>10}{:>10}{:>10}{:>10}{:>8}", "side", "workload", "",
                           "threads", "ops/s", "p50 us", "p99 us", "p99.9 us", "max us", "laps"));
  }
  void print(const Line& line, const Side& side) const {
    const Percentiles latency = percentiles_of(side.samples_ns);
    const std::uint64_t max_ns = side.samples_ns.empty() ? 0 : *std::ranges::max_element(side.samples_ns);
    const double max_us = static_cast<double>(max_ns) / 1000;
    const double ops = side.rounds_per_second();
    if (arguments_.format == Format::text) {
      write_line(fmt::format("{:<14}{:<16}{:<6}{:>8}{:>11.0f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.0f}{:>8}", line.side,
                             line.workload, line.durability, line.threads, ops, latency.p50_us, latency.p99_us,
                             latency.p999_us, max_us, line.laps ? fmt::format("{:.1f}", *line.laps) : ""));
      return;
    }
    Json object{{"suite", "applog"},
                {"side", line.side},
                {"workload", line.workload},
                {"durability", line.durability},
                {"threads", line.threads},
                {"ops_per_s", rounded(ops)},
                {"p50_us", latency.p50_us},
                {"p99_us", latency.p99_us},
                {"p999_us", latency.p999_us},
                {"max_us", max_us},
                {"samples", side.samples_ns.size()},
                {"entry_bytes", line.entry_bytes}};
    if (!line.backend.empty()) object["backend"] = line.backend;
    if (line.log_mib) object["log_mib"] = *line.log_mib;
    if (line.laps) object["laps"] = rounded(*line.laps);
    object["kernel"] = kernel_release();
    object["version"] = memlith_version();
    write_json(object);
  }

  const AppLogArguments& arguments_;
  const ScratchFolder& scratch_;
  const Backend& backend_;
};

}  // namespace

MaybeFailure run_applog(const AppLogArguments& arguments) {
  Result<std::vector<Backend>> backends = backends_of(arguments.backends, arguments.devices);
  if (!backends.ok()) return std::move(backends.failure());
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  const std::uint64_t threads = *std::ranges::max_element(arguments.threads);
  const std::uint64_t log_mib = *std::ranges::max_element(arguments.log_mib);
  const std::uint64_t bytes = threads * kRawFileBytes + 4 * std::max(kLogBytes, log_mib * kMiB);
  if (auto failure = require_space(scratch->path(), bytes + kStoreSlackBytes)) return failure;
  if (arguments.format == Format::text) {
    write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                           printable(arguments.folder), utc_now()));
  }
  for (const Backend& backend : *backends) {
    Suites suites(arguments, *scratch, backend);
    for (const std::string& name : arguments.suites) {
      if (auto failure = name == "append" ? suites.append() : name == "writers" ? suites.writers() : suites.size()) {
        return failure;
      }
    }
  }
  return {};
}

}  // namespace memlith::tool
