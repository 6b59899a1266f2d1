// memlith: an application log. The C++20 interface over memlith/applog.h, where each call's full contract stands.
// Guide: docs/applog.md.
//
//   auto store = memlith::Store::open("shop", {.create = true});
//   auto kv = memlith::Kv::open(*store, "kv", {.create = true});
//   auto log = memlith::AppLog::open(*store, "log", {.create = true});
//   if (!log->append("sell marble") || !log->write()) ...  // durable when both are ok: the sale can be acknowledged
//   while (auto entry = *log->read()) {                    // a thread behind
//     auto txn = store->begin();
//     auto records = kv->begin();
//     ...                                                  // what the entry says
//     if (!records->join(*txn) || !log->consume_in(*txn, entry->number)) ...
//     if (!txn->commit_weak()) ...                         // the change and the read position, both or neither
//   }
//
// Nothing here throws.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memlith/applog.h"
#include "memlith/memlith.hpp"

namespace memlith {

enum class WhenFull : std::uint32_t {
  block = MEMLITH_APPLOG_BLOCK,
  fail = MEMLITH_APPLOG_FAIL,
  grow = MEMLITH_APPLOG_GROW
};

struct AppLogOptions {
  bool create = false;
  bool exclusive = false;
  WhenFull when_full = WhenFull::block;
  std::uint64_t size = 0;
  std::uint64_t max_size = 0;
  // For open_shared() alone.
  std::string program = {};  // the path of `memlith`; empty: it is looked for
  std::uint64_t patience_ms = 0;
};

struct LogEntry {
  std::uint64_t number = 0;
  std::string_view content;  // valid until the next read
};

// An open application log. Move-only; closing writes what was appended. To be closed before its Store, and after the
// transactions in which it takes part.
class AppLog {
 public:
  AppLog(AppLog&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  AppLog& operator=(AppLog&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~AppLog() { (void)close(); }

  static Result<AppLog> open(const Store& store, const std::string& name = "log", const AppLogOptions& options = {}) {
    const memlith_applog_options plain = plain_of(options);
    memlith_applog* handle = nullptr;
    const std::int32_t code = memlith_applog_open(store.handle(), name.c_str(), &plain, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return AppLog(handle);
  }
  // The log of the store in that folder, for this process and others (memlith_applog_open_shared).
  static Result<AppLog> open_shared(const std::string& store, const std::string& name = "log",
                                    const AppLogOptions& options = {}) {
    const memlith_applog_options plain = plain_of(options);
    memlith_applog* handle = nullptr;
    const std::int32_t code = memlith_applog_open_shared(store.c_str(), name.c_str(), &plain, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return AppLog(handle);
  }
  // After BUSY, and when there is no room for what was appended, the log is still open.
  Result<void> close() {
    const std::int32_t code = memlith_applog_close(handle_);
    if (!detail::is_still_open(code)) handle_ = nullptr;
    return detail::result_of(code);
  }

  // The number of the entry.
  Result<std::uint64_t> append(std::string_view entry) const {
    const memlith_bytes one{entry.data(), entry.size()};
    return append_all({&one, 1});
  }
  // A crash keeps all of them or none. The number of the last.
  Result<std::uint64_t> append(std::initializer_list<std::string_view> entries) const {
    std::vector<memlith_bytes> all;
    for (const std::string_view each : entries) all.push_back({each.data(), each.size()});
    return append_all(all);
  }
  Result<std::uint64_t> append_all(std::span<const memlith_bytes> entries) const {
    std::uint64_t number = 0;
    const std::int32_t code = memlith_applog_append(handle_, entries.data(), entries.size(), &number);
    if (code != MEMLITH_OK) return Error(code);
    return number;
  }
  // Durable on ok: everything that was appended before.
  Result<void> write() const { return detail::result_of(memlith_applog_write(handle_, MEMLITH_COMMIT_SYNC, nullptr)); }
  // The same; durable when wait() has returned ok.
  [[nodiscard]] Result<Ticket> write_weak() const {
    Ticket ticket = 0;
    const std::int32_t code = memlith_applog_write(handle_, MEMLITH_COMMIT_WEAK, &ticket);
    if (code != MEMLITH_OK) return Error(code);
    return ticket;
  }
  [[nodiscard]] Result<void> wait(Ticket ticket) const {
    return detail::result_of(memlith_applog_wait(handle_, ticket));
  }
  [[nodiscard]] std::uint64_t durable() const { return memlith_applog_durable(handle_); }

  // Nothing if there is none.
  Result<std::optional<LogEntry>> read(std::uint64_t wait_ms = 0) const {
    memlith_applog_entry entry{};
    const std::int32_t code = memlith_applog_read(handle_, wait_ms, &entry);
    if (code == MEMLITH_OK) return std::optional(LogEntry{entry.number, detail::view_of(entry.content)});
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return std::optional<LogEntry>();
    return Error(code);
  }
  Result<void> rewind() const { return detail::result_of(memlith_applog_rewind(handle_)); }
  Result<void> consume(std::uint64_t number) const {
    return detail::result_of(memlith_applog_consume(handle_, number));
  }
  // By number, for consensus engines: see memlith_applog_get and those behind it. Nothing if there is no such durable
  // entry.
  Result<std::optional<std::string>> get(std::uint64_t number) const {
    std::string content(256, '\0');
    for (;;) {
      std::uint64_t size = 0;
      const std::int32_t code = memlith_applog_get(handle_, number, content.data(), content.size(), &size);
      if (memlith_category(code) == MEMLITH_NOT_FOUND) return std::optional<std::string>();
      if (code != MEMLITH_OK) return Error(code);
      const bool whole = size <= content.size();
      content.resize(size);
      if (whole) return std::optional(std::move(content));
    }
  }
  Result<void> truncate_after(std::uint64_t last) const {
    return detail::result_of(memlith_applog_truncate_after(handle_, last));
  }
  Result<void> truncate_before(std::uint64_t first) const {
    return detail::result_of(memlith_applog_truncate_before(handle_, first));
  }
  Result<void> restart(std::uint64_t next) const { return detail::result_of(memlith_applog_restart(handle_, next)); }
  // The commit of `txn` appends the entry, or consumes the entries, with all else that it commits or not at all. See
  // memlith_txn_append, memlith_txn_consume.
  Result<void> append_in(const Transaction& txn, std::string_view entry) const {
    const memlith_bytes one{entry.data(), entry.size()};
    return detail::result_of(memlith_txn_append(txn.handle(), handle_, &one, 1));
  }
  Result<void> consume_in(const Transaction& txn, std::uint64_t number) const {
    return detail::result_of(memlith_txn_consume(txn.handle(), handle_, number));
  }

  [[nodiscard]] Result<memlith_applog_info> info() const {
    memlith_applog_info info{};
    info.struct_size = sizeof info;
    if (const std::int32_t code = memlith_applog_get_info(handle_, &info); code != MEMLITH_OK) return Error(code);
    return info;
  }
  [[nodiscard]] memlith_applog* handle() const { return handle_; }

 private:
  static memlith_applog_options plain_of(const AppLogOptions& options) {
    memlith_applog_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags =
        detail::flag_if(options.create, MEMLITH_CREATE) | detail::flag_if(options.exclusive, MEMLITH_EXCLUSIVE);
    plain.when_full = static_cast<std::uint32_t>(options.when_full);
    plain.size = options.size;
    plain.max_size = options.max_size;
    plain.program = options.program.empty() ? nullptr : options.program.c_str();
    plain.patience_ms = options.patience_ms;
    return plain;
  }
  explicit AppLog(memlith_applog* handle) : handle_(handle) {}
  memlith_applog* handle_;
};

}  // namespace memlith
