// Snapshots; include/memlith/memlith.h. Floor: capi.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "heap/heap.hpp"
#include "heap/open_heaps.hpp"

using namespace memlith::core;

extern "C" {

int32_t memlith_region_snapshot(memlith_region* const* regions, uint64_t count, memlith_snapshot** snapshot) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(snapshot, "snapshot"));
    MEMLITH_TRY_ASSIGN(const Selection selected, selection_of(regions, count));
    MEMLITH_TRY_ASSIGN(std::unique_ptr<Snapshot> made, Snapshot::make(selected.regions));
    *snapshot = handle_of(made.release());
    return kOk;
  });
}

const void* memlith_snapshot_address(const memlith_snapshot* snapshot, uint64_t index) {
  return snapshot == nullptr ? nullptr : snapshot_of(snapshot).address(index);
}

uint64_t memlith_snapshot_size(const memlith_snapshot* snapshot, uint64_t index) {
  return snapshot == nullptr ? 0 : snapshot_of(snapshot).size(index);
}

uint64_t memlith_snapshot_ticket(const memlith_snapshot* snapshot) {
  return snapshot == nullptr ? 0 : snapshot_of(snapshot).lsn().value;
}

int32_t memlith_snapshot_place(memlith_snapshot* snapshot) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(snapshot, "snapshot"));
    const Status placed = snapshot_of(snapshot).place();
    for (std::uint64_t i = 0; const std::byte* const base = snapshot_of(snapshot).place_of(i); ++i) {
      Heap* const heap = open_heap_at(reinterpret_cast<std::uintptr_t>(base));
      if (heap != nullptr) heap->derived().leave_all();
    }
    return placed;
  });
}

void memlith_snapshot_close(memlith_snapshot* snapshot) {
  if (snapshot != nullptr) delete &snapshot_of(snapshot);
}

}  // extern "C"
