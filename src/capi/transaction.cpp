// Transactions; include/memlith/transaction.h. Floor: capi.
#include <algorithm>
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

int32_t memlith_txn_add_region(memlith_txn* txn, memlith_region* region, uint32_t flags) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    OpenTransaction& open = transaction_of(txn);
    if ((flags & ~std::uint32_t{MEMLITH_UNDO}) != 0) {
      return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}; see MEMLITH_UNDO", flags);
    }
    if (flags == MEMLITH_UNDO && region == nullptr) return open.session.begin_change(open, {});
    MEMLITH_TRY(need_ours(region));
    if (&open_region_of(region).session != &open.session) {
      return fail(Errc::invalid, Detail::argument, "region \"{}\" belongs to another store than the transaction",
                  region_of(region).shown_name());
    }
    Region* const inner = &region_of(region);
    if (std::find(open.changing.begin(), open.changing.end(), inner) != open.changing.end()) return kOk;
    const bool takes_part = open.transaction.part_in(Participant::Kind::region, *inner) != nullptr;
    if (flags == 0) return takes_part ? kOk : open.transaction.add(std::make_unique<RegionPart>(*inner));
    if (takes_part) {
      return fail(Errc::invalid, Detail::argument,
                  "region \"{}\" takes part in the transaction already, without MEMLITH_UNDO", inner->shown_name());
    }
    return open.session.begin_change(open, {&inner, 1});
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
    return open.session.abort(open);
  });
}

}  // extern "C"
