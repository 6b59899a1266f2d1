// A thread that does what it is told, one thing after the other: for tests in which it matters which thread does it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace memlith::test {

class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    tell(nullptr);
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void run(const std::function<void()>& act) {
    tell(&act);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return act_ == nullptr; });
  }

 private:
  void tell(const std::function<void()>* act) {
    const std::lock_guard lock(mutex_);
    act_ = act;
    ending_ = act == nullptr;
    changed_.notify_all();
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return act_ != nullptr || ending_; });
      if (ending_) return;
      const auto* const act = act_;
      lock.unlock();
      (*act)();
      lock.lock();
      act_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* act_ = nullptr;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace memlith::test
