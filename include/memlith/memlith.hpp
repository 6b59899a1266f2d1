// memlith: memory that survives crashes. The C++20 interface, a thin layer over memlith.h, which states the full
// contract of each call. Handles close themselves; errors are values; nothing throws.
//
//   auto store = memlith::Store::open("notes", {.create = true});
//   auto region = store->region("main", {.create = true, .size = 1 << 20});
//   auto notes = region->root<Notes>();        // constructed once, then found again; an error if Notes has changed
//   if (!notes) ...                            // each call can fail; notes.error().message() says why
//   (*notes)->count++;                         // plain memory
//   if (!region->persist()) ...                // durable, all or nothing
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "memlith/layout.hpp"
#include "memlith/memlith.h"
#include "memlith/persistable.hpp"

namespace memlith {

class Heap;  // memlith/heap.hpp

// Why a call failed: a code of memlith.h and its message.
class Error {
 public:
  Error() = default;
  explicit Error(std::int32_t code) : code_(code), message_(text_of_last()) {}
  Error(std::int32_t code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] std::int32_t code() const { return code_; }
  [[nodiscard]] std::int32_t category() const { return memlith_category(code_); }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  static std::string text_of_last() {
    char buffer[1024];
    memlith_last_error(buffer, sizeof buffer);
    return buffer;
  }
  std::int32_t code_ = MEMLITH_OK;
  std::string message_;
};

namespace detail {
// The result of type_name(), such as "_ZTS8Notebook {_ZTSi, _ZTSd}", as "Notebook {int, double}".
inline std::string readable_type_name(std::string_view type_name) {
  constexpr std::string_view kSymbol = "_ZTS";
  std::string text;
  while (!type_name.empty()) {
    const std::size_t end = std::min(type_name.find_first_of(" ,{}"), type_name.size());
    const std::string word(type_name.substr(0, std::max<std::size_t>(end, 1)));
    type_name.remove_prefix(word.size());
    char* const name = word.compare(0, kSymbol.size(), kSymbol) != 0
                           ? nullptr
                           : abi::__cxa_demangle(word.c_str() + kSymbol.size(), nullptr, nullptr, nullptr);
    text += name != nullptr ? name : word.c_str();
    std::free(name);
  }
  std::replace_if(text.begin(), text.end(), [](unsigned char each) { return each < ' ' || each > '~'; }, '?');
  return text;
}

// The program used the value of a failed result: the program ends, in every build, and prints the error's message.
[[noreturn]] inline void end_without_value(const Error& error) {
  std::fprintf(stderr, "memlith: the value of a failed call was used: %s\n", error.message().c_str());
  std::abort();
}
}  // namespace detail

// A value, or an Error. Check ok() before you use the value: using the value of a failed result is an error of the
// program, which ends with the error's message.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() {
    if (!ok()) detail::end_without_value(error());
    return *std::get_if<0>(&content_);
  }
  const T& operator*() const {
    if (!ok()) detail::end_without_value(error());
    return *std::get_if<0>(&content_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }
  [[nodiscard]] const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&content_);
  }

 private:
  std::variant<T, Error> content_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

namespace detail {
constexpr std::uint32_t flag_if(bool set, std::uint32_t flag) { return set ? flag : 0; }
inline Result<void> result_of(std::int32_t code) { return code == MEMLITH_OK ? Result<void>() : Error(code); }
inline std::string_view view_of(memlith_bytes bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }
inline bool is_still_open(std::int32_t code) {  // after a close that failed
  const std::int32_t why = memlith_category(code);
  return why == MEMLITH_BUSY || why == MEMLITH_NO_SPACE || why == MEMLITH_FULL || why == MEMLITH_NO_MEMORY ||
         why == MEMLITH_TOO_MANY_FILES;
}
}  // namespace detail

enum class Tracker : std::uint32_t {
  automatic = MEMLITH_TRACKER_AUTO,
  scan = MEMLITH_TRACKER_SCAN,
  touched = MEMLITH_TRACKER_EXPLICIT,
  fault = MEMLITH_TRACKER_FAULT,
  instrumented = MEMLITH_TRACKER_INSTRUMENTED,  // docs/compiler-pass.md
};

// How memlith reads and writes the disk; see MEMLITH_IO_AUTO.
enum class Io : std::uint32_t {
  automatic = MEMLITH_IO_AUTO,
  posix = MEMLITH_IO_POSIX,
  uring = MEMLITH_IO_URING,
  dax = MEMLITH_IO_DAX,
};

// Whose stores a persist or a rollback covers: those of every thread (the default), or those of the calling thread.
enum class Scope : std::uint32_t {
  process = MEMLITH_SCOPE_PROCESS,
  thread = MEMLITH_SCOPE_THREAD,
};

// The number of an asynchronous persist, for Store::wait(). Tickets rise in the order of the persists.
using Ticket = std::uint64_t;

struct StoreOptions {
  bool create = false;
  bool exclusive = false;
  bool read_only = false;
  bool follow = false;              // read-only, also beside a writer; Store::refresh() moves on
  bool buffered = false;            // no direct I/O; see MEMLITH_OPEN_BUFFERED
  bool tell_dropped = false;        // say on standard error that a close drops changes, which no persist made durable
  bool manual_checkpoint = false;   // checkpoints only when asked for, or when the log is full
  std::uint64_t log_bytes = 0;      // 0 = 4 MiB; grows under load
  std::uint64_t log_max_bytes = 0;  // 0 = 1 GiB
  std::uint64_t flush_interval_ms = 0;
  std::uint64_t flush_bytes = 0;           // 0 = 16 MiB
  std::uint64_t memory_max_bytes = 0;      // 0 = no limit
  std::uint32_t physical_block_bytes = 0;  // 4096: for disks that tear whole physical blocks; see memlith.h
  std::uint64_t open_wait_ms = 0;          // how long opening waits for another process to close the store; then BUSY
  Io io = Io::automatic;
  void (*notice)(void* context, const char* sentence) = nullptr;  // see memlith_store_options
  void* notice_context = nullptr;
};

struct RegionOptions {
  bool create = false;
  bool exclusive = false;
  bool process_scope = false;  // see MEMLITH_REGION_PROCESS_SCOPE
  Tracker tracker = Tracker::automatic;
  std::uint64_t size = 0;
  std::uint64_t max_size = 0;  // 0 = as it is; of a new region, 4 times size, at least 1 GiB
  std::uint64_t address = 0;   // 0 = memlith chooses
};

namespace detail {
inline memlith_region_options plain_options(const RegionOptions& options) {
  memlith_region_options plain{};
  plain.struct_size = sizeof plain;
  plain.flags = flag_if(options.create, MEMLITH_CREATE) | flag_if(options.exclusive, MEMLITH_EXCLUSIVE) |
                flag_if(options.process_scope, MEMLITH_REGION_PROCESS_SCOPE);
  plain.tracker = static_cast<std::uint32_t>(options.tracker);
  plain.size = options.size;
  plain.max_size = options.max_size;
  plain.address = options.address;
  return plain;
}

template <class Mutex>
Result<void> persist_and_unlock(memlith_store* store, memlith_region* const* regions, std::uint64_t count,
                                std::unique_lock<Mutex>& lock, Scope scope) {
  if (!lock.owns_lock()) {
    return Error(MEMLITH_INVALID, "persist(lock): the lock is not held; take it before you change the data");
  }
  Ticket ticket = 0;
  // ORDER capture-before-unlock: once the lock is free, another thread may begin a change. Captured after that, half of
  // that change could come back after a crash. [capi/threads]
  const std::int32_t code = memlith_persist_async(regions, count, static_cast<std::uint32_t>(scope), &ticket);
  if (code != MEMLITH_OK) return Error(code);
  lock.unlock();
  return result_of(memlith_wait(store, ticket));
}
}  // namespace detail

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

// A read-only view of regions as one durable persist left them. Move-only. The view outlives the regions and the store,
// and a forked child may use it. See memlith_region_snapshot.
class Snapshot {
 public:
  Snapshot(Snapshot&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Snapshot& operator=(Snapshot&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Snapshot() { memlith_snapshot_close(handle_); }

  // The view of region number `index`, in the order in which the regions were given.
  [[nodiscard]] const void* address(std::uint64_t index = 0) const { return memlith_snapshot_address(handle_, index); }
  [[nodiscard]] std::uint64_t size(std::uint64_t index = 0) const { return memlith_snapshot_size(handle_, index); }
  // The view holds every ticket up to this one, and no later one.
  [[nodiscard]] Ticket lsn() const { return memlith_snapshot_lsn(handle_); }
  // In a forked child: maps the view over the regions' own addresses, so that pointers in the regions work. See
  // memlith_snapshot_place.
  Result<void> place() { return detail::result_of(memlith_snapshot_place(handle_)); }
  [[nodiscard]] memlith_snapshot* handle() const { return handle_; }

 private:
  friend class Region;
  friend class Store;
  explicit Snapshot(memlith_snapshot* handle) : handle_(handle) {}
  static Result<Snapshot> of(memlith_region* const* regions, std::uint64_t count) {
    memlith_snapshot* snapshot = nullptr;
    const std::int32_t code = memlith_region_snapshot(regions, count, &snapshot);
    if (code != MEMLITH_OK) return Error(code);
    return Snapshot(snapshot);
  }

  memlith_snapshot* handle_;
};

class Transaction;

// A mapped region. Move-only. Closing a region drops changes that were not persisted. Closing the store closes its
// regions, too: their memory is unmapped then, and the program may only destroy the Region objects.
class Region {
 public:
  Region(Region&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        store_(other.store_),
        store_open_(std::move(other.store_open_)) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(store_, other.store_);
    std::swap(store_open_, other.store_open_);
    return *this;
  }
  ~Region() { (void)close(); }

  [[nodiscard]] void* address() const { return memlith_region_address(handle_); }
  [[nodiscard]] std::uint64_t size() const { return memlith_region_size(handle_); }
  // The commit of `tx` has what a persist would make durable of this region, too. See memlith_txn_add_region.
  Result<void> join(const Transaction& tx) const;
  [[nodiscard]] memlith_region* handle() const { return handle_; }

  // Durable on ok, all or nothing. See memlith_persist. Threads that change shared data use persist(lock), below.
  Result<void> persist(Scope scope = Scope::process) const {
    return detail::result_of(memlith_persist(&handle_, 1, static_cast<std::uint32_t>(scope)));
  }
  // For threads that change shared data under a lock. Captures the changes while `lock` is held, so that no half-done
  // change of another thread is captured; releases the lock; returns when the captured changes are durable. Other
  // threads can take the lock while this thread waits for the disk. docs/threads.md explains why the order matters.
  // Durable on ok, all or nothing.
  // Errors: INVALID                                 - the lock is not held.
  //         FULL, NO_SPACE, NO_MEMORY, UNSUPPORTED  - nothing was captured, and the lock is still held: undo or split
  //                                                   the change before another thread sees it.
  //         IO, POISONED                            - as memlith_persist. lock.owns_lock() tells whether the lock had
  //                                                   been released before the failure.
  template <class Mutex>
  Result<void> persist(std::unique_lock<Mutex>& lock, Scope scope = Scope::process) const {
    return detail::persist_and_unlock(store_, &handle_, 1, lock, scope);
  }
  // Only stores to this range become durable; all others stay due. See memlith_persist_range.
  Result<void> persist_range(const void* address, std::uint64_t bytes, Scope scope = Scope::process) const {
    return detail::result_of(memlith_persist_range(handle_, address, bytes, static_cast<std::uint32_t>(scope)));
  }
  // Captured on ok; durable when Store::wait() has returned ok. See memlith_persist_async.
  Result<Ticket> persist_async(Scope scope = Scope::process) const {
    Ticket ticket = 0;
    const std::int32_t code = memlith_persist_async(&handle_, 1, static_cast<std::uint32_t>(scope), &ticket);
    if (code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  // Undoes all changes since the last persist. See memlith_rollback.
  Result<void> rollback(Scope scope = Scope::process) const {
    return detail::result_of(memlith_rollback(&handle_, 1, static_cast<std::uint32_t>(scope)));
  }
  // Calls the function, and makes durable what it changed in the region, or undoes all of that. See Store::transact.
  template <class Change>
  auto transact(Change&& change) const {
    return detail::transact(store_, &handle_, 1, std::forward<Change>(change));
  }
  template <class Mutex, class Change>
  auto transact(std::unique_lock<Mutex>& lock, Change&& change) const {
    return detail::transact(store_, &handle_, 1, lock, std::forward<Change>(change));
  }
  // A read-only view of the region's last durable state. See memlith_region_snapshot.
  [[nodiscard]] Result<Snapshot> snapshot() const { return Snapshot::of(&handle_, 1); }
  // Call this before a system call that writes into the region. See memlith_prepare.
  Result<void> prepare(void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_prepare(handle_, address, bytes));
  }
  // Gives the memory of clean pages back to the system. See memlith_region_release.
  Result<void> release_memory() const { return detail::result_of(memlith_region_release(handle_)); }
  // Makes whole pages zeros and gives their memory and disk space back; durable on ok. See memlith_region_discard.
  Result<void> discard(void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_region_discard(handle_, address, bytes));
  }
  // Enlarges the region. The new size is durable with the next persist. See memlith_region_grow.
  Result<void> grow(std::uint64_t size) const { return detail::result_of(memlith_region_grow(handle_, size)); }
  Result<void> touch(const void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_touch(handle_, address, bytes));
  }
  template <class T>
  Result<void> touch(const T* object) const {
    return touch(object, sizeof(T));
  }
  [[nodiscard]] memlith_region_info info() const {
    memlith_region_info info{};
    info.struct_size = sizeof info;
    (void)memlith_region_get_info(handle_, &info);
    return info;
  }
  Result<void> close() {
    memlith_region* const handle = std::exchange(handle_, nullptr);
    return store_open_ != nullptr && *store_open_ ? detail::result_of(memlith_region_close(handle)) : Result<void>();
  }

  // The root: the object from which the program finds everything else in the region. It lies at the start of the
  // region, after a header of 512 bytes that holds `version` and what the compiler tells of T: its name, size,
  // alignment and layout (memlith/layout.hpp). The first call constructs the root from `arguments`; like any change, it
  // is durable with the next persist. Later calls find it again. Raise `version` when the meaning of T's bytes changes.
  // T must be a type that may live in a region: see is_persistable.
  // Errors: INCOMPATIBLE (the region has a root of another type or version; the message describes both), INVALID (the
  //         region is too small), NOT_FOUND (no root yet, and the store is open read-only).
  template <class T, class... Arguments>
  Result<T*> root(std::uint32_t version, Arguments&&... arguments) const {
    detail::require_persistable<T>();
    static_assert(alignof(T) <= 64, "memlith: the alignment of a root is at most 64 bytes");
    if (size() < sizeof(RootHeader) + sizeof(T)) {
      return Error(MEMLITH_INVALID, std::string("region \"") + info().name + "\" has " + std::to_string(size()) +
                                        " bytes, too few for its root object, which needs " +
                                        std::to_string(sizeof(RootHeader) + sizeof(T)) +
                                        " with its header; create a larger region, or grow this one");
    }
    auto* header = static_cast<RootHeader*>(address());
    auto* object = reinterpret_cast<T*>(header + 1);
    if (header->magic == 0) {
      if (info().tracker == 0)
        return Error(MEMLITH_NOT_FOUND, "the region has no root object yet, and the store is open read-only");
      new (object) T(std::forward<Arguments>(arguments)...);
      *header = RootHeader::of<T>(version);
      // Regions with the explicit tracker need this; on others it has no effect.
      (void)touch(header, sizeof(RootHeader) + sizeof(T));
      return object;
    }
    const RootHeader expected = RootHeader::of<T>(version);
    if (std::memcmp(header, &expected, sizeof expected) == 0) return object;
    return Error(MEMLITH_INCOMPATIBLE,
                 std::string("region \"") + info().name + "\": its root object is of another type: the region has " +
                     (header->magic == kRootMagic ? header->in_words() : std::string("bytes that are no root object")) +
                     "; the program expects " + expected.in_words() +
                     ". Open it with the type and the version that it was made with, and copy it to a root in a new "
                     "region (docs/how-to/schema.md)");
  }
  template <class T>
  Result<T*> root() const {
    return root<T>(1);
  }

 private:
  friend class Store;
  Region(memlith_region* handle, memlith_store* store, std::shared_ptr<const bool> store_open)
      : handle_(handle), store_(store), store_open_(std::move(store_open)) {}

  struct RootHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t layout;
    std::uint64_t bytes;
    std::uint32_t alignment;
    std::uint32_t reserved;
    char type[480];  // ended and filled with zeros

    template <class T>
    static RootHeader of(std::uint32_t version) {
      constexpr std::size_t kRest = 24;  // what type_name() adds to a name that is too long, and the zero
      RootHeader header{kRootMagic, version, layout_of<T>::value, sizeof(T), alignof(T), 0, {}};
      const std::string name = detail::type_name<T>(sizeof header.type - kRest);
      std::memcpy(header.type, name.data(), name.size());
      return header;
    }
    [[nodiscard]] std::string in_words() const {
      return detail::readable_type_name({type, ::strnlen(type, sizeof type)}) + " of " + std::to_string(bytes) +
             " bytes, aligned to " + std::to_string(alignment) + ", layout " + std::to_string(layout) + ", version " +
             std::to_string(version);
    }
  };
  static_assert(sizeof(RootHeader) == 512);
  static constexpr std::uint64_t kRootMagic = 0x32746f6f72676572;  // "regroot2"

  memlith_region* handle_;
  memlith_store* store_;
  std::shared_ptr<const bool> store_open_;
};

// Changes of regions with the explicit tracker that are committed together or undone. Other structures take part, and
// are in the same frame: Region::join, Heap::join, KvTransaction::join, AppLog::append_in, AppLog::consume_in
// (docs/transactions.md). Move-only; the destructor aborts a transaction that has not ended. See memlith_begin.
//
//     auto transaction = store.begin();
//     if (!transaction || !transaction->touch_before(from) || !transaction->touch_before(to)) return;
//     from->balance -= 10;
//     to->balance += 10;
//     if (from->balance < 0) return;  // aborts
//     auto committed = transaction->commit();
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

inline Result<void> Region::join(const Transaction& tx) const {
  return detail::result_of(memlith_txn_add_region(tx.handle(), handle_));
}

// An open store. Move-only. The destructor closes it and drops errors; call close() to see them.
class Store {
 public:
  Store(Store&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), open_(std::move(other.open_)) {}
  Store& operator=(Store&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(open_, other.open_);
    return *this;
  }
  ~Store() { (void)close(); }

  static Result<Store> open(const std::string& path, const StoreOptions& options = {}) {
    return open_with(memlith_store_open, path, options);
  }
  static Result<Store> open_file(const std::string& path, const StoreOptions& options = {}) {
    return open_with(memlith_file_open, path, options);
  }

  Result<Region> region(const std::string& name, const RegionOptions& options = {}) const {
    const memlith_region_options plain = detail::plain_options(options);
    memlith_region* region = nullptr;
    const std::int32_t code = memlith_region_open(handle_, name.c_str(), &plain, &region);
    if (code != MEMLITH_OK) return Error(code);
    return Region(region, handle_, open_);
  }
  Result<void> remove(const std::string& name) const {
    return detail::result_of(memlith_region_remove(handle_, name.c_str()));
  }

  // Persists all open regions, in one commit.
  Result<void> persist(Scope scope = Scope::process) const {
    return detail::result_of(memlith_persist_all(handle_, static_cast<std::uint32_t>(scope)));
  }
  // Persists several regions, in one commit.
  static Result<void> persist(std::initializer_list<const Region*> regions, Scope scope = Scope::process) {
    const std::vector<memlith_region*> handles = handles_of(regions);
    return detail::result_of(memlith_persist(handles.data(), handles.size(), static_cast<std::uint32_t>(scope)));
  }
  // Persists several regions of this store in one commit, for threads that change them under a lock. See
  // Region::persist(lock).
  template <class Mutex>
  Result<void> persist(std::initializer_list<const Region*> regions, std::unique_lock<Mutex>& lock,
                       Scope scope = Scope::process) const {
    const std::vector<memlith_region*> handles = handles_of(regions);
    return detail::persist_and_unlock(handle_, handles.data(), handles.size(), lock, scope);
  }
  // Calls the function, and makes durable what it changed in the store's open regions and heaps, all or nothing. If the
  // function throws, or returns a Result with an error, everything that it changed there is undone, memory as well as
  // the blocks and names of heaps, and the exception, or the error, comes back. So it is if the change cannot be made
  // durable. See memlith_change_begin for what was stored before, for what returns BUSY meanwhile, and for threads.
  // Returns what the function returns, in a Result. docs/heap.md, "Undo".
  template <class Change>
  auto transact(Change&& change) const {
    return detail::transact(handle_, nullptr, 0, std::forward<Change>(change));
  }
  // For threads that change shared data under a lock, which is held at the call: released when the change is captured;
  // held still if an exception or an error comes back. lock.owns_lock() tells.
  template <class Mutex, class Change>
  auto transact(std::unique_lock<Mutex>& lock, Change&& change) const {
    return detail::transact(handle_, nullptr, 0, lock, std::forward<Change>(change));
  }
  // Begins a transaction. End it before the store is closed. See memlith_begin.
  [[nodiscard]] Result<Transaction> begin() const {
    memlith_txn* tx = nullptr;
    const std::int32_t code = memlith_begin(handle_, &tx);
    if (code != MEMLITH_OK) return Error(code);
    return Transaction(tx);
  }
  // Logs the buffers' bytes and copies them to their targets, all or nothing; durable on ok. See
  // memlith_commit_buffers.
  Result<void> commit(const std::vector<memlith_write>& writes) const {
    return detail::result_of(memlith_commit_buffers(handle_, writes.data(), writes.size(), MEMLITH_COMMIT_SYNC,
                                                    nullptr));
  }
  // The same; durable when wait() has returned ok.
  [[nodiscard]] Result<Ticket> commit_weak(const std::vector<memlith_write>& writes) const {
    Ticket ticket = 0;
    const std::int32_t code =
        memlith_commit_buffers(handle_, writes.data(), writes.size(), MEMLITH_COMMIT_WEAK, &ticket);
    if (code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  // A view of several regions, as one and the same persist left them.
  static Result<Snapshot> snapshot(std::initializer_list<const Region*> regions) {
    const std::vector<memlith_region*> handles = handles_of(regions);
    return Snapshot::of(handles.data(), handles.size());
  }
  // Returns when everything up to the ticket is durable.
  Result<void> wait(Ticket ticket) const { return detail::result_of(memlith_wait(handle_, ticket)); }
  // The newest durable ticket.
  [[nodiscard]] Ticket durable() const { return memlith_store_durable(handle_); }
  // A ticket of everything that was committed, captured or appended before, in whatever structure.
  [[nodiscard]] Ticket newest() const { return memlith_store_newest(handle_); }
  // Lets the log grow to `bytes` from now on, for example after a persist that was FULL. See memlith_store_set_log_max.
  Result<void> set_log_max(std::uint64_t bytes) const {
    return detail::result_of(memlith_store_set_log_max(handle_, bytes));
  }
  // Limits how long asynchronous persists may wait. See memlith_store_set_flush_window.
  Result<void> set_flush_window(std::uint64_t interval_ms, std::uint64_t bytes = 0) const {
    return detail::result_of(memlith_store_set_flush_window(handle_, interval_ms, bytes));
  }
  Result<void> checkpoint() const { return detail::result_of(memlith_store_checkpoint(handle_)); }
  // For a store that was opened with `follow`: moves on to the newest durable commit, and returns its ticket.
  Result<std::uint64_t> refresh() const {
    std::uint64_t lsn = 0;
    if (const std::int32_t code = memlith_store_refresh(handle_, &lsn); code != MEMLITH_OK) return Error(code);
    return lsn;
  }
  [[nodiscard]] memlith_store_info info() const {
    memlith_store_info info{};
    info.struct_size = sizeof info;
    (void)memlith_store_get_info(handle_, &info);
    return info;
  }
  [[nodiscard]] std::vector<memlith_region_info> regions() const {
    std::vector<memlith_region_info> all;
    memlith_region_info info{};
    info.struct_size = sizeof info;
    while (memlith_store_region_at(handle_, all.size(), &info) == MEMLITH_OK) all.push_back(info);
    return all;
  }
  [[nodiscard]] memlith_store* handle() const { return handle_; }
  Result<void> close() {
    if (handle_ == nullptr) return {};
    *open_ = false;
    return detail::result_of(memlith_store_close(std::exchange(handle_, nullptr)));
  }

 private:
  friend class Heap;
  explicit Store(memlith_store* handle) : handle_(handle), open_(std::make_shared<bool>(true)) {}

  static std::vector<memlith_region*> handles_of(std::initializer_list<const Region*> regions) {
    std::vector<memlith_region*> handles;
    for (const Region* region : regions) handles.push_back(region->handle());
    return handles;
  }

  template <class Open>
  static Result<Store> open_with(Open open, const std::string& path, const StoreOptions& options) {
    memlith_store_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags = detail::flag_if(options.create, MEMLITH_OPEN_CREATE) |
                  detail::flag_if(options.exclusive, MEMLITH_OPEN_EXCLUSIVE) |
                  detail::flag_if(options.read_only, MEMLITH_OPEN_READ_ONLY) |
                  detail::flag_if(options.follow, MEMLITH_OPEN_FOLLOW) |
                  detail::flag_if(options.buffered, MEMLITH_OPEN_BUFFERED) |
                  detail::flag_if(options.tell_dropped, MEMLITH_OPEN_TELL_DROPPED);
    plain.log_bytes = options.log_bytes;
    plain.log_max_bytes = options.log_max_bytes;
    plain.manual_checkpoint = options.manual_checkpoint ? 1 : 0;
    plain.flush_interval_ms = options.flush_interval_ms;
    plain.flush_bytes = options.flush_bytes;
    plain.memory_max_bytes = options.memory_max_bytes;
    plain.physical_block_bytes = options.physical_block_bytes;
    plain.io = static_cast<std::uint32_t>(options.io);
    plain.notice = options.notice;
    plain.notice_context = options.notice_context;
    plain.open_wait_ms = options.open_wait_ms;
    memlith_store* store = nullptr;
    const std::int32_t code = open(path.c_str(), &plain, &store);
    if (code != MEMLITH_OK) return Error(code);
    return Store(store);
  }

  memlith_store* handle_;
  std::shared_ptr<bool> open_;  // shared with the regions
};

}  // namespace memlith
