#include "region/take_addresses.hpp"

#include <algorithm>

#include "region/address.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kRoomBytesMin = 64 * kGiB;

// The region is given more addresses than it had, if the ones behind it are free. On ok they are taken in this process.
Status take_more(Store& store, ObjectInfo& info, std::uint64_t reserve_bytes) {
  const std::uint64_t end = info.address + reserve_bytes;
  for (const ObjectInfo& other : store.objects()) {
    if (other.address <= info.address || other.address >= end) continue;
    return fail(Errc::address_taken, Detail::mapping,
                "{}: region \"{}\" lies at {:#x} and may grow to {} bytes. It cannot be given a max_size of "
                "{}, because region \"{}\" lies behind it at {:#x}: ask for {} bytes at most, or "
                "leave max_size out to open the region as it is",
                store.path(), info.name, info.address, info.reserve_bytes, reserve_bytes, other.name, other.address,
                other.address - info.address);
  }
  const std::uint64_t most = addresses_up_to_end(info.address);
  if (reserve_bytes > most) {
    return fail(Errc::address_taken, Detail::mapping,
                "{}: region \"{}\" lies at {:#x} and may grow to {} bytes. It cannot be given a max_size of "
                "{}, because programs and libraries lie behind it: ask for {} bytes at most, or "
                "leave max_size out to open the region as it is",
                store.path(), info.name, info.address, info.reserve_bytes, reserve_bytes, most);
  }
  MEMLITH_ASSERT(info.address != 0 && reserve_bytes > info.reserve_bytes);
  MEMLITH_TRY(reserve_addresses(info.address, reserve_bytes));
  // Durable before a region lies there: no other one is ever given these addresses.
  const Status kept = store.set_reserve(info.id, reserve_bytes);
  if (!kept.ok()) release_addresses(info.address, reserve_bytes);
  MEMLITH_TRY(kept);
  info.reserve_bytes = reserve_bytes;
  return kOk;
}

}  // namespace

Status take_room(Store& store, ObjectInfo& info) {
  const std::uint64_t least = std::max(round_up(info.size_bytes, kPageBytes), kPageBytes);
  std::uint64_t most = std::max(info.reserve_bytes, least);
  if (const auto free = store.free_bytes(); free.ok()) {
    most = std::min(most, std::max(kRoomBytesMin, round_up(4 * (info.size_bytes + *free), kPageBytes)));
  }
  MEMLITH_TRY_ASSIGN(const Room room, find_room(least, most));
  MEMLITH_ASSERT(room.bytes >= info.size_bytes && room.address % host_page_bytes() == 0);
  info.address = room.address;
  info.reserve_bytes = room.bytes;
  return kOk;
}

Status take_addresses_to_read(Store& store, ObjectInfo& info, const RegionOptions& options) {
  if (info.reserve_bytes == 0 || (info.address == 0 && store.one_file())) {
    info.address = options.address;
    info.reserve_bytes = std::max({round_up(info.size_bytes, kPageBytes), round_up(options.reserve_bytes, kPageBytes),
                                   kReserveBytesMin});
  }
  if (info.address == 0 || options.anywhere) return take_room(store, info);
  // A reader may have more addresses, for what its writer may add.
  info.reserve_bytes = std::max(info.reserve_bytes, round_up(options.reserve_bytes, kPageBytes));
  return reserve_addresses(info.address, info.reserve_bytes);
}

Status take_own_addresses(Store& store, ObjectInfo& info, const RegionOptions& options) {
  if (options.anywhere) return take_room(store, info);
  const std::uint64_t wanted = round_up(options.reserve_bytes, kPageBytes);
  if (info.address != 0 && wanted > info.reserve_bytes) return take_more(store, info, wanted);
  if (info.address != 0) return reserve_addresses(info.address, info.reserve_bytes);
  return fail(Errc::incompatible, Detail::object,
              "{}: region \"{}\" has no address of its own, because it was made for a kv store or an application log; "
              "open it as what it is, or remove it",
              store.path(), info.name);
}

}  // namespace memlith::core
