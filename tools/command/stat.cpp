// memlith stat STORE: what the process that has a store open is doing with it.
//
// Looks at the page of counters beside the store, and at nothing else: no lock is taken and nothing is opened. With
// --watch a line each interval, of what happened in it, until interrupted or until the store is closed; but latencies
// are of all persists since it was opened, for the page has no more than their percentiles. Of a process that is gone
// nothing is said that depends on how long ago that was, which the page does not tell.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "kit/stats.hpp"
#include "memlith/archive.h"
#include "memlith/memlith.h"
#include "private/inside.h"

namespace memlith::tool {

namespace {

Result<memlith_stats> look_at(const std::string& path) {
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  const std::int32_t code = memlith_stat(path.c_str(), &stats);
  if (code == MEMLITH_OK) return stats;
  Failure failure = library_failure(code, {});
  if (memlith_category(code) == MEMLITH_NOT_FOUND) {
    Result<StorePath> store = resolve_store_path(path);
    if (!store.ok()) return std::move(store.failure());
    failure.advice =
        "A store has counters only while a program has it open for writing; `memlith info` shows its content.";
  }
  return failure;
}

// The counters were read before the archive, so it may be ahead of them.
Result<ArchiveLag> look_at_archive(const std::string& folder, const memlith_stats& stats) {
  memlith_archive_target target{};
  target.struct_size = sizeof target;
  target.folder = folder.c_str();
  ArchiveLag lag;
  const auto note = [](void* context, const memlith_archive_run* run) {
    auto& newest = *static_cast<ArchiveLag*>(context);
    newest.archived_lsn = run->end_lsn;
    newest.archived_ns = run->end_ns;
  };
  const std::int32_t code = memlith_archive_list(&target, note, &lag);
  if (code != MEMLITH_OK) return library_failure(code, {});
  lag.not_archived_bytes = stats.durable_lsn - std::min(stats.durable_lsn, lag.archived_lsn);
  return lag;
}

double us(std::uint64_t ns) { return static_cast<double>(ns) / 1000; }
double number(std::uint64_t value) { return static_cast<double>(value); }
double percent(std::uint64_t part, std::uint64_t whole) { return 100 * ratio_of(number(part), number(whole)); }

std::string checkpoint_text(const memlith_stats& stats) {
  if (stats.checkpoint_total_bytes == 0) return "none runs";
  return fmt::format("{:.0f} % of {}", percent(stats.checkpoint_done_bytes, stats.checkpoint_total_bytes),
                     human_bytes(stats.checkpoint_total_bytes));
}

Json json_of(const memlith_stats& stats, const ArchiveLag* lag = nullptr) {
  Json all = {{"process", stats.process},
              {"alive", stats.alive != 0},
              {"opened_ns", stats.opened_ns},
              {"persists", stats.persists},
              {"persist_p50_us", us(stats.persist_p50_ns)},
              {"persist_p99_us", us(stats.persist_p99_ns)},
              {"persist_p999_us", us(stats.persist_p999_ns)},
              {"persist_max_us", us(stats.persist_max_ns)},
              {"captures", stats.captures},
              {"capture_p50_us", us(stats.capture_p50_ns)},
              {"capture_p99_us", us(stats.capture_p99_ns)},
              {"capture_p999_us", us(stats.capture_p999_ns)},
              {"capture_max_us", us(stats.capture_max_ns)},
              {"kv_commits", stats.kv_commits},
              {"kv_commit_p50_us", us(stats.kv_commit_p50_ns)},
              {"kv_commit_p99_us", us(stats.kv_commit_p99_ns)},
              {"kv_commit_p999_us", us(stats.kv_commit_p999_ns)},
              {"kv_commit_max_us", us(stats.kv_commit_max_ns)},
              {"kv_weak_commits", stats.kv_weak_commits},
              {"kv_weak_waits", stats.kv_weak_waits},
              {"kv_weak_wait_p50_us", us(stats.kv_weak_wait_p50_ns)},
              {"kv_weak_wait_p99_us", us(stats.kv_weak_wait_p99_ns)},
              {"kv_weak_wait_p999_us", us(stats.kv_weak_wait_p999_ns)},
              {"kv_weak_wait_max_us", us(stats.kv_weak_wait_max_ns)},
              {"kv_oldest_waiting_us", us(stats.kv_oldest_waiting_ns)},
              {"applog_entries", stats.applog_entries},
              {"applog_writes", stats.applog_writes},
              {"applog_write_p50_us", us(stats.applog_write_p50_ns)},
              {"applog_write_p99_us", us(stats.applog_write_p99_ns)},
              {"applog_write_p999_us", us(stats.applog_write_p999_ns)},
              {"applog_write_max_us", us(stats.applog_write_max_ns)},
              {"frames", stats.frames},
              {"batches", stats.batches},
              {"captured_bytes", stats.captured_bytes},
              {"captured_pages", stats.captured_pages},
              {"last_captured_pages", stats.last_captured_pages},
              {"logged_bytes", stats.logged_bytes},
              {"write_amplification", ratio_of(number(stats.logged_bytes), number(stats.captured_bytes))},
              {"log_bytes", stats.log_bytes},
              {"log_used_bytes", stats.log_used_bytes},
              {"durable_lsn", stats.durable_lsn},
              {"checkpoints", stats.checkpoints},
              {"home_bytes", stats.home_bytes},
              {"checkpoint_done_bytes", stats.checkpoint_done_bytes},
              {"checkpoint_total_bytes", stats.checkpoint_total_bytes},
              {"poisoned", stats.poisoned != 0}};
  if (lag != nullptr) {
    all["archived_lsn"] = lag->archived_lsn;
    all["archived_ns"] = lag->archived_ns;
    all["not_archived_bytes"] = lag->not_archived_bytes;
  }
  return all;
}

void print_once(const memlith_stats& stats, const ArchiveLag* lag) {
  const bool alive = stats.alive != 0;
  const double seconds = std::max(seconds_of(now_since_1970_ns() - stats.opened_ns), 1e-9);
  const auto rate = [alive, seconds](std::uint64_t count) {
    return alive ? fmt::format(", {:.1f} a second", number(count) / seconds) : std::string{};
  };
  write_line(fmt::format("process      {}{}{}", stats.process,
                         alive ? fmt::format(", open for {:.0f} s", seconds)
                               : " (it has ended: these are its last numbers)",
                         stats.poisoned != 0 ? "; POISONED: a write or flush failed, nothing more is persisted" : ""));
  write_line(fmt::format("persists     {}{}; p50 {:.1f} us, p99 {:.1f}, p99.9 {:.1f}, max {:.1f}", stats.persists,
                         rate(stats.persists), us(stats.persist_p50_ns), us(stats.persist_p99_ns),
                         us(stats.persist_p999_ns), us(stats.persist_max_ns)));
  if (stats.kv_commits + stats.kv_weak_commits > 0) {
    write_line(fmt::format("kv commits   {} sync{}; p50 {:.1f} us, p99 {:.1f}, p99.9 {:.1f}, max {:.1f}; {} weak{}",
                           stats.kv_commits, rate(stats.kv_commits), us(stats.kv_commit_p50_ns),
                           us(stats.kv_commit_p99_ns), us(stats.kv_commit_p999_ns), us(stats.kv_commit_max_ns),
                           stats.kv_weak_commits, rate(stats.kv_weak_commits)));
  }
  if (stats.kv_weak_waits > 0 || stats.kv_oldest_waiting_ns > 0) {
    write_line(
        fmt::format("kv waits     {} frames of weak commits; durable after p50 {:.1f} us, p99 {:.1f}, p99.9 {:.1f}, "
                    "max {:.1f}; the oldest that waits: {:.1f}",
                    stats.kv_weak_waits, us(stats.kv_weak_wait_p50_ns), us(stats.kv_weak_wait_p99_ns),
                    us(stats.kv_weak_wait_p999_ns), us(stats.kv_weak_wait_max_ns), us(stats.kv_oldest_waiting_ns)));
  }
  if (stats.applog_entries + stats.applog_writes > 0) {
    write_line(fmt::format("log entries  {}{}; {} writes, p50 {:.1f} us, p99 {:.1f}, p99.9 {:.1f}, max {:.1f}",
                           stats.applog_entries, rate(stats.applog_entries), stats.applog_writes,
                           us(stats.applog_write_p50_ns), us(stats.applog_write_p99_ns), us(stats.applog_write_p999_ns),
                           us(stats.applog_write_max_ns)));
  }
  write_line(fmt::format("asynchronous {}{}; captured in p50 {:.1f} us, p99 {:.1f}, p99.9 {:.1f}, max {:.1f}",
                         stats.captures, rate(stats.captures), us(stats.capture_p50_ns), us(stats.capture_p99_ns),
                         us(stats.capture_p999_ns), us(stats.capture_max_ns)));
  write_line(fmt::format("commits      {} in {} writes + flushes", stats.frames, stats.batches));
  write_line(fmt::format("captured     {} in {} pages, {} by the last commit", human_bytes(stats.captured_bytes),
                         stats.captured_pages, stats.last_captured_pages));
  write_line(fmt::format("logged       {}, {:.2f} times what was captured", human_bytes(stats.logged_bytes),
                         ratio_of(number(stats.logged_bytes), number(stats.captured_bytes))));
  write_line(fmt::format("log          {} of {} in use ({:.0f} %), durable up to LSN {}",
                         human_bytes(stats.log_used_bytes), human_bytes(stats.log_bytes),
                         percent(stats.log_used_bytes, stats.log_bytes), stats.durable_lsn));
  write_line(fmt::format("checkpoints  {}, {} written home; now: {}", stats.checkpoints, human_bytes(stats.home_bytes),
                         checkpoint_text(stats)));
  if (lag == nullptr) return;
  const std::uint64_t now = now_since_1970_ns();
  write_line(fmt::format("archive      up to LSN {}; {} are durable and not archived; last segment {:.1f} s ago",
                         lag->archived_lsn, human_bytes(lag->not_archived_bytes),
                         seconds_of(now - std::min(now, lag->archived_ns))));
}

// The line has 80 columns; `--json` has everything else.
constexpr fmt::string_view kWatchLine = "{:>10} {:>8} {:>9} {:>7} {:>8} {:>9} {:>5} {:>9} {:>7}";

void print_interval(const memlith_stats& before, const memlith_stats& now, double seconds) {
  const auto rate = [seconds](std::uint64_t a, std::uint64_t b) { return number(b - a) / seconds; };
  const auto bytes = [seconds](std::uint64_t a, std::uint64_t b) {
    return human_bytes(static_cast<std::uint64_t>(number(b - a) / seconds));
  };
  const std::uint64_t kv_before = before.kv_commits + before.kv_weak_commits;
  const std::string checkpoint =
      now.checkpoint_total_bytes == 0
          ? "-"
          : fmt::format("{:.0f} %", percent(now.checkpoint_done_bytes, now.checkpoint_total_bytes));
  write_line(fmt::format(kWatchLine, fmt::format("{:.0f}", rate(before.persists, now.persists)),
                         fmt::format("{:.0f}", rate(kv_before, now.kv_commits + now.kv_weak_commits)),
                         fmt::format("{:.0f}", rate(before.applog_entries, now.applog_entries)),
                         fmt::format("{:.1f}", us(now.persist_p50_ns)), fmt::format("{:.1f}", us(now.persist_p99_ns)),
                         bytes(before.logged_bytes, now.logged_bytes),
                         fmt::format("{:.0f}", percent(now.log_used_bytes, now.log_bytes)),
                         bytes(before.home_bytes, now.home_bytes), checkpoint));
}

MaybeFailure watch(const StatArguments& arguments, memlith_stats before) {
  catch_interrupts();
  if (arguments.format == Format::text) {
    write_line(fmt::format(kWatchLine, "persists/s", "kv/s", "entries/s", "p50 us", "p99 us", "logged/s", "log %",
                           "home/s", "checkp."));
  }
  while (!interrupted() && !output_failed()) {
    const std::uint64_t start = now_ns();
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval_s));
    Result<memlith_stats> now = look_at(arguments.path);
    if (!now.ok() && memlith_category(now.failure().code) != MEMLITH_NOT_FOUND) return std::move(now.failure());
    if (!now.ok()) return {};  // closed: nothing is left to watch
    if (now->process != before.process || now->opened_ns != before.opened_ns) before = memlith_stats{};
    if (arguments.format == Format::json) {
      write_json(json_of(*now));
    } else if (now->alive != 0) {
      print_interval(before, *now, seconds_of(now_ns() - start));
    } else {
      write_line(fmt::format("# process {} has ended; without --watch its last numbers are shown", now->process));
    }
    if (now->alive == 0) return {};
    before = *now;
  }
  return {};
}

}  // namespace

MaybeFailure run_stat(const StatArguments& arguments) {
  if (arguments.prometheus && arguments.format == Format::json) {
    return tool_failure(MEMLITH_INVALID, "--prometheus and --json were both given", "Give one of the two.");
  }
  Result<memlith_stats> stats = look_at(arguments.path);
  if (!stats.ok()) return std::move(stats.failure());
  ArchiveLag lag;
  if (!arguments.archive.empty()) {
    Result<ArchiveLag> found = look_at_archive(arguments.archive, *stats);
    if (!found.ok()) return std::move(found.failure());
    lag = *found;
  }
  const ArchiveLag* const shown = arguments.archive.empty() ? nullptr : &lag;
  if (arguments.prometheus) {
    print_prometheus(arguments.path, *stats, shown);
    return {};
  }
  if (arguments.watch) return watch(arguments, *stats);
  if (arguments.format == Format::json) {
    write_json(json_of(*stats, shown));
  } else {
    print_once(*stats, shown);
  }
  return {};
}

}  // namespace memlith::tool
