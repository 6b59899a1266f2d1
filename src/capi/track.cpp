// memlith/track.h: the calls of instrumented code. Floor: capi.
#include "memlith/track.h"

#include <cstddef>

#include "region/store_lists.hpp"

using namespace memlith::core;

static_assert(sizeof(memlith_track_range) == sizeof(TrackedAddresses));
static_assert(offsetof(memlith_track_range, low) == offsetof(TrackedAddresses, low));
static_assert(offsetof(memlith_track_range, high) == offsetof(TrackedAddresses, high));
static_assert(kTrackedMargin == MEMLITH_TRACK_MARGIN);

extern "C" {

void memlith_track_store(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes > 0) record_store(begin, begin + bytes);
}

void memlith_track_begin(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  begin_atomic_store(begin, begin + bytes);
}

void memlith_track_end(const void* address, size_t bytes, int stored) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  end_atomic_store(begin, begin + bytes, stored != 0);
}

void memlith_track_before(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes > 0) announce_store(begin, begin + bytes);
}

void memlith_track_settle() { settle_stores(); }

void memlith_track_attach(memlith_track_range* range) {
  add_tracked_addresses(reinterpret_cast<TrackedAddresses*>(range));
}

void memlith_track_detach(memlith_track_range* range) {
  remove_tracked_addresses(reinterpret_cast<TrackedAddresses*>(range));
}

}  // extern "C"
