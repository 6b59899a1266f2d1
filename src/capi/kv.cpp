// Key-value stores: include/memlith/kv.h. Floor: capi.
#include "memlith/kv.h"

#include <memory>
#include <utility>

#include "capi/in_region.hpp"
#include "capi/kv_handles.hpp"
#include "capi/times.hpp"
#include "kv/part.hpp"
#include "private/options.h"
#include "processes/client.hpp"
#include "store/refusal.hpp"

using namespace memlith::core;
using kv::Kv;

namespace {

constexpr std::uint64_t kFirstBytes = 1 * kMiB;
constexpr std::uint64_t kReserveBytes = 1024 * kGiB;
constexpr std::uint64_t kIntervalMsMax = 24ull * 3600 * 1000;

static_assert(MEMLITH_KV_KEY_BYTES_MAX == kv::kKeyBytesMax && MEMLITH_KV_VALUE_BYTES_MAX == kv::kValueBytesMax);

Result<kv::Window> window_of(std::uint64_t interval_ms, std::uint64_t bytes) {
  kv::Window window;
  if (interval_ms > kIntervalMsMax) {
    return fail(Errc::invalid, Detail::argument, "a window of {} ms is longer than a day", interval_ms);
  }
  if (interval_ms > 0) window.interval_ms = interval_ms;
  if (bytes > 0) window.bytes = bytes;
  return window;
}

Status close_client(kv::OpenKv& client) {
  const Status done = client.persist();
  if (is_refusal(done)) return done;  // to be tried again
  delete &client;
  return done;
}

}  // namespace

extern "C" {

// ---- opening

int32_t memlith_kv_open(memlith_store* store, const char* name, const memlith_kv_options* options,
                        memlith_kv** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "kv"));
    memlith_kv_options given;
    MEMLITH_TRY(read_options(options, given));
    memlith_region_options plain_options{};
    plain_options.struct_size = sizeof plain_options;
    plain_options.flags = given.flags & ~std::uint32_t{MEMLITH_KV_VOLATILE | MEMLITH_KV_CHECK_PAGES};
    plain_options.tracker = MEMLITH_TRACKER_EXPLICIT;
    plain_options.max_size = given.max_size > 0 ? given.max_size : kReserveBytes;
    plain_options.size = std::min(kFirstBytes, plain_options.max_size);
    MEMLITH_TRY_ASSIGN(RegionOptions inner, region_options(plain_options));
    kv::KvOptions wanted;
    wanted.create = inner.create;
    wanted.exclusive = inner.exclusive;
    wanted.compares = (given.flags & MEMLITH_KV_CHECK_PAGES) != 0;
    wanted.is_volatile = (given.flags & MEMLITH_KV_VOLATILE) != 0;
    MEMLITH_TRY_ASSIGN(wanted.window, window_of(given.window_ms, given.window_bytes));
    Session& session = session_of(store);
    inner.limited = Limited::always;
    inner.anywhere = true;  // no address is kept in a kv store
    inner.use_magic = kv::kMagic;
    MEMLITH_TRY_ASSIGN(Kv* const kv, open_in_region(session, name, inner,
                                                    [&wanted](Region& region) { return Kv::open(region, wanted); }));
    *result = handle_of(kv);
    return kOk;
  });
}

int32_t memlith_kv_open_shared(const char* store, const char* name, const memlith_kv_options* options,
                               memlith_kv** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(store, "store"));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "kv"));
    memlith_kv_options given;
    MEMLITH_TRY(read_options(options, given));
    if ((given.flags & ~std::uint32_t{MEMLITH_CREATE | MEMLITH_EXCLUSIVE}) != 0) {
      return fail(Errc::invalid, Detail::argument, "flags {:#x} are none of a kv store that processes share",
                  given.flags);
    }
    MEMLITH_TRY(window_of(given.window_ms, given.window_bytes).status());
    processes::KvClientOptions wanted;
    wanted.path = store;
    wanted.name = name;
    wanted.create = (given.flags & MEMLITH_CREATE) != 0;
    wanted.exclusive = (given.flags & MEMLITH_EXCLUSIVE) != 0;
    wanted.max_size = given.max_size;
    wanted.window_ms = given.window_ms;
    wanted.window_bytes = given.window_bytes;
    if (given.program != nullptr) wanted.program = given.program;
    if (given.patience_ms != 0) wanted.patience = milliseconds_of(given.patience_ms);
    MEMLITH_TRY_ASSIGN(std::unique_ptr<processes::KvClient> client, processes::KvClient::open(wanted));
    *result = handle_of(client.release());
    return kOk;
  });
}

int32_t memlith_kv_close(memlith_kv* handle) {
  if (handle == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (const std::size_t left = kv_of(handle).handles(); left > 0) {
      return fail(Errc::busy, Detail::kv, "{} transactions were not freed; free them, then close the kv store", left);
    }
    Kv* const kv = kv_of(handle).alone();
    if (kv == nullptr) return close_client(kv_of(handle));
    OpenRegion& region = *kv->open_region();
    MEMLITH_TRY(need_no_part(*region.region));
    const Status stopped = kv->stop();
    if (!kv->stopped() && !stopped.ok()) return stopped;  // as before, to be tried again
    return close_with_region(region, stopped);
  });
}

// ---- maps

int32_t memlith_kv_map_open(memlith_kv* handle, const char* name, uint32_t flags, memlith_kv_map* map) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(map, "map"));
    if ((flags & ~std::uint32_t{MEMLITH_CREATE | MEMLITH_EXCLUSIVE}) != 0) {
      return fail(Errc::invalid, Detail::argument, "flags {:#x} of a map are unknown", flags);
    }
    MEMLITH_TRY_ASSIGN(*map,
                       kv_of(handle).open_map(name, (flags & MEMLITH_CREATE) != 0, (flags & MEMLITH_EXCLUSIVE) != 0));
    return kOk;
  });
}

int32_t memlith_kv_map_remove(memlith_kv* handle, const char* name) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(name, "name"));
    return kv_of(handle).remove_map(name);
  });
}

int32_t memlith_kv_map_append(memlith_kv* handle, memlith_kv_map map,
                              int (*next)(void* context, memlith_bytes* key, memlith_bytes* value), void* context,
                              uint64_t* count) {
  std::uint64_t appended = 0;
  const std::int32_t code = guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(next), "next"));
    const auto take = [&](std::string_view& key, std::string_view& value) {
      memlith_bytes given_key{};
      memlith_bytes given_value{};
      if (next(context, &given_key, &given_value) != 0) return false;
      key = {static_cast<const char*>(given_key.data), given_key.data != nullptr ? given_key.size : 0};
      value = {static_cast<const char*>(given_value.data), given_value.data != nullptr ? given_value.size : 0};
      return true;
    };
    return kv_of(handle).append(map, take, appended);
  });
  if (count != nullptr) *count = appended;
  return code;
}

int32_t memlith_kv_map_at(memlith_kv* handle, uint64_t index, char* name, size_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(name, "name"));
    Status status = kOk;
    const auto found = kv_of(handle).map_at(index, status);
    if (found.has_value() && bytes > 0) copy_text(std::span(name, bytes), *found);
    return status;
  });
}

// ---- transactions

int32_t memlith_kv_begin(memlith_kv* handle, uint32_t flags, memlith_kv_txn** txn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(txn, "txn"));
    if ((flags & ~std::uint32_t{MEMLITH_KV_READ_ONLY}) != 0) {
      return fail(Errc::invalid, Detail::argument, "flags {:#x} of a transaction are unknown", flags);
    }
    auto made = std::make_unique<KvTransactionHandle>(KvTransactionHandle{nullptr});
    MEMLITH_TRY_ASSIGN(made->transaction, kv_of(handle).begin((flags & MEMLITH_KV_READ_ONLY) != 0));
    *txn = reinterpret_cast<memlith_kv_txn*>(made.release());
    return kOk;
  });
}

int32_t memlith_kv_txn_set_wait(memlith_kv_txn* txn, uint64_t wait_ms) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    if (wait_ms > kIntervalMsMax) {
      return fail(Errc::invalid, Detail::argument, "a wait of {} ms for a lock is longer than a day", wait_ms);
    }
    transaction_of(txn).set_wait(std::chrono::milliseconds(wait_ms));
    return kOk;
  });
}

int32_t memlith_kv_set_txn_timeout(memlith_kv* handle, uint64_t timeout_ms) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (timeout_ms > kIntervalMsMax) {
      return fail(Errc::invalid, Detail::argument, "a timeout of {} ms is longer than a day", timeout_ms);
    }
    kv_of(handle).set_txn_timeout(std::chrono::milliseconds(timeout_ms));
    return kOk;
  });
}

int32_t memlith_kv_commit(memlith_kv_txn* txn, uint32_t mode, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(check_commit_mode(mode));
    MEMLITH_TRY(transaction_of(txn).check_alone());
    Kv* const kv = transaction_of(txn).kv().alone();
    Lsn made;
    const Status done = transaction_of(txn).commit(static_cast<kv::Durability>(mode), &made).status();
    if (ticket != nullptr && made != Lsn{}) *ticket = made.value;
    MEMLITH_TRY(done);
    if (kv != nullptr) kv->open_region()->session.keep_to_memory();
    return kOk;
  });
}

int32_t memlith_txn_add_kv(memlith_txn* tx, memlith_kv_txn* txn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(tx));
    MEMLITH_TRY(need_ours(txn));
    kv::Transaction& inner = transaction_of(txn);
    MEMLITH_TRY_ASSIGN(Kv* const alone_kv, alone(inner.kv(), "transaction over several structures"));
    Kv& kv = *alone_kv;
    MEMLITH_TRY(inner.check_alone());
    if (inner.read_only())
      return fail(Errc::read_only, Detail::kv, "the transaction of the kv store was begun read-only");
    if (kv.is_volatile()) {
      return fail(Errc::unsupported, Detail::kv,
                  "commits of a volatile kv store are not logged, so they cannot be a part of a transaction of the "
                  "store");
    }
    Transaction& transaction = transaction_of(tx).transaction;
    if (transaction.part_in(Participant::Kind::kv, kv.region()) != nullptr) {
      return fail(Errc::invalid, Detail::kv, "a transaction of kv store \"{}\" takes part already", kv.region().name());
    }
    return transaction.add(std::make_unique<kv::KvPart>(inner));
  });
}

int32_t memlith_kv_abort(memlith_kv_txn* txn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(transaction_of(txn).check_alone());
    transaction_of(txn).abort();
    return kOk;
  });
}

int32_t memlith_kv_renew(memlith_kv_txn* txn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    return transaction_of(txn).begin();
  });
}

void memlith_kv_txn_free(memlith_kv_txn* txn) {
  if (txn == nullptr) return;
  (void)guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    const std::unique_ptr<KvTransactionHandle> owned(&handle_of(txn));
    for (KvCursorHandle* const cursor : owned->cursors) delete cursor;
    owned->transaction->kv().free(owned->transaction);
    return kOk;
  });
}

int32_t memlith_kv_txn_active(const memlith_kv_txn* txn) {
  return txn != nullptr && transaction_of(const_cast<memlith_kv_txn*>(txn)).active() ? 1 : 0;
}

int32_t memlith_kv_savepoint(memlith_kv_txn* txn, uint64_t* savepoint) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(savepoint, "savepoint"));
    MEMLITH_TRY_ASSIGN(*savepoint, transaction_of(txn).savepoint());
    return kOk;
  });
}

int32_t memlith_kv_undo_to(memlith_kv_txn* txn, uint64_t savepoint) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    return transaction_of(txn).undo_to(savepoint);
  });
}

int32_t memlith_kv_get(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes,
                       memlith_bytes* value) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(value, "value"));
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(key, key_bytes, "key"));
    MEMLITH_TRY_ASSIGN(const auto found, transaction_of(txn).get(map, wanted));
    if (!found.has_value()) return not_found("there is no record with that key");
    *value = plain(*found);
    return kOk;
  });
}

int32_t memlith_kv_put(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes, const void* value,
                       uint64_t value_bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(key, key_bytes, "key"));
    MEMLITH_TRY_ASSIGN(const std::string_view content, text_of(value, value_bytes, "value"));
    return transaction_of(txn).put(map, wanted, content);
  });
}

int32_t memlith_kv_remove(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(key, key_bytes, "key"));
    MEMLITH_TRY_ASSIGN(const bool removed, transaction_of(txn).remove(map, wanted));
    return removed ? kOk : not_found("there is no record with that key");
  });
}

int32_t memlith_kv_put_if(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes,
                          const memlith_bytes* expected, const memlith_bytes* value, int32_t* done) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(done, "done"));
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(key, key_bytes, "key"));
    MEMLITH_TRY_ASSIGN(const auto before, optional_text_of(expected, "expected"));
    MEMLITH_TRY_ASSIGN(const auto after, optional_text_of(value, "value"));
    MEMLITH_TRY_ASSIGN(const bool was_done, transaction_of(txn).put_if(map, wanted, before, after));
    *done = was_done ? 1 : 0;
    return kOk;
  });
}

int32_t memlith_kv_remove_range(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from,
                                const memlith_bytes* to, uint64_t* count) {
  std::uint64_t removed = 0;
  const std::int32_t code = guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY_ASSIGN(const auto begin, optional_text_of(from, "from"));
    MEMLITH_TRY_ASSIGN(const auto end, optional_text_of(to, "to"));
    return transaction_of(txn).remove_range(map, begin, end, removed);
  });
  if (count != nullptr) *count = removed;
  return code;
}

int32_t memlith_kv_estimate(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from, const memlith_bytes* to,
                            uint64_t* records, uint64_t* bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY_ASSIGN(const auto begin, optional_text_of(from, "from"));
    MEMLITH_TRY_ASSIGN(const auto end, optional_text_of(to, "to"));
    kv::Transaction::RangeEstimate estimate;
    MEMLITH_TRY(transaction_of(txn).estimate(map, begin, end, estimate));
    if (records != nullptr) *records = estimate.records;
    if (bytes != nullptr) *bytes = estimate.bytes;
    return kOk;
  });
}

// ---- durability

int32_t memlith_kv_persist(memlith_kv* handle) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    return kv_of(handle).persist();
  });
}

int32_t memlith_kv_wait(memlith_kv* handle, uint64_t ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    if (ticket == 0) return kOk;  // of a transaction before the first commit
    return kv_of(handle).wait(Lsn{ticket});
  });
}

uint64_t memlith_kv_durable(memlith_kv* handle) {
  return need_ours(handle).ok() ? kv_of(handle).durable_ticket().value : 0;
}

int32_t memlith_kv_set_window(memlith_kv* handle, uint64_t window_ms, uint64_t window_bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const kv::Window window, window_of(window_ms, window_bytes));
    return kv_of(handle).set_window(window);
  });
}

int32_t memlith_kv_set_eventfd(memlith_kv* handle, int fd) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(Kv* const kv, alone(kv_of(handle), "eventfd of durable commits"));
    kv->weak_commits().set_eventfd(fd);
    return kOk;
  });
}

int32_t memlith_kv_on_durable(memlith_kv* handle, uint64_t ticket,
                              void (*done)(void* context, uint64_t ticket, int32_t code), void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(done), "done"));
    MEMLITH_TRY_ASSIGN(Kv* const kv, alone(kv_of(handle), "call when a commit is durable"));
    Kv& inner = *kv;
    if (inner.read_only())
      return fail(Errc::read_only, Detail::kv, "a store that was opened read-only commits nothing");
    MEMLITH_TRY(inner.region().store().check_ticket(Lsn{ticket}));
    inner.weak_commits().when_durable(Lsn{ticket}, [done, context](Lsn durable, Status status) {
      done(context, durable.value, status.ok() ? 0 : code_of(status));
    });
    return kOk;
  });
}

// ---- looking inside

int32_t memlith_kv_get_info(memlith_kv* handle, memlith_kv_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const kv::KvInfo found, kv_of(handle).info());
    memlith_kv_info info{};
    info.maps = found.maps;
    info.records = found.records;
    info.region_bytes = found.region_bytes;
    info.page_bytes = found.page_bytes;
    info.pages = found.pages;
    info.free_pages = found.free_pages;
    info.commits = found.commits;
    info.durable = found.durable;
    info.logged_bytes = found.logged_bytes;
    info.conflicts = found.conflicts;
    info.snapshot_bytes = found.snapshot_bytes;
    info.transactions = found.transactions;
    return write_info(target, info);
  });
}

int32_t memlith_kv_verify(memlith_kv* handle, memlith_kv_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(handle));
    MEMLITH_TRY_ASSIGN(const kv::KvReport found, kv_of(handle).verify());
    if (target == nullptr) return kOk;
    memlith_kv_report report{};
    report.maps = found.maps;
    report.records = found.records;
    report.leaf_pages = found.leaf_pages;
    report.inner_pages = found.inner_pages;
    report.overflow_pages = found.overflow_pages;
    report.free_pages = found.free_pages;
    report.used_bytes = found.used_bytes;
    report.depth_max = found.depth_max;
    return write_info(target, report);
  });
}

}  // extern "C"
