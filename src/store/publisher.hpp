// Publishes the counters of an open store, for as long as it is open for writing. Floor: store.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "store/background.hpp"
#include "store/stats.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Threads: any may publish; start and stop alone.
class StatsPublisher {
 public:
  // The file of the page gets the permissions of `like` if that is not null.
  static Result<std::unique_ptr<StatsPublisher>> make(StoreFiles& files, Device* like);

  // Histograms are the caller's to fill; counters follow with publish().
  [[nodiscard]] StatsPage& page() const { return *live_; }
  void publish();
  // The page has changed: a thread of the process shows it to others soon.
  void note_change();

  void start(Background& background) { background_ = &background; }
  // When this returns, no thread shows the page, and none will.
  void stop();
  // Takes the page away from other processes, for which it tells of an open store.
  void remove() { live_.remove(); }

 private:
  StatsPublisher(StoreFiles& files, LiveStats live) : files_(files), live_(std::move(live)) {}
  std::optional<Workers::Time> show();

  StoreFiles& files_;
  LiveStats live_;
  Background* background_ = nullptr;       // null: the page is shown no more, or not yet
  std::atomic<bool> idle_{true};           // the job neither waits nor runs
  std::atomic<std::uint64_t> changes_{0};  // raised before one looks whether the job is idle
  std::uint64_t shown_ = 0;                // as of which change; the job's own
  Workers::Job job_{[this] { return show(); }};
};

}  // namespace memlith::core
