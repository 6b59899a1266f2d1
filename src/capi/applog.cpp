// Application logs: include/memlith/applog.h. Floor: capi. A memlith_applog is an applog::OpenLog: an applog::AppLog,
// which its OpenRegion owns, or a client of a keeper, which the handle owns.
#include "memlith/applog.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "applog/applog.hpp"
#include "applog/part.hpp"
#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/in_region.hpp"
#include "capi/times.hpp"
#include "processes/log_client.hpp"
#include "store/refusal.hpp"

using namespace memlith::core;
using applog::AppLog;
using applog::OpenLog;

namespace {

constexpr std::uint64_t kBytes = 64 * kMiB;
constexpr std::uint64_t kReserveBytes = 1024 * kGiB;

OpenLog& log_of(memlith_applog* handle) { return *reinterpret_cast<OpenLog*>(handle); }
memlith_applog* handle_of(OpenLog* log) { return reinterpret_cast<memlith_applog*>(log); }

Status need_ours(memlith_applog* handle) {
  MEMLITH_TRY(need_handle(handle, "application log"));
  return log_of(handle).check_process();
}

// Its commits may have given up bytes whose memory can be given back.
void keep_to_memory(OpenLog& log) {
  if (AppLog* const alone = log.alone(); alone != nullptr) alone->open_region()->session.keep_to_memory();
}

Result<std::vector<AppLog::Content>> contents_of(const memlith_bytes* entries, std::uint64_t count) {
  if (count > 0) MEMLITH_TRY(need(entries, "entries"));
  std::vector<AppLog::Content> all;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (entries[i].size > 0) MEMLITH_TRY(need(entries[i].data, "data of an entry"));
    all.emplace_back(static_cast<const std::byte*>(entries[i].data), entries[i].size);
  }
  return all;
}

// The log's part in the transaction, a new one if it had none.
Result<applog::AppLogPart*> part_of(memlith_txn* tx, memlith_applog* handle) {
  MEMLITH_TRY(memlith::core::need_ours(tx));
  MEMLITH_TRY(need_ours(handle));
  Transaction& transaction = transaction_of(tx).transaction;
  if (log_of(handle).alone() == nullptr) {
    return fail(Errc::unsupported, Detail::object,
                "the application log is open in several processes, where transactions have no part in it; open its "
                "memlith store in one process, or append and consume by themselves");
  }
  AppLog& log = *log_of(handle).alone();
  if (Participant* const known = transaction.part_in(Participant::Kind::applog, log.region()); known != nullptr) {
    return static_cast<applog::AppLogPart*>(known);
  }
  auto made = std::make_unique<applog::AppLogPart>(log);
  applog::AppLogPart* const part = made.get();
  MEMLITH_TRY(transaction.add(std::move(made)));
  return part;
}

Result<RegionOptions> region_options_of(const memlith_applog_options& given) {
  if (given.when_full > MEMLITH_APPLOG_GROW) {
    return fail(Errc::invalid, Detail::argument, "when_full is {}, which is unknown", given.when_full);
  }
  const std::uint64_t size = given.size > 0 ? given.size : kBytes;
  if (size > kReserveBytes || given.max_size > kReserveBytes || (given.max_size > 0 && given.max_size < size)) {
    return fail(Errc::invalid, Detail::argument, "a log of {} bytes that may grow to {} is not possible; at most {}",
                size, given.max_size, kReserveBytes);
  }
  const bool grows = given.when_full == MEMLITH_APPLOG_GROW;
  memlith_region_options plain{};
  plain.struct_size = sizeof plain;
  plain.flags = given.flags;
  plain.tracker = MEMLITH_TRACKER_EXPLICIT;
  plain.size = round_up(size, kPageBytes) + applog::kRingOffset;
  plain.max_size = given.max_size > 0 ? round_up(given.max_size, kPageBytes) + applog::kRingOffset
                   : grows            ? kReserveBytes
                                      : plain.size;
  return region_options(plain);
}

// As AppLog::stop(): refused, it stays open. After the keeper's end there is nothing to be told.
Status close_client(processes::LogClient& client) {
  const Status stopped = client.stop();
  if (is_refusal(stopped)) return stopped;
  const KeptSentence sentence;
  delete &client;
  return stopped;
}

}  // namespace

extern "C" {

int32_t memlith_applog_open(memlith_store* store, const char* name, const memlith_applog_options* options,
                            memlith_applog** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "log"));
    memlith_applog_options given;
    MEMLITH_TRY(read_options(options, given));
    MEMLITH_TRY_ASSIGN(RegionOptions inner, region_options_of(given));
    Session& session = session_of(store);
    inner.limited = Limited::always;
    inner.anywhere = true;  // no address is kept in a log
    inner.use_magic = applog::kMagic;
    const applog::AppLogOptions wanted{.create = inner.create,
                                       .when_full = static_cast<applog::WhenFull>(given.when_full),
                                       .exclusive = inner.exclusive};
    const auto make = [&wanted](Region& region) { return AppLog::open(region, wanted); };
    MEMLITH_TRY_ASSIGN(AppLog* const log, open_in_region(session, name, inner, make));
    *result = handle_of(log);
    return kOk;
  });
}

int32_t memlith_applog_open_shared(const char* store, const char* name, const memlith_applog_options* options,
                                   memlith_applog** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(store, "store"));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "log"));
    memlith_applog_options given;
    MEMLITH_TRY(read_options(options, given));
    MEMLITH_TRY_ASSIGN(const RegionOptions inner, region_options_of(given));
    processes::LogClientOptions wanted;
    wanted.path = store;
    wanted.name = name;
    wanted.create = inner.create;
    wanted.exclusive = inner.exclusive;
    wanted.size_bytes = inner.size_bytes;
    wanted.reserve_bytes = inner.reserve_bytes;
    wanted.when_full = static_cast<applog::WhenFull>(given.when_full);
    if (given.program != nullptr) wanted.program = given.program;
    if (given.patience_ms != 0) wanted.patience = milliseconds_of(given.patience_ms);
    MEMLITH_TRY_ASSIGN(std::unique_ptr<processes::LogClient> client, processes::LogClient::open(wanted));
    *result = handle_of(client.release());
    return kOk;
  });
}

int32_t memlith_applog_close(memlith_applog* handle) {
  if (handle == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (log_of(handle).alone() == nullptr) return close_client(static_cast<processes::LogClient&>(log_of(handle)));
    AppLog& log = *log_of(handle).alone();
    MEMLITH_TRY(need_no_part(log.region()));
    OpenRegion& region = *log.open_region();
    const Status stopped = log.stop();
    if (!log.stopped() && !stopped.ok()) return stopped;  // as before, to be tried again
    return close_with_region(region, stopped);
  });
}

// ---- writers

int32_t memlith_applog_append(memlith_applog* handle, const memlith_bytes* entries, uint64_t count, uint64_t* number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const std::vector<AppLog::Content> contents, contents_of(entries, count));
    MEMLITH_TRY_ASSIGN(const std::uint64_t last, log_of(handle).append(contents));
    if (number != nullptr) *number = last;
    return kOk;
  });
}

int32_t memlith_applog_write(memlith_applog* handle, uint32_t mode, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(check_commit_mode(mode));
    OpenLog& log = log_of(handle);
    MEMLITH_TRY_ASSIGN(const Lsn written, mode == MEMLITH_COMMIT_SYNC ? log.write() : log.write_weak());
    if (ticket != nullptr) *ticket = written.value;
    return kOk;
  });
}

int32_t memlith_applog_wait(memlith_applog* handle, uint64_t ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (ticket == 0) return kOk;  // of a write before the first commit
    return log_of(handle).wait(Lsn{ticket});
  });
}

uint64_t memlith_applog_durable(memlith_applog* handle) {
  if (!need_ours(handle).ok()) return 0;
  const auto report = log_of(handle).info();
  return report.ok() ? report->durable : 0;
}

// ---- the reader

int32_t memlith_applog_read(memlith_applog* handle, uint64_t wait_ms, memlith_applog_entry* entry) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(entry, "entry"));
    OpenLog::Entry found;
    MEMLITH_TRY_ASSIGN(const bool any, log_of(handle).read(wait_ms, found));
    if (!any) {
      set_error_text("there is no durable entry that was not read");  // expected often, so without a long message
      return Status{Errc::not_found, Detail::object, 0, 0};
    }
    *entry = {found.number, {found.content.data(), found.content.size()}};
    return kOk;
  });
}

int32_t memlith_applog_rewind(memlith_applog* handle) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    log_of(handle).rewind();
    return kOk;
  });
}

int32_t memlith_applog_consume(memlith_applog* handle, uint64_t number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(log_of(handle).consume(number));
    keep_to_memory(log_of(handle));
    return kOk;
  });
}

// ---- by number

int32_t memlith_applog_get(memlith_applog* handle, uint64_t number, void* buffer, uint64_t bytes, uint64_t* size) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(size, "size"));
    if (bytes > 0) MEMLITH_TRY(need(buffer, "buffer"));
    std::vector<std::byte> content;
    MEMLITH_TRY_ASSIGN(const bool any, log_of(handle).read_at(number, content));
    if (!any) {
      set_error_text("there is no durable entry of that number");
      return Status{Errc::not_found, Detail::object, 0, 0};
    }
    *size = content.size();
    if (bytes > 0 && !content.empty()) std::memcpy(buffer, content.data(), std::min<std::uint64_t>(bytes, *size));
    return kOk;
  });
}

int32_t memlith_applog_truncate_after(memlith_applog* handle, uint64_t last) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    return log_of(handle).truncate_after(last);
  });
}

int32_t memlith_applog_truncate_before(memlith_applog* handle, uint64_t first) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(log_of(handle).truncate_before(first));
    keep_to_memory(log_of(handle));
    return kOk;
  });
}

int32_t memlith_applog_restart(memlith_applog* handle, uint64_t next) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    return log_of(handle).restart(next);
  });
}

int32_t memlith_txn_append(memlith_txn* tx, memlith_applog* handle, const memlith_bytes* entries, uint64_t count) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(applog::AppLogPart* const part, part_of(tx, handle));
    MEMLITH_TRY_ASSIGN(const std::vector<AppLog::Content> contents, contents_of(entries, count));
    return part->append(contents);
  });
}

int32_t memlith_txn_consume(memlith_txn* tx, memlith_applog* handle, uint64_t number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(applog::AppLogPart* const part, part_of(tx, handle));
    return part->consume(number);
  });
}

// ---- looking inside

int32_t memlith_applog_get_info(memlith_applog* handle, memlith_applog_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const applog::AppLogReport report, log_of(handle).info());
    memlith_applog_info info{};
    info.size = report.capacity;
    info.room = report.room;
    info.newest = report.newest;
    info.durable = report.durable;
    info.read = report.read;
    info.consumed = report.consumed;
    return write_info(target, info);
  });
}

}  // extern "C"
