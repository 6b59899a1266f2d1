// Regions that several processes write; include/memlith/shared.h. Floor: capi.
#include "memlith/shared.h"

#include <memory>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/times.hpp"
#include "processes/kept.hpp"
#include "shared/client.hpp"
#include "shared/keeper.hpp"

using namespace memlith::core;

namespace {

shared::Client& client_of(const memlith_shared* shared) {
  return *reinterpret_cast<shared::Client*>(const_cast<memlith_shared*>(shared));
}

shared::SharedTransaction& transaction_of(const memlith_shared_txn* tx) {
  return *reinterpret_cast<shared::SharedTransaction*>(const_cast<memlith_shared_txn*>(tx));
}

Status check_flags(std::uint32_t flags) {
  constexpr std::uint32_t kKnown = MEMLITH_CREATE;
  if ((flags & ~kKnown) == 0) return kOk;
  return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", flags & ~kKnown);
}

}  // namespace

extern "C" {

int32_t memlith_shared_open(const char* store, const char* region, uint64_t bytes, const memlith_shared_options* given,
                            memlith_shared** shared) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(store, "store"));
    MEMLITH_TRY(need(region, "region"));
    MEMLITH_TRY(need(shared, "shared"));
    memlith_shared_options options;
    MEMLITH_TRY(read_options(given, options));
    MEMLITH_TRY(check_flags(options.flags));
    shared::ClientOptions wanted;
    wanted.path = store;
    wanted.region = region;
    wanted.bytes = bytes;
    wanted.address = options.address;
    wanted.create = (options.flags & MEMLITH_CREATE) != 0;
    if (options.program != nullptr) wanted.program = options.program;
    if (options.patience_ms != 0) wanted.patience = milliseconds_of(options.patience_ms);
    MEMLITH_TRY_ASSIGN(std::unique_ptr<shared::Client> client, shared::Client::open(wanted));
    *shared = reinterpret_cast<memlith_shared*>(client.release());
    return kOk;
  });
}

int32_t memlith_shared_close(memlith_shared* shared) {
  if (shared == nullptr) return 0;
  return guarded([&]() -> Status {
    delete &client_of(shared);
    return kOk;
  });
}

void* memlith_shared_address(const memlith_shared* shared) {
  return shared == nullptr ? nullptr : client_of(shared).address();
}

uint64_t memlith_shared_size(const memlith_shared* shared) { return shared == nullptr ? 0 : client_of(shared).size(); }

int32_t memlith_shared_begin(memlith_shared* shared, memlith_shared_txn** tx) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(shared, "shared"));
    MEMLITH_TRY(need(tx, "tx"));
    MEMLITH_TRY_ASSIGN(shared::SharedTransaction* const begun, client_of(shared).begin());
    *tx = reinterpret_cast<memlith_shared_txn*>(begun);
    return kOk;
  });
}

int32_t memlith_shared_touch_before(memlith_shared_txn* tx, const void* address, uint64_t bytes, uint64_t timeout_ms) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(tx, "tx"));
    return transaction_of(tx).touch_before(address, bytes, milliseconds_of(timeout_ms));
  });
}

int32_t memlith_shared_commit(memlith_shared_txn* tx, uint32_t mode, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(tx, "tx"));
    MEMLITH_TRY(check_commit_mode(mode));
    shared::SharedTransaction& transaction = transaction_of(tx);
    MEMLITH_TRY_ASSIGN(const std::uint64_t got, transaction.client().commit(transaction, mode == MEMLITH_COMMIT_SYNC));
    if (ticket != nullptr) *ticket = got;
    return kOk;
  });
}

int32_t memlith_shared_abort(memlith_shared_txn* tx) {
  if (tx == nullptr) return 0;
  return guarded([&]() -> Status {
    shared::SharedTransaction& transaction = transaction_of(tx);
    return transaction.client().abort(transaction);
  });
}

int32_t memlith_shared_wait(memlith_shared* shared, uint64_t ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(shared, "shared"));
    return client_of(shared).wait(ticket);
  });
}

int32_t memlith_shared_keep(const char* store, const memlith_keeper_options* given) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(store, "store"));
    memlith_keeper_options options;
    MEMLITH_TRY(read_options(given, options));
    MEMLITH_TRY(check_flags(options.flags));
    shared::KeeperOptions wanted;
    wanted.path = store;
    wanted.create = (options.flags & MEMLITH_CREATE) != 0;
    if (options.grace_ms != 0) wanted.grace = wanted.first_grace = milliseconds_of(options.grace_ms);
    wanted.service = [](Session& session) { return std::make_unique<processes::Kept>(session); };
    if (options.ready != nullptr) wanted.ready = [&options] { options.ready(options.ready_context); };
    return shared::keep(wanted);
  });
}

}  // extern "C"
