// memlith: transactions of a store, and changes that are undone. The C++20 interface over memlith/transaction.h. Guide:
// docs/transactions.md.
//
//   auto transaction = store.begin();
//   if (!transaction || !transaction->touch_before(from) || !transaction->touch_before(to)) return;
//   from->balance -= 10;
//   to->balance += 10;
//   if (from->balance < 0) return;             // aborts
//   if (!transaction->commit()) ...            // durable when it is ok, both or neither
#pragma once

#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>

#include "memlith/status.hpp"
#include "memlith/transaction.h"

namespace memlith {

namespace detail {

// The result of transact() for a function that returns T: Result<T>; and the same for one that returns Result<T>.
template <class T>
struct result_for {
  using type = Result<T>;
};
template <class T>
struct result_for<Result<T>> {
  using type = Result<T>;
};
template <class T>
inline constexpr bool is_result_v = std::is_same_v<typename result_for<T>::type, T>;

}  // namespace detail

// Changes of regions with the explicit tracker that are committed together or undone. Other structures take part, and
// are in the same frame: Region::join, Heap::join, KvTransaction::join, AppLog::append_in, AppLog::consume_in
// (docs/transactions.md). Move-only; the destructor aborts a transaction that has not ended. See memlith_begin.
class Transaction {
 public:
  // Takes over a handle of memlith_begin.
  explicit Transaction(memlith_txn* handle) : handle_(handle) {}
  Transaction(Transaction&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Transaction& operator=(Transaction&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Transaction() { (void)abort(); }

  // Call this before a change: keeps an image of the bytes. See memlith_touch_before.
  Result<void> touch_before(const void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_touch_before(handle_, address, bytes));
  }
  template <class T>
  Result<void> touch_before(const T* object) const {
    return touch_before(object, sizeof(T));
  }
  // Copies the bytes to the target, which it announces before. See memlith_txn_write.
  Result<void> write(void* target, const void* bytes, std::uint64_t count) const {
    return detail::result_of(memlith_txn_write(handle_, target, bytes, count));
  }
  // Durable on ok, all or nothing. After an error the transaction is still open. See memlith_commit.
  Result<void> commit() {
    const std::int32_t code = memlith_commit(handle_, MEMLITH_COMMIT_SYNC, nullptr);
    if (code != MEMLITH_OK) return Error(code);
    handle_ = nullptr;
    return {};
  }
  // Captured on ok; durable when Store::wait() has returned ok.
  Result<Ticket> commit_weak() {
    Ticket ticket = 0;
    const std::int32_t code = memlith_commit(handle_, MEMLITH_COMMIT_WEAK, &ticket);
    if (code != MEMLITH_OK) return Error(code);
    handle_ = nullptr;
    return ticket;
  }
  // Gives the announced ranges their old bytes back, without I/O, and undoes what was stored to regions that joined
  // with OnAbort::undoes. See memlith_abort.
  Result<void> abort() { return detail::result_of(memlith_abort(std::exchange(handle_, nullptr))); }
  [[nodiscard]] memlith_txn* handle() const { return handle_; }

 private:
  memlith_txn* handle_;
};

// The effect of an abort on the memory of a region that joins a transaction: what was stored stays due for the next
// persist, or is undone (MEMLITH_UNDO).
enum class OnAbort : std::uint32_t { keeps = 0, undoes = MEMLITH_UNDO };

namespace detail {

// Runs the function in a transaction in which the region, or with null all open regions, are undone by an abort.
// `commit` ends it.
template <class Change, class Commit>
auto transact(memlith_store* store, memlith_region* region, Change&& change, const Commit& commit) ->
    typename result_for<std::invoke_result_t<Change>>::type {
  using Returned = std::invoke_result_t<Change>;
  static_assert(!std::is_reference_v<Returned>,
                "memlith: the function of transact() returns a reference; return a pointer or a value");
  memlith_txn* handle = nullptr;
  if (const std::int32_t code = memlith_begin(store, &handle); code != MEMLITH_OK) return Error(code);
  Transaction open(handle);  // undoes whatever ends without a commit
  if (const std::int32_t code = memlith_txn_add_region(handle, region, MEMLITH_UNDO); code != MEMLITH_OK) {
    return Error(code);
  }
  if constexpr (std::is_void_v<Returned>) {
    std::forward<Change>(change)();
    return commit(open);
  } else {
    Returned returned = std::forward<Change>(change)();
    if constexpr (is_result_v<Returned>) {
      if (!returned) return returned;
    }
    if (auto done = commit(open); !done) return done.error();
    return returned;
  }
}

template <class Change>
auto transact(memlith_store* store, memlith_region* region, Change&& change) {
  return transact(store, region, std::forward<Change>(change), [](Transaction& open) { return open.commit(); });
}

// The lock is released when the change is captured, and held still if that failed.
template <class Mutex, class Change>
auto transact(memlith_store* store, memlith_region* region, std::unique_lock<Mutex>& lock, Change&& change) {
  using Returned = typename result_for<std::invoke_result_t<Change>>::type;
  if (!lock.owns_lock()) {
    return Returned(Error(MEMLITH_INVALID, "transact(lock): the lock is not held; take it before the call"));
  }
  return transact(store, region, std::forward<Change>(change), [store, &lock](Transaction& open) -> Result<void> {
    auto ticket = open.commit_weak();
    if (!ticket) return ticket.error();
    lock.unlock();
    return result_of(memlith_wait(store, *ticket));
  });
}

}  // namespace detail

}  // namespace memlith
