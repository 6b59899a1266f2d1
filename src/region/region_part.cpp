#include "region/region_part.hpp"

#include <utility>

namespace memlith::core {

Result<FrameNeed> RegionPart::prepare() {
  captured_ = {};
  addresses_.clear();
  struct Undo {
    RegionPart* part;
    ~Undo() {
      if (part != nullptr) part->cancel();
    }
  };
  MEMLITH_ASSERT(!held_.has_value() && !taken_);
  held_.emplace(region_);
  Undo undo{this};
  region_.capture_.mutex.assert_held();
  if (!ends_change_) MEMLITH_TRY(region_.check_unchanging());
  taken_ = true;
  MEMLITH_TRY(region_.take(kAllThreads, kWholeRegion, captured_));
  if (pointers_are_checked()) region_.append_addresses(addresses_);
  undo.part = nullptr;
  FrameNeed need{captured_.sizes.size() * sizeof(SizeChange), captured_.extents.size()};
  for (const Extent& extent : captured_.extents) need.bytes += sizeof extent + extent.bytes;
  return need;
}

Status RegionPart::add_to(JointFrame& frame) {
  MEMLITH_ASSERT(captured_.extents.size() == captured_.sources.size());
  MEMLITH_ASSERT(held_.has_value() && taken_);
  frame.extents.insert(frame.extents.end(), captured_.extents.begin(), captured_.extents.end());
  frame.sources.insert(frame.sources.end(), captured_.sources.begin(), captured_.sources.end());
  frame.sizes.insert(frame.sizes.end(), captured_.sizes.begin(), captured_.sizes.end());
  return kOk;
}

void RegionPart::finish(Lsn end) noexcept {
  region_.capture_.mutex.assert_held();
  MEMLITH_ASSERT(held_.has_value() && taken_);
  region_.keep_taken(kWholeRegion, end);
  taken_ = false;
  if (ends_change_) region_.end_change();
  held_.reset();
  report_addresses(addresses_);
}

void RegionPart::cancel() noexcept {
  region_.capture_.mutex.assert_held();
  if (std::exchange(taken_, false)) region_.give_back_taken();
  held_.reset();
}

}  // namespace memlith::core
