// memlith bench persist: what a durable persist costs, against what the device charges for as many bytes.
//
// Both sides are durable in every round, write and flush, on the same file system in the same minutes. This file
// checks the arguments and prints; persist_line.cpp measures.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "cli/interrupt.hpp"
#include "cli/trackers.hpp"
#include "commands.hpp"
#include "persist_line.hpp"

namespace memlith::tool {

namespace {

struct Column {
  std::string_view title;
  int width;
};
constexpr std::array kColumns{
    Column{"tracker", 8},  Column{"pages", 6},     Column{"B/page", 6},     Column{"threads", 7},
    Column{"timed", 7},    Column{"p50 us", 9},    Column{"p99 us", 9},     Column{"p999 us", 9},
    Column{"raw p50", 9},  Column{"raw p99", 9},   Column{"raw p999", 9},   Column{"alone p50", 9},
    Column{"p50/raw", 7},  Column{"p50/alone", 9}, Column{"commits/s", 10}, Column{"raw/s", 10},
    Column{"c/raw", 6},    Column{"log B", 9},     Column{"raw B", 9},      Column{"log/chg", 7},
    Column{"home/chg", 8}, Column{"rounds", 7},
};

using Cells = std::array<std::string, kColumns.size()>;

void write_row(const Cells& cells) {
  std::string row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    row += fmt::format("{}{:>{}}", i == 0 ? "" : " ", cells[i], kColumns[i].width);
  }
  write_line(row);
}

const char* name_of(RawSide raw) {
  switch (raw) {
    case RawSide::pages: return "pages";
    case RawSide::captured: return "captured";
    case RawSide::bytes: break;
  }
  return "bytes";
}

const char* raw_text(RawSide raw) {
  switch (raw) {
    case RawSide::pages: return "the whole pages";
    case RawSide::captured: return "a copy of as many scattered bytes, and its checksum,";
    case RawSide::bytes: break;
  }
  return "as many bytes";
}

void write_heading(const BenchPersistArguments& arguments) {
  write_line(fmt::format("memlith {}, kernel {}, folder {}, {}", memlith_version(), kernel_release(),
                         printable(arguments.folder), utc_now()));
  write_line(fmt::format(
      "compared: {} with pwrite + fdatasync of {} to a preallocated file, {}; regions of {} MiB, io {}",
      arguments.asynchronous ? "memlith_persist_async() until captured, not durable yet,"
                             : "memlith_persist(), durable,",
      raw_text(arguments.raw), arguments.threads == 1 ? "a round of each in turn" : "phases of each in turn",
      arguments.region_mib, arguments.io));
  write_line("timed: stores = stores + persist; touch = memlith_touch + persist; persist = the call alone");
  write_line("raw: interleaved with memlith; alone: raw before there was a store, with no checkpoint beside it");
  write_line(
      "log/chg: bytes logged, in whole sectors of 512, over bytes changed; home/chg: bytes that checkpoints wrote home "
      "over bytes changed");
  Cells titles;
  std::transform(kColumns.begin(), kColumns.end(), titles.begin(),
                 [](const Column& c) { return std::string(c.title); });
  write_row(titles);
}

void write_text(std::string_view tracker, const BenchPersistArguments& arguments, const PersistLine& line) {
  const auto us = [](double value) { return fmt::format("{:.1f}", value); };
  const auto ratio = [](double value, double base) { return fmt::format("{:.2f}", ratio_of(value, base)); };
  const Percentiles& ours = line.memlith.latency;
  const Percentiles& raw = line.raw.latency;
  const double alone_p50_us = line.raw_alone.latency.p50_us;
  write_row({std::string(tracker),
             fmt::to_string(line.shape.pages),
             fmt::to_string(line.shape.bytes_per_page),
             fmt::to_string(arguments.threads),
             name_of(line.shape.scope),
             us(ours.p50_us),
             us(ours.p99_us),
             us(ours.p999_us),
             us(raw.p50_us),
             us(raw.p99_us),
             us(raw.p999_us),
             us(alone_p50_us),
             ratio(ours.p50_us, raw.p50_us),
             ratio(ours.p50_us, alone_p50_us),
             fmt::format("{:.0f}", line.memlith.commits_per_s),
             fmt::format("{:.0f}", line.raw.commits_per_s),
             ratio(line.memlith.commits_per_s, line.raw.commits_per_s),
             fmt::format("{:.0f}", line.bytes_logged),
             fmt::to_string(line.raw_bytes),
             fmt::format("{:.2f}", line.write_amplification()),
             fmt::format("{:.3f}", line.home_share()),
             fmt::to_string(line.rounds)});
}

// How often each byte of the same pages went home. Each thread has pages of its own.
double home_writes_each(const BenchPersistArguments& arguments, const PersistLine& line) {
  return ratio_of(static_cast<double>(line.home_bytes), static_cast<double>(arguments.threads * line.shape.bytes()));
}

Json json_of(std::string_view tracker, const BenchPersistArguments& arguments, const PersistLine& line) {
  const Percentiles& ours = line.memlith.latency;
  const Percentiles& raw = line.raw.latency;
  const SideResult& alone = line.raw_alone;
  return {
      {"tracker", tracker},
      {"pages", line.shape.pages},
      {"bytes_per_page", line.shape.bytes_per_page},
      {"region_mib", arguments.region_mib},
      {"log_mib", arguments.log_mib},
      {"io", arguments.io},
      {"threads", arguments.threads},
      {"p50_us", rounded(ours.p50_us)},
      {"p99_us", rounded(ours.p99_us)},
      {"p999_us", rounded(ours.p999_us)},
      {"raw_p50_us", rounded(raw.p50_us)},
      {"raw_p99_us", rounded(raw.p99_us)},
      {"raw_p999_us", rounded(raw.p999_us)},
      {"ratio_p50", rounded(ratio_of(ours.p50_us, raw.p50_us))},
      {"raw_alone_p50_us", rounded(alone.latency.p50_us)},
      {"ratio_alone_p50", rounded(ratio_of(ours.p50_us, alone.latency.p50_us))},
      {"commits_per_s", rounded(line.memlith.commits_per_s)},
      {"raw_commits_per_s", rounded(line.raw.commits_per_s)},
      {"ratio_commits", rounded(ratio_of(line.memlith.commits_per_s, line.raw.commits_per_s))},
      {"raw_alone_commits_per_s", rounded(alone.commits_per_s)},
      {"ratio_alone_commits", rounded(ratio_of(line.memlith.commits_per_s, alone.commits_per_s))},
      {"bytes_logged", rounded(line.bytes_logged)},
      {"raw_bytes", line.raw_bytes},
      {"bytes_changed", line.shape.bytes()},
      {"write_amplification", rounded(line.write_amplification())},
      {"home_share", rounded(line.home_share())},
      {"same_pages", line.shape.same_pages},
      {"hot_pages", line.shape.hot_pages},
      {"process_scope", line.shape.process_scope},
      {"home_writes_each", line.shape.same_pages ? Json(rounded(home_writes_each(arguments, line))) : Json(nullptr)},
      {"scope", name_of(line.shape.scope)},
      {"includes_stores", line.shape.scope == Scope::stores},
      {"asynchronous", line.shape.asynchronous},
      {"raw", name_of(arguments.raw)},
      {"tracker_detail", line.tracker_detail},
      {"rounds", line.rounds},
      {"alternations", line.alternations},
      {"checkpoints", line.checkpoints},
      {"checkpoints_beside", line.checkpoints_beside},
      {"home_bytes", line.home_bytes},
      {"kernel", kernel_release()},
      {"direct_io", line.direct_io},
      {"raw_direct_io", line.raw_direct_io},
      {"version", memlith_version()}};
}

MaybeFailure check(const BenchPersistArguments& arguments) {
  const std::uint64_t region_pages = arguments.region_mib * kMiB / kPageBytes;
  const std::uint64_t pages_max = *std::max_element(arguments.pages.begin(), arguments.pages.end());
  // Each thread beside checkpoints has a page of its own.
  const std::uint64_t beside =
      arguments.checkpoints ? *std::max_element(arguments.thread_counts.begin(), arguments.thread_counts.end()) : 0;
  if (pages_max + beside <= region_pages) return {};
  Failure failure =
      tool_failure(MEMLITH_INVALID, fmt::format("{} distinct pages do not fit a region of {} MiB, {} pages", pages_max,
                                                arguments.region_mib, region_pages));
  failure.advice = "Lower --pages or raise --region-mib.";
  return failure;
}

Result<std::vector<RawWriter>> make_raws(const BenchPersistArguments& arguments, const ScratchFolder& scratch) {
  const std::uint64_t pages_max = *std::max_element(arguments.pages.begin(), arguments.pages.end());
  const std::uint64_t round_bytes_max =
      pages_max * (arguments.raw == RawSide::pages ? kPageBytes : arguments.bytes_per_page);
  const std::uint64_t raw_bytes = std::max(kRawFileBytes, 5 * round_bytes_max);
  const std::uint64_t thread_bytes = arguments.region_mib * kMiB + raw_bytes;
  const std::uint64_t store_bytes = kStoreSlackBytes + arguments.log_mib * kMiB;
  if (MaybeFailure failure = require_space(scratch.path(), arguments.threads * thread_bytes + store_bytes)) {
    return *failure;
  }
  std::vector<RawWriter> raws;
  raws.reserve(arguments.threads);
  for (std::uint64_t thread = 0; thread < arguments.threads; ++thread) {
    Result<RawWriter> raw =
        RawWriter::create(scratch.path_of(fmt::format("raw-{}", thread)), kRawFileBytes, round_bytes_max);
    if (!raw.ok()) return std::move(raw.failure());
    raws.push_back(std::move(*raw));
  }
  return raws;
}

// Notes for the reader before the first numbers of a tracker.
void write_notes(std::string_view tracker, const PersistLine& line) {
  write_line(fmt::format("# {}: {}", tracker, line.tracker_detail));
  if (!line.raw_direct_io) write_line("# no direct I/O in this folder: the raw side goes through the page cache");
  if (line.direct_io != line.raw_direct_io) {
    write_line("# only one of memlith's log and the raw file uses direct I/O: the two sides are not comparable");
  }
}

MaybeFailure run_tracker(std::string_view tracker, const BenchPersistArguments& arguments, const ScratchFolder& scratch,
                         std::vector<RawWriter>& raws) {
  RoundShape shape;
  shape.bytes_per_page = arguments.bytes_per_page;
  shape.tracker = tracker_of(tracker);
  shape.scope = resolve_scope(arguments.scope, shape.tracker);
  shape.asynchronous = arguments.asynchronous;
  shape.same_pages = arguments.same_pages;
  shape.hot_pages = arguments.hot_pages;
  shape.process_scope = arguments.process_scope;
  bool first = true;
  for (const std::uint64_t pages : arguments.pages) {
    shape.pages = pages;
    Result<PersistLine> line = measure_persist_line(arguments, shape, scratch, raws);
    if (!line.ok()) return std::move(line.failure());
    if (arguments.format == Format::json) {
      write_json(json_of(tracker, arguments, *line));
    } else {
      if (std::exchange(first, false)) write_notes(tracker, *line);
      write_text(tracker, arguments, *line);
      if (arguments.log_mib != 0 && line->checkpoints_beside != 0) {
        write_line(fmt::
                       format("# {} checkpoints ran beside it: one begins when half of the log is in use; fewer "
                              "--rounds or a larger --log-mib avoid them",
                              line->checkpoints_beside));
      }
      if (shape.same_pages) {
        write_line(
            fmt::format("# the same pages in all of {} persists: written home {:.2f} times each, by {} checkpoints",
                        line->rounds, home_writes_each(arguments, *line), line->checkpoints));
      }
    }
  }
  return {};
}

MaybeFailure run_with_threads(const BenchPersistArguments& arguments) {
  Result<ScratchFolder> scratch = ScratchFolder::make(arguments.folder);
  if (!scratch.ok()) return std::move(scratch.failure());
  Result<std::vector<RawWriter>> raws = make_raws(arguments, *scratch);
  if (!raws.ok()) return std::move(raws.failure());
  if (arguments.format == Format::text) write_heading(arguments);
  for (const std::string& tracker : arguments.trackers) {
    if (MaybeFailure failure = run_tracker(tracker, arguments, *scratch, *raws)) return failure;
  }
  return {};
}

}  // namespace

MaybeFailure run_bench_persist(const BenchPersistArguments& arguments) {
  if (MaybeFailure failure = check(arguments)) return failure;
  catch_interrupts();
  if (arguments.peers) return run_bench_peers(arguments);
  if (arguments.checkpoints) return run_bench_checkpoints(arguments);
  if (arguments.breakdown) return run_bench_breakdown(arguments);
  if (arguments.one_region) return run_bench_one_region(arguments);
  for (const std::uint64_t threads : arguments.thread_counts) {
    BenchPersistArguments one = arguments;
    one.threads = threads;
    if (MaybeFailure failure = run_with_threads(one)) return failure;
  }
  return {};
}

}  // namespace memlith::tool
