// The wal-index: memory that the connections of one database share, and its eight locks. Part of the SQLite plugin.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace memlith::sqlite {

// Threads: any.
class SharedIndex {
 public:
  static constexpr int kLocks = 8;
  struct Locks {
    std::uint8_t shared = 0;  // a bit a lock
    std::uint8_t exclusive = 0;
  };

  void join();   // a connection begins to use it
  void leave();  // when the last one does, it is gone
  // Null if it is not there and not to be made.
  volatile void* map(int region, int region_bytes, bool extend);
  // Locks all or nothing; false if one of them is held, except those that are `mine` in the same mode: a shared lock
  // does not become exclusive, nor the other way round.
  bool lock(Locks& mine, int first, int count, bool exclusive);
  void unlock(Locks& mine, int first, int count);
  void barrier();

 private:
  std::mutex mutex_;
  int users_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> regions_;
  std::array<int, kLocks> shared_{};
  std::array<bool, kLocks> exclusive_{};
};

}  // namespace memlith::sqlite
