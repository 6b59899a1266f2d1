// A structure that is opened in a region, and lives as long as the session has the region open. Floor: region.
#pragma once

#include "base/status.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

class Region;

class RegionUser {
 public:
  virtual ~RegionUser() = default;
  // The session ends: makes durable what was acknowledged. The user is destroyed then, whatever the outcome.
  virtual Status stop() { return kOk; }
  // Region::release_for_limit(), or what the user does instead.
  virtual Status release_for_limit(Region& region);

  // The bytes that each opening writes anew, without a change of what they mean.
  virtual Range rewritten() { return {}; }

  // In a store that is followed: whether the memory may become that of another commit now. `busy` if not.
  virtual Status check_idle() { return kOk; }
  // In a store that is followed: the memory is that of another commit now, or of the same one after a failure. No other
  // thread uses the region meanwhile.
  virtual void view_moved() = 0;
};

}  // namespace memlith::core
