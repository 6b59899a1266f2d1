// The threads behind Redis: one moves cuts into the kv store, one flushes a weak log. plugin redis.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>

#include "redis/src/datastore.hpp"

namespace memlith_redis {

using memlith::Result;

namespace {

constexpr std::size_t kBytesPerCommit = 1 << 20;
constexpr std::size_t kPartBytesPerCommit = 8 << 20;
constexpr int kMoverNice = 10;

std::size_t weight_of(const Batch& batch) { return batch.operations.size() + sizeof batch; }

// Redis's own thread gets the processor when both want it: what the mover has not moved yet is in the log, and when the
// log is full, Redis's thread sleeps and leaves the processor to the mover. Where the system refuses, nothing is lost.
void be_nice() { static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kMoverNice)); }

}  // namespace

void Mover::start(int durability, std::uint64_t window_ms, std::uint64_t log_bytes) {
  flush_bytes_ = log_bytes / 8;
  set_durability(durability, window_ms);
  {
    const std::lock_guard lock(mutex_);
    ending_ = false;
    running_ = true;
    if (auto info = log_.info()) read_ = info->read;
  }
  behind_.begin();
  mover_ = std::thread([this] { move(); });
  flusher_ = std::thread([this] { flush(); });
}

void Mover::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return;
    ending_ = true;
    running_ = false;
  }
  work_.notify_all();
  flush_.notify_all();
  behind_.end();
  mover_.join();
  flusher_.join();
}

void Mover::set_durability(int durability, std::uint64_t window_ms) {
  {
    const std::lock_guard lock(mutex_);
    window_ms_ = window_ms;
  }
  weak_ = durability == DATASTORE_WEAK;
  flush_.notify_all();
}

void Mover::tell() {
  const std::uint64_t one = 1;
  if (const int fd = progress_; fd >= 0 && ::write(fd, &one, sizeof one) < 0) return;  // it is readable already
}

Result<void> Mover::write() {
  const auto began = std::chrono::steady_clock::now();
  auto written = log_.write();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
  const std::uint64_t before = flush_us_;
  flush_us_ = before == 0 ? static_cast<std::uint64_t>(took.count())
                          : (7 * before + static_cast<std::uint64_t>(took.count())) / 8;
  return written;
}

void Mover::end_with(const memlith::Error& error) {
  (void)behind_.fail(error);
  wake_waiting();
  tell();
}

// A thread that looks meanwhile sees the reason, or is woken.
void Mover::wake_waiting() {
  {
    const std::lock_guard lock(mutex_);
  }
  moved_.notify_all();
}

template <class Act>
Result<void> Mover::until_room(std::atomic<bool>& refused, Act&& act) {
  Result<void> done = behind_.until_room(act, [&] {
    refused = true;
    wake_waiting();
  });
  if (done) refused = false;
  return done;
}

void Mover::hand_over(Batch batch) {
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += weight_of(batch);
    queue_.push_back(std::move(batch));
  }
  work_.notify_one();
}

std::uint64_t Mover::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_;
}

bool Mover::wait_until_less(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  work_.notify_one();
  moved_.wait(lock, [&] { return waiting_bytes_ < bytes || failed() || !running_ || refused_move_; });
  return !failed() && (waiting_bytes_ < bytes || !running_);
}

void Mover::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurry_ = true;
  }
  work_.notify_one();
}

void Mover::wait_for_move() {
  std::unique_lock lock(mutex_);
  const std::uint64_t before = moves_;
  moved_.wait_for(lock, std::chrono::milliseconds(10), [&] { return moves_ != before || failed() || refused_move_; });
}

void Mover::appended(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool first = unflushed_bytes_ == 0;
  unflushed_bytes_ += bytes;
  if (first || unflushed_bytes_ >= flush_bytes_) flush_.notify_one();
}

// A weak log is flushed when its oldest entry in memory is as old as the window, or when much waits.
void Mover::flush() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    flush_.wait(lock, [this] { return ending_ || unflushed_bytes_ > 0; });
    flush_.wait_for(lock, std::chrono::milliseconds(window_ms_),
                    [this] { return ending_ || !weak_ || unflushed_bytes_ >= flush_bytes_; });
    unflushed_bytes_ = 0;
    lock.unlock();
    auto written = until_room(refused_flush_, [this] { return write(); });
    if (!written) return end_with(written.error());
    tell();
    lock.lock();
  }
}

// Some batches from the front, or none if there is no work now.
std::vector<Batch> Mover::take(std::unique_lock<std::mutex>& lock) {
  work_.wait(lock, [this] { return ending_ || !queue_.empty(); });
  std::vector<Batch> taken;
  std::size_t bytes = 0;
  while (!queue_.empty() && (taken.empty() || bytes + queue_.front().operations.size() < kBytesPerCommit)) {
    bytes += queue_.front().operations.size();
    taken.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return taken;
}

void Mover::move() {
  be_nice();
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::vector<Batch> batches = take(lock);
    if (batches.empty()) return;  // the end
    lock.unlock();
    bool hurry = false;
    Result<void> done = until_room(refused_move_, [&] { return commit(batches); });
    if (done) {
      const std::lock_guard again(mutex_);
      hurry = std::exchange(hurry_, false);
    }
    if (done && hurry) done = until_room(refused_move_, [this] { return records_.kv().persist(); });
    for (const Batch& each : batches) {
      if (done) done = until_room(refused_move_, [&] { return records_.drop(each); });
    }
    if (!done) return end_with(done.error());
    lock.lock();
    for (const Batch& each : batches) waiting_bytes_ -= weight_of(each);
    ++moves_;
    moved_.notify_all();
  }
}

// Objects to which no record points yet: of any size, so in several commits.
Result<void> Mover::write_parts(const std::vector<Batch>& batches) {
  std::vector<Operation> some;
  std::size_t bytes = 0;
  Result<void> done;
  const auto commit_some = [&] {
    auto ticket = records_.kv().transact(
        [&](memlith::KvTransaction& txn) -> Result<void> {
          for (const Operation& each : some) {
            if (auto put = txn.put(records_.parts(), each.key, each.value); !put) return put;
          }
          return {};
        },
        memlith::Durability::weak);
    if (!ticket) done = ticket.error();
    some.clear();
    bytes = 0;
  };
  for (const Batch& each : batches) {
    each.each([&](const Operation& operation) {
      if (operation.kind != Kind::part) return true;
      some.push_back(operation);
      bytes += operation.value.size();
      if (bytes >= kPartBytesPerCommit) commit_some();
      return done.ok();
    });
    if (!done) return done;
  }
  if (!some.empty()) commit_some();
  return done;
}

Result<void> Mover::read_to(std::uint64_t entry) {
  // A strong log is durable up to here. A weak one soon is; only room that is wanted is worth a flush.
  while (read_ < entry) {
    bool now = false;
    {
      const std::lock_guard lock(mutex_);
      now = hurry_ || ending_;
    }
    if (now && log_.durable() < entry) {
      if (auto written = log_.write(); !written) return written;
    }
    auto read = log_.read(5);
    if (!read) return read.error();
    if (*read) read_ = (*read)->number;
  }
  return {};
}

Result<void> Mover::commit(const std::vector<Batch>& batches) {
  for (const Batch& each : batches) {
    for (const std::uint64_t number : each.new_maps) {
      if (auto map = records_.map_of(number); !map) return map.error();
    }
  }
  if (auto parts = write_parts(batches); !parts) return parts;
  std::uint64_t entry = 0;
  for (const Batch& each : batches) entry = std::max(entry, each.entry);
  if (auto read = read_to(entry); !read) return read;
  auto txn = records_.kv().begin();
  if (!txn) return txn.error();
  for (const Batch& each : batches) {
    if (auto done = records_.apply(*txn, each); !done) return done;
  }
  if (entry != 0) {
    if (auto noted = records_.note_cut(*txn, entry); !noted) return noted;
  }
  // Not waited for. One that is refused had no effect, and can be made anew.
  auto cut = store_.begin();
  if (!cut) return cut.error();
  if (auto joined = txn->join(*cut); !joined) return joined;
  if (entry != 0) {
    if (auto consumed = log_.consume_in(*cut, entry); !consumed) return consumed;
  }
  auto ticket = cut->commit_weak();
  return ticket ? Result<void>() : ticket.error();
}

}  // namespace memlith_redis
