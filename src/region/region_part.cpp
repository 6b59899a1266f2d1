#include "region/region_part.hpp"

namespace memlith::core {

// The region stays locked beyond the calls, which the analysis cannot follow.
Result<FrameNeed> RegionPart::prepare() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  captured_ = {};
  addresses_.clear();
  struct Locked {
    Region* region;
    bool taken = false;
    explicit Locked(Region& given) MEMLITH_NO_THREAD_SAFETY_ANALYSIS : region(&given) { region->lock(); }
    ~Locked() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
      if (region == nullptr) return;
      if (taken) region->capture_.give_back();
      region->unlock();
    }
  } locked(region_);
  MEMLITH_TRY(region_.check_unchanging());
  locked.taken = true;
  MEMLITH_TRY(region_.take(kAllThreads, kWholeRegion, captured_));
  if (pointers_are_checked()) region_.append_addresses(addresses_);
  locked.region = nullptr;
  FrameNeed need{captured_.sizes.size() * sizeof(SizeChange), captured_.extents.size()};
  for (const Extent& extent : captured_.extents) need.bytes += sizeof extent + extent.bytes;
  return need;
}

Status RegionPart::add_to(JointFrame& frame) {
  MEMLITH_ASSERT(captured_.extents.size() == captured_.sources.size());
  frame.extents.insert(frame.extents.end(), captured_.extents.begin(), captured_.extents.end());
  frame.sources.insert(frame.sources.end(), captured_.sources.begin(), captured_.sources.end());
  frame.sizes.insert(frame.sizes.end(), captured_.sizes.begin(), captured_.sizes.end());
  return kOk;
}

void RegionPart::finish(Lsn end) noexcept MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  region_.keep_taken(kWholeRegion, end);
  region_.unlock();
  report_addresses(addresses_);
}

void RegionPart::cancel() noexcept MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  region_.capture_.give_back();
  region_.unlock();
}

}  // namespace memlith::core
