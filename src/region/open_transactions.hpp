// The transactions that have ranges in a region. Floor: region.
#pragma once

#include <algorithm>
#include <vector>

#include "base/sync.hpp"
#include "region/shards.hpp"

namespace memlith::core {

class Transaction;

class OpenTransactions {
  struct Part {
    Mutex mutex;
    std::vector<const Transaction*> all MEMLITH_GUARDED_BY(mutex);
  };

 public:
  // Where a transaction was added, for remove().
  using Shard = Part*;

  Shard add(const Transaction& transaction) {
    Part& part = parts_.mine();
    const LockGuard lock(part.mutex);
    part.all.push_back(&transaction);
    return &part;
  }
  static void remove(Shard part, const Transaction& transaction) {
    const LockGuard lock(part->mutex);
    std::erase(part->all, &transaction);
  }
  [[nodiscard]] bool any() {
    bool found = false;
    parts_.for_each([&found](Part& part) {
      const LockGuard lock(part.mutex);
      found = found || !part.all.empty();
    });
    return found;
  }
  // Calls `act` if there is none, and lets none begin meanwhile. False if there is one.
  template <class Act>
  bool if_none(Act&& act) {
    struct AllLocked {
      Shards<Part>& parts;
      explicit AllLocked(Shards<Part>& all) : parts(all) {
        parts.for_each([](Part& part) MEMLITH_ACQUIRE(part.mutex) { part.mutex.lock(); });
      }
      ~AllLocked() {
        parts.for_each([](Part& part) MEMLITH_RELEASE(part.mutex) { part.mutex.unlock(); });
      }
    } held(parts_);
    bool found = false;
    parts_.for_each([&found](Part& part) MEMLITH_REQUIRES(part.mutex) { found = found || !part.all.empty(); });
    if (found) return false;
    call_annotated(act);
    return true;
  }

 private:
  Shards<Part> parts_;
};

}  // namespace memlith::core
