// Checkpoints behind the commits: a thread of the process makes them, with a connection of its own. Part of the SQLite
// plugin.
//
// When SQLite's write-ahead log has grown to the limit of PRAGMA wal_autocheckpoint, SQLite makes a checkpoint at the
// end of the commit that got there. In mode shared that commit hears that another connection makes one, and returns;
// the thread makes it. SQLite's locks are between the thread's connection and the others, as between any two.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "../api.hpp"
#include "../own_thread.hpp"
#include "base/sync.hpp"
#include "base/threads.hpp"

namespace memlith::sqlite::shared {

// Between the connections of a process that have one database, and the thread. Threads: any.
class Handover {
 public:
  // The caller leaves a checkpoint to the thread, which calls end(). False: the caller makes it.
  bool begin();
  [[nodiscard]] bool is_in_hand() const { return in_hand_.load(); }
  // It was made, or given up. For `pause_ns` from now on connections make their own. `pinned`: a reader of an old
  // snapshot let nothing be stored.
  void end(std::uint64_t pause_ns = 0, bool pinned = false);
  // True if that was said since the last call.
  bool take_pinned() { return pinned_.load() && pinned_.exchange(false); }
  // Returns when the thread has none in hand that was left to it.
  void wait() const;
  [[nodiscard]] std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_held() const { return holds_.load() != 0; }

  // As long as it lives, the thread has no checkpoint in hand, and is given none.
  class Hold {
   public:
    explicit Hold(Handover& handover);
    ~Hold() { handover_.holds_.fetch_sub(1); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Handover& handover_;
  };

 private:
  core::Atomic<bool> in_hand_{false};
  core::Atomic<std::uint32_t> holds_{0};
  core::Atomic<std::uint64_t> not_before_ns_{0};
  core::Atomic<std::uint64_t> ended_{0};
  core::Atomic<bool> pinned_{false};
};

// How the connection was opened that leaves the checkpoint to the thread.
struct Opener {
  Api api;
  std::string vfs;
};

struct Checkpoint {
  std::shared_ptr<Handover> handover;
  Opener opener;
  std::string path;
  std::uint32_t stored = 0;  // frames that were stored before
};

// Makes it, and ends the handover. Memory, descriptors: a connection's, for that time.
void make_checkpoint(const Checkpoint& checkpoint);
// True if the database that this thread opens is for a checkpoint. Says so once.
bool take_opens_for_checkpoint();

// Threads: any.
class Checkpointer {
 public:
  static Checkpointer& of_process();
  // True if a thread of this process can use this SQLite beside others.
  static bool can_use(const Api& api);
  // The thread makes it. False if there is no thread.
  bool take(Checkpoint checkpoint) MEMLITH_EXCLUDES(mutex_);

 private:
  friend class OneOfProcess<Checkpointer>;
  static void at_exit();
  void run() MEMLITH_EXCLUDES(mutex_);
  void make_next() MEMLITH_REQUIRES(mutex_);

  core::Mutex mutex_;
  core::ConditionVariable changed_;
  std::deque<Checkpoint> wanted_ MEMLITH_GUARDED_BY(mutex_);
  bool runs_ MEMLITH_GUARDED_BY(mutex_) = false;
  bool works_ MEMLITH_GUARDED_BY(mutex_) = false;
  bool ends_ MEMLITH_GUARDED_BY(mutex_) = false;  // the process ends
};

}  // namespace memlith::sqlite::shared
