// A few threads that do background work for many owners. Floor: base.
//
// An owner has a Job for each kind of work, and requests its runs. A job runs on one thread at a time. Threads are
// started when jobs need them, up to a limit, and end with the Workers; an owner without work costs no thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/sync.hpp"

namespace memlith::core {

// Threads: any.
class Workers {
 public:
  using Time = SteadyClock::time_point;

  class Job {
   public:
    // `act` does not throw, and returns the time of its next run; usually none, until the next want().
    explicit Job(std::function<std::optional<Time>()> act) : act_(std::move(act)) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

   private:
    friend class Workers;
    enum class State : std::uint8_t { idle, waiting, running };
    std::function<std::optional<Time>()> act_;
    // Under the mutex of the Workers.
    State state_ = State::idle;
    bool withdrawn_ = false;
    Time due_;                         // waiting
    Job* next_ = nullptr;              // waiting: the one that is due after it
    std::optional<Time> wanted_next_;  // running: and then again
  };

  explicit Workers(std::size_t threads_max) : threads_max_(threads_max) {}
  ~Workers();  // every job was withdrawn; waits for the threads to end
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The job runs at `due`, or sooner if an earlier run was requested before; a running job runs once more afterwards.
  // No effect on a withdrawn job. Allocates nothing, except for threads. False: there is no thread and none can be
  // started, so the job does not run.
  bool want(Job& job, Time due);
  // When this returns, the job is not running and never will again. Must not be called by the job itself.
  void withdraw(Job& job);
  // True if jobs are due and wait, because all threads are busy: a job that paces itself then stops pausing.
  [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }

 private:
  void work();
  void run(Job& job) MEMLITH_REQUIRES(mutex_);
  void enqueue(Job& job, Time due) MEMLITH_REQUIRES(mutex_);
  void remove(Job& job) MEMLITH_REQUIRES(mutex_);
  bool start_thread() MEMLITH_REQUIRES(mutex_);
  // The jobs in the list are those that wait, none of them withdrawn, in the order in which they are due; no more
  // threads are idle than there are.
  [[nodiscard]] bool state_holds() const MEMLITH_REQUIRES(mutex_);

  const std::size_t threads_max_;
  Mutex mutex_;
  ConditionVariable wake_;                           // of threads without work
  ConditionVariable done_;                           // a job that was withdrawn has ended
  Job* first_ MEMLITH_GUARDED_BY(mutex_) = nullptr;  // of the jobs that wait, in the order in which they are due
  std::size_t waiting_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::vector<Thread> threads_ MEMLITH_GUARDED_BY(mutex_);
  std::size_t idle_ MEMLITH_GUARDED_BY(mutex_) = 0;  // threads without work
  bool ending_ MEMLITH_GUARDED_BY(mutex_) = false;
  std::atomic<bool> crowded_{false};  // advisory
};

}  // namespace memlith::core
