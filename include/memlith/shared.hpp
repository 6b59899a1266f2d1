// memlith: regions that several processes write. The C++20 interface over memlith/shared.h, where the full contract
// stands. Guide: docs/shared-regions.md. Bytes of the program's own, of a fixed size, without a heap; a transaction
// names each range before it stores there, and at most 4,096 are held at a time.
//
//   auto bank = memlith::SharedRegion::open("bank", "accounts", {.create = true, .size = 1 << 20});
//   auto* account = bank->as<Account>();
//   auto txn = bank->begin();
//   if (auto taken = txn->touch_before(&account[1]); !taken) ...  // others had it for too long: begin again
//   account[1].balance -= 10;
//   if (!txn->commit()) ...  // durable, all or nothing
//
// Nothing here throws.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "memlith/memlith.hpp"
#include "memlith/shared.h"

namespace memlith {

struct SharedOptions {
  bool create = false;
  std::uint64_t size = 0;     // of a new region; of one that exists, at most its size
  std::uint64_t address = 0;  // of a new region; 0 = memlith chooses
  std::string program{};      // the path of `memlith`; empty: near the library, else in PATH
  std::chrono::milliseconds patience{0};
};

// A transaction of a shared region. Move-only; the destructor aborts. One thread at a time. To be gone before its
// region.
class SharedTransaction {
 public:
  SharedTransaction(SharedTransaction&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedTransaction& operator=(SharedTransaction&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedTransaction() { abort(); }

  // Call this before the stores: takes the bytes for this transaction. See memlith_shared_touch_before.
  Result<void> touch_before(const void* address, std::uint64_t bytes,
                            std::chrono::milliseconds timeout = std::chrono::seconds(10)) const {
    const auto wait = static_cast<std::uint64_t>(std::max<std::int64_t>(timeout.count(), 0));
    return detail::result_of(memlith_shared_touch_before(handle_, address, bytes, wait));
  }
  template <class T>
  Result<void> touch_before(const T* object, std::chrono::milliseconds timeout = std::chrono::seconds(10)) const {
    return touch_before(object, sizeof(T), timeout);
  }
  // Durable on ok, all or nothing. After an error the transaction is still open. See memlith_shared_commit.
  Result<void> commit() {
    const std::int32_t code = memlith_shared_commit(handle_, MEMLITH_COMMIT_SYNC, nullptr);
    if (code != MEMLITH_OK) return Error(code);
    handle_ = nullptr;
    return {};
  }
  // Captured on ok; durable when SharedRegion::wait() has returned ok.
  Result<std::uint64_t> commit_weak() {
    std::uint64_t ticket = 0;
    const std::int32_t code = memlith_shared_commit(handle_, MEMLITH_COMMIT_WEAK, &ticket);
    if (code != MEMLITH_OK) return Error(code);
    handle_ = nullptr;
    return ticket;
  }
  // Gives the ranges their old bytes back, and releases them. Without I/O.
  void abort() { (void)memlith_shared_abort(std::exchange(handle_, nullptr)); }

 private:
  friend class SharedRegion;
  explicit SharedTransaction(memlith_shared_txn* handle) : handle_(handle) {}

  memlith_shared_txn* handle_;
};

// A region that other processes may have open, too. Move-only; the destructor closes it.
class SharedRegion {
 public:
  SharedRegion(SharedRegion&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedRegion& operator=(SharedRegion&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedRegion() { close(); }

  // See memlith_shared_open.
  static Result<SharedRegion> open(const std::string& store, const std::string& region,
                                   const SharedOptions& options = {}) {
    memlith_shared_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags = detail::flag_if(options.create, MEMLITH_CREATE);
    plain.address = options.address;
    plain.program = options.program.empty() ? nullptr : options.program.c_str();
    plain.patience_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(options.patience.count(), 0));
    memlith_shared* handle = nullptr;
    const std::int32_t code = memlith_shared_open(store.c_str(), region.c_str(), options.size, &plain, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return SharedRegion(handle);
  }
  // Aborts open transactions.
  void close() { (void)memlith_shared_close(std::exchange(handle_, nullptr)); }

  [[nodiscard]] void* address() const { return memlith_shared_address(handle_); }
  [[nodiscard]] std::uint64_t size() const { return memlith_shared_size(handle_); }
  // The region as an object, or an array of them, at its beginning; null if it is too small. A new region is zeros.
  template <class T>
  [[nodiscard]] T* as() const {
    static_assert(is_persistable_v<T>, "T cannot live in a region: see is_persistable");
    return sizeof(T) <= size() ? static_cast<T*>(address()) : nullptr;
  }

  Result<SharedTransaction> begin() const {
    memlith_shared_txn* txn = nullptr;
    const std::int32_t code = memlith_shared_begin(handle_, &txn);
    if (code != MEMLITH_OK) return Error(code);
    return SharedTransaction(txn);
  }
  // Returns when everything up to the ticket, of whatever process, is durable.
  Result<void> wait(std::uint64_t ticket) const { return detail::result_of(memlith_shared_wait(handle_, ticket)); }
  [[nodiscard]] memlith_shared* handle() const { return handle_; }

 private:
  explicit SharedRegion(memlith_shared* handle) : handle_(handle) {}

  memlith_shared* handle_;
};

}  // namespace memlith
