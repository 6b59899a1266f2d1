// The thread of a process that tends its leases (lease.hpp). Part of the SQLite plugin.
//
// The thread sleeps until another process opens the file of a database, which a process that waits for the lease does,
// or until a lease wants to be looked at. Where the system gives this process no inotify, the thread looks at all
// leases now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/sync.hpp"
#include "lease.hpp"

namespace memlith::sqlite {

// One for each process; lives as long as the process. Threads: any.
class Watch {
 public:
  static Watch& of_process();

  // Tends the lease from now on; does nothing for an empty path, because then there are no other processes. Without
  // memory or descriptors the lease stays where it is until its process closes the database.
  void add(const std::shared_ptr<Lease>& lease, const std::string& path) MEMLITH_EXCLUDES(mutex_);
  // Returns when the lease is not tended any more. The thread ends with the last one.
  void remove(const std::shared_ptr<Lease>& lease) MEMLITH_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<Lease> lease;
    int number = -1;  // of the watched file
    std::optional<Lease::Time> next;
  };
  explicit Watch(std::uint64_t process_mark) : process_mark_(process_mark) {}
  bool start() MEMLITH_REQUIRES(mutex_);
  void stop() MEMLITH_REQUIRES(mutex_);
  void run();
  void tend_those_due() MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] int milliseconds_to_sleep() const MEMLITH_REQUIRES(mutex_);
  void note_events() MEMLITH_REQUIRES(mutex_);
  void wake() const;
  static void at_exit();

  const std::uint64_t process_mark_;
  core::Mutex mutex_;
  core::ConditionVariable changed_;
  std::map<const Lease*, Entry> entries_ MEMLITH_GUARDED_BY(mutex_);
  const Lease* in_hand_ MEMLITH_GUARDED_BY(mutex_) = nullptr;  // the thread tends it, without the mutex
  bool runs_ MEMLITH_GUARDED_BY(mutex_) = false;
  bool ends_ MEMLITH_GUARDED_BY(mutex_) = false;
  int events_ MEMLITH_GUARDED_BY(mutex_) = -1;  // inotify; -1: there is none
  std::atomic<int> wake_{-1};                   // an eventfd
};

}  // namespace memlith::sqlite
