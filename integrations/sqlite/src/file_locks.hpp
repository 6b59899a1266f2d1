// SQLite's five lock levels among the connections of this process, and the lock that keeps other processes out. Part of
// the SQLite plugin.
//
// Any number of connections hold SHARED. One may hold RESERVED beside them, so that it may store into memory later.
// PENDING admits no further SHARED, and EXCLUSIVE is held alone. Other processes see a shared lock on the file as long
// as the database is open, and an exclusive one from the first write on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/status.hpp"
#include "base/sync.hpp"
#include "shared_index.hpp"
#include "store/stats.hpp"
#include "world.hpp"
#include "writer_queue.hpp"

namespace memlith::sqlite {

// The locks of one connection, and what its next answer depends on.
struct Holder {
  int level = 0;  // SQLITE_LOCK_*
  SharedIndex::Locks index_locks;
  bool maps_index = false;
  bool in_use = false;  // the connection uses the database, (usage.hpp)
  bool pinned = false;  // as long as the connection is open, because SQLite takes no locks

  // WAL mode. 0, or the end of the newest commit that the connection saw or made and has not waited for: before it
  // returns rows or acknowledges a commit, that has to be durable.
  std::uint64_t unwaited_lsn = 0;
  std::uint64_t cached_lsn = 0;             // of the newest commit of which its cache may have pages without a wait
  bool writes = false;                      // has the write lock for a transaction, whose rows are provisional
  std::uint64_t begun_at_lsn = 0;           // the last commit when it got that lock
  bool has_wal = false;                     // its file of the write-ahead log leads to this object
  bool reads_latest = false;                // its rows need not be durable
  bool checkpoint_waits = false;            // begins a checkpoint, which has to wait for what it stores
  std::optional<core::PersistTimer> timer;  // of the commit under way
  std::shared_ptr<WriterQueue::Waiter> waiter = std::make_shared<WriterQueue::Waiter>();
};

// `busy` without a message: another connection of this process holds the lock.
inline constexpr core::Status kBusyHere{core::Errc::busy, core::Detail::none, 0, 0};

// Threads: any, but for host() and set_host(), which opening and closing call.
class FileLocks {
 public:
  using Check = std::function<core::Status()>;

  // The lock on the file; null while there is none.
  [[nodiscard]] HostLock* host() const { return host_.get(); }
  void set_host(std::unique_ptr<HostLock> host) { host_ = std::move(host); }

  // Keeps other processes out from now on. `check` then says whether what they left allows a write; if not, they may
  // come back. Nothing happens if they are kept out already.
  core::Status keep_others_out(const Check& check);

  // SQLITE_LOCK_*, by SQLite's rules. `begin_writing` runs before a connection gets RESERVED, and its failure is
  // returned.
  core::Status lock(Holder& holder, int level, const Check& begin_writing);
  void unlock(Holder& holder, int level);
  // True if a connection holds a lock.
  [[nodiscard]] bool held() const;
  // True if a connection holds RESERVED or more.
  [[nodiscard]] bool reserved() const;

 private:
  std::unique_ptr<HostLock> host_;
  mutable core::Mutex mutex_;
  int shared_ MEMLITH_GUARDED_BY(mutex_) = 0;
  Holder* writer_ MEMLITH_GUARDED_BY(mutex_) = nullptr;   // RESERVED or more
  Holder* pending_ MEMLITH_GUARDED_BY(mutex_) = nullptr;  // PENDING or more
  core::Mutex host_mutex_;
  bool host_exclusive_ MEMLITH_GUARDED_BY(host_mutex_) = false;
};

}  // namespace memlith::sqlite
