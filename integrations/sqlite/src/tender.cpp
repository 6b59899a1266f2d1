#include "tender.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <vector>

namespace memlith::sqlite {

using core::LockGuard;

namespace {

OneOfProcess<Tender> g_tender;

}  // namespace

Tender& Tender::of_process() { return g_tender.get(); }

// The process ends without having closed its databases: where no connection is in a transaction, other programs find
// ordinary files.
void Tender::at_exit() {
  Tender* const tender = g_tender.find();
  if (tender == nullptr || !tender->mutex_.try_lock()) return;
  std::vector<std::shared_ptr<Usage>> all;
  {
    const LockGuard guard(tender->mutex_, std::adopt_lock);
    for (const auto& [key, entry] : tender->entries_) all.push_back(entry.usage);
  }
  for (const auto& each : all) each->end_process();
}

bool Tender::start() {
  if (!runs_) runs_ = start_thread([this] { run(); });
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
