// memlith: stores. The C++20 interface over memlith/store.h.
//
//   auto store = memlith::Store::open("notes", {.create = true, .notice = warn});
//   if (!store) return;
//   auto names = store->region("names", {.create = true, .size = 1 << 20});
//   auto texts = store->region("texts", {.create = true, .size = 1 << 24});
//   if (!names || !texts) return;
//   ...
//   if (!store->persist()) ...                 // durable when it is ok: all regions, or none
//   if (!store->close()) ...
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "memlith/region.hpp"
#include "memlith/store.h"

namespace memlith {

// How memlith reads and writes the disk; see MEMLITH_IO_AUTO.
enum class Io : std::uint32_t {
  automatic = MEMLITH_IO_AUTO,
  posix = MEMLITH_IO_POSIX,
  dax = MEMLITH_IO_DAX,
};

struct StoreOptions {
  bool create = false;
  bool exclusive = false;
  bool read_only = false;
  bool follow = false;              // read-only, also beside a writer; Store::refresh() moves on
  bool tell_dropped = true;         // say on standard error that a close drops changes, which no persist made durable
  bool accept_copy = false;         // also copied files of a store that was not closed: docs/backup.md
  bool manual_checkpoint = false;   // checkpoints only when asked for, or when the log is full
  std::uint64_t log_bytes = 0;      // 0 = 4 MiB; grows under load
  std::uint64_t log_max_bytes = 0;  // 0 = 1 GiB
  std::uint64_t window_ms = 0;
  std::uint64_t window_bytes = 0;          // 0 = 16 MiB
  std::uint64_t memory_max_bytes = 0;      // 0 = see memlith_store_options
  std::uint32_t physical_block_bytes = 0;  // 4096: for disks that tear whole physical blocks; see memlith.h
  std::uint64_t open_wait_ms = 0;          // how long opening waits for another process to close the store; then BUSY
  Io io = Io::automatic;
  // Called while opening replays a long log. See memlith_store_options.
  void (*progress)(void* context, std::uint64_t bytes_done, std::uint64_t bytes_total) = nullptr;
  void* progress_context = nullptr;
  void (*notice)(void* context, const char* sentence) = nullptr;  // see memlith_store_options
  void* notice_context = nullptr;
};

namespace detail {
// For calls that tell what they find: `sentences` is a std::vector<std::string>.
inline void note_sentence(void* sentences, const char* sentence) {
  static_cast<std::vector<std::string>*>(sentences)->emplace_back(sentence);
}
}  // namespace detail

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
  // durable. See MEMLITH_UNDO for what was stored before, for what returns BUSY meanwhile, and for threads.
  // Returns what the function returns, in a Result. docs/heap.md, "Undo".
  template <class Change>
  auto transact(Change&& change) const {
    return detail::transact(handle_, nullptr, std::forward<Change>(change));
  }
  // For threads that change shared data under a lock, which is held at the call: released when the change is captured;
  // held still if an exception or an error comes back. lock.owns_lock() tells.
  template <class Mutex, class Change>
  auto transact(std::unique_lock<Mutex>& lock, Change&& change) const {
    return detail::transact(handle_, nullptr, lock, std::forward<Change>(change));
  }
  // Begins a transaction. End it before the store is closed. See memlith_begin.
  [[nodiscard]] Result<Transaction> begin() const {
    memlith_txn* txn = nullptr;
    const std::int32_t code = memlith_begin(handle_, &txn);
    if (code != MEMLITH_OK) return Error(code);
    return Transaction(txn);
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
  // Limits how long asynchronous persists may wait. See memlith_store_set_window.
  Result<void> set_window(std::uint64_t window_ms, std::uint64_t window_bytes = 0) const {
    return detail::result_of(memlith_store_set_window(handle_, window_ms, window_bytes));
  }
  Result<void> checkpoint() const { return detail::result_of(memlith_store_checkpoint(handle_)); }
  // For a store that was opened with `follow`: moves on to the newest durable commit, and returns its ticket.
  Result<Ticket> refresh() const {
    Ticket ticket = 0;
    if (const std::int32_t code = memlith_store_refresh(handle_, &ticket); code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  [[nodiscard]] memlith_store_info info() const {
    memlith_store_info info{};
    info.struct_size = sizeof info;
    (void)memlith_store_get_info(handle_, &info);
    return info;
  }
  // Counters and latencies since opening. See memlith_store_get_stats.
  [[nodiscard]] Result<memlith_stats> stats() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    if (const std::int32_t code = memlith_store_get_stats(handle_, &stats); code != MEMLITH_OK) return Error(code);
    return stats;
  }
  // Adds 1 to the eventfd whenever more has become durable, and when the store is poisoned; -1 ends that. The caller
  // keeps it open until another call has replaced it or the store is closed. See memlith_store_set_eventfd.
  Result<void> set_eventfd(int fd) const { return detail::result_of(memlith_store_set_eventfd(handle_, fd)); }
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
                  detail::flag_if(options.tell_dropped, MEMLITH_OPEN_TELL_DROPPED) |
                  detail::flag_if(options.accept_copy, MEMLITH_OPEN_ACCEPT_COPY);
    plain.log_bytes = options.log_bytes;
    plain.log_max_bytes = options.log_max_bytes;
    plain.manual_checkpoint = options.manual_checkpoint ? 1 : 0;
    plain.window_ms = options.window_ms;
    plain.window_bytes = options.window_bytes;
    plain.memory_max_bytes = options.memory_max_bytes;
    plain.physical_block_bytes = options.physical_block_bytes;
    plain.io = static_cast<std::uint32_t>(options.io);
    plain.progress = options.progress;
    plain.progress_context = options.progress_context;
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

// Checks every structure of the store at `path` on the disk, and changes nothing. See memlith_verify.
inline Result<memlith_report> verify(const std::string& path) {
  memlith_report report{};
  report.struct_size = sizeof report;
  if (const std::int32_t code = memlith_verify(path.c_str(), &report); code != MEMLITH_OK) return Error(code);
  return report;
}

// A sentence for each word of a region that looks like an address outside of the store, such as one of malloc's: it
// leads nowhere in the next run. See memlith_verify_pointers.
inline Result<std::vector<std::string>> verify_pointers(const std::string& path) {
  std::vector<std::string> found;
  const std::int32_t code = memlith_verify_pointers(path.c_str(), detail::note_sentence, &found);
  if (code != MEMLITH_OK) return Error(code);
  return found;
}

// Prepares a block device or an NVMe namespace for one store; with `force` also one that holds something, which is
// lost. Durable on ok. See memlith_device_format.
inline Result<void> format_device(const std::string& path, bool force = false) {
  return detail::result_of(memlith_device_format(path.c_str(), detail::flag_if(force, MEMLITH_FORMAT_FORCE)));
}

}  // namespace memlith
