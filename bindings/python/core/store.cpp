#include "store.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "transaction.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

template <typename Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

// In the lock of the gate for as long as this lives.
struct Inside {
  Gate& gate;
  explicit Inside(Gate& given) : gate(given) { gate.enter(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { gate.leave(); }
};

std::uint64_t option(const nb::kwargs& options, const char* name) {
  return options.contains(name) ? nb::cast<std::uint64_t>(options[name]) : 0;
}

// The main thread waits in a thread of its own if the last wait took longer. It costs about 0.05 ms.
constexpr std::chrono::milliseconds kSlow{5};

void keep_notice(void* context, const char* sentence) {
  static_cast<std::vector<std::string>*>(context)->emplace_back(sentence);
}

// An opening, which ends in another thread if a signal handler interrupts it here. What it has opened is closed then.
struct Opening {
  std::string name;
  bool one_file;
  memlith_store_options wanted;
  std::vector<std::string> notices;
  memlith_store* handle = nullptr;
  Identity identity;

  Opening(std::string path, bool is_file, const memlith_store_options& options)
      : name(std::move(path)), one_file(is_file), wanted(options) {
    wanted.notice = keep_notice;
    wanted.notice_context = &notices;
  }
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  ~Opening() { memlith_store_close(handle); }

  void open() {
    check(one_file ? memlith_file_open(name.c_str(), &wanted, &handle)
                   : memlith_store_open(name.c_str(), &wanted, &handle));
    auto now = sized<memlith_store_info>();
    struct stat folder{};
    if (memlith_store_get_info(handle, &now) == MEMLITH_OK && ::stat(name.c_str(), &folder) == 0) {
      identity = {folder.st_dev, folder.st_ino, now.log_id, ""};
    }
  }
};

}  // namespace

// ---- open and close ------------------------------------------------------------------------------------------------

Store::Store(const nb::bytes& path, bool one_file, const nb::kwargs& options) : one_file_(one_file) {
  auto wanted = sized<memlith_store_options>();
  wanted.flags = static_cast<std::uint32_t>(option(options, "flags"));
  wanted.io = static_cast<std::uint32_t>(option(options, "io"));
  wanted.log_bytes = option(options, "log_bytes");
  wanted.log_max_bytes = option(options, "log_max_bytes");
  wanted.manual_checkpoint = static_cast<std::uint32_t>(option(options, "manual_checkpoint"));
  wanted.window_ms = option(options, "window_ms");
  wanted.window_bytes = option(options, "window_bytes");
  wanted.memory_max_bytes = option(options, "memory_max_bytes");
  wanted.open_wait_ms = option(options, "open_wait_ms");
  wanted.physical_block_bytes = static_cast<std::uint32_t>(option(options, "physical_block_bytes"));
  follows_ = (wanted.flags & MEMLITH_OPEN_FOLLOW) != 0;
  read_only_ = follows_ || (wanted.flags & MEMLITH_OPEN_READ_ONLY) != 0;
  std::string name(path.c_str(), path.size());
  if (name.find('\0') != std::string::npos) fail(MEMLITH_INVALID, "a path has no zero bytes");
  const auto opening = std::make_shared<Opening>(std::move(name), one_file, wanted);
  run_hearing_signals([opening] { opening->open(); });
  handle_ = std::exchange(opening->handle, nullptr);
  identity_ = opening->identity;
  for (const std::string& notice : opening->notices) {
    if (PyErr_WarnEx(PyExc_RuntimeWarning, notice.c_str(), 2) == 0) continue;
    memlith_store_close(std::exchange(handle_, nullptr));  // the program takes warnings for errors
    throw nb::python_error();
  }
}

Store::~Store() {
  if (handle_ == nullptr || inherited()) return;
  try {
    close();
  } catch (const Failure& failure) {
    PySys_WriteStderr("memlith: closing a store that was not closed: %s\n", failure.sentence.c_str());
  }
}

// Commits of weak dictionaries and entries of logs become durable, or there is no room for them: then close() would
// lose them.
void Store::persist_waiting() {
  if (inherited()) return;
  const Unlocked unlocked;
  const std::shared_lock lock(lock_);
  if (handle_ == nullptr || read_only_) return;
  if (records_ != nullptr) records_->persist_waiting();
  write_logs();
}

void Store::close() {
  if (inherited()) {  // the parent's, whose locks may be held for ever in this process
    handle_ = nullptr;
    return;
  }
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) return;
  std::optional<Failure> failed = close_logs();
  try {
    if (records_ != nullptr) records_->close();
  } catch (const Failure& failure) {
    if (!failed.has_value()) failed = failure;
  }
  records_.reset();
  {
    const nb::gil_scoped_acquire locked;
    close_regions();
  }
  memlith_store* const closing = std::exchange(handle_, nullptr);
  durable_at_close_ = memlith_store_durable(closing);
  const std::int32_t code = memlith_store_close(closing);
  if (code == MEMLITH_OK) durable_at_close_ = ~std::uint64_t{0};  // a clean close waits for every ticket
  if (failed.has_value()) throw Failure(*failed);
  check(code);
}

void Store::close_one(Open& open) {
  if (open.mapping.use_count() > 1) {
    open.mapping->detach(open.region);
  } else {
    memlith_region_close(open.region);
  }
}

void Store::close_regions() {
  while (!regions_.empty()) {
    close_one(regions_.begin()->second);
    regions_.erase(regions_.begin());
  }
}

void Store::check_usable() const {
  if (inherited()) {
    fail(MEMLITH_INVALID,
         "the store was opened by the parent of this process, and only the parent may use it; open it here after the "
         "parent closed it, or read a snapshot that the parent made before the fork");
  }
}

OwnerPtr Store::current() const { return transactions_ == 0 ? nullptr : transaction_of_context(this); }

void Store::check_no_transaction() const {
  const OwnerPtr owner = current();
  if (owner == nullptr) return;
  if (!owner->arrays) fail(MEMLITH_INVALID, "this thread has a transaction of a dictionary open, which ends first");
  fail(MEMLITH_INVALID, "this thread has a transaction open, which persists or rolls back as a whole when it ends");
}

template <typename Work>
auto Store::use(Work&& work) {
  const std::shared_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  return work();
}

template <typename Work>
auto Store::with_handle(Work&& work) {
  check_usable();
  const Unlocked unlocked;
  return use(work);
}

template <typename Work>
auto Store::through_gate(Work&& work) {
  check_usable();
  check_no_transaction();
  const Inside inside(gate_);
  const Unlocked unlocked;
  return use(work);
}

// ---- persist -------------------------------------------------------------------------------------------------------

std::vector<memlith_region*> Store::open_regions() const {
  std::vector<memlith_region*> all;
  for (const auto& [name, open] : regions_) all.push_back(open.region);
  return all;
}

void Store::persist(std::uint32_t scope) {
  // The main thread captures, and waits so that it hears signals.
  if (runs_handlers() && is_slow_ && !read_only_) return wait(persist_async(scope));
  through_gate([this, scope] {
    if (records_ != nullptr && !read_only_) records_->persist();
    check(memlith_persist_all(handle_, scope));
  });
}

std::uint64_t Store::persist_async(std::uint32_t scope) {
  return through_gate([this, scope] {
    std::vector<memlith_region*> all = open_regions();
    std::uint64_t ticket = 0;
    if (!all.empty()) check(memlith_persist_async(all.data(), all.size(), scope, &ticket));
    return memlith_store_newest(handle_);  // of what dictionaries have, too
  });
}

// Without the interpreter lock. False: the wait may be long, and is for wait().
bool Store::wait_here(std::uint64_t ticket) {
  if (runs_handlers() && is_slow_) return false;
  const auto began = std::chrono::steady_clock::now();
  check(durable_waits_.wait(handle_, ticket));
  is_slow_ = std::chrono::steady_clock::now() - began > kSlow;
  return true;
}

void Store::wait(std::uint64_t ticket) {
  check_usable();
  const auto work = [this, ticket] {
    const std::shared_lock lock(lock_);
    const auto began = std::chrono::steady_clock::now();
    if (handle_ != nullptr) check(durable_waits_.wait(handle_, ticket));
    is_slow_ = std::chrono::steady_clock::now() - began > kSlow;
    if (handle_ == nullptr && ticket > durable_at_close_) {
      fail(MEMLITH_POISONED, "the store was closed after a failed write or flush; reopening it tells what is durable");
    }
  };
  run(work);
}

// Work that waits for the disk, without the interpreter lock, and so that the main thread hears signals.
void Store::run(const std::function<void()>& work) {
  if (!runs_handlers() || !is_slow_) {
    const Unlocked unlocked;
    return work();
  }
  nb::object self = nb::find(this);
  try {
    run_beside(work);
  } catch (const nb::python_error&) {
    (void)self.release();  // the work goes on, and uses the store until the process ends
    throw;
  }
}

std::uint64_t Store::durable() {
  check_usable();
  const Unlocked unlocked;
  const std::shared_lock lock(lock_);
  return handle_ == nullptr ? durable_at_close_ : memlith_store_durable(handle_);
}

void Store::rollback() {
  through_gate([this] {
    const std::vector<memlith_region*> all = open_regions();
    if (!all.empty()) check(memlith_rollback(all.data(), all.size(), MEMLITH_SCOPE_PROCESS));
  });
}

void Store::checkpoint() {
  check_usable();
  is_slow_ = true;
  run([this] { use([this] { check(memlith_store_checkpoint(handle_)); }); });
}

std::uint64_t Store::refresh() {
  check_usable();
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  if (!read_only_) fail(MEMLITH_INVALID, "the store is open for writing: it shows what this process does");
  if (!follows_) return memlith_store_durable(handle_);  // no writer while it is open
  check(memlith_store_refresh(handle_, nullptr));
  // Arrays of an earlier opening may be stored to; those stores are part of no commit.
  for (const auto& [name, open] : regions_) open.mapping->allow_stores(memlith_region_size(open.region));
  return memlith_store_durable(handle_);
}

void Store::set_window(std::uint64_t window_ms, std::uint64_t bytes) {
  with_handle([&] { check(memlith_store_set_window(handle_, window_ms, bytes)); });
}

void Store::begin(const OwnerPtr& owner, std::optional<double> wait, bool whole) {
  check_usable();
  struct Undo {
    Store& store;
    const Owner* owner;
    ~Undo() {
      if (owner == nullptr) return;
      store.turn_.end(owner);
      store.gate_.end(owner);
    }
  } undo{*this, owner.get()};
  if (owner->arrays) {
    const OwnerPtr outer = current();
    if (outer != nullptr && !outer->arrays) check_no_transaction();
    if (outer != nullptr) {
      fail(MEMLITH_INVALID, "this thread has a transaction open already; transactions do not nest");
    }
    gate_.begin(owner, wait);
  }
  const bool with_records = !owner->arrays || (whole && !read_only_ && records_ != nullptr);
  if (with_records) turn_.begin(owner, wait);
  const auto lock = share(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  if (with_records) records().begin();
  owner->records = with_records;
  ++transactions_;
  owner->open = true;
  undo.owner = nullptr;
}

// Ends a transaction, whatever happens.
struct Ending {
  Store& store;
  Owner& owner;
  bool has_ended = false;
  Ending(Store& of, Owner& ended) : store(of), owner(ended) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() { end(); }
  void end() {
    if (std::exchange(has_ended, true)) return;
    owner.open = false;
    --store.transactions_;
    store.turn_.end(&owner);
    store.gate_.end(&owner);
  }
};

// Ends the transaction in any case: one that cannot be persisted (FULL) is rolled back.
std::uint64_t Store::commit(const OwnerPtr& owner, bool durable) {
  check_usable();
  auto part = lock_briefly(owner->use);
  if (!owner->open) fail(MEMLITH_INVALID, "the transaction has ended");
  owner->ending = true;
  const Unlocked unlocked;
  Ending ending{*this, *owner};
  return use([&]() -> std::uint64_t {
    const std::uint64_t ticket = commit_parts(*owner);
    ending.end();
    part.unlock();
    return durable && wait_here(ticket) ? 0 : ticket;
  });
}

// With `owner.use` and lock_ held.
std::uint64_t Store::commit_parts(Owner& owner) {
  const std::vector<memlith_region*> all = owner.arrays ? open_regions() : std::vector<memlith_region*>();
  const bool with_records = owner.records && records_->active();
  if (with_records && all.empty() && owner.logged.empty()) return records().commit();
  std::uint64_t ticket = 0;
  memlith_txn* tx = nullptr;
  std::vector<std::unique_lock<std::mutex>> readers;
  try {
    check(memlith_begin(handle_, &tx));
    for (memlith_region* const region : all) check(memlith_txn_add_region(tx, region, 0));
    if (with_records) records_->join(tx);
    readers = add_logs(tx, owner.logged);
    check(memlith_commit(tx, MEMLITH_COMMIT_WEAK, &ticket));
  } catch (const Failure&) {
    memlith_abort(tx);
    if (with_records) records_->abort();
    if (!all.empty()) memlith_rollback(all.data(), all.size(), MEMLITH_SCOPE_PROCESS);
    throw;
  }
  if (with_records) records_->ended();
  return std::max(ticket, memlith_store_durable(handle_));
}

void Store::abort(const OwnerPtr& owner) {
  check_usable();
  const auto part = lock_briefly(owner->use);
  if (!owner->open) return;
  owner->ending = true;
  const Unlocked unlocked;
  const Ending ending{*this, *owner};
  if (!owner->arrays && handle_ == nullptr) return;
  use([&] {
    if (owner->records && records_->active()) records_->abort();
    if (!owner->arrays) return;
    const std::vector<memlith_region*> all = open_regions();
    if (!all.empty()) check(memlith_rollback(all.data(), all.size(), MEMLITH_SCOPE_PROCESS));
  });
}

// ---- regions -------------------------------------------------------------------------------------------------------

Store::Open& Store::open(const std::string& name) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) fail(MEMLITH_NOT_FOUND, "region \"" + name + "\" is not open");
  return found->second;
}

// Where the region of that name lies; 0: there is none.
std::uint64_t Store::address_of(const std::string& name) const {
  auto info = sized<memlith_region_info>();
  for (std::uint64_t index = 0; memlith_store_region_at(handle_, index, &info) == MEMLITH_OK; ++index) {
    if (name == info.name) return info.address;
  }
  return 0;
}

// The mapping that arrays of an earlier opening still hold of this region, or null. With the interpreter lock.
std::shared_ptr<Mapping> Store::mapping_before(const std::string& name) {
  identity_.name = name;
  const std::shared_ptr<Mapping> mapping = Mapping::find(identity_, address_of(name));
  return mapping != nullptr && mapping->detached() ? mapping : nullptr;  // or another reader has the region open here
}

// The error of an opening whose addresses arrays of another store have, if that is so. With the interpreter lock.
void Store::tell_arrays_in_place(const std::string& name) const {
  const std::string other = Mapping::name_at(address_of(name));
  if (other.empty()) return;
  fail(MEMLITH_ADDRESS_TAKEN,
       "array \"" + other + "\" of another store lies where array \"" + name +
           "\" belongs; a copy of a store has its original's addresses. Delete the array of the other store (`del`; a "
           "notebook's Out keeps results, too) and close that store, or open this one in another process");
}

void Store::open_region(const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t tracker,
                        std::uint32_t flags) {
  check_usable();
  auto wanted = sized<memlith_region_options>();
  wanted.size = size;
  wanted.max_size = max_size;
  wanted.tracker = tracker;
  wanted.flags = flags;
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  if (regions_.contains(name)) return;

  std::shared_ptr<Mapping> mapping;
  memlith_region* region = nullptr;
  {
    const nb::gil_scoped_acquire locked;
    mapping = mapping_before(name);
    if (mapping != nullptr) {
      const std::uint64_t bytes = mapping->make_way();
      std::int32_t code = memlith_region_open(handle_, name.c_str(), &wanted, &region);
      // Arrays may be longer than the region, if a growth was not persisted.
      if (code == MEMLITH_OK && !read_only_ && memlith_region_size(region) < bytes) {
        code = memlith_region_grow(region, bytes);
        if (code != MEMLITH_OK) memlith_region_close(std::exchange(region, nullptr));
      }
      if (code != MEMLITH_OK) mapping->fill_in(bytes);
      check(code);
      if (read_only_) mapping->allow_stores(memlith_region_size(region));
      if (memlith_region_size(region) < bytes) mapping->extend(memlith_region_size(region), bytes);
    }
  }
  if (region == nullptr) {
    std::int32_t code = memlith_region_open(handle_, name.c_str(), &wanted, &region);
    // Arrays hold no pointers, so a reader can have them anywhere: beside another reader of this process, or in a
    // forked child, which has inherited its parent's arrays.
    if (memlith_category(code) == MEMLITH_ADDRESS_TAKEN && read_only_) {
      wanted.flags |= MEMLITH_REGION_ANYWHERE;
      code = memlith_region_open(handle_, name.c_str(), &wanted, &region);
    }
    if (memlith_category(code) == MEMLITH_ADDRESS_TAKEN) {
      const nb::gil_scoped_acquire locked;
      tell_arrays_in_place(name);
    }
    check(code);
  }
  const nb::gil_scoped_acquire locked;
  if (mapping == nullptr) {
    identity_.name = name;
    mapping = Mapping::of(identity_, reinterpret_cast<std::uint64_t>(memlith_region_address(region)));
  }
  regions_.emplace(name, Open{region, std::move(mapping)});
}

void Store::close_region(const std::string& name) {
  check_usable();
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  const nb::gil_scoped_acquire locked;
  close_one(found->second);
  regions_.erase(found);
}

bool Store::is_open(const std::string& name) {
  return with_handle([&] { return regions_.contains(name); });
}

void Store::remove_region(const std::string& name) {
  close_region(name);
  with_handle([&] { check(memlith_region_remove(handle_, name.c_str())); });
}

nb::list Store::unpersisted() {
  std::vector<std::pair<std::string, std::uint64_t>> found;
  if (!read_only_) {
    with_handle([&] {
      for (const auto& [name, open] : regions_) {
        std::uint64_t bytes = 0;
        check(memlith_region_unpersisted(open.region, &bytes));
        if (bytes > 0) found.emplace_back(name, bytes);
      }
    });
  }
  nb::list result;
  for (const auto& [name, bytes] : found) result.append(nb::make_tuple(name, bytes));
  return result;
}

void Store::grow(const std::string& name, std::uint64_t size) {
  check_usable();
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  check(memlith_region_grow(open(name).region, size));
}

void Store::persist_region(const std::string& name) {
  with_handle([&] {
    memlith_region* const region = open(name).region;
    check(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS));
  });
}

void Store::touch(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  with_handle([&] {
    memlith_region* const region = open(name).region;
    check(memlith_touch(region, static_cast<char*>(memlith_region_address(region)) + offset, bytes));
  });
}

void Store::prepare(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  with_handle([&] {
    memlith_region* const region = open(name).region;
    check(memlith_prepare(region, static_cast<char*>(memlith_region_address(region)) + offset, bytes));
  });
}

void Store::release(const std::string& name) {
  with_handle([&] { check(memlith_region_release(open(name).region)); });
}

std::unique_ptr<Memory> Store::memory(const std::string& name, nb::object owner) {
  check_usable();
  std::shared_ptr<Mapping> mapping;
  std::uint64_t bytes = 0;
  with_handle([&] {
    const Open& found = open(name);
    mapping = found.mapping;
    bytes = memlith_region_size(found.region);
  });
  mapping->was_exported(!read_only_);
  void* const address = mapping->address();
  return std::make_unique<Memory>(Memory{std::move(mapping), std::move(owner), address, bytes, read_only_});
}

nb::list Store::snapshot(const std::vector<std::string>& names) {
  std::shared_ptr<memlith_snapshot> snapshot;
  with_handle([&] {
    std::vector<memlith_region*> chosen;
    for (const std::string& name : names) chosen.push_back(open(name).region);
    memlith_snapshot* made = nullptr;
    check(memlith_region_snapshot(chosen.data(), chosen.size(), &made));
    snapshot = {made, memlith_snapshot_close};
  });
  nb::list views;
  for (std::size_t index = 0; index < names.size(); ++index) {
    void* const address = const_cast<void*>(memlith_snapshot_address(snapshot.get(), index));
    views.append(nb::cast(std::make_unique<Memory>(Memory{snapshot, nb::none(), address,
                                                          memlith_snapshot_size(snapshot.get(), index), true})));
  }
  return views;
}

// ---- what there is -------------------------------------------------------------------------------------------------

namespace {

nb::dict describe(const memlith_region_info& info) {
  nb::dict made;
  made["name"] = nb::str(info.name);
  made["address"] = info.address;
  made["size"] = info.size;
  made["max_size"] = info.max_size;
  made["tracker"] = info.tracker;
  made["tracker_detail"] = nb::str(info.tracker_detail);
  return made;
}

}  // namespace

nb::dict Store::region_info(const std::string& name) {
  auto info = sized<memlith_region_info>();
  with_handle([&] { check(memlith_region_get_info(open(name).region, &info)); });
  return describe(info);
}

nb::list Store::regions() {
  std::vector<memlith_region_info> all;
  with_handle([&] {
    auto info = sized<memlith_region_info>();
    while (memlith_store_region_at(handle_, all.size(), &info) == MEMLITH_OK) all.push_back(info);
  });
  nb::list made;
  for (const memlith_region_info& info : all) {
    const bool is_records = info.name == std::string_view(kRecordsRegion) || (one_file_ && records_ != nullptr);
    const bool is_log =
        std::any_of(logs_.begin(), logs_.end(), [&](const auto& log) { return log->name == info.name; });
    if (!is_records && !is_log) made.append(describe(info));
  }
  return made;
}

#define MEMLITH_FIELD(name) made[#name] = now.name

nb::dict Store::info() {
  auto now = sized<memlith_store_info>();
  with_handle([&] { check(memlith_store_get_info(handle_, &now)); });
  nb::dict made;
  MEMLITH_FIELD(region_count), MEMLITH_FIELD(log_bytes), MEMLITH_FIELD(log_used_bytes), MEMLITH_FIELD(durable_lsn);
  MEMLITH_FIELD(frames), MEMLITH_FIELD(batches), MEMLITH_FIELD(logged_bytes), MEMLITH_FIELD(captured_bytes);
  MEMLITH_FIELD(checkpoints), MEMLITH_FIELD(home_bytes), MEMLITH_FIELD(replayed_frames), MEMLITH_FIELD(replayed_bytes);
  MEMLITH_FIELD(read_only), MEMLITH_FIELD(poisoned), MEMLITH_FIELD(direct_io), MEMLITH_FIELD(was_clean);
  MEMLITH_FIELD(memory_error), MEMLITH_FIELD(incarnation), MEMLITH_FIELD(log_id), MEMLITH_FIELD(io);
  MEMLITH_FIELD(medium), MEMLITH_FIELD(follows), MEMLITH_FIELD(writer), MEMLITH_FIELD(view_bytes);
  MEMLITH_FIELD(log_block_bytes), MEMLITH_FIELD(device_bytes), MEMLITH_FIELD(device_used_bytes);
  MEMLITH_FIELD(disk), MEMLITH_FIELD(disk_sector_bytes), MEMLITH_FIELD(disk_physical_sector_bytes);
  MEMLITH_FIELD(disk_atomic_write_bytes);
  return made;
}

nb::dict Store::stats() {
  auto now = sized<memlith_stats>();
  with_handle([&] { check(memlith_store_get_stats(handle_, &now)); });
  nb::dict made;
  MEMLITH_FIELD(persists), MEMLITH_FIELD(persist_p50_ns), MEMLITH_FIELD(persist_p99_ns);
  MEMLITH_FIELD(persist_p999_ns), MEMLITH_FIELD(persist_max_ns), MEMLITH_FIELD(captures);
  MEMLITH_FIELD(capture_p50_ns), MEMLITH_FIELD(capture_p99_ns), MEMLITH_FIELD(capture_p999_ns);
  MEMLITH_FIELD(capture_max_ns), MEMLITH_FIELD(kv_commits), MEMLITH_FIELD(kv_commit_p50_ns);
  MEMLITH_FIELD(kv_commit_p99_ns), MEMLITH_FIELD(kv_commit_p999_ns), MEMLITH_FIELD(kv_commit_max_ns);
  MEMLITH_FIELD(kv_weak_commits), MEMLITH_FIELD(kv_weak_waits), MEMLITH_FIELD(kv_weak_wait_p50_ns);
  MEMLITH_FIELD(kv_weak_wait_p99_ns), MEMLITH_FIELD(kv_weak_wait_p999_ns), MEMLITH_FIELD(kv_weak_wait_max_ns);
  MEMLITH_FIELD(kv_oldest_waiting_ns), MEMLITH_FIELD(applog_entries), MEMLITH_FIELD(applog_writes);
  MEMLITH_FIELD(applog_write_p50_ns), MEMLITH_FIELD(applog_write_p99_ns), MEMLITH_FIELD(applog_write_p999_ns);
  MEMLITH_FIELD(applog_write_max_ns), MEMLITH_FIELD(frames), MEMLITH_FIELD(batches), MEMLITH_FIELD(captured_bytes);
  MEMLITH_FIELD(captured_pages), MEMLITH_FIELD(last_captured_pages), MEMLITH_FIELD(logged_bytes);
  MEMLITH_FIELD(log_bytes), MEMLITH_FIELD(log_used_bytes), MEMLITH_FIELD(durable_lsn), MEMLITH_FIELD(checkpoints);
  MEMLITH_FIELD(home_bytes), MEMLITH_FIELD(checkpoint_done_bytes), MEMLITH_FIELD(checkpoint_total_bytes);
  MEMLITH_FIELD(poisoned), MEMLITH_FIELD(opened_ns);
  return made;
}

#undef MEMLITH_FIELD

void define_store(nb::module_& module) {
  nb::class_<Store, RecordStore>(module, "Store", "A store, as memlith.Store uses it.")
      .def(nb::init<const nb::bytes&, bool, const nb::kwargs&>(), nb::arg("path"), nb::arg("one_file"),
           nb::arg("options"))
      .def("close", &Store::close)
      .def_prop_ro("closed", &Store::closed)
      .def_prop_ro("inherited", &Store::inherited)
      .def("persist_waiting", &Store::persist_waiting)
      .def("persist", &Store::persist, nb::arg("scope"))
      .def("persist_async", &Store::persist_async, nb::arg("scope"))
      .def("wait", &Store::wait, nb::arg("ticket"))
      .def("durable", &Store::durable)
      .def("rollback", &Store::rollback)
      .def("checkpoint", &Store::checkpoint)
      .def("refresh", &Store::refresh)
      .def_prop_ro("follows", &Store::follows)
      .def("set_window", &Store::set_window, nb::arg("window_ms"), nb::arg("bytes"))
      .def("info", &Store::info, nb::sig("def info(self) -> dict[str, int]"))
      .def("stats", &Store::stats, nb::sig("def stats(self) -> dict[str, int]"))
      .def("regions", &Store::regions, nb::sig("def regions(self) -> list[dict[str, typing.Any]]"))
      .def("unpersisted", &Store::unpersisted, nb::sig("def unpersisted(self) -> list[tuple[str, int]]"))
      .def("open_region", &Store::open_region, nb::arg("name"), nb::arg("size"), nb::arg("max_size"),
           nb::arg("tracker"), nb::arg("flags"))
      .def("close_region", &Store::close_region, nb::arg("name"))
      .def("is_open", &Store::is_open, nb::arg("name"))
      .def("remove_region", &Store::remove_region, nb::arg("name"))
      .def("grow", &Store::grow, nb::arg("name"), nb::arg("size"))
      .def("persist_region", &Store::persist_region, nb::arg("name"))
      .def("touch", &Store::touch, nb::arg("name"), nb::arg("offset"), nb::arg("bytes"))
      .def("prepare", &Store::prepare, nb::arg("name"), nb::arg("offset"), nb::arg("bytes"))
      .def("release", &Store::release, nb::arg("name"))
      .def("region_info", &Store::region_info, nb::arg("name"),
           nb::sig("def region_info(self, name: str) -> dict[str, typing.Any]"))
      .def("memory", &Store::memory, nb::arg("name"), nb::arg("owner"),
           nb::sig("def memory(self, name: str, owner: object) -> Memory"))
      .def("snapshot", &Store::snapshot, nb::arg("names"),
           nb::sig("def snapshot(self, names: typing.Sequence[str]) -> list[Memory]"));
}

}  // namespace memlith::python
