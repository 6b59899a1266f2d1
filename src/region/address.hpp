// The addresses of regions. Floor: region.
#pragma once

#include <cstdint>
#include <vector>

#include "base/host.hpp"
#include "base/status.hpp"
#include "store/store.hpp"

namespace memlith::core {

// `unsupported` if a sanitizer that the program was compiled with lets it map no memory there.
Status check_mappable(std::uint64_t address, std::uint64_t bytes);

// Reserves [address, address + bytes) in this process, without memory. `address_taken` if any of it is in use;
// `unsupported` if this kernel or a sanitizer gives the program no such addresses.
Status reserve_addresses(std::uint64_t address, std::uint64_t bytes);
// The number of bytes from the address on that lie in the range in which memlith chooses addresses for regions.
std::uint64_t addresses_up_to_end(std::uint64_t address);
void release_addresses(std::uint64_t address, std::uint64_t bytes);

// Ok if the range overlaps no object of the store, open or not: two overlapping regions could never be open together.
Status check_unclaimed(std::uint64_t address, std::uint64_t bytes, const std::vector<ObjectInfo>& objects);

// Finds and reserves a range that is free in this process and overlaps no object of the store. For a region that is to
// lie there in every later process, too: docs/guarantees.md, "Addresses". It ends below 2 to the power of
// `address_bits`.
Result<std::uint64_t> choose_addresses(std::uint64_t bytes, const std::vector<ObjectInfo>& objects,
                                       unsigned address_bits = host_address_bits());

// Reserves addresses wherever there is room, for this process only: `most` bytes, or fewer, but `least`, where the
// process may not have so many.
struct Room {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
Result<Room> find_room(std::uint64_t least, std::uint64_t most);

}  // namespace memlith::core
