#include "store/stats.hpp"

#include <unistd.h>

#include <bit>
#include <chrono>

#include "base/units.hpp"

namespace memlith::core {

std::size_t LatencyHistogram::index_of(std::uint64_t ns) {
  if (ns < kSteps) return static_cast<std::size_t>(ns);
  const auto power = static_cast<std::size_t>(std::bit_width(ns)) - 1;  // 4 or more
  const std::size_t step = (ns >> (power - 4)) & (kSteps - 1);
  return std::min((power - 3) * kSteps + step, kCount - 1);
}

std::uint64_t LatencyHistogram::upper_bound_of(std::size_t index) {
  if (index < kSteps) return index;
  const std::size_t power = index / kSteps + 3;
  return ((kSteps + index % kSteps + 1) << (power - 4)) - 1;
}

std::uint64_t LatencyHistogram::count() const {
  std::uint64_t sum = 0;
  for (const auto& each : counts_) sum += each.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t LatencyHistogram::percentile_ns(double share) const {
  const std::uint64_t all = count();
  if (all == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(all - 1)) + 1;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    if (seen >= wanted) return upper_bound_of(i);
  }
  return upper_bound_of(kCount - 1);
}

std::string LiveStats::name_beside(const std::string& log_name) {
  return log_name == "log" ? "stats" : log_name + "-stats";
}

Result<LiveStats> LiveStats::make(Volume& volume, const std::string& name) {
  MEMLITH_TRY_ASSIGN(auto memory, volume.make_shared_memory(name, sizeof(StatsPage)));
  LiveStats stats(std::move(memory));
  stats->version = StatsPage::kVersion;
  stats->process = static_cast<std::uint32_t>(::getpid());
  stats->opened_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now()
                                                                                          .time_since_epoch())
                                     .count());
  stats->magic.store(StatsPage::kMagic, std::memory_order_release);
  return stats;
}

Result<std::unique_ptr<SharedMemory>> look_at_stats(Volume& volume, const std::string& name) {
  MEMLITH_TRY_ASSIGN(auto memory, volume.open_shared_memory(name, sizeof(StatsPage)));
  const auto& page = *reinterpret_cast<const StatsPage*>(memory->data());
  if (page.magic.load(std::memory_order_acquire) != StatsPage::kMagic || page.version != StatsPage::kVersion) {
    return fail(Errc::incompatible, Detail::open, "{}: not the counters of this version of memlith",
                volume.path_of(name));
  }
  return memory;
}

}  // namespace memlith::core
