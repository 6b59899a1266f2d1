// The thread of a process that tends its databases while no connection uses them (usage.hpp). Part of the SQLite
// plugin.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/sync.hpp"
#include "own_thread.hpp"
#include "usage.hpp"

namespace memlith::sqlite {

// Threads: any.
class Tender {
 public:
  static Tender& of_process();

  // Tends it from now on. Without memory for a thread the file of an idle database becomes ordinary when it is closed.
  void add(const std::shared_ptr<Usage>& usage) MEMLITH_EXCLUDES(mutex_);
  // Returns when it is not tended any more. The thread ends with the last one.
  void remove(const std::shared_ptr<Usage>& usage) MEMLITH_EXCLUDES(mutex_);

 private:
  struct Tended {
    std::shared_ptr<Usage> usage;
    std::optional<Usage::Time> next;
  };
  friend class OneOfProcess<Tender>;
  bool start() MEMLITH_REQUIRES(mutex_);
  void run() MEMLITH_EXCLUDES(mutex_);
  void tend_those_due() MEMLITH_REQUIRES(mutex_);
  void sleep() MEMLITH_REQUIRES(mutex_);
  void wake() MEMLITH_EXCLUDES(mutex_);
  static void at_exit();

  core::Mutex mutex_;
  core::ConditionVariable changed_;
  std::map<const Usage*, Tended> entries_ MEMLITH_GUARDED_BY(mutex_);
  const Usage* in_hand_ MEMLITH_GUARDED_BY(mutex_) = nullptr;  // the thread tends it, without the mutex
  bool runs_ MEMLITH_GUARDED_BY(mutex_) = false;
  bool woken_ MEMLITH_GUARDED_BY(mutex_) = false;
};

}  // namespace memlith::sqlite
