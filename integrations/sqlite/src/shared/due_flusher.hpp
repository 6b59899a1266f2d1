// Keeps the promise of commits that returned without a flush: their log is flushed when it is due. Part of the SQLite
// plugin.
//
// One thread for each process, for all its databases. The time at which a log is due stands in the control block, so
// the threads of all processes look at it, and one of them flushes for all; if its process is killed or stopped, the
// log is still due, and another one does.
#pragma once

#include <sqlite3.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../own_thread.hpp"
#include "connection.hpp"

namespace memlith::sqlite::shared {

// Threads: any.
class DueFlusher {
 public:
  static DueFlusher& of_process();
  // The log of the database at `path` is flushed when it is due, as long as connections of this process use `node`.
  // False if that cannot be promised.
  bool watch(const std::shared_ptr<Node>& node, sqlite3_vfs& vfs, const std::string& path);
  // Something is due that was not before.
  void wake();

 private:
  friend class OneOfProcess<DueFlusher>;
  class OwnLog;
  struct Watched {
    std::weak_ptr<Node> node;
    std::shared_ptr<OwnLog> log;
    std::uint64_t not_before_ns = 0;  // a flush could not be tried
  };
  struct Due {
    std::shared_ptr<Node> node;
    std::shared_ptr<OwnLog> log;
  };

  static void at_exit();
  bool start();
  void run();
  std::vector<Due> find_due(std::uint64_t now, std::uint64_t& next);
  void flush(const std::vector<Due>& all);

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<Watched> entries_;
  bool runs_ = false;
  bool woken_ = false;
};

}  // namespace memlith::sqlite::shared
