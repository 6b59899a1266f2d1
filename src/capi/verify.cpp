// Verifying a store that is not open; include/memlith/memlith.h. Floor: capi.
#include <memory>
#include <utility>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "heap/heap.hpp"

using namespace memlith::core;

namespace {

// True where the region holds a heap, which is sound then.
Result<bool> holds_heap(Store& store, const ObjectInfo& object) {
  if (object.size_bytes < sizeof(HeapHeader)) return false;
  RegionOptions options;
  options.anywhere = true;  // the program may have the store open in this process
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Region> region, Region::open(store, object.name, options));
  if (reinterpret_cast<const HeapHeader*>(region->address())->magic != kHeapMagic) return false;
  MEMLITH_TRY_ASSIGN(const std::unique_ptr<Heap> heap, Heap::open(*region));
  MEMLITH_TRY(heap->verify().status());
  return true;
}

}  // namespace

extern "C" {

int32_t memlith_verify(const char* path, memlith_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    StoreOptions options;
    options.kind = kind_at(path);
    options.read_only = true;
    MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, options.kind));
    // A read-only opening reads and checks every structure, and keeps the result in memory.
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<Session> session, Session::open(std::move(place), std::move(options)));
    const Store& inner = session->store();
    memlith_report report{};
    report.frames = inner.counters().replayed_frames;
    report.frame_bytes = inner.counters().replayed_bytes;
    for (const ObjectInfo& object : inner.objects()) {
      ++report.regions;
      report.region_bytes += object.size_bytes;
      MEMLITH_TRY_ASSIGN(const bool heap, holds_heap(session->store(), object));
      report.heaps += heap ? 1 : 0;
    }
    report.clean = inner.was_clean() ? 1 : 0;
    report.one_file = inner.one_file() ? 1 : 0;
    report.log_bytes = inner.log().capacity_bytes();
    report.superblock_copies = inner.log().superblock_copies();
    report.incarnation = session->incarnation();
    return write_info(target, report);
  });
}

}  // extern "C"
