// Where regions lie. Floor: region.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "store/store.hpp"

namespace memlith::core {

// Takes [address, address + bytes) in this process without memory behind it. `address_taken` where something is there.
Status reserve_addresses(std::uint64_t address, std::uint64_t bytes);
void release_addresses(std::uint64_t address, std::uint64_t bytes);

// Ok where no object of the store lays claim to any of it, open or not: the two could never be open together.
Status check_unclaimed(std::uint64_t address, std::uint64_t bytes, const std::vector<ObjectInfo>& objects);

// Finds and takes a place that is free in this process and that no object of the store lays claim to.
Result<std::uint64_t> choose_addresses(std::uint64_t bytes, const std::vector<ObjectInfo>& objects);

}  // namespace memlith::core
