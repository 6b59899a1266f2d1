#include "store/publisher.hpp"

namespace memlith::core {

Result<std::unique_ptr<StatsPublisher>> StatsPublisher::make(StoreFiles& files, Device* file) {
  MEMLITH_TRY_ASSIGN(LiveStats live,
                     LiveStats::make(files.volume, files.names.stats, file, files.log->superblock().incarnation));
  return std::unique_ptr<StatsPublisher>(new StatsPublisher(files, std::move(live)));
}

void StatsPublisher::publish() {
  copy_counters();
  note_change();
}

void StatsPublisher::show_now() {
  if (!live_.shown()) return;
  copy_counters();
  const LockGuard lock(show_mutex_);
  live_.show();
}

void StatsPublisher::copy_counters() {
  const Log& log = *files_.log;
  const StoreCounters& counters = files_.counters;
  StatsPage& page = *live_;
  const auto copy = [](Counter& to, std::uint64_t value) { to.store(value, std::memory_order_relaxed); };
  copy(page.frames, log.counters().frames.load(std::memory_order_relaxed));
  copy(page.batches, log.counters().batches.load(std::memory_order_relaxed));
  copy(page.logged_bytes, log.counters().bytes.load(std::memory_order_relaxed));
  copy(page.captured_bytes, counters.captured_bytes.load(std::memory_order_relaxed));
  copy(page.captured_pages, counters.captured_pages.load(std::memory_order_relaxed));
  copy(page.last_captured_pages, counters.last_captured_pages.load(std::memory_order_relaxed));
  copy(page.checkpoints, counters.checkpoints.load(std::memory_order_relaxed));
  copy(page.home_bytes, counters.home_bytes.load(std::memory_order_relaxed));
  copy(page.log_bytes, log.capacity_bytes());
  copy(page.log_used_bytes, log.used_bytes());
  copy(page.durable_lsn, log.durable_lsn().value);
  copy(page.poisoned, log.poisoned() ? 1 : 0);
}

void StatsPublisher::note_change() {
  if (background_ == nullptr || !live_.shown()) return;
  changes_.fetch_add(1);
  if (!idle_.load() || !idle_.exchange(false)) return;
  if (!background_->shows.want(job_, SteadyClock::now())) idle_.store(true);
}

// Publishes the counters while they change, and costs nothing while they do not.
std::optional<Workers::Time> StatsPublisher::show() {
  const std::uint64_t seen = changes_.load();
  {
    const LockGuard lock(show_mutex_);
    live_.show();  // may take a while, and commits change counters meanwhile
  }
  const auto again = on_show_ ? on_show_() : std::nullopt;
  MEMLITH_ASSERT(shown_ <= seen);
  if (std::exchange(shown_, seen) == seen && !again.has_value()) {
    // Counters that changed just after the last notification have been published by now.
    idle_.store(true);
    if (changes_.load() == seen || !idle_.exchange(false)) return std::nullopt;
  }
  return SteadyClock::now() + again.value_or(kShowEvery);
}

void StatsPublisher::withdraw() {
  if (background_ != nullptr) background_->shows.withdraw(job_);
}

}  // namespace memlith::core
