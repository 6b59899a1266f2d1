// Answers of the keeper that wait for a flush. Floor: shared.
//
// One thread makes everything durable that waits, with one flush, and answers all of it. What arrives during a flush
// goes into the next one: the group commit of processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/descriptor.hpp"
#include "base/sync.hpp"
#include "region/session.hpp"

namespace memlith::core::shared {

class KeptRegion;

// A client, as the keeper sees it. Everything but the sockets belongs to the keeper's thread.
struct Connection {
  Descriptor socket;
  Descriptor process;        // its life, readable when it has ended; none: the kernel gives none
  std::uint32_t number = 0;  // of the client; 0: it has not opened a region
  KeptRegion* region = nullptr;
};

class DurableAnswers {
 public:
  // Adds 1 to the eventfd `failed` when nothing can be made durable any more.
  DurableAnswers(Session& session, int failed);
  ~DurableAnswers();  // answers what waits
  DurableAnswers(const DurableAnswers&) = delete;
  DurableAnswers& operator=(const DurableAnswers&) = delete;

  // The request of that number is answered when everything up to `ticket`, which was captured, is durable.
  void add(std::shared_ptr<Connection> to, std::uint64_t number, Lsn ticket, PersistTimer timer);

 private:
  struct Due {
    std::shared_ptr<Connection> to;
    std::uint64_t number = 0;
    Lsn ticket;
    PersistTimer timer;
  };
  void work();
  void answer(const std::vector<Due>& all);

  Session& session_;
  const int failed_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Due> due_ MEMLITH_GUARDED_BY(mutex_);
  bool ending_ MEMLITH_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace memlith::core::shared
