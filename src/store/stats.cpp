#include "store/stats.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

namespace memlith::core {

std::string LiveStats::name_beside(const std::string& log_name) {
  return log_name == "log" ? "stats" : log_name + "-stats";
}

Result<LiveStats> LiveStats::make(Volume& volume, const std::string& name, Device* file) {
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
  if (file != nullptr) {
    MEMLITH_TRY_ASSIGN(stats->file, file->identity());
  }
  stats.notice_ = volume.make_notice(name, std::as_bytes(std::span(&*stats, 1)), file);
  return stats;
}

void LiveStats::show() {
  static_assert(sizeof(StatsPage) % sizeof(std::uint64_t) == 0);
  auto* const from = reinterpret_cast<std::uint64_t*>(page_.data());
  auto* const to = reinterpret_cast<std::uint64_t*>(copy_.data());
  for (std::size_t i = 0; i < sizeof(StatsPage) / sizeof(std::uint64_t); ++i) {
    to[i] = std::atomic_ref(from[i]).load(std::memory_order_relaxed);  // other threads continue to count
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
    return fail(Errc::incompatible, Detail::open, "{}: this statistics file was written by another version of memlith",
                volume.path_of(name));
  }
  return stats;
}

}  // namespace memlith::core
