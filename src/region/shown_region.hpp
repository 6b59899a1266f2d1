// A region of a store that is followed: private memory, in which the store's view shows the region. Floor: region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "region/region_home.hpp"
#include "region/region_mapping.hpp"
#include "store/view.hpp"

namespace memlith::core {

// The memory lies at the region's address and can only be read, except during a change.
class ShownRegion final : public ShownObject {
 public:
  ShownRegion(RegionHome& home, RegionMapping& mapping) : home_(home), mapping_(mapping) {}
  ~ShownRegion() override;

  // The region is shown from now on.
  Status begin();

  [[nodiscard]] ObjectId object() const override { return home_.object(); }
  Result<std::span<std::byte>> begin_copy(std::uint64_t bytes) override;
  Result<std::span<std::byte>> begin_change(std::uint64_t bytes) override;
  Status end_change() override;
  void drop_copy() override;

 private:
  Result<std::span<std::byte>> change_copy(std::uint64_t bytes);
  Status map_to(std::uint64_t end);

  RegionHome& home_;
  RegionMapping& mapping_;
  std::uint64_t mapped_bytes_ = 0;  // from the region's address on
  std::byte* copy_ = nullptr;       // null: there is none
  std::uint64_t copy_bytes_ = 0;    // mapped, in whole pages
  std::uint64_t copied_bytes_ = 0;
  std::uint64_t next_bytes_ = 0;  // the size when the change has ended
};

}  // namespace memlith::core
