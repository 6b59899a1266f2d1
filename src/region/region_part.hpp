// The bytes that a persist would capture of a region, as a part of a transaction. Floor: region.
#pragma once

#include <optional>
#include <vector>

#include "region/participant.hpp"
#include "region/pointer_check.hpp"
#include "region/region.hpp"

namespace memlith::core {

// The stores of all threads since the region's last capture. An abort leaves them as they are: due for the next one.
// With `ends_change`, the stores of a change (Region::begin_change), which the commit ends.
class RegionPart final : public Participant {
 public:
  explicit RegionPart(Region& region, bool ends_change = false) : region_(region), ends_change_(ends_change) {}

  [[nodiscard]] Kind kind() const override { return Kind::region; }
  [[nodiscard]] Region& region() const override { return region_; }
  Result<FrameNeed> prepare() override;
  Status add_to(JointFrame& frame) override;
  void finish(Lsn end) noexcept override;
  void cancel() noexcept override;

 private:
  Region& region_;
  bool ends_change_;
  std::optional<Region::Held> held_;  // from prepare() to finish() or cancel()
  bool taken_ = false;                // from the region, in captured_
  JointFrame captured_;
  std::vector<AddressWord> addresses_;  // where pointers are checked
};

}  // namespace memlith::core
