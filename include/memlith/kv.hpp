// memlith: a transactional key-value store. The C++20 interface over memlith/kv.h, where each call's full contract
// stands. Guide: docs/kv.md.
//
//   auto store = memlith::Store::open("shop", {.create = true});
//   auto kv = memlith::Kv::open(*store, "kv", {.create = true});
//   auto stock = kv->map("stock", {.create = true});
//   auto sold = kv->transact([&](memlith::KvTransaction& txn) -> memlith::Result<void> {
//     auto count = txn.get(*stock, "marble");
//     if (!count) return count.error();
//     return txn.put(*stock, "marble", one_less(*count));
//   });
//   if (!sold) ...  // durable when it is ok
//
// Nothing here throws, except what the functions that you pass throw: a transaction is aborted then.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memlith/kv.h"
#include "memlith/memlith.hpp"

namespace memlith {

// When a commit returns: when it is durable (the default of every commit), or when it has taken effect in memory.
enum class Durability : std::uint32_t { weak = MEMLITH_COMMIT_WEAK, sync = MEMLITH_COMMIT_SYNC };

using KvMap = memlith_kv_map;

namespace detail {
inline memlith_bytes bytes_of(std::string_view text) { return {text.data(), text.size()}; }
}  // namespace detail

// A key whose order is that of the numbers.
class IntegerKey {
 public:
  template <class T>
    requires std::is_integral_v<T>
  explicit IntegerKey(T number) {
    if constexpr (std::is_signed_v<T>) {
      memlith_kv_key_of_i64(number, bytes_.data());
    } else {
      memlith_kv_key_of_u64(number, bytes_.data());
    }
  }
  operator std::string_view() const {  // NOLINT(google-explicit-constructor)
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::array<unsigned char, 8> bytes_{};
};

// The number of a key that IntegerKey made of a T. The key has 8 bytes.
template <class T>
T integer_of_key(std::string_view key) {
  assert(key.size() == 8);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(key.data());
  if constexpr (std::is_signed_v<T>) return static_cast<T>(memlith_kv_i64_of_key(bytes));
  return static_cast<T>(memlith_kv_u64_of_key(bytes));
}

namespace detail {
inline bool is_conflict(const Error& error) { return error.category() == MEMLITH_CONFLICT; }
}  // namespace detail

struct KvRecord {
  std::string_view key;
  std::string_view value;
};

// Stands on a record, or on none. Move-only; not to be used after its transaction was destroyed.
class Cursor {
 public:
  Cursor(Cursor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Cursor& operator=(Cursor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Cursor() { memlith_kv_cursor_close(handle_); }

  // Each is true if the cursor stands on a record now, false if there is none.
  Result<bool> first() { return found(memlith_kv_cursor_first(handle_)); }
  Result<bool> last() { return found(memlith_kv_cursor_last(handle_)); }
  Result<bool> next() { return found(memlith_kv_cursor_next(handle_)); }
  Result<bool> prev() { return found(memlith_kv_cursor_prev(handle_)); }
  // The first record whose key is not less.
  Result<bool> seek(std::string_view key) { return found(memlith_kv_cursor_seek(handle_, key.data(), key.size())); }
  // From now on there are only the records with from <= key < to, or those whose keys begin so, and the cursor stands
  // on none, as a new one. Empty `from`: from the first on; empty `to`: up to the last.
  Result<void> set_bounds(std::string_view from, std::string_view to) {
    const memlith_bytes first = detail::bytes_of(from);
    const memlith_bytes end = detail::bytes_of(to);
    return detail::result_of(memlith_kv_cursor_set_bounds(handle_, from.empty() ? nullptr : &first,
                                                          to.empty() ? nullptr : &end));
  }
  Result<void> set_prefix(std::string_view prefix) {
    return detail::result_of(memlith_kv_cursor_set_prefix(handle_, prefix.data(), prefix.size()));
  }
  // Both stay valid until the transaction ends.
  Result<KvRecord> current() {
    memlith_bytes key{};
    memlith_bytes value{};
    if (const std::int32_t code = memlith_kv_cursor_current(handle_, &key, &value); code != MEMLITH_OK) {
      return Error(code);
    }
    return KvRecord{detail::view_of(key), detail::view_of(value)};
  }
  Result<void> remove() { return detail::result_of(memlith_kv_cursor_remove(handle_)); }

 private:
  friend class KvTransaction;
  explicit Cursor(memlith_kv_cursor* handle) : handle_(handle) {}
  static Result<bool> found(std::int32_t code) {
    if (code == MEMLITH_OK) return true;
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return false;
    return Error(code);
  }
  memlith_kv_cursor* handle_;
};

// Move-only; destroying a transaction that has not ended aborts it. Not to be used after the Kv was closed.
class KvTransaction {
 public:
  KvTransaction(KvTransaction&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  KvTransaction& operator=(KvTransaction&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~KvTransaction() { memlith_kv_txn_free(handle_); }

  // The value, valid until the transaction ends; that of a read-only transaction lies where the kv store has it, and
  // was not copied. Category NOT_FOUND: there is none. What it tells is durable when commit() has returned.
  Result<std::string_view> get(KvMap map, std::string_view key) {
    memlith_bytes value{};
    const std::int32_t code = memlith_kv_get(handle_, map, key.data(), key.size(), &value);
    if (code != MEMLITH_OK) return Error(code);
    return detail::view_of(value);
  }
  // The same, with no value where there is none.
  Result<std::optional<std::string_view>> find(KvMap map, std::string_view key) {
    memlith_bytes value{};
    const std::int32_t code = memlith_kv_get(handle_, map, key.data(), key.size(), &value);
    if (code == MEMLITH_OK) return std::optional(detail::view_of(value));
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return std::optional<std::string_view>();
    return Error(code);
  }
  Result<void> put(KvMap map, std::string_view key, std::string_view value) {
    return detail::result_of(memlith_kv_put(handle_, map, key.data(), key.size(), value.data(), value.size()));
  }
  // Category NOT_FOUND: there is none.
  Result<void> remove(KvMap map, std::string_view key) {
    return detail::result_of(memlith_kv_remove(handle_, map, key.data(), key.size()));
  }
  // If the value is `expected`, or without `expected` there is no record: puts `value`, or without it removes the
  // record. False: the record is as it was, and was read.
  Result<bool> put_if(KvMap map, std::string_view key, std::optional<std::string_view> expected,
                      std::optional<std::string_view> value) {
    const memlith_bytes before = detail::bytes_of(expected.value_or(""));
    const memlith_bytes after = detail::bytes_of(value.value_or(""));
    std::int32_t done = 0;
    const std::int32_t code = memlith_kv_put_if(handle_, map, key.data(), key.size(), expected ? &before : nullptr,
                                                value ? &after : nullptr, &done);
    if (code != MEMLITH_OK) return Error(code);
    return done != 0;
  }
  // Removes the records with from <= key < to, and returns their number. Empty `from`: from the first on; empty `to`:
  // up to the last.
  Result<std::uint64_t> remove_range(KvMap map, std::string_view from, std::string_view to) {
    const memlith_bytes first = detail::bytes_of(from);
    const memlith_bytes end = detail::bytes_of(to);
    std::uint64_t count = 0;
    const std::int32_t code =
        memlith_kv_remove_range(handle_, map, from.empty() ? nullptr : &first, to.empty() ? nullptr : &end, &count);
    if (code != MEMLITH_OK) return Error(code);
    return count;
  }
  // About how many records with from <= key < to there are, and how many bytes they have (memlith_kv_estimate).
  struct Estimate {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
  };
  Result<Estimate> estimate(KvMap map, std::string_view from, std::string_view to) {
    const memlith_bytes first = detail::bytes_of(from);
    const memlith_bytes end = detail::bytes_of(to);
    Estimate found;
    const std::int32_t code = memlith_kv_estimate(handle_, map, from.empty() ? nullptr : &first,
                                                  to.empty() ? nullptr : &end, &found.records, &found.bytes);
    if (code != MEMLITH_OK) return Error(code);
    return found;
  }
  // Calls `record(key, value)` for from <= key < to, in order, until it returns false. Empty `from`: from the first on;
  // empty `to`: up to the last. Key and value are valid until the function returns. The function does not
  // use the transaction and does not throw.
  template <class Record>
  Result<void> get_range(KvMap map, std::string_view from, std::string_view to, Record&& record) {
    const memlith_bytes first{from.data(), from.size()};
    const memlith_bytes end{to.data(), to.size()};
    auto call = [](void* context, memlith_bytes key, memlith_bytes value) -> int {
      return (*static_cast<std::remove_reference_t<Record>*>(context))(detail::view_of(key), detail::view_of(value))
                 ? 0
                 : 1;
    };
    return detail::result_of(memlith_kv_get_range(handle_, map, from.empty() ? nullptr : &first,
                                                  to.empty() ? nullptr : &end, call, std::addressof(record)));
  }
  // Reads the rest of a map of a damaged kv store (memlith_kv_salvage): calls `record(key, value)` for each record, in
  // order, until it returns false, and `lost(from, to, sentence)` for keys between which records are missing; an
  // empty `from` is the first key, an empty `to` the end.
  template <class Record, class Lost>
  Result<void> salvage(KvMap map, Record&& record, Lost&& lost) {
    struct Calls {
      std::remove_reference_t<Record>& record;
      std::remove_reference_t<Lost>& lost;
    } calls{record, lost};
    auto call = [](void* context, memlith_bytes key, memlith_bytes value) -> int {
      return static_cast<Calls*>(context)->record(detail::view_of(key), detail::view_of(value)) ? 0 : 1;
    };
    auto tell = [](void* context, const memlith_bytes* from, const memlith_bytes* to, const char* sentence) {
      const auto key = [](const memlith_bytes* bytes) {
        return bytes == nullptr ? std::string_view() : detail::view_of(*bytes);
      };
      static_cast<Calls*>(context)->lost(key(from), key(to), std::string_view(sentence));
    };
    return detail::result_of(memlith_kv_salvage(handle_, map, call, tell, &calls));
  }
  Result<Cursor> cursor(KvMap map) {
    memlith_kv_cursor* handle = nullptr;
    if (const std::int32_t code = memlith_kv_cursor_open(handle_, map, &handle); code != MEMLITH_OK) return Error(code);
    return Cursor(handle);
  }

  // Durable on ok, together with what the transaction has read, also if it wrote nothing or is read-only; or with
  // Durability::weak in order, within the window. Returns the ticket of the commit, for Store::wait().
  Result<Ticket> commit(Durability durability = Durability::sync) {
    Ticket ticket = 0;
    const std::int32_t code = memlith_kv_commit(handle_, static_cast<std::uint32_t>(durability), &ticket);
    if (code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  Result<void> abort() { return detail::result_of(memlith_kv_abort(handle_)); }
  // It is a part of `txn` from now on, which commits or aborts it. See memlith_txn_add_kv.
  Result<void> join(const Transaction& txn) const {
    return detail::result_of(memlith_txn_add_kv(txn.handle(), handle_));
  }
  // Begins the ended transaction anew.
  Result<void> renew() { return detail::result_of(memlith_kv_renew(handle_)); }
  [[nodiscard]] bool active() const { return handle_ != nullptr && memlith_kv_txn_active(handle_) == 1; }

  Result<std::uint64_t> savepoint() {
    std::uint64_t point = 0;
    if (const std::int32_t code = memlith_kv_savepoint(handle_, &point); code != MEMLITH_OK) return Error(code);
    return point;
  }
  Result<void> undo_to(std::uint64_t savepoint) { return detail::result_of(memlith_kv_undo_to(handle_, savepoint)); }

  [[nodiscard]] memlith_kv_txn* handle() const { return handle_; }

 private:
  friend class Kv;
  explicit KvTransaction(memlith_kv_txn* handle) : handle_(handle) {}
  memlith_kv_txn* handle_;
};

struct KvMapOptions {
  bool create = false;
  bool exclusive = false;  // with create: fail with EXISTS if the map exists
};

struct KvBeginOptions {
  bool read_only = false;
  std::uint64_t wait_ms = 0;  // how long a call waits for a transaction in its way, before that is a conflict
};

struct KvOptions {
  bool create = false;
  bool exclusive = false;
  bool check_pages = false;  // MEMLITH_KV_CHECK_PAGES
  std::uint64_t max_size = 0;
  std::uint64_t window_ms = 0;
  std::uint64_t window_bytes = 0;
  // For open_shared() alone.
  std::string program = {};  // the path of `memlith`; empty: it is looked for
  std::uint64_t patience_ms = 0;
};

// An open kv store. Move-only; closing makes every commit durable. To be closed before its Store.
class Kv {
 public:
  Kv(Kv&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Kv& operator=(Kv&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Kv() { (void)close(); }

  // Takes over a handle of memlith_kv_open.
  explicit Kv(memlith_kv* handle) : handle_(handle) {}
  static Result<Kv> open(const Store& store, const std::string& name = "kv", const KvOptions& options = {}) {
    const memlith_kv_options plain = plain_of(options);
    memlith_kv* handle = nullptr;
    if (const std::int32_t code = memlith_kv_open(store.handle(), name.c_str(), &plain, &handle); code != MEMLITH_OK) {
      return Error(code);
    }
    return Kv(handle);
  }
  // The kv store of the store in that folder, for this process and others (memlith_kv_open_shared).
  static Result<Kv> open_shared(const std::string& store, const std::string& name = "kv",
                                const KvOptions& options = {}) {
    const memlith_kv_options plain = plain_of(options);
    memlith_kv* handle = nullptr;
    const std::int32_t code = memlith_kv_open_shared(store.c_str(), name.c_str(), &plain, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return Kv(handle);
  }
  // After BUSY, and when there is no room for commits that wait, the kv store is still open.
  Result<void> close() {
    const std::int32_t code = memlith_kv_close(handle_);
    if (!detail::is_still_open(code)) handle_ = nullptr;
    return detail::result_of(code);
  }

  Result<KvMap> map(const std::string& name, const KvMapOptions& options = {}) const {
    KvMap map = 0;
    const std::uint32_t flags =
        detail::flag_if(options.create, MEMLITH_CREATE) | detail::flag_if(options.exclusive, MEMLITH_EXCLUSIVE);
    if (const std::int32_t code = memlith_kv_map_open(handle_, name.c_str(), flags, &map); code != MEMLITH_OK) {
      return Error(code);
    }
    return map;
  }
  Result<void> remove_map(const std::string& name) const {
    return detail::result_of(memlith_kv_map_remove(handle_, name.c_str()));
  }
  // The names of the maps, in order.
  [[nodiscard]] Result<std::vector<std::string>> maps() const {
    std::vector<std::string> names;
    for (char name[MEMLITH_KV_NAME_BYTES_MAX + 1];; names.emplace_back(name)) {
      const std::int32_t code = memlith_kv_map_at(handle_, names.size(), name, sizeof name);
      if (memlith_category(code) == MEMLITH_NOT_FOUND) return names;
      if (code != MEMLITH_OK) return Error(code);
    }
  }
  // Puts records behind all that the map has, in the order of their keys (memlith_kv_map_append). `next` returns a
  // std::optional<KvRecord>, whose bytes are valid until it is called again; it does not throw. Returns how many there
  // were. After an error the first of them are there; `count`, if given, tells how many.
  template <class Next>
  Result<std::uint64_t> append(KvMap map, Next&& next, std::uint64_t* count = nullptr) const {
    const auto call = [](void* context, memlith_bytes* key, memlith_bytes* value) {
      const std::optional<KvRecord> record = (*static_cast<std::remove_reference_t<Next>*>(context))();
      if (!record.has_value()) return 1;
      *key = detail::bytes_of(record->key);
      *value = detail::bytes_of(record->value);
      return 0;
    };
    std::uint64_t done = 0;
    const std::int32_t code =
        memlith_kv_map_append(handle_, map, call, const_cast<void*>(static_cast<const void*>(std::addressof(next))),
                              &done);
    if (count != nullptr) *count = done;
    if (code != MEMLITH_OK) return Error(code);
    return done;
  }

  Result<KvTransaction> begin(const KvBeginOptions& options = {}) const {
    memlith_kv_txn* handle = nullptr;
    const std::uint32_t flags = detail::flag_if(options.read_only, MEMLITH_KV_READ_ONLY);
    if (const std::int32_t code = memlith_kv_begin(handle_, flags, &handle); code != MEMLITH_OK) return Error(code);
    KvTransaction transaction(handle);
    if (options.wait_ms > 0) {
      const std::int32_t code = memlith_kv_txn_set_wait(handle, options.wait_ms);
      if (code != MEMLITH_OK) return Error(code);
    }
    return transaction;
  }

  // A transaction that was not used for so long loses its locks to another that needs them
  // (memlith_kv_set_txn_timeout).
  Result<void> set_txn_timeout(std::uint64_t timeout_ms) const {
    return detail::result_of(memlith_kv_set_txn_timeout(handle_, timeout_ms));
  }

  // Runs `act(transaction)`, which returns a Result, and commits. An error of `act` aborts and is returned. A conflict,
  // in `act` or in the commit, begins again: `act` may run several times. `durability` and the ticket: as commit();
  // `wait_ms`: as in KvBeginOptions.
  template <class Act>
  Result<Ticket> transact(Act&& act, Durability durability = Durability::sync, std::uint64_t wait_ms = 0) const {
    auto transaction = begin({.wait_ms = wait_ms});
    if (!transaction) return transaction.error();
    for (unsigned tries = 0;; ++tries) {
      auto done = act(*transaction);
      if (done.ok()) {
        // A conflict that `act` did not pass on has ended the transaction nevertheless.
        if (transaction->active()) {
          auto committed = transaction->commit(durability);
          if (committed.ok() || !detail::is_conflict(committed.error())) return committed;
        }
      } else if (!detail::is_conflict(done.error())) {
        (void)transaction->abort();
        return done.error();
      }
      pause(tries);
      if (auto again = transaction->renew(); !again) return again.error();
    }
  }

  Result<void> persist() const { return detail::result_of(memlith_kv_persist(handle_)); }
  // Until what a commit of this kv store returned is durable, as Store::wait().
  Result<void> wait(Ticket ticket) const { return detail::result_of(memlith_kv_wait(handle_, ticket)); }
  // The newest durable ticket of this kv store.
  [[nodiscard]] Ticket durable() const { return memlith_kv_durable(handle_); }
  Result<void> set_window(std::uint64_t window_ms, std::uint64_t window_bytes = 0) const {
    return detail::result_of(memlith_kv_set_window(handle_, window_ms, window_bytes));
  }
  Result<void> set_eventfd(int fd) const { return detail::result_of(memlith_kv_set_eventfd(handle_, fd)); }
  // Calls `done(code)` once, from a thread of the library, when the commit is durable or will not be. It does not
  // throw.
  Result<void> on_durable(Ticket ticket, std::function<void(std::int32_t code)> done) const {
    auto kept = std::make_unique<std::function<void(std::int32_t)>>(std::move(done));
    auto call = [](void* context, std::uint64_t, std::int32_t code) {
      const std::unique_ptr<std::function<void(std::int32_t)>>
          owned(static_cast<std::function<void(std::int32_t)>*>(context));
      (*owned)(code);
    };
    const std::int32_t code = memlith_kv_on_durable(handle_, ticket, call, kept.get());
    if (code != MEMLITH_OK) return Error(code);
    (void)kept.release();
    return {};
  }
  [[nodiscard]] Result<memlith_kv_info> info() const {
    memlith_kv_info info{};
    info.struct_size = sizeof info;
    if (const std::int32_t code = memlith_kv_get_info(handle_, &info); code != MEMLITH_OK) return Error(code);
    return info;
  }
  [[nodiscard]] Result<memlith_kv_report> verify() const {
    memlith_kv_report report{};
    report.struct_size = sizeof report;
    if (const std::int32_t code = memlith_kv_verify(handle_, &report); code != MEMLITH_OK) return Error(code);
    return report;
  }
  [[nodiscard]] memlith_kv* handle() const { return handle_; }

 private:
  static memlith_kv_options plain_of(const KvOptions& options) {
    memlith_kv_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags = detail::flag_if(options.create, MEMLITH_CREATE) |
                  detail::flag_if(options.exclusive, MEMLITH_EXCLUSIVE) |
                  detail::flag_if(options.check_pages, MEMLITH_KV_CHECK_PAGES);
    plain.max_size = options.max_size;
    plain.window_ms = options.window_ms;
    plain.window_bytes = options.window_bytes;
    plain.program = options.program.empty() ? nullptr : options.program.c_str();
    plain.patience_ms = options.patience_ms;
    return plain;
  }
  // Twice as long each time, up to about 1 ms, and of a length that differs between threads.
  static void pause(unsigned tries) {
    if (tries < 2) return std::this_thread::yield();
    const std::uint64_t most_us = std::uint64_t{1} << std::min(tries, 10U);
    const auto drawn = std::hash<std::thread::id>()(std::this_thread::get_id()) * (tries + 1) * 0x9e3779b97f4a7c15u;
    std::this_thread::sleep_for(std::chrono::microseconds(most_us / 2 + (drawn >> 32) % (most_us / 2 + 1)));
  }
  memlith_kv* handle_;
};

}  // namespace memlith
