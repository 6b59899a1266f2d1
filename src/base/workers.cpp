#include "base/workers.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/assert.hpp"

namespace memlith::core {

Workers::~Workers() {
  {
    const LockGuard lock(mutex_);
    MEMLITH_ASSERT(waiting_ == 0);
    ending_ = true;
  }
  wake_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

bool Workers::want(Job& job, Time due) {
  const LockGuard lock(mutex_);
  if (job.withdrawn_) return true;
  if (job.state_ == Job::State::running) {
    job.wanted_next_ = std::min(due, job.wanted_next_.value_or(due));
    return true;
  }
  if (job.state_ == Job::State::waiting) {
    if (due >= job.due_) return true;
    remove(job);
    enqueue(job, due);
    wake_.notify_one();
    return true;
  }
  enqueue(job, due);
  if (idle_ >= waiting_) {
    wake_.notify_one();
    return true;
  }
  if (threads_.size() < threads_max_ && start_thread()) return true;
  if (threads_.empty()) {
    remove(job);
    job.state_ = Job::State::idle;
    return false;
  }
  crowded_.store(idle_ == 0, std::memory_order_relaxed);
  wake_.notify_one();
  return true;
}

void Workers::withdraw(Job& job) {
  const LockGuard lock(mutex_);
  job.withdrawn_ = true;
  if (job.state_ == Job::State::waiting) {
    remove(job);
    job.state_ = Job::State::idle;
  }
  done_.wait(mutex_, [&job] { return job.state_ != Job::State::running; });
}

void Workers::enqueue(Job& job, Time due) {
  Job** at = &first_;
  while (*at != nullptr && (*at)->due_ <= due) at = &(*at)->next_;
  job.next_ = std::exchange(*at, &job);
  job.due_ = due;
  job.state_ = Job::State::waiting;
  ++waiting_;
  MEMLITH_DCHECK(state_holds());
}

void Workers::remove(Job& job) {
  Job** at = &first_;
  while (*at != &job) at = &(*at)->next_;
  *at = std::exchange(job.next_, nullptr);
  --waiting_;
  MEMLITH_DCHECK(state_holds());
}

bool Workers::state_holds() const {
  std::size_t count = 0;
  for (const Job* job = first_; job != nullptr; job = job->next_) {
    if (job->state_ != Job::State::waiting || job->withdrawn_) return false;
    if (job->next_ != nullptr && job->next_->due_ < job->due_) return false;
    ++count;
  }
  return count == waiting_ && idle_ <= threads_.size() && threads_.size() <= threads_max_;
}

bool Workers::start_thread() {
  try {
    threads_.reserve(threads_max_);
    threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {  // the system refused, or memory for a thread was lacking
    return false;
  }
  return true;
}

void Workers::work() {
  const LockGuard lock(mutex_);
  while (!ending_) {
    Job* const next = first_;
    const auto now = SteadyClock::now();
    if (next == nullptr || next->due_ > now) {
      crowded_.store(false, std::memory_order_relaxed);
      ++idle_;
      if (next == nullptr) {
        wake_.wait(mutex_, [this]() MEMLITH_REQUIRES(mutex_) { return ending_ || waiting_ > 0; });
      } else {
        // Woken for a job that is due before this one; or this one was withdrawn.
        wake_.wait_for(mutex_, next->due_ - now, [this, due = next->due_]() MEMLITH_REQUIRES(mutex_) {
          return ending_ || first_ == nullptr || first_->due_ != due;
        });
      }
      --idle_;
      continue;
    }
    remove(*next);
    next->state_ = Job::State::running;
    run(*next);
  }
}

void Workers::run(Job& job) {
  mutex_.unlock();
  std::optional<Time> again = job.act_();
  mutex_.lock();
  const std::optional<Time> wanted = std::exchange(job.wanted_next_, std::nullopt);
  if (wanted.has_value()) again = std::min(*wanted, again.value_or(*wanted));
  job.state_ = Job::State::idle;
  if (job.withdrawn_) {
    done_.notify_all();
  } else if (again.has_value()) {
    enqueue(job, *again);
    if (idle_ > 0) wake_.notify_one();  // this thread may find another job first
  }
}

}  // namespace memlith::core
