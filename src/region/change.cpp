// Changes: what is stored between the beginning and the end of one is captured as a whole, or undone. Floor: region.
//
// A change needs no images of its own: at its beginning everything is captured, so that a rollback leads back there.
#include "region/region.hpp"

namespace memlith::core {

Status Region::check_unchanging() const {
  const Change change = change_.load();
  if (change == Change::none) return kOk;
  if (change == Change::under_way) {
    return fail(Errc::busy, Detail::object,
                "region \"{}\": a change that is committed as a whole or undone (transact, MEMLITH_UNDO) is "
                "under way, and only its end may capture or undo it; threads that share the region hold one lock from "
                "its beginning to its end",
                shown_name());
  }
  return fail(Errc::busy, Detail::object,
              "region \"{}\": a change failed and could not be undone, so memory holds a part of it that is never "
              "captured; close the region and open it again",
              shown_name());
}

Result<Lsn> Region::begin_change(std::span<Region* const> regions) {
  // ORDER capture-before-change: an undo leads back to the last capture. What was stored before the change and was not
  // captured yet would be undone with it. [mutant change_begins_uncaptured]
  Lsn end;
  MEMLITH_TRY_ASSIGN(end, capture(regions, Scope::process, false));
  std::vector<Region*> begun;
  begun.reserve(regions.size());
  for (Region* const region : regions) {
    const Held held(*region);
    Status free = region->change_ == Change::none ? kOk : region->check_unchanging();
    if (!free.ok()) {
      for (Region* const each : begun) each->change_ = Change::none;
      return free;
    }
    region->change_ = Change::under_way;
    begun.push_back(region);
  }
  MEMLITH_ASSERT(begun.size() == regions.size());
  return end;
}

Result<Lsn> Region::capture_change(std::span<Region* const> regions, bool will_sync) {
  return capture_part(regions, {Scope::process, will_sync, kWholeRegion, true});
}

Status Region::undo_change(std::span<Region* const> regions) {
  MEMLITH_ASSERT(!regions.empty());
  MEMLITH_TRY(regions.front()->store().check_process());
  Status first = kOk;
  for (Region* const region : regions) {
    const Held held(*region);
    if (region->change_ != Change::under_way) continue;
    const Status undone = region->roll_back_guarded(kAllThreads);
    // ORDER half-is-never-captured: a capture of a region in which the undo failed would make half of the change
    // durable. [test Changes.AnUndoThatFailsIsNeverCaptured]
    region->change_ = undone.ok() ? Change::none : Change::left_half;
    if (first.ok()) first = undone;
  }
  return first;
}

}  // namespace memlith::core
