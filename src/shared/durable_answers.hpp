// Answers of the keeper that wait for a flush. Floor: shared.
//
// One thread makes everything durable that waits, with one flush, and answers all of it. What arrives during a flush
// goes into the next one: the group commit of processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/sync.hpp"
#include "region/session.hpp"
#include "shared/channel.hpp"

namespace memlith::core::shared {

class KeptRegion;

// A client, as the keeper sees it. Everything but the sockets belongs to the keeper's thread.
struct Connection {
  Descriptor socket;
  Descriptor process;        // its life, readable when it has ended; none: the kernel gives none
  std::uint32_t number = 0;  // of the client; 0: it has not opened a region
  KeptRegion* region = nullptr;
  bool is_served = false;  // by the Service, and not a region's
  std::string payload;     // of its next request, as far as it came
};

class DurableAnswers {
 public:
  // Adds 1 to the eventfd `failed` when nothing can be made durable any more.
  DurableAnswers(Session& session, int failed);
  ~DurableAnswers();  // answers what waits
  DurableAnswers(const DurableAnswers&) = delete;
  DurableAnswers& operator=(const DurableAnswers&) = delete;

  // The answer is sent when everything up to `ticket`, which was captured, is durable; without its data if that fails.
  void add(std::shared_ptr<Connection> to, const Answer& answer, Lsn ticket, PersistTimer timer);

 private:
  struct Due {
    std::shared_ptr<Connection> to;
    Answer answer;
    Lsn ticket;
    PersistTimer timer;
  };
  void work();
  void answer(std::vector<Due>& all);

  Session& session_;
  const int failed_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Due> due_ MEMLITH_GUARDED_BY(mutex_);
  bool ending_ MEMLITH_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace memlith::core::shared
