#include "applog.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "errors.hpp"
#include "store.hpp"
#include "transaction.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

// ---- the store's part ----------------------------------------------------------------------------------------------

LogPtr Store::open_log(const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t when_full,
                       bool create) {
  check_usable();
  memlith_applog_options options{};
  options.struct_size = sizeof options;
  options.flags = create && !read_only_ ? MEMLITH_CREATE : 0;
  options.when_full = without_waits(when_full);
  options.size = size;
  options.max_size = max_size;
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  for (const LogPtr& each : logs_) {
    if (each->name == name) return each;
  }
  const auto made = std::make_shared<Log>();
  made->name = name;
  check(memlith_applog_open(handle_, name.c_str(), &options, &made->handle));
  logs_.push_back(made);
  return made;
}

void Store::close_log(const LogPtr& log) {
  if (inherited()) return;
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (log->handle == nullptr) return;
  const std::int32_t code = memlith_applog_close(log->handle);
  const std::int32_t category = memlith_category(code);
  const bool stays = category == MEMLITH_BUSY || category == MEMLITH_NO_SPACE || category == MEMLITH_FULL ||
                     category == MEMLITH_NO_MEMORY;
  if (!stays) {
    log->handle = nullptr;
    std::erase(logs_, log);
  }
  check(code);
}

void Store::remove_log(const LogPtr& log) {
  close_log(log);
  remove_region(log->name);
}

// Throws if entries wait for which there is no room.
void Store::write_logs() {
  for (const LogPtr& each : logs_) check_room(memlith_applog_write(each->handle, MEMLITH_COMMIT_SYNC, nullptr));
}

std::optional<Failure> Store::close_logs() {
  std::optional<Failure> first;
  for (const LogPtr& each : logs_) {
    try {
      check(memlith_applog_close(std::exchange(each->handle, nullptr)));
    } catch (const Failure& failure) {
      if (!first.has_value()) first = failure;
    }
  }
  logs_.clear();
  return first;
}

void Store::use_log(const LogPtr& log, bool as_reader, const std::function<void(memlith_applog* handle)>& work) {
  check_usable();
  const Unlocked unlocked;
  const std::shared_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  if (log->handle == nullptr) fail(MEMLITH_INVALID, "the application log \"" + log->name + "\" is closed");
  std::unique_lock<std::mutex> reader;
  if (as_reader) reader = std::unique_lock(log->reader);
  work(log->handle);
}

bool Store::log_in_transaction(LogChange change) {
  check_usable();
  const OwnerPtr owner = current();
  if (owner == nullptr) return false;
  const auto part = lock_briefly(owner->use);
  if (!owner->open) return false;
  owner->logged.push_back(std::move(change));
  return true;
}

void Store::check_no_log_in_transaction() const {
  if (current() == nullptr) return;
  fail(MEMLITH_INVALID,
       "this takes effect at once, and is no part of the transaction that is open here; end that first");
}

// Gives `tx` its parts in logs. What is returned keeps other threads from reading these, until it has been committed.
std::vector<std::unique_lock<std::mutex>> Store::add_logs(memlith_txn* tx, const std::vector<LogChange>& changes) {
  std::set<Log*> in_order;
  for (const LogChange& each : changes) in_order.insert(each.log.get());
  std::vector<std::unique_lock<std::mutex>> locks;
  for (Log* const each : in_order) locks.emplace_back(each->reader);
  for (const LogChange& each : changes) {
    if (each.log->handle == nullptr) {
      fail(MEMLITH_INVALID, "the application log \"" + each.log->name + "\" was closed within the transaction");
    }
    std::vector<memlith_bytes> entries;
    for (const std::string& entry : each.entries) entries.push_back({entry.data(), entry.size()});
    if (!entries.empty()) check(memlith_txn_append(tx, each.log->handle, entries.data(), entries.size()));
    if (each.consumed != 0) check(memlith_txn_consume(tx, each.log->handle, each.consumed));
  }
  return locks;
}

// ---- a log ---------------------------------------------------------------------------------------------------------

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kEntryBytes = 24;  // that an entry takes beside its own, rounded up to 8
constexpr std::chrono::milliseconds kBetweenTries{1};

memlith_applog_info info_of(memlith_applog* handle) {
  memlith_applog_info info{};
  info.struct_size = sizeof info;
  check(memlith_applog_get_info(handle, &info));
  return info;
}

}  // namespace

std::uint64_t LogCalls::append(const std::vector<nb::bytes>& entries) {
  if (entries.empty()) fail(MEMLITH_INVALID, "no entries were given");
  if (append_in_transaction(entries)) return 0;
  std::vector<memlith_bytes> all;
  std::uint64_t bytes = 0;
  for (const nb::bytes& each : entries) {
    all.push_back({each.c_str(), each.size()});
    bytes += (each.size() + kEntryBytes + 7) / 8 * 8;
  }
  std::uint64_t number = 0;
  // Where there is room for the entries, and they are refused twice, they are larger than the store's log takes.
  for (bool had_room = false;; look_at_signals()) {
    bool is_done = true;
    use(false, [&](memlith_applog* handle) {
      const std::int32_t code = memlith_applog_append(handle, all.data(), all.size(), &number);
      if (memlith_category(code) != MEMLITH_FULL || !blocks_) return check(code);
      const memlith_applog_info info = info_of(handle);
      if (info.size < bytes || had_room) return check(code);
      had_room = info.room >= bytes;
      is_done = false;
      check(memlith_applog_write(handle, MEMLITH_COMMIT_WEAK, nullptr));  // to be read, and consumed
    });
    if (is_done) return number;
    const Unlocked unlocked;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::optional<std::pair<std::uint64_t, nb::bytes>> LogCalls::read(std::optional<double> seconds) {
  const auto began = Clock::now();
  for (;; look_at_signals()) {
    const double left = seconds.has_value() ? *seconds - std::chrono::duration<double>(Clock::now() - began).count()
                                            : std::chrono::duration<double>(kBetweenLooks).count();
    const double slice = std::clamp(left, 0.0, std::chrono::duration<double>(kBetweenLooks).count());
    std::uint64_t number = 0;
    std::string content;
    use(true, [&](memlith_applog* handle) {
      memlith_applog_entry entry{};
      const std::int32_t code = memlith_applog_read(handle, static_cast<std::uint64_t>(slice * 1000), &entry);
      if (memlith_category(code) == MEMLITH_NOT_FOUND) return;
      check(code);
      number = entry.number;
      content.assign(static_cast<const char*>(entry.content.data), entry.content.size);
    });
    if (number != 0) return std::pair(number, nb::bytes(content.data(), content.size()));
    if (left <= 0) return std::nullopt;
  }
}

std::optional<nb::bytes> LogCalls::get(std::uint64_t number) {
  std::string content(256, '\0');
  bool is_there = true;
  use(false, [&](memlith_applog* handle) {
    for (std::uint64_t size = content.size() + 1; is_there && size > content.size();) {
      if (size > content.size() + 1) content.resize(size);
      const std::int32_t code = memlith_applog_get(handle, number, content.data(), content.size(), &size);
      is_there = memlith_category(code) != MEMLITH_NOT_FOUND;
      if (is_there) check(code);
      if (is_there && size <= content.size()) content.resize(size);
    }
  });
  if (!is_there) return std::nullopt;
  return nb::bytes(content.data(), content.size());
}

void LogCalls::rewind() {
  use(true, [](memlith_applog* handle) { check(memlith_applog_rewind(handle)); });
}
void LogCalls::consume(std::uint64_t number) {
  if (consume_in_transaction(number)) return;
  use(true, [=](memlith_applog* handle) { check(memlith_applog_consume(handle, number)); });
}
void LogCalls::truncate_after(std::uint64_t last) {
  at_once([=](memlith_applog* handle) { check(memlith_applog_truncate_after(handle, last)); });
}
void LogCalls::truncate_before(std::uint64_t first) {
  at_once([=](memlith_applog* handle) { check(memlith_applog_truncate_before(handle, first)); });
}
void LogCalls::restart(std::uint64_t next) {
  at_once([=](memlith_applog* handle) { check(memlith_applog_restart(handle, next)); });
}

nb::dict LogCalls::info() {
  memlith_applog_info now{};
  use(false, [&](memlith_applog* handle) { now = info_of(handle); });
  nb::dict made;
  made["size"] = now.size;
  made["room"] = now.room;
  made["newest"] = now.newest;
  made["durable"] = now.durable;
  made["read"] = now.read;
  made["consumed"] = now.consumed;
  return made;
}

void LogCalls::at_once(const std::function<void(memlith_applog* handle)>& work) {
  check_no_transaction();
  use(true, work);
}

// ---- of a store ----------------------------------------------------------------------------------------------------

namespace {

class AppLog final : public LogCalls {
 public:
  AppLog(nb::object store, const std::string& name, std::uint64_t size, std::uint64_t max_size, std::uint32_t when_full,
         bool create)
      : LogCalls(when_full),
        holder_(std::move(store)),
        store_(nb::cast<Store*>(holder_)),
        log_(store_->open_log(name, size, max_size, when_full, create)) {}

  std::uint64_t write_weak() {
    std::uint64_t ticket = 0;
    use(false, [&](memlith_applog* handle) { check(memlith_applog_write(handle, MEMLITH_COMMIT_WEAK, &ticket)); });
    return ticket;
  }
  void write() { store_->wait(write_weak()); }
  void close() { store_->close_log(log_); }
  void remove() { store_->remove_log(log_); }
  bool closed() const { return log_->handle == nullptr; }
  std::string name() const { return log_->name; }

 private:
  void use(bool as_reader, const std::function<void(memlith_applog* handle)>& work) override {
    store_->use_log(log_, as_reader, work);
  }
  bool append_in_transaction(const std::vector<nb::bytes>& entries) override {
    if (!store_->in_transaction()) return false;
    LogChange change{log_, {}, 0};
    for (const nb::bytes& each : entries) change.entries.emplace_back(each.c_str(), each.size());
    return store_->log_in_transaction(std::move(change));
  }
  bool consume_in_transaction(std::uint64_t number) override { return store_->log_in_transaction({log_, {}, number}); }
  void check_no_transaction() override { store_->check_no_log_in_transaction(); }

  nb::object holder_;
  Store* store_;
  LogPtr log_;
};

}  // namespace

void define_applog(nb::module_& module) {
  nb::class_<LogCalls>(module, "LogCalls", "What every application log can do.")
      .def("append", &LogCalls::append, nb::arg("entries"))
      .def("read", &LogCalls::read, nb::arg("seconds").none())
      .def("get", &LogCalls::get, nb::arg("number"))
      .def("rewind", &LogCalls::rewind)
      .def("consume", &LogCalls::consume, nb::arg("number"))
      .def("truncate_after", &LogCalls::truncate_after, nb::arg("last"))
      .def("truncate_before", &LogCalls::truncate_before, nb::arg("first"))
      .def("restart", &LogCalls::restart, nb::arg("next"))
      .def("info", &LogCalls::info, nb::sig("def info(self) -> dict[str, int]"));
  nb::class_<AppLog, LogCalls>(module, "AppLog", "An application log, as memlith.AppLog uses it.")
      .def(nb::init<nb::object, const std::string&, std::uint64_t, std::uint64_t, std::uint32_t, bool>(),
           nb::arg("store"), nb::arg("name"), nb::arg("size"), nb::arg("max_size"), nb::arg("when_full"),
           nb::arg("create"))
      .def("write", &AppLog::write)
      .def("write_weak", &AppLog::write_weak)
      .def("close", &AppLog::close)
      .def("remove", &AppLog::remove)
      .def_prop_ro("closed", &AppLog::closed)
      .def_prop_ro("name", &AppLog::name);
}

}  // namespace memlith::python
