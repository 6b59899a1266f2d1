#include "store/stats.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/checksum.hpp"
#include "base/clock.hpp"

namespace memlith::core {

std::string LiveStats::name_beside(const std::string& log_name) {
  return log_name == "log" ? "stats" : log_name + "-stats";
}

std::uint64_t durable_checksum(std::uint64_t incarnation, std::uint64_t durable_lsn) {
  const std::uint64_t both[2] = {incarnation, durable_lsn};
  return checksum(std::as_bytes(std::span(both)), StatsPage::kMagic);
}

Result<LiveStats> LiveStats::make(Volume& volume, const std::string& name, Device* file, std::uint64_t incarnation) {
  LiveStats stats;
  MEMLITH_TRY_ASSIGN(stats.page_, AlignedBuffer::allocate(sizeof(StatsPage)));
  MEMLITH_TRY_ASSIGN(stats.copy_, AlignedBuffer::allocate(sizeof(StatsPage)));
  std::memset(stats.page_.data(), 0, sizeof(StatsPage));
  stats->magic = StatsPage::kMagic;
  stats->version = StatsPage::kVersion;
  stats->process = static_cast<std::uint32_t>(::getpid());
  stats->opened_ns = now_since_1970_ns();
  if (file != nullptr) {
    MEMLITH_TRY_ASSIGN(stats->file, file->identity());
  }
  stats->incarnation = incarnation;
  stats->durable_checksum = durable_checksum(incarnation, 0);
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
  StatsPage& shown = *reinterpret_cast<StatsPage*>(to);
  shown.durable_checksum = durable_checksum(shown.incarnation, shown.durable_lsn.load(std::memory_order_relaxed));
  notice_->show(copy_.span().first(sizeof(StatsPage)));
}

std::optional<std::uint64_t> SeenStats::durable_lsn() const {
  const StatsPage& page = **this;
  const std::uint64_t durable = page.durable_lsn.load(std::memory_order_relaxed);
  if (page.durable_checksum != core::durable_checksum(page.incarnation, durable)) return std::nullopt;
  return durable;
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
