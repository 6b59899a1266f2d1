// Opening what lives in a region of its own, for a keeper. Floor: processes.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/no_throw.hpp"
#include "region/session.hpp"
#include "shared/channel.hpp"

namespace memlith::core::processes {

// Opens the region and, with `open`, what lives in it, which belongs to the session then. If that fails, the region is
// closed again. Its memory is not used: what lives in it has memory that processes share.
template <class Open>
auto open_kept(Session& session, const std::string& name, RegionOptions options, const Open& open)
    -> Result<decltype(open(std::declval<Region&>())->get())> {
  options.tracker = TrackerKind::touched;
  options.anywhere = true;
  MEMLITH_TRY_ASSIGN(OpenRegion* const region, session.open_region(name, options));
  decltype(open(std::declval<Region&>())->get()) inside = nullptr;
  const Status opened = no_throw([&]() -> Status {
    MEMLITH_TRY_ASSIGN(auto made, open(*region->region));
    inside = made.get();
    inside->set_open_region(region);
    region->user = std::move(made);
    return kOk;
  });
  if (opened.ok()) return inside;
  const KeptSentence sentence;
  (void)session.drop_region(*region);
  session.store().forget_new_log();
  return opened;
}

inline std::string name_in(const shared::Request& request) {
  return {request.name.data(), ::strnlen(request.name.data(), request.name.size())};
}

}  // namespace memlith::core::processes
