#include "store/stats.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>

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
  // By nearest rank.
  const auto wanted =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all))));
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

Result<LiveStats> LiveStats::make(Volume& volume, const std::string& name, Device* like) {
  LiveStats stats;
  MEMLITH_TRY_ASSIGN(stats.page_, AlignedBuffer::allocate(sizeof(StatsPage)));
  MEMLITH_TRY_ASSIGN(stats.copy_, AlignedBuffer::allocate(sizeof(StatsPage)));
  std::memset(stats.page_.data(), 0, sizeof(StatsPage));
  stats->magic = StatsPage::kMagic;
  stats->version = StatsPage::kVersion;
  stats->process = static_cast<std::uint32_t>(::getpid());
  stats->opened_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now()
                                                                                          .time_since_epoch())
                                     .count());
  stats.notice_ = volume.make_notice(name, std::as_bytes(std::span(&*stats, 1)), like);
  return stats;
}

void LiveStats::show() {
  static_assert(sizeof(StatsPage) % sizeof(std::uint64_t) == 0);
  auto* const from = reinterpret_cast<std::uint64_t*>(page_.data());
  auto* const to = reinterpret_cast<std::uint64_t*>(copy_.data());
  for (std::size_t i = 0; i < sizeof(StatsPage) / sizeof(std::uint64_t); ++i) {
    to[i] = std::atomic_ref(from[i]).load(std::memory_order_relaxed);  // others go on counting
  }
  notice_->show(copy_.span().first(sizeof(StatsPage)));
}

Result<SeenStats> SeenStats::look(Volume& volume, const std::string& name) {
  MEMLITH_TRY_ASSIGN(const SeenNotice seen, volume.look_at_notice(name, sizeof(StatsPage)));
  SeenStats stats;
  MEMLITH_TRY_ASSIGN(stats.page_, AlignedBuffer::allocate(sizeof(StatsPage)));
  std::memcpy(stats.page_.data(), seen.bytes.data(), sizeof(StatsPage));
  stats.held_ = seen.held;
  if (stats->magic != StatsPage::kMagic || stats->version != StatsPage::kVersion) {
    return fail(Errc::incompatible, Detail::open, "{}: not the counters of this version of memlith",
                volume.path_of(name));
  }
  return stats;
}

}  // namespace memlith::core
