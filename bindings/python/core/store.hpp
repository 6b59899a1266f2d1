// A store as Python sees it: safe to call from any thread at any time, also when it is closed.
//
// Part: python. The C interface forbids closing or growing an object while another thread uses it; here a lock sees to
// that. Every wait releases the interpreter lock first, and only then takes another lock, so the two cannot wait for
// each other. In a forked child every call is refused before it touches a lock, which the child may have inherited
// held.
#ifndef MEMLITH_PYTHON_STORE_HPP
#define MEMLITH_PYTHON_STORE_HPP

#include <memlith/memlith.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory.hpp"
#include "records.hpp"

namespace memlith::python {

// Persists of any number of threads side by side, or one transaction, whose half no persist may capture.
class Gate {
 public:
  void enter();  // fails if this thread has the transaction
  void leave();
  void begin();  // fails if this thread has the transaction already
  void end();
  bool mine() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int waiting_ = 0;
  std::thread::id owner_;
};

class Store {
 public:
  Store(const nanobind::bytes& path, const nanobind::kwargs& options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  void settle();
  void close();
  bool closed() const { return handle_ == nullptr; }
  bool inherited() const { return ::getpid() != process_; }

  void persist();
  std::uint64_t persist_async();
  void wait(std::uint64_t ticket);
  std::uint64_t durable();
  void rollback();
  void checkpoint();
  // Of a store that is followed: moves on to the newest durable commit, and returns its ticket.
  std::uint64_t refresh();
  bool follows() const { return follows_; }
  void set_flush_window(std::uint64_t interval_ms, std::uint64_t bytes);

  void begin();
  std::uint64_t commit();
  void abort();

  nanobind::dict info();
  nanobind::dict stats();
  nanobind::list regions();

  void open_region(const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t tracker,
                   std::uint32_t flags);
  void close_region(const std::string& name);
  void remove_region(const std::string& name);
  nanobind::list unpersisted();
  void grow(const std::string& name, std::uint64_t size);
  void persist_region(const std::string& name);
  void touch(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void prepare(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void release(const std::string& name);
  nanobind::dict region_info(const std::string& name);
  std::unique_ptr<Memory> memory(const std::string& name, nanobind::object owner);
  nanobind::list snapshot(const std::vector<std::string>& names);

  // Dictionaries. A block is a transaction over dictionaries alone, or part of one of the store, or of an outer block.
  Dictionary open_dictionary(const std::string& name, const std::string& kind);
  std::uint64_t enter_block();  // returns the savepoint to which it is undone, 0 for an outermost block
  void leave_block(bool weak);  // commits an outermost block
  void undo_block(std::uint64_t savepoint);
  // `work` gets a transaction. It holds the interpreter lock, and does not run Python code.
  void read(const std::function<void(memlith_kv_txn* txn, memlith_kv_map meta)>& work);
  // `work` is a part of the thread's block, or a commit of its own. It does not hold the interpreter lock.
  void write(bool weak, const std::function<void(Records& records)>& work);
  // In commits of its own; the last ticket is waited for unless `weak`. Holds the interpreter lock when it is called.
  void append(const Dictionary& to, const std::vector<Record>& records, bool weak);

 private:
  struct Open {
    memlith_region* region;
    std::shared_ptr<Mapping> mapping;
  };
  using Regions = std::map<std::string, Open>;

  // The gate comes before the lock: whoever has the gate may open regions, which takes the lock for itself.
  // `use` calls `work` under the lock; `with_handle` also releases the interpreter lock; `through_gate` first waits
  // until no transaction is open.
  template <typename Work>
  auto use(Work&& work);
  template <typename Work>
  auto with_handle(Work&& work);
  template <typename Work>
  auto through_gate(Work&& work);
  void check_usable() const;
  void check_no_block() const;
  bool in_block();
  Records& records();
  Open& open(const std::string& name);
  std::shared_ptr<Mapping> mapping_before(const std::string& name);
  void close_regions();
  void close_one(Open& open);

  memlith_store* handle_ = nullptr;
  std::uint64_t durable_at_close_ = 0;
  bool read_only_ = false;
  bool follows_ = false;  // read-only, beside a process that writes
  Identity identity_;
  pid_t process_ = ::getpid();
  // Shared by every call that uses the handle; exclusive for opening, growing and closing.
  std::shared_mutex lock_;
  Gate gate_;
  Gate turn_;  // of the thread that writes to dictionaries; comes after gate_ and before lock_
  Regions regions_;
  std::unique_ptr<Records> records_;
};

void define_store(nanobind::module_& module);

}  // namespace memlith::python

#endif
