#include "store/log_grower.hpp"

#include <algorithm>
#include <utility>

#include "base/memory_budget.hpp"
#include "store/pace.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kLogBusyBytesDefault = 1 * kGiB;  // or an eighth of the memory: a checkpoint may need so much
constexpr std::uint64_t kGrowthStepBytes = 8 * kMiB;
}  // namespace

void LogGrower::start() {
  const StoreOptions& options = files_.options;
  const std::uint64_t busy_bytes = options.log_busy_bytes != 0 ? options.log_busy_bytes
                                   : options.log_bytes != 0    ? 0
                                                               : std::min(kLogBusyBytesDefault, memory_allowed() / 8);
  busy_slots_max_ = std::min(files_.log->slot_count_max(), busy_bytes / files_.log->geometry().slot_bytes);
  MEMLITH_ASSERT(busy_slots_max_ <= files_.log->slot_count_max());
  opened_at_ = files_.log->head();
  woken_ = {opened_at_, SteadyClock::now()};
}

std::uint64_t LogGrower::slots_to_keep() const {
  // The log of one file lies beside a file of the user's, and may be removed.
  if (files_.one_file() || files_.options.log_bytes != 0) return 0;
  const std::uint64_t filled = bytes_between(opened_at_, files_.log->head());
  return std::min(filled, directory_.log_bytes_given()) / files_.log->geometry().slot_bytes;
}

LogLoad LogGrower::look() {
  const Log& log = *files_.log;
  const Woken before = std::exchange(woken_, Woken{log.head(), SteadyClock::now()});
  const std::uint64_t capacity = log.capacity_bytes();
  MEMLITH_ASSERT(before.head <= woken_.head && capacity > 0);
  LogLoad load;
  load.slot_bytes = log.geometry().slot_bytes;
  load.slots = capacity / log.geometry().segment_bytes();
  load.slots_max = busy_slots_max_;
  load.filled = static_cast<double>(bytes_between(before.head, woken_.head)) / static_cast<double>(capacity);
  load.took = woken_.time - before.time;
  load.home_bytes = files_.counters.home_bytes.load(std::memory_order_relaxed);
  load.grown_bytes = grown_bytes_;
  load.given_bytes = directory_.log_bytes_given();
  if (const Result<std::uint64_t> free_bytes = files_.volume.free_bytes(); free_bytes.ok()) {
    load.free_bytes = *free_bytes;
  }
  return load;
}

bool LogGrower::grow(const Pause& pause) {
  Log& log = *files_.log;
  const LogLoad load = look();
  const std::uint64_t wanted = slots_to_add(load);
  if (wanted == 0) return false;
  const std::uint64_t capacity = load.slots * log.geometry().segment_bytes();
  const std::uint64_t used = bytes_between(log.tail().lsn, woken_.head);
  CheckpointPace pace(capacity - std::min(capacity, used));
  const std::uint64_t step_slots = std::max<std::uint64_t>(1, kGrowthStepBytes / load.slot_bytes);
  for (std::uint64_t done = 0; done < wanted;) {
    const std::uint64_t step = std::min(step_slots, wanted - done);
    if (!log.grow(step).ok()) {
      busy_slots_max_ = 0;  // the volume is full, or the log poisoned: a checkpoint takes over
      return false;
    }
    done += step;
    const std::uint64_t bytes = (load.slots + done) * load.slot_bytes;
    grown_bytes_ += std::min(step * load.slot_bytes, bytes - std::min(bytes, load.given_bytes));
    pace.move(static_cast<double>(done) / static_cast<double>(wanted), bytes_between(woken_.head, log.head()));
    if (pause(pace.pause(SteadyClock::now() - woken_.time))) break;
  }
  return bytes_between(log.tail().lsn, log.head()) < log.capacity_bytes() / 2;
}

}  // namespace memlith::core
