// The addresses of regions. Floor: region.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "store/store.hpp"

namespace memlith::core {

// Reserves [address, address + bytes) in this process, without memory. `address_taken` if any of it is in use.
Status reserve_addresses(std::uint64_t address, std::uint64_t bytes);
void release_addresses(std::uint64_t address, std::uint64_t bytes);

// Ok if the range overlaps no object of the store, open or not: two overlapping regions could never be open together.
Status check_unclaimed(std::uint64_t address, std::uint64_t bytes, const std::vector<ObjectInfo>& objects);

// Finds and reserves a range that is free in this process and overlaps no object of the store.
Result<std::uint64_t> choose_addresses(std::uint64_t bytes, const std::vector<ObjectInfo>& objects);

}  // namespace memlith::core
