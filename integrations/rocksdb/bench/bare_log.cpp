#include "bare_log.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace memlith_rocksdb::bench {

namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kGroupMax = 1 << 20;
constexpr int kYields = 60;

void check(bool fine, const char* what) {
  if (fine) return;
  std::perror(what);
  std::exit(1);
}

char* blocks(std::uint64_t bytes) {
  void* memory = nullptr;
  check(::posix_memalign(&memory, 4096, bytes) == 0, "memory");
  std::memset(memory, 0, bytes);
  return static_cast<char*>(memory);
}

}  // namespace

void BareLog::Free::operator()(char* memory) const { std::free(memory); }

BareLog::BareLog(const std::string& path, std::uint64_t bytes)
    : capacity_(bytes), pending_(blocks(kGroupMax)), writing_(blocks(kGroupMax)) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
  check(file_ >= 0, path.c_str());
  for (std::uint64_t at = 0; at < capacity_; at += kGroupMax) {
    check(::pwrite(file_, pending_.get(), kGroupMax, static_cast<off_t>(at)) > 0, "write");
  }
  check(::fsync(file_) == 0, "flush");
}

BareLog::~BareLog() { ::close(file_); }

void BareLog::write_group(std::unique_lock<std::mutex>& lock) {
  is_writing_ = true;
  const std::uint64_t covers = appended_;
  const std::uint64_t whole = (bytes_ + kBlock - 1) / kBlock * kBlock;
  const std::uint64_t at = begin_;
  std::memcpy(writing_.get(), pending_.get(), bytes_);
  std::memset(writing_.get() + bytes_, 0, whole - bytes_);
  const std::uint64_t full = bytes_ / kBlock * kBlock;
  std::memmove(pending_.get(), pending_.get() + full, bytes_ - full);
  begin_ += full;
  bytes_ -= full;
  if (begin_ + 2 * kGroupMax > capacity_) begin_ = 0;
  lock.unlock();
  check(::pwrite(file_, writing_.get(), whole, static_cast<off_t>(at)) > 0, "write");
  check(::fdatasync(file_) == 0, "flush");
  lock.lock();
  durable_ = covers;
  is_writing_ = false;
  done_.notify_all();
}

void BareLog::append(const std::string& record) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return bytes_ + record.size() + kBlock <= kGroupMax; });
  std::memcpy(pending_.get() + bytes_, record.data(), record.size());
  bytes_ += record.size();
  const std::uint64_t mine = appended_ += record.size();
  while (durable_ < mine) {
    if (!is_writing_) {
      write_group(lock);
      continue;
    }
    lock.unlock();
    for (int each = 0; each < kYields; ++each) ::sched_yield();
    lock.lock();
    done_.wait(lock, [&] { return durable_ >= mine || !is_writing_; });
  }
}

}  // namespace memlith_rocksdb::bench
