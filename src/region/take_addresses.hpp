// Where a region that exists lies when it is opened. Floor: region.
#pragma once

#include "region/region.hpp"

namespace memlith::core {

constexpr std::uint64_t kReserveBytesMin = 1 * kGiB;

// Each reserves addresses in this process and writes to `info` where and how many.

// For a region that lies anywhere: as many addresses as the file system could ever fill, with room to spare.
Status take_room(Store& store, ObjectInfo& info);

// For a region that is only read, of which nothing is written. The region of a one-file store may lie nowhere: then
// where the options say, else where there is room.
Status take_addresses_to_read(Store& store, ObjectInfo& info, const RegionOptions& options);

// For a region that is written: its own addresses. If the options ask for more of them than it has, the region is given
// these, durably. `address_taken`: others lie there; the region keeps what it has.
Status take_own_addresses(Store& store, ObjectInfo& info, const RegionOptions& options);

}  // namespace memlith::core
