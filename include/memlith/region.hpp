// memlith: regions, which are memory, and snapshots of them. The C++20 interface over memlith/region.h.
//
//   auto region = store.region("counters", {.create = true, .size = 1 << 20});
//   if (!region) return;
//   auto counters = region->root<Counters>();  // zeros in the first run, found again in every later one
//   if (!counters) return;
//   (*counters)->words += 2;
//   (*counters)->lines += 1;
//   if (!region->persist()) ...                // durable when it is ok, both or neither
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "memlith/layout.hpp"
#include "memlith/persistable.hpp"
#include "memlith/region.h"
#include "memlith/transaction.hpp"

namespace memlith {

class Heap;  // memlith/heap.hpp

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
}  // namespace detail

enum class Tracker : std::uint32_t {
  automatic = MEMLITH_TRACKER_AUTO,
  scan = MEMLITH_TRACKER_SCAN,
  touched = MEMLITH_TRACKER_EXPLICIT,
  fault = MEMLITH_TRACKER_FAULT,
  instrumented = MEMLITH_TRACKER_INSTRUMENTED,  // docs/compiler-pass.md
};

// Whose stores a persist or a rollback covers: those of every thread (the default), or those of the calling thread.
enum class Scope : std::uint32_t {
  process = MEMLITH_SCOPE_PROCESS,
  thread = MEMLITH_SCOPE_THREAD,
};

struct RegionOptions {
  bool create = false;
  bool exclusive = false;
  bool process_scope = false;  // see MEMLITH_REGION_PROCESS_SCOPE
  bool thread_scope = false;   // see MEMLITH_REGION_THREAD_SCOPE
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
                flag_if(options.process_scope, MEMLITH_REGION_PROCESS_SCOPE) |
                flag_if(options.thread_scope, MEMLITH_REGION_THREAD_SCOPE);
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
  [[nodiscard]] Ticket ticket() const { return memlith_snapshot_ticket(handle_); }
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
  // The commit of `txn` has what a persist would make durable of this region, too. See memlith_txn_add_region.
  Result<void> join(const Transaction& txn, OnAbort on_abort = OnAbort::keeps) const {
    return detail::result_of(memlith_txn_add_region(txn.handle(), handle_, static_cast<std::uint32_t>(on_abort)));
  }
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
    return detail::transact(store_, handle_, std::forward<Change>(change));
  }
  template <class Mutex, class Change>
  auto transact(std::unique_lock<Mutex>& lock, Change&& change) const {
    return detail::transact(store_, handle_, lock, std::forward<Change>(change));
  }
  // A read-only view of the region's last durable state. See memlith_region_snapshot.
  [[nodiscard]] Result<Snapshot> snapshot() const { return Snapshot::of(&handle_, 1); }
  // Call this before a system call that writes into the region. See memlith_prepare.
  Result<void> prepare(void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_prepare(handle_, address, bytes));
  }
  // Call this before stores to many pages. See memlith_announce.
  Result<void> announce(std::span<const memlith_bytes> parts) const {
    return detail::result_of(memlith_announce(handle_, parts.data(), parts.size()));
  }
  // Gives the memory of clean pages back to the system. See memlith_region_release.
  Result<void> release() const { return detail::result_of(memlith_region_release(handle_)); }
  // Makes whole pages zeros and gives their memory and disk space back; durable on ok. See memlith_region_discard.
  Result<void> discard(void* address, std::uint64_t bytes) const {
    return detail::result_of(memlith_region_discard(handle_, address, bytes));
  }
  // How many bytes were stored to since the last persist, as far as the tracker knows. See memlith_region_unpersisted.
  [[nodiscard]] Result<std::uint64_t> unpersisted() const {
    std::uint64_t bytes = 0;
    if (const std::int32_t code = memlith_region_unpersisted(handle_, &bytes); code != MEMLITH_OK) return Error(code);
    return bytes;
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

}  // namespace memlith
