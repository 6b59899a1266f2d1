// The class behind datastore.h. plugin redis.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "redis/src/batch.hpp"
#include "redis/src/datastore.h"
#include "settled/behind.hpp"

namespace memlith_redis {

// The kv store, by numbers of maps and objects. Map `db.N` holds the records of a database, `parts` the parts of
// objects, `bindings` says which database has which map, `other` has records of no database.
class Records {
 public:
  memlith::Result<void> open(const memlith::Store& store);
  memlith::Kv& kv() { return *kv_; }

  // By one thread at a time.
  memlith::Result<memlith::KvMap> map_of(std::uint64_t number);
  memlith::Result<void> apply(memlith::KvTransaction& txn, const Batch& batch);  // all but parts
  memlith::Result<void> read_bindings();
  memlith::Result<void> note_cut(memlith::KvTransaction& txn, std::uint64_t entry);
  memlith::Result<void> drop(const Batch& batch);
  memlith::Result<void> remove_object(std::uint64_t id);

  [[nodiscard]] memlith::KvMap parts() const { return parts_; }
  [[nodiscard]] memlith::KvMap other() const { return other_; }
  [[nodiscard]] const std::map<int, std::uint64_t>& found_bindings() const { return found_; }
  // The entry of the newest cut, when the bindings were read: what the log has as consumed.
  [[nodiscard]] std::uint64_t found_cut() const { return cut_; }
  [[nodiscard]] std::uint64_t next_map() const { return next_map_; }
  [[nodiscard]] std::uint64_t next_object() const { return next_object_; }

 private:
  memlith::Result<void> remove_unbound_maps();
  memlith::Result<void> change(memlith::KvTransaction& txn, const Operation& operation);

  std::optional<memlith::Kv> kv_;
  memlith::KvMap parts_ = 0, bindings_ = 0, other_ = 0;
  std::unordered_map<std::uint64_t, memlith::KvMap> maps_;
  std::map<int, std::uint64_t> found_;  // when the kv store was opened
  std::uint64_t next_map_ = 1, next_object_ = 1, cut_ = 0;
};

// The thread that puts cuts into the kv store, and the one that flushes a weak log.
class Mover {
 public:
  Mover(memlith::Store& store, memlith::AppLog& log, Records& records) : store_(store), log_(log), records_(records) {}

  void start(int durability, std::uint64_t window_ms, std::uint64_t log_bytes);
  void stop();  // after what waits
  void set_durability(int durability, std::uint64_t window_ms);
  [[nodiscard]] bool weak() const { return weak_; }
  [[nodiscard]] std::string failure() const { return behind_.failure(); }  // empty: none
  [[nodiscard]] bool failed() const { return behind_.failed(); }
  // The disk has no room for what waits: it is tried again until there is.
  [[nodiscard]] bool refused() const { return refused_flush_ || refused_move_; }

  void hand_over(Batch batch);
  bool wait_until_less(std::uint64_t bytes);  // wait; false: there is a failure, or no room
  // The next commit is durable at once, because room in the log is wanted.
  void hurry();
  void wait_for_move();
  void appended(std::uint64_t bytes);
  memlith::Result<void> write();  // the log, by any thread; measures how long that takes
  [[nodiscard]] std::uint64_t flush_us() const { return flush_us_; }
  void tell_progress(int fd) { progress_ = fd; }
  [[nodiscard]] std::uint64_t waiting_bytes() const;

 private:
  void move();
  void flush();
  std::vector<Batch> take(std::unique_lock<std::mutex>& lock);
  memlith::Result<void> commit(const std::vector<Batch>& batches);
  // Acts until there is room for it, or the end; `refused` says whether it was refused last.
  template <class Act>
  memlith::Result<void> until_room(std::atomic<bool>& refused, Act&& act);
  memlith::Result<void> write_parts(const std::vector<Batch>& batches);
  memlith::Result<void> read_to(std::uint64_t entry);
  void end_with(const memlith::Error& error);
  void wake_waiting();
  void tell();

  memlith::Store& store_;
  memlith::AppLog& log_;
  Records& records_;
  std::uint64_t read_ = 0;  // the newest entry that was read
  std::uint64_t flush_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_, moved_, flush_;
  std::deque<Batch> queue_;                                // mutex_
  std::uint64_t waiting_bytes_ = 0;                        // mutex_; of the queue and of what is being committed
  std::uint64_t unflushed_bytes_ = 0;                      // mutex_
  std::uint64_t window_ms_ = 0;                            // mutex_
  std::uint64_t moves_ = 0;                                // mutex_
  bool ending_ = false, hurry_ = false, running_ = false;  // mutex_
  std::atomic<std::uint64_t> flush_us_ = 0;
  std::atomic<int> progress_ = -1;
  std::atomic<bool> weak_ = false, refused_flush_ = false, refused_move_ = false;
  memlith_settled::Behind behind_;
  std::thread mover_, flusher_;
};

}  // namespace memlith_redis
