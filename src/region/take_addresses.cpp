#include "region/take_addresses.hpp"

#include <algorithm>

#include "region/address.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kRoomBytesMin = 64 * kGiB;

// A region cannot be given more addresses than it was made with: the ones behind it may be another region's.
Status check_reserve(const Store& store, const ObjectInfo& info, const RegionOptions& options) {
  if (info.reserve_bytes == 0 || options.reserve_bytes <= info.reserve_bytes) return kOk;
  return fail(Errc::invalid, Detail::argument,
              "{}: region \"{}\" was made with a max_size of {} bytes, which it keeps, and max_size {} is asked for. "
              "Leave max_size out to open the region as it is, or make a new region with a larger one and copy the "
              "content; what holds pointers into the region, such as a heap, has to be made anew instead",
              store.path(), info.name, info.reserve_bytes, options.reserve_bytes);
}

}  // namespace

Status take_room(Store& store, ObjectInfo& info) {
  const std::uint64_t least = std::max(round_up(info.size_bytes, kPageBytes), kPageBytes);
  std::uint64_t most = std::max(info.reserve_bytes, least);
  if (const auto free = store.free_bytes(); free.ok()) {
    most = std::min(most, std::max(kRoomBytesMin, round_up(4 * (info.size_bytes + *free), kPageBytes)));
  }
  MEMLITH_TRY_ASSIGN(const Room room, find_room(least, most));
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
  if (info.address != 0 && !options.anywhere) return reserve_addresses(info.address, info.reserve_bytes);
  return take_room(store, info);
}

Status take_own_addresses(Store& store, ObjectInfo& info, const RegionOptions& options) {
  if (options.anywhere) return take_room(store, info);
  MEMLITH_TRY(check_reserve(store, info, options));
  if (info.address != 0) return reserve_addresses(info.address, info.reserve_bytes);
  return fail(Errc::incompatible, Detail::object,
              "{}: region \"{}\" has no address of its own, because it was made for a kv store or an application log; "
              "open it as what it is, or remove it",
              store.path(), info.name);
}

}  // namespace memlith::core
