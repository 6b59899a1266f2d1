// Opening and closing what lives in a region of its own: heaps, kv stores, application logs. Floor: capi.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "base/assert.hpp"
#include "base/status.hpp"
#include "heap/format.hpp"
#include "region/session.hpp"

namespace memlith::core {

// Opens the region and, with `open`, what lives in it, which the OpenRegion owns then. If that fails, the region is
// closed again.
template <class Open>
auto open_in_region(Session& session, std::string_view name, const RegionOptions& options, const Open& open)
    -> Result<decltype(open(std::declval<Region&>())->get())> {
  if (options.thread_scope && options.use_magic != kHeapMagic) {
    return fail(Errc::unsupported, Detail::argument,
                "\"{}\": MEMLITH_REGION_THREAD_SCOPE is for heaps and for regions without a structure; kv stores and "
                "application logs make each thread's changes durable by themselves: open it without the flag",
                name);
  }
  RegionOptions of_region = options;
  of_region.exclusive = false;  // `open` looks whether something is there: an empty region is no obstacle
  MEMLITH_TRY_ASSIGN(OpenRegion* const region, session.open_region(name, of_region));
  auto made = open(*region->region);
  if (!made.ok()) {
    const KeptSentence sentence;
    const Status closed = session.drop_region(*region);
    MEMLITH_ASSERT(closed.ok());  // no other thread has the region yet
    session.store().forget_new_log();
    return made.error();
  }
  auto* const inside = made->get();
  inside->set_open_region(region);
  region->user = std::move(*made);
  return inside;
}

// `busy` while a transaction of the store has a part in the region.
inline Status need_no_part(Region& region) {
  if (!region.transactions().any()) return kOk;
  return fail(Errc::busy, Detail::object,
              "a transaction of the store has a part in \"{}\"; commit or abort the transaction, then close it",
              region.name());
}

// Closes the region of what was stopped with the status `stopped`, which counts before that of closing.
inline Status close_with_region(OpenRegion& region, Status stopped) {
  if (stopped.ok()) return region.session.close_region(region);
  const KeptSentence sentence;
  (void)region.session.close_region(region);
  return stopped;
}

}  // namespace memlith::core
