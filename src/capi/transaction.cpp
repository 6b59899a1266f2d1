// Transactions and changes; include/memlith/transaction.h. Floor: capi.
#include <cstring>
#include <memory>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "region/region_part.hpp"

using namespace memlith::core;

namespace {

Status need_writable(const Session& session) {
  if (!session.store().read_only()) return kOk;
  return fail(Errc::read_only, Detail::open, "{}: the store was opened read-only", session.store().path());
}

}  // namespace

extern "C" {

int32_t memlith_begin(memlith_store* store, memlith_txn** tx) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(tx, "tx"));
    MEMLITH_TRY(need_writable(session_of(store)));
    *tx = handle_of(session_of(store).begin());
    return kOk;
  });
}

int32_t memlith_touch_before(memlith_txn* tx, const void* address, uint64_t bytes) {
  if (tx != nullptr && !transaction_of(tx).session.store().in_forked_child() &&
      transaction_of(tx).transaction.touch_few_before(address, bytes)) {
    return 0;
  }
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(tx));
    OpenTransaction& open = transaction_of(tx);
    return open.session.touch_before(open, address, bytes);
  });
}

int32_t memlith_txn_write(memlith_txn* txn, void* target, const void* bytes, uint64_t count) {
  if (count > 0 && bytes == nullptr) return guarded([] { return need(nullptr, "bytes"); });
  const int32_t announced = memlith_touch_before(txn, target, count);
  if (announced == 0 && count > 0) std::memmove(target, bytes, count);
  return announced;
}

int32_t memlith_txn_add_region(memlith_txn* tx, memlith_region* region) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(tx));
    MEMLITH_TRY(need_ours(region));
    Transaction& transaction = transaction_of(tx).transaction;
    if (transaction.part_in(Participant::Kind::region, region_of(region)) != nullptr) return kOk;
    return transaction.add(std::make_unique<RegionPart>(region_of(region)));
  });
}

int32_t memlith_commit(memlith_txn* tx, uint32_t mode, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(tx));
    MEMLITH_TRY(check_commit_mode(mode));
    OpenTransaction& open = transaction_of(tx);
    MEMLITH_TRY_ASSIGN(const Lsn end, open.session.commit(open, mode == MEMLITH_COMMIT_SYNC));
    if (ticket != nullptr) *ticket = end.value;
    return kOk;
  });
}

int32_t memlith_abort(memlith_txn* tx) {
  if (tx == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(tx));
    OpenTransaction& open = transaction_of(tx);
    open.session.abort(open);
    return kOk;
  });
}

int32_t memlith_change_begin(memlith_store* store, memlith_region* const* regions, uint64_t count,
                             memlith_change** change) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(change, "change"));
    Session& session = session_of(store);
    MEMLITH_TRY(need_writable(session));
    MEMLITH_TRY_ASSIGN(const Selection selected, selection_of(regions, count));
    if (selected.session != nullptr && selected.session != &session) {
      return fail(Errc::invalid, Detail::argument, "{}: a region of another store was given", session.store().path());
    }
    MEMLITH_TRY_ASSIGN(std::unique_ptr<OpenChange> open, session.begin_change(selected.regions));
    *change = handle_of(open.release());
    return kOk;
  });
}

int32_t memlith_change_commit(memlith_change* change, uint32_t mode, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(change));
    MEMLITH_TRY(check_commit_mode(mode));
    OpenChange& open = change_of(change);
    MEMLITH_TRY_ASSIGN(const Lsn end, open.session.commit_change(open, mode == MEMLITH_COMMIT_SYNC));
    if (ticket != nullptr) *ticket = end.value;
    delete &open;
    return kOk;
  });
}

int32_t memlith_change_undo(memlith_change* change) {
  if (change == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(change));
    const std::unique_ptr<OpenChange> open(&change_of(change));
    return open->session.undo_change(*open);
  });
}

}  // extern "C"
