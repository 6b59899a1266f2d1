// Counters of stores, of this process and of others; include/memlith/memlith.h. Floor: capi.
#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "private/inside.h"

using namespace memlith::core;

namespace {

memlith_stats stats_of(const StatsPage& page, bool alive) {
  const auto value = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  memlith_stats stats{};
  stats.process = page.process;
  stats.opened_ns = page.opened_ns;
  stats.persists = page.persists.count();
  stats.persist_p50_ns = page.persists.percentile_ns(0.5);
  stats.persist_p99_ns = page.persists.percentile_ns(0.99);
  stats.persist_p999_ns = page.persists.percentile_ns(0.999);
  stats.persist_max_ns = page.persists.percentile_ns(1);
  stats.captures = page.captures.count();
  stats.capture_p50_ns = page.captures.percentile_ns(0.5);
  stats.capture_p99_ns = page.captures.percentile_ns(0.99);
  stats.capture_p999_ns = page.captures.percentile_ns(0.999);
  stats.capture_max_ns = page.captures.percentile_ns(1);
  stats.kv_commits = page.kv_commits.count();
  stats.kv_commit_p50_ns = page.kv_commits.percentile_ns(0.5);
  stats.kv_commit_p99_ns = page.kv_commits.percentile_ns(0.99);
  stats.kv_commit_p999_ns = page.kv_commits.percentile_ns(0.999);
  stats.kv_commit_max_ns = page.kv_commits.percentile_ns(1);
  stats.kv_weak_commits = value(page.kv_weak_commits);
  stats.applog_entries = value(page.applog_entries);
  stats.applog_writes = page.applog_writes.count();
  stats.applog_write_p50_ns = page.applog_writes.percentile_ns(0.5);
  stats.applog_write_p99_ns = page.applog_writes.percentile_ns(0.99);
  stats.applog_write_p999_ns = page.applog_writes.percentile_ns(0.999);
  stats.applog_write_max_ns = page.applog_writes.percentile_ns(1);
  stats.frames = value(page.frames);
  stats.batches = value(page.batches);
  stats.captured_bytes = value(page.captured_bytes);
  stats.captured_pages = value(page.captured_pages);
  stats.last_captured_pages = value(page.last_captured_pages);
  stats.logged_bytes = value(page.logged_bytes);
  stats.log_bytes = value(page.log_bytes);
  stats.log_used_bytes = value(page.log_used_bytes);
  stats.durable_lsn = value(page.durable_lsn);
  stats.checkpoints = value(page.checkpoints);
  stats.home_bytes = value(page.home_bytes);
  stats.checkpoint_done_bytes = value(page.checkpoint_done_bytes);
  stats.checkpoint_total_bytes = value(page.checkpoint_total_bytes);
  stats.poisoned = value(page.poisoned);
  stats.alive = alive ? 1 : 0;
  stats.kv_weak_waits = page.kv_weak_waits.count();
  stats.kv_weak_wait_p50_ns = page.kv_weak_waits.percentile_ns(0.5);
  stats.kv_weak_wait_p99_ns = page.kv_weak_waits.percentile_ns(0.99);
  stats.kv_weak_wait_p999_ns = page.kv_weak_waits.percentile_ns(0.999);
  stats.kv_weak_wait_max_ns = page.kv_weak_waits.percentile_ns(1);
  const std::uint64_t since = value(page.oldest_waiting_ns);
  const auto now = static_cast<std::uint64_t>(SteadyClock::now().time_since_epoch().count());
  stats.kv_oldest_waiting_ns = alive && since != 0 && since < now ? now - since : 0;
  return stats;
}

}  // namespace

extern "C" {

int32_t memlith_store_get_stats(memlith_store* store, memlith_stats* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    Store& inner = session_of(store).store();
    const StatsPage* const page = inner.stats();
    if (page == nullptr)
      return fail(Errc::read_only, Detail::open, "statistics are not available for a store that was opened read-only");
    inner.publish_stats();
    memlith_stats stats = stats_of(*page, true);
    return write_info(target, stats);
  });
}

int32_t memlith_stat(const char* path, memlith_stats* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    const StoreKind kind = kind_at(path);
    MEMLITH_TRY_ASSIGN(const Place place, place_of_store(path, kind));
    const auto seen = SeenStats::look(*place.volume, Store::stats_name(kind, place.file_name));
    if (!seen.ok() && seen.error().category == Errc::not_found) {
      return fail(Errc::not_found, Detail::open, "{}: no process has this store open for writing", path);
    }
    MEMLITH_TRY(seen.status());
    memlith_stats stats = stats_of(**seen, seen->held());
    return write_info(target, stats);
  });
}

}  // extern "C"
