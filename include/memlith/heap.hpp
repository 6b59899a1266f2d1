// memlith: a heap, in which the containers of the standard library survive crashes. The C++20 interface over
// memlith/heap.h, where each call's full contract stands. Guide: docs/heap.md.
//
//   auto store = memlith::Store::open("notes", {.create = true});
//   auto heap = memlith::Heap::open(*store, "heap", {.create = true});
//   auto notes = heap->root<memlith::map<memlith::string, memlith::vector<int>>>();  // made once, then found again
//   (**notes)["monday"].push_back(7);
//   if (!heap->persist()) ...                                                        // durable, all or nothing
//
// Containers throw memlith::heap_error, a std::bad_alloc, where the heap has no room; nothing else here throws, but
// what constructors of your types throw.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "memlith/allocator.hpp"
#include "memlith/heap.h"
#include "memlith/memlith.hpp"

namespace memlith {

namespace detail {

inline constexpr std::size_t kHeapTypeNameLongest = 1000;

// The memory resource of std::pmr containers in a heap: it lies in the heap. Its pointer to virtual functions is
// another one in each run, and is written anew when the heap is opened or rolled back.
class HeapResource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return allocate_in(memlith_heap_of(this), bytes, alignment);
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { free_in_heap(block); }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};
inline constexpr const char* kResourceName = "memlith::resource";

}  // namespace detail

// An open heap. Move-only; closing drops what was not persisted. Closing the store closes it too: its memory is gone
// then, and all that may still be done with the object, and with containers in the heap, is to destroy them.
class Heap {
 public:
  Heap(Heap&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        store_(other.store_),
        store_open_(std::move(other.store_open_)),
        own_store_(std::move(other.own_store_)) {}
  Heap& operator=(Heap&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(store_, other.store_);
    std::swap(store_open_, other.store_open_);
    std::swap(own_store_, other.own_store_);
    return *this;
  }
  ~Heap() { (void)close(); }

  // See memlith_heap_open. With `create`, size 0 is 1 MiB.
  static Result<Heap> open(const Store& store, const std::string& name, const RegionOptions& options = {}) {
    const memlith_region_options plain = detail::plain_options(options);
    memlith_heap* handle = nullptr;
    if (const std::int32_t code = memlith_heap_open(store.handle(), name.c_str(), &plain, &handle);
        code != MEMLITH_OK) {
      return Error(code);
    }
    Heap heap(handle, store.handle(), store.open_);
    if (auto refreshed = heap.refresh(); !refreshed) return refreshed.error();
    return heap;
  }
  // A heap in one ordinary file, made if it is not there and `create` is set. See memlith_file_open for what lies
  // beside the file.
  static Result<Heap> open_file(const std::string& path, const RegionOptions& options = {},
                                StoreOptions store_options = {}) {
    store_options.create = options.create;
    auto store = Store::open_file(path, store_options);
    if (!store) return store.error();
    auto heap = open(*store, "file", options);
    if (heap) heap->own_store_ = std::make_unique<Store>(std::move(*store));
    return heap;
  }

  [[nodiscard]] allocator<> get_allocator() const { return allocator<>(handle_); }
  [[nodiscard]] memlith_heap* handle() const { return handle_; }
  [[nodiscard]] memlith_region* region() const { return memlith_heap_region(handle_); }
  // The commit of `txn` has what a persist of the heap would make durable, too. See memlith_txn_add_region.
  Result<void> join(const Transaction& txn, OnAbort on_abort = OnAbort::keeps) const {
    return detail::result_of(memlith_txn_add_region(txn.handle(), region(), static_cast<std::uint32_t>(on_abort)));
  }

  Result<void*> allocate(std::uint64_t bytes, std::uint64_t alignment = 16) const {
    void* block = nullptr;
    const std::int32_t code = memlith_heap_allocate(handle_, bytes, alignment, &block);
    if (code != MEMLITH_OK) return Error(code);
    return block;
  }
  Result<void> deallocate(void* block) const { return detail::result_of(memlith_heap_free(handle_, block)); }

  // A new object with a name, constructed from the arguments, and with the heap's allocator if it takes one. EXISTS if
  // the name is taken. T must be a type that may live in a heap: see is_persistable.
  template <class T, class... Arguments>
  Result<T*> construct(const std::string& name, Arguments&&... arguments) const {
    detail::require_persistable<T>();
    return make<T>(name, std::forward<Arguments>(arguments)...);
  }
  // NOT_FOUND; INCOMPATIBLE if the object is of another type, size, alignment or layout, with a message that has both.
  template <class T>
  Result<T*> find(const std::string& name) const {
    const std::string type_name = detail::type_name<T>(detail::kHeapTypeNameLongest);
    const memlith_type type = type_of<T>(type_name.c_str());
    void* object = nullptr;
    const std::int32_t code = memlith_heap_find(handle_, name.c_str(), &type, &object);
    if (code != MEMLITH_OK) return Error(code);
    return static_cast<T*>(object);
  }
  // Destroys the object and takes its name away.
  template <class T>
  Result<void> destroy(const std::string& name) const {
    auto object = find<T>(name);
    if (!object) return object.error();
    if (auto removed = detail::result_of(memlith_heap_remove_name(handle_, name.c_str())); !removed) return removed;
    std::destroy_at(*object);
    return deallocate(*object);
  }
  // Migration: the object that an earlier version of the program made as Old becomes a New, made of what `convert`
  // returns for the old object, which is destroyed after that. Old is known by size, alignment and layout, because its
  // name in this program is another one than it was. What is a New already stays as it is. Durable with the next
  // persist, all of it: a crash leaves the old object or the new one. Errors: as find() and construct(); nothing
  // changed.
  template <class Old, class New, class Convert>
  Result<New*> migrate(const std::string& name, Convert&& convert) const {
    detail::require_persistable<New>();
    auto found = find<New>(name);
    if (found || memlith_category(found.error().code()) != MEMLITH_INCOMPATIBLE) return found;
    const memlith_type type = type_of<Old>(nullptr);
    void* object = nullptr;
    if (const std::int32_t code = memlith_heap_find(handle_, name.c_str(), &type, &object); code != MEMLITH_OK) {
      return Error(code);
    }
    Old* const old = static_cast<Old*>(object);
    auto made = make_and_name<New>(memlith_heap_replace, name, std::forward<Convert>(convert)(*old));
    if (!made) return made;
    std::destroy_at(old);
    if (auto freed = deallocate(old); !freed) return freed.error();
    return made;
  }
  // The one object on which everything else hangs: made from the arguments in the first run, found in each later one.
  template <class T, class... Arguments>
  Result<T*> root(Arguments&&... arguments) const {
    auto found = find<T>("");
    if (found || memlith_category(found.error().code()) != MEMLITH_NOT_FOUND) return found;
    return construct<T>("", std::forward<Arguments>(arguments)...);
  }

  // For std::pmr containers that lie in the heap. Null where the heap has no room for it.
  [[nodiscard]] Result<std::pmr::memory_resource*> resource() const {
    auto found = find<detail::HeapResource>(detail::kResourceName);
    if (!found && memlith_category(found.error().code()) == MEMLITH_NOT_FOUND) {
      found = make<detail::HeapResource>(detail::kResourceName);
    }
    if (!found) return found.error();
    return static_cast<std::pmr::memory_resource*>(*found);
  }

  // Durable on ok, the heap and all that is in it, all or nothing. Where threads share what they change, use the next
  // one. With Scope::thread, what the calling thread has stored, allocated and freed: memlith/heap.h, "THREADS", says
  // what the heap has to be opened for, and what threads must not do.
  Result<void> persist(Scope scope = Scope::process) const {
    if (scope == Scope::process) return detail::result_of(memlith_heap_persist(handle_));
    memlith_region* const one = region();
    return detail::result_of(memlith_persist(&one, 1, static_cast<std::uint32_t>(scope)));
  }
  // For threads that change shared data under a lock: see Region::persist(lock).
  template <class Mutex>
  Result<void> persist(std::unique_lock<Mutex>& lock) const {
    memlith_region* const one = region();
    return detail::persist_and_unlock(store_, &one, 1, lock, Scope::process);
  }
  // Captured on ok, durable when Store::wait() has returned.
  Result<Ticket> persist_async(Scope scope = Scope::process) const {
    memlith_region* const one = region();
    Ticket ticket = 0;
    const std::int32_t code = memlith_persist_async(&one, 1, static_cast<std::uint32_t>(scope), &ticket);
    if (code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  Result<void> wait(Ticket ticket) const { return detail::result_of(memlith_wait(store_, ticket)); }
  // Calls the function, and makes durable what it changed in the heap, all or nothing. If the function throws, or
  // returns a Result with an error, the heap and all that is in it is as it was before the call, and the exception, or
  // the error, comes back. See Store::transact and docs/heap.md, "Undo".
  //
  //     auto done = heap->transact([&] {
  //       orders.push_back(order);
  //       stock.at(order.item) -= order.count;  // throws std::out_of_range: the order is gone again
  //     });
  template <class Change>
  auto transact(Change&& change) const {
    return detail::transact(store_, region(), std::forward<Change>(change));
  }
  template <class Mutex, class Change>
  auto transact(std::unique_lock<Mutex>& lock, Change&& change) const {
    return detail::transact(store_, region(), lock, std::forward<Change>(change));
  }
  // The heap and all that is in it is as it was last persisted. No other thread may use the heap meanwhile. Containers
  // outside of the heap that allocated in it since must not be used any more.
  Result<void> rollback() const {
    memlith_region* const one = region();
    if (auto done = detail::result_of(memlith_rollback(&one, 1, MEMLITH_SCOPE_PROCESS)); !done) return done;
    return refresh();
  }
  // Every structure is sound, and every byte accounted for. See memlith_heap_verify.
  [[nodiscard]] Result<memlith_heap_report> verify() const {
    memlith_heap_report report{};
    report.struct_size = sizeof report;
    const std::int32_t code = memlith_heap_verify(handle_, &report);
    if (code != MEMLITH_OK) return Error(code);
    return report;
  }
  Result<void> close() {
    memlith_heap* const handle = std::exchange(handle_, nullptr);
    const bool is_open = handle != nullptr && store_open_ != nullptr && *store_open_;
    auto closed = is_open ? detail::result_of(memlith_heap_close(handle)) : Result<void>();
    if (own_store_ == nullptr) return closed;
    auto store_closed = own_store_->close();
    own_store_ = nullptr;
    return closed ? store_closed : closed;
  }

 private:
  Heap(memlith_heap* handle, memlith_store* store, std::shared_ptr<const bool> store_open)
      : handle_(handle), store_(store), store_open_(std::move(store_open)) {}

  template <class T>
  static memlith_type type_of(const char* name) {
    return {sizeof(memlith_type), name, sizeof(T), alignof(T), layout_of<T>::value};
  }

  template <class T, class... Arguments>
  Result<T*> make(const std::string& name, Arguments&&... arguments) const {
    return make_and_name<T>(memlith_heap_set_name, name, std::forward<Arguments>(arguments)...);
  }
  // `give_name`: memlith_heap_set_name or memlith_heap_replace. A failure leaves nothing behind.
  template <class T, class... Arguments>
  Result<T*> make_and_name(decltype(&memlith_heap_set_name) give_name, const std::string& name,
                           Arguments&&... arguments) const {
    void* block = nullptr;
    if (const std::int32_t code = memlith_heap_allocate(handle_, sizeof(T), alignof(T), &block); code != MEMLITH_OK) {
      return Error(code);
    }
    std::unique_ptr<void, void (*)(void*)> guard(block, [](void* address) { detail::free_in_heap(address); });
    auto* const object = std::uninitialized_construct_using_allocator(static_cast<T*>(block), get_allocator(),
                                                                      std::forward<Arguments>(arguments)...);
    const std::string type_name = detail::type_name<T>(detail::kHeapTypeNameLongest);
    const memlith_type type = type_of<T>(type_name.c_str());
    if (const std::int32_t code = give_name(handle_, name.c_str(), object, &type); code != MEMLITH_OK) {
      const Error error(code);
      std::destroy_at(object);
      return error;
    }
    (void)guard.release();
    (void)memlith_touch(region(), object, sizeof(T));  // only a heap with the explicit tracker needs it
    return object;
  }

  // Another process, or a moment before a rollback, wrote the resource's pointer to virtual functions.
  Result<void> refresh() const {
    auto found = find<detail::HeapResource>(detail::kResourceName);
    if (!found)
      return memlith_category(found.error().code()) == MEMLITH_NOT_FOUND ? Result<void>() : Result<void>(found.error());
    memlith_region_info info{};
    info.struct_size = sizeof info;
    (void)memlith_region_get_info(region(), &info);
    if (info.tracker == 0) return {};  // read-only: nothing is allocated
    new (*found) detail::HeapResource;
    return detail::result_of(memlith_touch(region(), *found, sizeof(detail::HeapResource)));
  }

  memlith_heap* handle_;
  memlith_store* store_;
  std::shared_ptr<const bool> store_open_;
  std::unique_ptr<Store> own_store_;  // of open_file
};

// A block to which nothing leads, because the program that held it was killed.
struct Leak {
  std::string heap{};  // the region's name
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

namespace detail {
inline void note_leak(void* leaks, const char* heap, std::uint64_t offset, std::uint64_t bytes) {
  static_cast<std::vector<Leak>*>(leaks)->push_back({heap, offset, bytes});
}
}  // namespace detail

// Looks for such blocks in the heaps of a store that is closed, or whose process was killed; docs/heap.md, "Leaks".
// Changes nothing. See memlith_verify_leaks.
inline Result<std::vector<Leak>> verify_leaks(const std::string& path) {
  std::vector<Leak> leaks;
  const std::int32_t code = memlith_verify_leaks(path.c_str(), detail::note_leak, &leaks);
  if (code != MEMLITH_OK) return Error(code);
  return leaks;
}
// Frees these blocks, in one commit that is durable on ok, and returns them. `promise` is MEMLITH_PLAIN_POINTERS: see
// memlith_collect_leaks.
inline Result<std::vector<Leak>> collect_leaks(const std::string& path, std::uint32_t promise) {
  std::vector<Leak> leaks;
  const std::int32_t code = memlith_collect_leaks(path.c_str(), promise, detail::note_leak, &leaks);
  if (code != MEMLITH_OK) return Error(code);
  return leaks;
}

// For as long as it lives, containers of this thread that lie outside of heaps and were given no allocator allocate in
// this heap.
class use_heap {
 public:
  explicit use_heap(const Heap& heap) : before_(memlith_heap_use(heap.handle())) {}
  ~use_heap() { (void)memlith_heap_use(before_); }
  use_heap(const use_heap&) = delete;
  use_heap& operator=(const use_heap&) = delete;

 private:
  memlith_heap* before_;
};

}  // namespace memlith
