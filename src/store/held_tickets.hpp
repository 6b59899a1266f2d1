// Which tickets may not count as durable yet although the log is durable behind them: those of frames that are in the
// log and end later (store/collectors.hpp, TICKETS). Floor: store.
#pragma once

#include <algorithm>
#include <vector>

#include "base/sync.hpp"
#include "base/units.hpp"

namespace memlith::core {

// Threads: any.
class HeldTickets {
 public:
  HeldTickets() { all_.reserve(kMax); }

  // Commits whose tickets are behind `first` are in a frame that ends there.
  void add(Lsn first, Lsn end) noexcept {
    const LockGuard lock(mutex_);
    if (all_.size() < kMax) {
      all_.push_back({first, end});
    } else {
      // Too many frames wait for a flush: these tickets count as durable with the later of two.
      all_.back() = {std::min(all_.back().first, first), std::max(all_.back().end, end)};
    }
  }
  void add(HeldTickets& others) noexcept {
    const LockGuard lock(others.mutex_);
    for (const TicketRange& each : others.all_) add(each.first, each.end);
    others.all_.clear();
  }

  // The newest ticket that counts as durable: the log is durable up to `durable_lsn`, read before `limit`, behind which
  // tickets of commits that wait may be. Only rises.
  Lsn durable(Lsn durable_lsn, Lsn limit) {
    const LockGuard lock(mutex_);
    std::erase_if(all_, [durable_lsn](const TicketRange& each) { return each.end <= durable_lsn; });
    Lsn ticket = std::min(durable_lsn, limit);
    for (const TicketRange& each : all_) ticket = std::min(ticket, each.first);
    return told_ = std::max(told_, ticket);
  }
  // How far the log has to be durable for the tickets up to `ticket` that are held here; 0: none is.
  Lsn end_for(Lsn ticket) {
    const LockGuard lock(mutex_);
    Lsn end;
    for (const TicketRange& each : all_) {
      if (each.first < ticket) end = std::max(end, each.end);
    }
    return end;
  }

 private:
  static constexpr std::size_t kMax = 64;
  struct TicketRange {
    Lsn first;
    Lsn end;
  };
  Mutex mutex_;
  std::vector<TicketRange> all_ MEMLITH_GUARDED_BY(mutex_);
  Lsn told_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
