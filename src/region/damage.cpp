// Messages: what a structure says that finds its own bytes damaged. Floor: region.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "region/region.hpp"

namespace memlith::core {

// A damaged structure says where it noticed the damage, and that may be beside the place where it is. So the bytes of
// the file are a hint, and only another opening tells whether the disk is damaged.
std::string_view Region::after_damage(std::uint64_t offset) const {
  constexpr std::string_view kOnDisk = "the damage is on the disk: restore a backup, or copy what can be read";
  constexpr std::string_view kInMemory =
      "the file has other bytes there, so a store through a wrong pointer may have damaged the memory only. Persist "
      "nothing more, close the store and open it again, which gives the last commit; if `memlith verify` finds damage "
      "all the same, restore a backup";
  constexpr std::string_view kUnknown =
      "the memory may be damaged, or the disk. Persist nothing more, close the store, and run `memlith verify`: if it "
      "finds no damage, only the memory was damaged, and the store can be opened again; otherwise restore a backup";
  if (store_.read_only()) return kOnDisk;
  const std::uint64_t page = round_down(offset, kPageBytes);
  if (page >= size()) return kUnknown;
  alignas(kPageBytes) std::array<std::byte, kPageBytes> bytes;
  const std::span<std::byte> home = std::span(bytes).first(std::min(kPageBytes, size() - page));
  const KeptSentence sentence;
  const bool differs =
      store_.read_home_into(object_, page, home).ok() && std::memcmp(home.data(), base_ + page, home.size()) != 0;
  return differs ? kInMemory : kUnknown;
}

}  // namespace memlith::core
