#include "tender.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/process.hpp"

namespace memlith::sqlite {

using core::LockGuard;

namespace {

std::atomic<Tender*> g_tender{nullptr};

}  // namespace

// A forked child gets one of its own: the thread, and possibly the mutex, stayed with the parent.
Tender& Tender::of_process() {
  const std::uint64_t mark = core::process_mark();
  Tender* found = g_tender.load(std::memory_order_acquire);
  if (found != nullptr && found->process_mark_ == mark) return *found;
  auto* const made = new Tender(mark);
  if (g_tender.compare_exchange_strong(found, made)) {
    static std::once_flag once;
    std::call_once(once, [] { (void)std::atexit(at_exit); });
    return *made;
  }
  delete made;
  return *found;
}

// The process ends without having closed its databases: where no connection is in a transaction, other programs find
// ordinary files.
void Tender::at_exit() {
  Tender* const tender = g_tender.load(std::memory_order_acquire);
  if (tender == nullptr || tender->process_mark_ != core::process_mark() || !tender->mutex_.try_lock()) return;
  std::vector<std::shared_ptr<Usage>> all;
  {
    const LockGuard guard(tender->mutex_, std::adopt_lock);
    for (const auto& [key, entry] : tender->entries_) all.push_back(entry.usage);
  }
  for (const auto& each : all) each->end_process();
}

bool Tender::start() {
  if (runs_) return true;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { run(); }).detach();
    runs_ = true;
  } catch (const std::system_error&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return runs_;
}

void Tender::add(const std::shared_ptr<Usage>& usage) {
  const LockGuard guard(mutex_);
  entries_[usage.get()] = {usage, Usage::Clock::now()};
  if (!start()) return;
  usage->set_waker([](void* self) { static_cast<Tender*>(self)->wake(); }, this);
  woken_ = true;
  changed_.notify_all();
}

void Tender::remove(const std::shared_ptr<Usage>& usage) {
  const LockGuard guard(mutex_);
  if (entries_.erase(usage.get()) == 0) return;
  changed_.wait(mutex_, [this, &usage]() MEMLITH_REQUIRES(mutex_) { return in_hand_ != usage.get(); });
  if (!entries_.empty() || !runs_) return;
  woken_ = true;
  changed_.notify_all();
  changed_.wait(mutex_, [this]() MEMLITH_REQUIRES(mutex_) { return !runs_ || !entries_.empty(); });
}

void Tender::wake() {
  const LockGuard guard(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void Tender::sleep() {
  std::optional<Usage::Time> next;
  for (const auto& [key, entry] : entries_) {
    if (entry.next.has_value() && (!next.has_value() || *entry.next < *next)) next = entry.next;
  }
  const auto is_woken = [this]() MEMLITH_REQUIRES(mutex_) { return woken_; };
  if (next.has_value()) {
    changed_.wait_for(mutex_, *next - Usage::Clock::now(), is_woken);
  } else {
    changed_.wait(mutex_, is_woken);
  }
  woken_ = false;
}

void Tender::tend_those_due() {
  const Usage::Time now = Usage::Clock::now();
  std::vector<std::shared_ptr<Usage>> due;
  for (auto& [key, entry] : entries_) {
    if (entry.usage->wants_a_look() || (entry.next.has_value() && *entry.next <= now)) due.push_back(entry.usage);
  }
  for (const auto& usage : due) {
    if (!entries_.contains(usage.get())) continue;
    in_hand_ = usage.get();
    mutex_.unlock();
    const std::optional<Usage::Time> next = usage->tend();
    mutex_.lock();
    in_hand_ = nullptr;
    if (const auto found = entries_.find(usage.get()); found != entries_.end()) found->second.next = next;
    changed_.notify_all();
  }
}

void Tender::run() {
  const LockGuard guard(mutex_);
  while (!entries_.empty()) {
    try {
      tend_those_due();
    } catch (const std::bad_alloc&) {
      // At the next look.
    }
    if (!entries_.empty()) sleep();
  }
  runs_ = false;
  changed_.notify_all();
}

}  // namespace memlith::sqlite
