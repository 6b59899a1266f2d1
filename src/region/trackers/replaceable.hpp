// A tracker whose place a fault tracker can take between two captures. Floor: region, private to the trackers.
#pragma once

#include "region/tracker.hpp"
#include "region/trackers/fault_handler.hpp"

namespace memlith::core {

// Under the region's capture lock, and while no page is left open.
class ReplaceableTracker : public Tracker {
 public:
  // From the return on the region is read-only, and stores to it are served with `pages`. What was stored before is
  // collected still. Errors: stores are found as before.
  virtual Result<FaultRegion*> hand_over(FaultPages& pages) = 0;
  // The other tracker failed: the region is writable again, and all stores are found here.
  virtual void take_back() = 0;
  // The other tracker knows all stores. This one finds none from now on.
  virtual void let_go() = 0;
};

}  // namespace memlith::core
