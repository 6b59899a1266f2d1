// Which transaction a store is in, and the order in which threads and transactions take their turns.
//
// Part: python. An Owner is one transaction. It belongs to no thread: contexts (contextvars) name the transactions in
// which their code runs, so that a transaction can be ended, and used, by another thread or task than the one that
// began it.
#ifndef MEMLITH_PYTHON_GATE_HPP
#define MEMLITH_PYTHON_GATE_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "applog.hpp"

namespace memlith::python {

class Store;

struct Owner {
  Owner(Store* of, bool with_arrays);

  Store* const store;
  const bool arrays;  // a transaction of the store; else of dictionaries alone
  std::atomic<bool> open{false};
  std::atomic<bool> ending{false};  // the library commits it or undoes it, without the interpreter lock
  std::atomic<int> waiting{0};      // its threads that wait in Gate::begin
  // The thread that holds it may use the kv transaction: threads of one transaction take turns.
  std::mutex use;
  bool records = false;           // dictionaries are a part of it; guarded by `use`
  std::vector<LogChange> logged;  // for application logs, at the commit; guarded by `use`
  struct Savepoint {
    std::uint64_t records;
    std::size_t logged;
  };
  std::vector<Savepoint> savepoints;  // those of the blocks within it; guarded by `use`
  // For the message of those that wait:
  const unsigned long thread;
  const std::chrono::steady_clock::time_point began;
  std::string place;  // file and line
};

using OwnerPtr = std::shared_ptr<Owner>;

// Any number of calls side by side, or one transaction, whose half no call may see. The calls need the interpreter
// lock, and release it while they wait; leave() and end() do not need it. A thread that was woken gets the interpreter
// lock first and then looks again: one that had the gate already would keep out the thread that runs.
class Gate {
 public:
  void enter();
  void leave();
  // For a transaction; or, with null, for one change. Waits `wait` seconds in all. Without a number, waits as long as
  // the library needs and 10 s for each transaction that keeps it waiting. Then BUSY, which names the transaction.
  // False if `owner` has it already.
  bool begin(const OwnerPtr& owner, std::optional<double> wait = std::nullopt);
  void end(const Owner* owner);  // no effect if another has it
  bool held_by(const OwnerPtr& owner) const;

 private:
  struct Request {
    std::condition_variable& changed;
    std::function<bool()> may;   // with mutex_ held
    std::function<void()> take;  // likewise, once it may
  };
  bool take_at_once(const Request& request);
  void await(const Request& request, std::optional<double> wait);
  void wake();

  mutable std::mutex mutex_;  // held for a moment, and never while a thread waits for the interpreter lock
  std::condition_variable may_enter_;
  std::condition_variable may_begin_;
  int inside_ = 0;
  int waiting_ = 0;  // transactions and changes
  bool is_held_ = false;
  OwnerPtr owner_;
};

}  // namespace memlith::python

#endif
