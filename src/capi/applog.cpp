// Application logs: include/memlith/applog.h. Floor: capi. A memlith_applog is an applog::AppLog, which its OpenRegion
// owns. The two storeys of which a commit consists meet here.
#include "memlith/applog.h"

#include <memory>
#include <utility>
#include <vector>

#include "applog/applog.hpp"
#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/in_region.hpp"
#include "capi/kv_handles.hpp"

using namespace memlith::core;
using applog::AppLog;

namespace {

constexpr std::uint64_t kBytes = 64 * kMiB;
constexpr std::uint64_t kReserveBytes = 1024 * kGiB;

AppLog& log_of(memlith_applog* handle) { return *reinterpret_cast<AppLog*>(handle); }

Status need_ours(memlith_applog* handle) {
  MEMLITH_TRY(need(handle, "log"));
  return log_of(handle).region().store().check_process();
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
    inner.anywhere = session.store().read_only();  // no address is kept in a log
    inner.use_magic = applog::kMagic;
    const applog::AppLogOptions wanted{inner.create, static_cast<applog::WhenFull>(given.when_full)};
    MEMLITH_TRY_ASSIGN(AppLog* const log, open_in_region(session, name, inner, [&wanted](Region& region) {
                         return AppLog::open(region, wanted);
                       }));
    *result = reinterpret_cast<memlith_applog*>(log);
    return kOk;
  });
}

int32_t memlith_applog_close(memlith_applog* handle) {
  if (handle == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    AppLog& log = log_of(handle);
    if (log.carried() && log.region().store().failure().ok()) {
      return fail(Errc::busy, Detail::object,
                  "a weak commit of a kv store carries the read position of log \"{}\"; call memlith_kv_persist, or "
                  "close the kv store first",
                  log.region().shown_name());
    }
    OpenRegion& region = *log.open_region();
    return close_with_region(region, log.stop());
  });
}

// ---- writers

int32_t memlith_applog_append(memlith_applog* handle, const memlith_bytes* entries, uint64_t count, uint64_t* number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (count > 0) MEMLITH_TRY(need(entries, "entries"));
    const auto content_of = [](const memlith_bytes& entry) {
      return AppLog::Content(static_cast<const std::byte*>(entry.data), entry.size);
    };
    std::uint64_t last = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (entries[i].size > 0) MEMLITH_TRY(need(entries[i].data, "data of an entry"));
    }
    if (count == 1) {
      const AppLog::Content one = content_of(entries[0]);
      MEMLITH_TRY_ASSIGN(last, log_of(handle).append({&one, 1}));
    } else {
      std::vector<AppLog::Content> all;
      for (uint64_t i = 0; i < count; ++i) all.push_back(content_of(entries[i]));
      MEMLITH_TRY_ASSIGN(last, log_of(handle).append(all));
    }
    if (number != nullptr) *number = last;
    return kOk;
  });
}

int32_t memlith_applog_write(memlith_applog* handle) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    return log_of(handle).write();
  });
}

int32_t memlith_applog_write_async(memlith_applog* handle, uint64_t* number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const std::uint64_t newest, log_of(handle).write_async());
    if (number != nullptr) *number = newest;
    return kOk;
  });
}

int32_t memlith_applog_wait(memlith_applog* handle, uint64_t number) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    return log_of(handle).wait(number);
  });
}

uint64_t memlith_applog_durable(memlith_applog* handle) { return handle == nullptr ? 0 : log_of(handle).durable(); }

// ---- the reader

int32_t memlith_applog_read(memlith_applog* handle, uint64_t wait_ms, memlith_applog_entry* entry) {
  constexpr std::uint64_t kWaitMsMax = 24ull * 3600 * 1000;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(entry, "entry"));
    AppLog::Entry found;
    MEMLITH_TRY_ASSIGN(const bool any, log_of(handle).read(std::min(wait_ms, kWaitMsMax), found));
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
    return log_of(handle).consume(number);
  });
}

int32_t memlith_applog_commit(memlith_applog* handle, uint64_t number, memlith_kv_txn* txn, uint32_t durability,
                              uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    AppLog& log = log_of(handle);
    MEMLITH_TRY_ASSIGN(kv::Transaction* const transaction, kv_transaction_of(txn));
    kv::Kv& kv = transaction->kv();
    if (durability > MEMLITH_KV_SYNC) {
      return fail(Errc::invalid, Detail::argument, "durability {} is unknown", durability);
    }
    if (&kv.pages().region().store() != &log.region().store()) {
      return fail(Errc::invalid, Detail::argument, "the log and the kv store are in two stores; one commit needs one");
    }
    if (transaction->read_only()) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
    if (kv.is_volatile()) {
      return fail(Errc::unsupported, Detail::kv,
                  "commits of a volatile kv store are not logged, so that they cannot "
                  "carry the read position of a log");
    }
    MEMLITH_TRY_ASSIGN(Ride ride, log.ride(number, &kv));
    const Status done = transaction->commit(static_cast<kv::Durability>(durability), ticket, &ride).status();
    log.rode(ride);
    return done;
  });
}

// ---- looking inside

int32_t memlith_applog_get_info(memlith_applog* handle, memlith_applog_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    const applog::AppLogReport report = log_of(handle).report();
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
