#include "watch.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/process.hpp"

namespace memlith::sqlite {

using core::LockGuard;
using core::UniqueLock;

namespace {

constexpr std::chrono::milliseconds kWithoutEvents{20};

std::atomic<Watch*> g_watch{nullptr};

void close_descriptor(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

// A forked child gets a watch of its own: the thread, and possibly the mutex, stayed with the parent.
Watch& Watch::of_process() {
  const std::uint64_t mark = core::process_mark();
  Watch* found = g_watch.load(std::memory_order_acquire);
  if (found != nullptr && found->process_mark_ == mark) return *found;
  auto* const made = new Watch(mark);
  if (g_watch.compare_exchange_strong(found, made)) {
    static std::once_flag once;
    std::call_once(once, [] { (void)std::atexit(at_exit); });
    return *made;
  }
  delete made;
  return *found;
}

// The process ends without having closed its databases: where no connection is in a transaction, other programs find
// ordinary files.
void Watch::at_exit() {
  Watch* const watch = g_watch.load(std::memory_order_acquire);
  if (watch == nullptr || watch->process_mark_ != core::process_mark() || !watch->mutex_.try_lock()) return;
  std::vector<std::shared_ptr<Lease>> leases;
  {
    const LockGuard guard(watch->mutex_, std::adopt_lock);
    for (const auto& [key, entry] : watch->entries_) leases.push_back(entry.lease);
  }
  for (const auto& each : leases) each->end_process();
}

bool Watch::start() {
  if (runs_) return true;
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return false;
  events_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { run(); }).detach();
    runs_ = true;
    ends_ = false;
  } catch (const std::system_error&) {
    int descriptor = wake_.exchange(-1);
    close_descriptor(descriptor);
    close_descriptor(events_);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return runs_;
}

void Watch::stop() {
  if (!runs_) return;
  ends_ = true;
  wake();
  changed_.wait(mutex_, [this]() MEMLITH_REQUIRES(mutex_) { return !runs_ || !entries_.empty(); });
}

void Watch::add(const std::shared_ptr<Lease>& lease, const std::string& path) {
  if (path.empty()) return;
  const LockGuard guard(mutex_);
  if (!start()) return;
  ends_ = false;
  Entry entry{lease, -1, Lease::Clock::now()};
  if (events_ >= 0) entry.number = ::inotify_add_watch(events_, path.c_str(), IN_OPEN);
  if (entry.number < 0) close_descriptor(events_);
  entries_[lease.get()] = std::move(entry);
  lease->set_waker([](void* self) { static_cast<const Watch*>(self)->wake(); }, this);
  wake();
}

void Watch::remove(const std::shared_ptr<Lease>& lease) {
  const LockGuard guard(mutex_);
  const auto found = entries_.find(lease.get());
  if (found == entries_.end()) return;
  const int number = found->second.number;
  entries_.erase(found);
  const bool shared = std::any_of(entries_.begin(), entries_.end(),
                                  [number](const auto& each) { return each.second.number == number; });
  if (events_ >= 0 && number >= 0 && !shared) (void)::inotify_rm_watch(events_, number);
  changed_.wait(mutex_, [this, &lease]() MEMLITH_REQUIRES(mutex_) { return in_hand_ != lease.get(); });
  if (entries_.empty()) stop();
}

void Watch::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.load(std::memory_order_relaxed), &one, sizeof one);  // fails if it is awake already
}

int Watch::milliseconds_to_sleep() const {
  std::optional<Lease::Time> next;
  for (const auto& [key, entry] : entries_) {
    if (entry.next.has_value() && (!next.has_value() || *entry.next < *next)) next = entry.next;
  }
  int limit = events_ >= 0 ? -1 : static_cast<int>(kWithoutEvents.count());
  if (!next.has_value()) return limit;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Lease::Clock::now()).count();
  const int wanted = static_cast<int>(std::clamp<long>(left, 0, 60'000));
  return limit < 0 ? wanted : std::min(limit, wanted);
}

// Another process opened a file: its lease is looked at now.
void Watch::note_events() {
  alignas(inotify_event) char buffer[4096];
  for (;;) {
    const ssize_t got = events_ >= 0 ? ::read(events_, buffer, sizeof buffer) : -1;
    if (got <= 0) return;
    for (ssize_t at = 0; at < got;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof *event) + event->len;
      const bool overflow = (event->mask & IN_Q_OVERFLOW) != 0;
      for (auto& [key, entry] : entries_) {
        if (overflow || entry.number == event->wd) entry.next = Lease::Clock::now();
      }
    }
  }
}

void Watch::tend_those_due() {
  const Lease::Time now = Lease::Clock::now();
  std::vector<std::shared_ptr<Lease>> due;
  for (auto& [key, entry] : entries_) {
    const bool polled = events_ < 0;
    if (entry.lease->wants_a_look() || polled || (entry.next.has_value() && *entry.next <= now)) {
      due.push_back(entry.lease);
    }
  }
  for (const auto& lease : due) {
    if (!entries_.contains(lease.get())) continue;
    in_hand_ = lease.get();
    mutex_.unlock();
    const std::optional<Lease::Time> next = lease->tend();
    mutex_.lock();
    in_hand_ = nullptr;
    if (const auto found = entries_.find(lease.get()); found != entries_.end()) found->second.next = next;
    changed_.notify_all();
  }
}

void Watch::run() {
  const LockGuard guard(mutex_);
  while (!ends_) {
    pollfd wanted[2] = {{wake_.load(), POLLIN, 0}, {events_, POLLIN, 0}};
    const int wait = milliseconds_to_sleep();
    mutex_.unlock();
    (void)::poll(wanted, 2, wait);  // a negative descriptor is ignored
    std::uint64_t count = 0;
    (void)!::read(wanted[0].fd, &count, sizeof count);
    mutex_.lock();
    try {
      note_events();
      tend_those_due();
    } catch (const std::bad_alloc&) {
      // At the next look.
    }
  }
  int descriptor = wake_.exchange(-1);
  close_descriptor(descriptor);
  close_descriptor(events_);
  runs_ = false;
  changed_.notify_all();
}

}  // namespace memlith::sqlite
