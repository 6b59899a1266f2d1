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

// A change that is under way; the destructor undoes it.
class OpenChange {
 public:
  static Result<OpenChange> begin(memlith_store* store, memlith_region* const* regions, std::uint64_t count) {
    memlith_change* handle = nullptr;
    const std::int32_t code = memlith_change_begin(store, regions, count, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return OpenChange(store, handle);
  }
  OpenChange(OpenChange&& other) noexcept : store_(other.store_), handle_(std::exchange(other.handle_, nullptr)) {}
  OpenChange& operator=(OpenChange&&) = delete;
  ~OpenChange() { (void)memlith_change_undo(handle_); }

  Result<void> commit() { return end(MEMLITH_COMMIT_SYNC, nullptr); }
  // The lock is released when the change is captured, and held still if that failed.
  template <class Mutex>
  Result<void> commit(std::unique_lock<Mutex>& lock) {
    Ticket ticket = 0;
    if (auto captured = end(MEMLITH_COMMIT_WEAK, &ticket); !captured) return captured;
    lock.unlock();
    return result_of(memlith_wait(store_, ticket));
  }

 private:
  OpenChange(memlith_store* store, memlith_change* handle) : store_(store), handle_(handle) {}
  Result<void> end(std::uint32_t mode, Ticket* ticket) {
    if (const std::int32_t code = memlith_change_commit(handle_, mode, ticket); code != MEMLITH_OK) {
      const Error failed(code);
      (void)memlith_change_undo(std::exchange(handle_, nullptr));
      return failed;
    }
    handle_ = nullptr;
    return {};
  }

  memlith_store* store_;
  memlith_change* handle_;
};

// Runs the function in a change. `commit` ends it.
template <class Change, class Commit>
auto transact(memlith_store* store, memlith_region* const* regions, std::uint64_t count, Change&& change,
              const Commit& commit) -> typename result_for<std::invoke_result_t<Change>>::type {
  using Returned = std::invoke_result_t<Change>;
  static_assert(!std::is_reference_v<Returned>,
                "memlith: the function of transact() returns a reference; return a "
                "pointer or a value");
  auto open = OpenChange::begin(store, regions, count);
  if (!open) return open.error();
  if constexpr (std::is_void_v<Returned>) {
    std::forward<Change>(change)();
    return commit(*open);
  } else {
    Returned returned = std::forward<Change>(change)();
    if constexpr (is_result_v<Returned>) {
      if (!returned) return returned;
    }
    if (auto done = commit(*open); !done) return done.error();
    return returned;
  }
}

template <class Change>
auto transact(memlith_store* store, memlith_region* const* regions, std::uint64_t count, Change&& change) {
  return transact(store, regions, count, std::forward<Change>(change), [](OpenChange& open) { return open.commit(); });
}

template <class Mutex, class Change>
auto transact(memlith_store* store, memlith_region* const* regions, std::uint64_t count, std::unique_lock<Mutex>& lock,
              Change&& change) {
  using Returned = typename result_for<std::invoke_result_t<Change>>::type;
  if (!lock.owns_lock()) {
    return Returned(Error(MEMLITH_INVALID, "transact(lock): the lock is not held; take it before the call"));
  }
  return transact(store, regions, count, std::forward<Change>(change),
                  [&lock](OpenChange& open) { return open.commit(lock); });
}

}  // namespace detail

// Changes of regions with the explicit tracker that are committed together or undone. Other structures take part, and
// are in the same frame: Region::join, Heap::join, KvTransaction::join, AppLog::append_in, AppLog::consume_in
// (docs/transactions.md). Move-only; the destructor aborts a transaction that has not ended. See memlith_begin.
class Transaction {
 public:
  Transaction(Transaction&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Transaction& operator=(Transaction&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Transaction() { abort(); }

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
  // Gives the announced ranges their old bytes back. Without I/O.
  void abort() { (void)memlith_abort(std::exchange(handle_, nullptr)); }
  [[nodiscard]] memlith_txn* handle() const { return handle_; }

 private:
  friend class Store;
  explicit Transaction(memlith_txn* handle) : handle_(handle) {}

  memlith_txn* handle_;
};

}  // namespace memlith
