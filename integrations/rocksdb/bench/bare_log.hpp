// The limit: the same bytes, appended to a preallocated file past the page cache, one write and one flush a group.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace memlith_rocksdb::bench {

class BareLog {
 public:
  // Writes the whole file once, so that no later flush has to note that blocks are in use. Ends the program on errors.
  BareLog(const std::string& path, std::uint64_t bytes);
  ~BareLog();
  BareLog(const BareLog&) = delete;
  BareLog& operator=(const BareLog&) = delete;
  // Durable on return; threads share writes and flushes. At the end of the file it goes on at the beginning.
  void append(const std::string& record);

 private:
  void write_group(std::unique_lock<std::mutex>& lock);

  struct Free {
    void operator()(char* memory) const;
  };
  const std::uint64_t capacity_;
  int file_ = -1;
  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::unique_ptr<char, Free> pending_;  // whole blocks, from the one of the last durable byte on
  std::unique_ptr<char, Free> writing_;
  std::uint64_t begin_ = 0;  // where pending_ lies in the file
  std::uint64_t bytes_ = 0;  // of pending_
  std::uint64_t appended_ = 0;
  std::uint64_t durable_ = 0;
  bool is_writing_ = false;
};

}  // namespace memlith_rocksdb::bench
