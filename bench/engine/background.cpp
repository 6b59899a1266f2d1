// The thread that writes home what a raw writer has written.
#include "background.hpp"

#include <algorithm>
#include <utility>

#include "kit/workload.hpp"

namespace memlith::tool {

CheckpointLoad::CheckpointLoad(const RawFile& log, const PeerFile& home, std::uint64_t bytes_per_page,
                               HugeBuffer buffer)
    : log_(log), home_(home), bytes_per_page_(bytes_per_page), buffer_(std::move(buffer)), thread_([this] {
        loop();
      }) {}

CheckpointLoad::~CheckpointLoad() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointLoad::note(std::span<const std::uint32_t> pages, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  pages_.insert(pages_.end(), pages.begin(), pages.end());
  written_ += bytes;
  if (written_ - tail_ >= log_.size() / 2) changed_.notify_all();
}

bool CheckpointLoad::full(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return written_ + bytes - tail_ > log_.size();
}

void CheckpointLoad::wait_for_room(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return written_ + bytes - tail_ <= log_.size() || failure_; });
}

MaybeFailure CheckpointLoad::drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return tail_ == written_ || failure_; });
  draining_ = false;
  return failure_;
}

CheckpointLoad::Counters CheckpointLoad::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void CheckpointLoad::loop() {
  std::vector<std::uint32_t> pages;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] {
      const bool wanted = written_ - tail_ >= log_.size() / 2 || (draining_ && written_ > tail_);
      return stopping_ || (wanted && !failure_);
    });
    if (stopping_) return;
    pages.clear();
    std::swap(pages, pages_);
    const std::uint64_t end = written_;
    const std::uint64_t log_bytes = end - tail_;
    lock.unlock();
    MaybeFailure failure = checkpoint(pages, log_bytes);
    lock.lock();
    tail_ = end;
    ++counters_.checkpoints;
    counters_.home_bytes += pages.size() * bytes_per_page_;
    counters_.read_bytes += log_bytes;
    if (failure) failure_ = std::move(failure);
    changed_.notify_all();
  }
}

// `pages` come back sorted, each once.
MaybeFailure CheckpointLoad::checkpoint(std::vector<std::uint32_t>& pages, std::uint64_t log_bytes) {
  for (std::uint64_t done = 0; done < log_bytes; done += kSequentialBytes) {
    if (cursor_ + kSequentialBytes > log_.size()) cursor_ = 0;
    if (MaybeFailure failure = log_.read(cursor_, buffer_.span().first(kSequentialBytes))) return failure;
    cursor_ += kSequentialBytes;
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  const bool whole = bytes_per_page_ == kPageBytes;
  for (std::size_t first = 0; first < pages.size();) {
    std::size_t count = 1;
    while (whole && first + count < pages.size() && pages[first + count] == pages[first] + count &&
           (count + 1) * kPageBytes <= kSequentialBytes) {
      ++count;
    }
    const std::span<const std::byte> source = buffer_.span().first(whole ? count * kPageBytes : bytes_per_page_);
    if (MaybeFailure failure = home_.write(pages[first] * kPageBytes, source)) return failure;
    first += count;
  }
  if (MaybeFailure failure = home_.flush()) return failure;
  if (MaybeFailure failure = log_.write(0, buffer_.span().first(kPageBytes))) return failure;
  return log_.flush();
}

}  // namespace memlith::tool
