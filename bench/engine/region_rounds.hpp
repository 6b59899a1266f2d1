// Rounds on memlith's side of the comparisons with peers: stores to pages of a region, and a persist.
#pragma once

#include <cstdint>
#include <utility>

#include "cli/clock.hpp"
#include "cli/failure.hpp"
#include "memlith/memlith.h"
#include "memlith/track.h"
#include "peers/page_stores.hpp"

namespace memlith::tool {

class RegionRounds {
 public:
  // Stores go where `stores` says, which is memory of `region`.
  RegionRounds(memlith_region* region, std::uint32_t tracker, std::uint32_t scope, PageStores stores)
      : region_(region), tracker_(tracker), scope_(scope), stores_(std::move(stores)) {}

  // The time is that of the stores, the touches and the persist. Durable on success.
  [[nodiscard]] MaybeFailure round(std::uint64_t pages, std::uint64_t& elapsed_ns) {
    stores_.choose(pages);
    const std::uint64_t start = now_ns();
    stores_.store();
    std::int32_t code = touch();
    if (code == MEMLITH_OK) code = memlith_persist(&region_, 1, scope_);
    elapsed_ns = now_ns() - start;
    return code == MEMLITH_OK ? MaybeFailure{} : library_failure(code, "persisting the region");
  }

 private:
  [[nodiscard]] std::int32_t touch() const {
    std::int32_t code = MEMLITH_OK;
    for (std::byte* const target : stores_.targets()) {
      if (tracker_ == MEMLITH_TRACKER_INSTRUMENTED) memlith_track_store(target, stores_.bytes_per_page());
      if (tracker_ == MEMLITH_TRACKER_EXPLICIT && code == MEMLITH_OK) {
        code = memlith_touch(region_, target, stores_.bytes_per_page());
      }
    }
    return code;
  }

  memlith_region* region_;
  std::uint32_t tracker_;
  std::uint32_t scope_;
  PageStores stores_;
};

}  // namespace memlith::tool
