// memlith stat --prometheus: the counters of a store in Prometheus's text format, version 0.0.4.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "commands.hpp"

namespace memlith::tool {

namespace {

// The value of a label: backslash, quote and newline are escaped.
std::string label_value(std::string_view text) {
  std::string value;
  for (const char each : text) {
    if (each == '\n') {
      value += "\\n";
      continue;
    }
    if (each == '\\' || each == '"') value += '\\';
    value += each;
  }
  return value;
}

class Metrics {
 public:
  explicit Metrics(const std::string& path) : store_(fmt::format("store=\"{}\"", label_value(path))) {}

  void counter(std::string_view name, std::string_view help, std::uint64_t value) const {
    one(name, help, "counter", value);
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) const {
    one(name, help, "gauge", value);
  }
  void gauge_seconds(std::string_view name, std::string_view help, std::uint64_t ns) const {
    head(name, help, "gauge");
    write_line(fmt::format("memlith_{}{{{}}} {:.9f}", name, store_, seconds(ns)));
  }

  // Latencies: percentiles and the number of calls. The page of counters has no sum.
  void summary(std::string_view name, std::string_view help, std::uint64_t count, std::uint64_t p50_ns,
               std::uint64_t p99_ns, std::uint64_t p999_ns, std::uint64_t max_ns) const {
    head(name, help, "summary");
    quantile(name, "0.5", p50_ns);
    quantile(name, "0.99", p99_ns);
    quantile(name, "0.999", p999_ns);
    write_line(fmt::format("memlith_{}_count{{{}}} {}", name, store_, count));
    gauge_seconds(fmt::format("{}_max", name), fmt::format("{} The longest.", help), max_ns);
  }

 private:
  static double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
  static void head(std::string_view name, std::string_view help, std::string_view type) {
    write_line(fmt::format("# HELP memlith_{} {}", name, help));
    write_line(fmt::format("# TYPE memlith_{} {}", name, type));
  }
  void one(std::string_view name, std::string_view help, std::string_view type, std::uint64_t value) const {
    head(name, help, type);
    write_line(fmt::format("memlith_{}{{{}}} {}", name, store_, value));
  }
  void quantile(std::string_view name, std::string_view which, std::uint64_t ns) const {
    write_line(fmt::format("memlith_{}{{{},quantile=\"{}\"}} {:.9f}", name, store_, which, seconds(ns)));
  }

  std::string store_;
};

}  // namespace

void print_prometheus(const std::string& path, const memlith_stats& stats, const ArchiveLag* lag) {
  const Metrics print(path);
  print.gauge("up", "1 while the process that has the store open is alive.", stats.alive);
  print.gauge("poisoned", "1 after a write or flush failed: the store persists nothing more.", stats.poisoned);
  print.gauge("process", "Number of the process that has the store open.", stats.process);
  print.gauge("opened_time_seconds", "When the store was opened, since 1970.", stats.opened_ns / 1'000'000'000);
  print.summary("persist_seconds", "Synchronous persists, until durable, since opening.", stats.persists,
                stats.persist_p50_ns, stats.persist_p99_ns, stats.persist_p999_ns, stats.persist_max_ns);
  print.summary("capture_seconds", "Asynchronous persists, until captured, since opening.", stats.captures,
                stats.capture_p50_ns, stats.capture_p99_ns, stats.capture_p999_ns, stats.capture_max_ns);
  print.summary("kv_commit_seconds", "Sync commits of kv stores, until durable, since opening.", stats.kv_commits,
                stats.kv_commit_p50_ns, stats.kv_commit_p99_ns, stats.kv_commit_p999_ns, stats.kv_commit_max_ns);
  print.summary("kv_weak_wait_seconds",
                "From the first weak commit of each frame of a kv store until the frame was durable, since opening.",
                stats.kv_weak_waits, stats.kv_weak_wait_p50_ns, stats.kv_weak_wait_p99_ns, stats.kv_weak_wait_p999_ns,
                stats.kv_weak_wait_max_ns);
  print.gauge_seconds("kv_oldest_waiting_seconds", "Age of the oldest weak commit that is not durable; 0: all are.",
                      stats.kv_oldest_waiting_ns);
  print.summary("applog_write_seconds", "Writes of application logs, until durable, since opening.",
                stats.applog_writes, stats.applog_write_p50_ns, stats.applog_write_p99_ns, stats.applog_write_p999_ns,
                stats.applog_write_max_ns);
  print.counter("kv_weak_commits_total", "Weak commits of kv stores.", stats.kv_weak_commits);
  print.counter("applog_entries_total", "Entries appended to application logs.", stats.applog_entries);
  print.counter("frames_total", "Commits of any kind in the log.", stats.frames);
  print.counter("batches_total", "Writes with a flush that these commits took.", stats.batches);
  print.counter("captured_bytes_total", "Bytes of memory in these commits.", stats.captured_bytes);
  print.counter("captured_pages_total", "Pages in which these bytes lie.", stats.captured_pages);
  print.counter("logged_bytes_total", "Bytes written to the log.", stats.logged_bytes);
  print.counter("home_bytes_total", "Bytes that checkpoints wrote into the data files.", stats.home_bytes);
  print.counter("checkpoints_total", "Checkpoints.", stats.checkpoints);
  print.gauge("log_bytes", "Size of the log.", stats.log_bytes);
  print.gauge("log_used_bytes", "Bytes of the log that no checkpoint has written home yet.", stats.log_used_bytes);
  print.gauge("checkpoint_done_bytes", "Bytes of the log that the running checkpoint has processed.",
              stats.checkpoint_done_bytes);
  print.gauge("checkpoint_total_bytes", "Bytes of the log that the running checkpoint processes; 0: none runs.",
              stats.checkpoint_total_bytes);
  if (lag == nullptr) return;
  print.gauge("not_archived_bytes", "Bytes of the log that are durable and not in the archive.",
              lag->not_archived_bytes);
  print.gauge("archived_time_seconds", "When the last segment was archived, since 1970.",
              lag->archived_ns / 1'000'000'000);
}

}  // namespace memlith::tool
