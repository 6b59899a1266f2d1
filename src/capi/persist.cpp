// Persisting, waiting, rolling back; include/memlith/memlith.h. Floor: capi.
#include "capi/errors.hpp"
#include "capi/handles.hpp"

using namespace memlith::core;

static_assert(MEMLITH_SCOPE_PROCESS == static_cast<int>(Scope::process));

namespace {

Status check_scope(std::uint32_t scope) {
  if (scope <= MEMLITH_SCOPE_THREAD) return kOk;
  return fail(Errc::invalid, Detail::argument, "scope is {}; see MEMLITH_SCOPE_PROCESS", scope);
}

}  // namespace

extern "C" {

int32_t memlith_persist(memlith_region* const* regions, uint64_t count, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(check_scope(scope));
    MEMLITH_TRY_ASSIGN(const Selection selected, selection_of(regions, count));
    if (selected.session == nullptr) return kOk;
    return selected.session->persist(selected.regions, static_cast<Scope>(scope));
  });
}

int32_t memlith_persist_range(memlith_region* region, const void* address, uint64_t bytes, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(region));
    MEMLITH_TRY(check_scope(scope));
    return open_region_of(region).session.persist_range(region_of(region), address, bytes, static_cast<Scope>(scope));
  });
}

int32_t memlith_persist_all(memlith_store* store, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(check_scope(scope));
    return session_of(store).persist_all(static_cast<Scope>(scope));
  });
}

int32_t memlith_persist_async(memlith_region* const* regions, uint64_t count, uint32_t scope, uint64_t* ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(ticket, "ticket"));
    MEMLITH_TRY(check_scope(scope));
    MEMLITH_TRY_ASSIGN(const Selection selected, selection_of(regions, count));
    Lsn end;
    if (selected.session != nullptr) {
      MEMLITH_TRY_ASSIGN(end, selected.session->persist_async(selected.regions, static_cast<Scope>(scope)));
    }
    *ticket = end.value;
    return kOk;
  });
}

int32_t memlith_wait(memlith_store* store, uint64_t ticket) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    return session_of(store).store().wait(Lsn{ticket});
  });
}

int32_t memlith_rollback(memlith_region* const* regions, uint64_t count, uint32_t scope) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(check_scope(scope));
    MEMLITH_TRY_ASSIGN(const Selection selected, selection_of(regions, count));
    if (selected.session == nullptr) return kOk;
    return selected.session->rollback(selected.regions, static_cast<Scope>(scope));
  });
}

}  // extern "C"
