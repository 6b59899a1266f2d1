// Verifying a store that nobody has open; include/memlith/memlith.h. Floor: capi.
#include <memory>
#include <utility>

#include "capi/errors.hpp"
#include "capi/handles.hpp"

using namespace memlith::core;

extern "C" {

int32_t memlith_verify(const char* path, memlith_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    StoreOptions options;
    options.kind = kind_at(path);
    options.read_only = true;
    MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, options.kind));
    // A read-only open reads and checks everything that there is to check, and keeps the result in memory.
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<Session> session, Session::open(std::move(place), std::move(options)));
    const Store& inner = session->store();
    memlith_report report{};
    report.frames = inner.counters().replayed_frames;
    report.frame_bytes = inner.counters().replayed_bytes;
    for (const ObjectInfo& object : inner.objects()) {
      ++report.regions;
      report.region_bytes += object.size_bytes;
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
