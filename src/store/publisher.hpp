// Publishes the counters of an open store, for as long as it is open for writing. Floor: store.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/sync.hpp"
#include "store/background.hpp"
#include "store/stats.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Threads: any may publish; start and stop alone.
class StatsPublisher {
 public:
  // `file`: as in LiveStats::make().
  static Result<std::unique_ptr<StatsPublisher>> make(StoreFiles& files, Device* file);

  // The caller fills the histograms; publish() copies the counters.
  [[nodiscard]] StatsPage& page() const { return *live_; }
  void publish();
  void publish(std::uint64_t oldest_waiting_ns) {
    live_->oldest_waiting_ns.store(oldest_waiting_ns, std::memory_order_relaxed);
    publish();
  }
  // Shows the counters as they are now to other processes, before this returns.
  void show_now() MEMLITH_EXCLUDES(show_mutex_);
  // The page has changed: a background thread publishes it soon.
  void note_change();

  void start(Background& background) { background_ = &background; }
  // Also called by the thread that shows the page; returns how soon it has to be called again, although no counter
  // changes. Before start().
  static constexpr std::chrono::milliseconds kShowEvery{50};
  using OnShow = std::function<std::optional<std::chrono::milliseconds>()>;
  void set_on_show(OnShow on_show) { on_show_ = std::move(on_show); }
  // When this returns, no background thread publishes the page or calls on_show, and none will. Others may still note
  // changes.
  void withdraw();
  // After withdraw(), when no background thread notes changes any more.
  void stop() { background_ = nullptr; }
  // Removes the file, which tells other processes that the store is open.
  void remove() { live_.remove(); }

 private:
  StatsPublisher(StoreFiles& files, LiveStats live) : files_(files), live_(std::move(live)) {}
  std::optional<Workers::Time> show() MEMLITH_EXCLUDES(show_mutex_);
  void copy_counters();

  StoreFiles& files_;
  LiveStats live_;
  OnShow on_show_;
  Mutex show_mutex_;                       // held while the page is written
  Background* background_ = nullptr;       // null: the page is not published any more, or not yet
  std::atomic<bool> idle_{true};           // the job neither waits nor runs
  std::atomic<std::uint64_t> changes_{0};  // raised before one looks whether the job is idle
  std::uint64_t shown_ = 0;                // as of which change; the job's own
  Workers::Job job_{[this] { return show(); }};
};

}  // namespace memlith::core
