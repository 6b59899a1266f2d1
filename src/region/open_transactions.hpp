// The transactions that have ranges in a region. Floor: region.
#pragma once

#include <algorithm>
#include <vector>

#include "base/sync.hpp"

namespace memlith::core {

class Transaction;

class OpenTransactions {
 public:
  void add(const Transaction& transaction) MEMLITH_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    all_.push_back(&transaction);
  }
  void remove(const Transaction& transaction) MEMLITH_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    std::erase(all_, &transaction);
  }
  [[nodiscard]] bool any() const MEMLITH_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    return !all_.empty();
  }
  // Calls `act` if there is none, and lets none begin meanwhile. False if there is one.
  template <class Act>
  bool if_none(Act&& act) MEMLITH_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    if (!all_.empty()) return false;
    act();
    return true;
  }

 private:
  mutable Mutex mutex_;
  std::vector<const Transaction*> all_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
