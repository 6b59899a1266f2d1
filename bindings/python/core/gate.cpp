#include <memlith/memlith.h>

#include "errors.hpp"
#include "store.hpp"

namespace memlith::python {

bool Gate::mine() const {
  const std::lock_guard lock(mutex_);
  return owner_ == std::this_thread::get_id();
}

void Gate::enter() {
  std::unique_lock lock(mutex_);
  if (owner_ == std::this_thread::get_id()) {
    fail(MEMLITH_INVALID, "this thread has a transaction open, which persists or rolls back as a whole when it ends");
  }
  // A transaction that waits goes first, or a stream of persists would keep it out.
  changed_.wait(lock, [this] { return owner_ == std::thread::id() && waiting_ == 0; });
  ++inside_;
}

void Gate::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) changed_.notify_all();
}

void Gate::begin() {
  std::unique_lock lock(mutex_);
  if (owner_ == std::this_thread::get_id()) {
    fail(MEMLITH_INVALID, "this thread has a transaction open already; transactions do not nest");
  }
  ++waiting_;
  changed_.wait(lock, [this] { return owner_ == std::thread::id() && inside_ == 0; });
  --waiting_;
  owner_ = std::this_thread::get_id();
}

void Gate::end() {
  const std::lock_guard lock(mutex_);
  if (owner_ != std::this_thread::get_id()) {
    fail(MEMLITH_INVALID, "this thread has no transaction open; the thread that began one has to end it");
  }
  owner_ = std::thread::id();
  changed_.notify_all();
}

}  // namespace memlith::python
