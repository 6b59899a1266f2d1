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

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "applog.hpp"
#include "durable.hpp"
#include "errors.hpp"
#include "gate.hpp"
#include "memory.hpp"
#include "record_store.hpp"
#include "records.hpp"

namespace memlith::python {

class Store final : public RecordStore {
 public:
  Store(const nanobind::bytes& path, bool one_file, const nanobind::kwargs& options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() override;

  void persist_waiting();
  void close();
  bool closed() const { return handle_ == nullptr; }
  bool inherited() const { return ::getpid() != process_; }
  void check_usable() const;

  void persist(std::uint32_t scope);  // MEMLITH_SCOPE_*
  std::uint64_t persist_async(std::uint32_t scope);
  void wait(std::uint64_t ticket);
  std::uint64_t durable();
  void rollback();
  void checkpoint();
  // For a followed store: moves on to the newest durable commit, and returns its ticket.
  std::uint64_t refresh();
  bool follows() const { return follows_; }
  void set_window(std::uint64_t window_ms, std::uint64_t bytes);

  // A transaction begins, commits and is undone; of an end only one call has an effect. The commit returns the ticket
  // to wait for, or 0 if it was to be `durable` and is by now: one release of the interpreter lock for all of that.
  // `whole`: dictionaries are a part of it from the beginning, so that no change of one has to wait later.
  void begin(const OwnerPtr& owner, std::optional<double> wait, bool whole);
  std::uint64_t commit(const OwnerPtr& owner, bool durable);
  void abort(const OwnerPtr& owner);

  nanobind::dict info();
  nanobind::dict stats();
  nanobind::list regions();

  void open_region(const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t tracker,
                   std::uint32_t flags);
  void close_region(const std::string& name);
  bool is_open(const std::string& name);
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

  // Application logs. `work` does not hold the interpreter lock; `as_reader`: alone among the log's readers.
  LogPtr open_log(const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t when_full,
                  bool create);
  void close_log(const LogPtr& log);
  void remove_log(const LogPtr& log);
  void use_log(const LogPtr& log, bool as_reader, const std::function<void(memlith_applog* handle)>& work);
  bool in_transaction() const { return current() != nullptr; }
  // False if this context's code runs in no transaction.
  bool log_in_transaction(LogChange change);
  void check_no_log_in_transaction() const;

  // Dictionaries.
  std::shared_ptr<Dictionary> open_dictionary(const std::string& name, const std::string& kind) override;
  // A block within a transaction, which can be undone by itself. False: the transaction has ended; there is no such
  // block.
  bool enter_inner_block(const OwnerPtr& owner);
  bool leave_inner_block(const OwnerPtr& owner, bool undo);
  void read(const Reading& work) override;
  void write(bool weak, Length length, const Writing& work) override;
  void append(const std::shared_ptr<Dictionary>& to, std::vector<Record> records, bool weak) override;
  void clear(const std::shared_ptr<Dictionary>& which, bool weak) override;

 private:
  struct Open {
    memlith_region* region;
    std::shared_ptr<Mapping> mapping;
  };
  using Regions = std::map<std::string, Open>;

  // The gate comes before the lock: the holder of the gate may open regions, which takes the lock.
  // `use` calls `work` under the lock; `with_handle` also releases the interpreter lock; `through_gate` first waits
  // until no transaction is open.
  template <typename Work>
  auto use(Work&& work);
  template <typename Work>
  auto with_handle(Work&& work);
  template <typename Work>
  auto through_gate(Work&& work);
  OwnerPtr current() const;  // the transaction in which this context's code runs
  void check_no_transaction() const;
  std::unique_lock<std::mutex> take_part(const OwnerPtr& owner);
  std::vector<memlith_region*> open_regions() const;
  bool wait_here(std::uint64_t ticket);
  std::uint64_t commit_parts(Owner& owner);
  void run(const std::function<void()>& work);
  friend struct Ending;
  Records& records();
  void write_logs();
  std::optional<Failure> close_logs();
  std::vector<std::unique_lock<std::mutex>> add_logs(memlith_txn* tx, const std::vector<LogChange>& changes);
  Open& open(const std::string& name);
  std::uint64_t address_of(const std::string& name) const;
  std::shared_ptr<Mapping> mapping_before(const std::string& name);
  void tell_arrays_in_place(const std::string& name) const;
  void close_regions();
  void close_one(Open& open);

  memlith_store* handle_ = nullptr;
  std::uint64_t durable_at_close_ = 0;
  bool read_only_ = false;
  bool one_file_ = false;
  bool follows_ = false;  // read-only, beside a process that writes
  Identity identity_;
  pid_t process_ = ::getpid();
  // Shared by every call that uses the handle; exclusive for opening, growing and closing.
  std::shared_mutex lock_;
  Gate gate_;
  Gate turn_;                         // the turn to write to dictionaries; comes after gate_ and before lock_
  std::atomic<int> transactions_{0};  // that are open
  std::atomic<bool> is_slow_{true};   // the last wait for the disk took long
  DurableWaits durable_waits_;
  Regions regions_;
  std::vector<LogPtr> logs_;
  std::unique_ptr<Records> records_;
};

void define_store(nanobind::module_& module);

}  // namespace memlith::python

#endif
