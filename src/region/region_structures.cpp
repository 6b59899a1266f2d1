// For structures in a region: whether to make them, and what they say where their bytes are damaged. Floor: region.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/bytes.hpp"
#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kBlankBytes = 64 * kKiB;  // every structure begins with bytes other than zero before that
}  // namespace

// Page by page: those behind the first that has bytes may be unreadable.
Result<bool> Region::is_blank() const {
  const std::uint64_t end = std::min(size(), kBlankBytes);
  for (std::uint64_t at = 0; at < end; at += kPageBytes) {
    std::span<const std::byte> page(address() + at, std::min(kPageBytes, end - at));
    MEMLITH_TRY(load({at, page.size()}));
    if (at == 0) {  // the first bytes are left to the in-use header
      if (page.size() >= kInUseHeaderBytes && !is_left_to_in_use_header(address())) return false;
      page = page.subspan(std::min<std::size_t>(page.size(), kInUseHeaderBytes));
    }
    if (!is_zero(page)) return false;
  }
  return true;
}

Result<bool> Region::is_for_making(std::string_view what, bool create, bool exclusive) const {
  MEMLITH_TRY_ASSIGN(const bool blank, is_blank());
  if (!blank && create && exclusive) {
    return fail(Errc::exists, Detail::object, "{}: there is a region \"{}\" already", store().path(), name_);
  }
  if (!blank || (create && !store().read_only())) return blank;
  return fail(Errc::not_found, Detail::object,
              "{}: region \"{}\" is empty: {} was never made in it, or a crash cut the making; {}", store().path(),
              name_, what, store().read_only() ? "make it with the store open for writing" : "open it with `create`");
}

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
  if (store().read_only()) return kOnDisk;
  const std::uint64_t page = round_down(offset, kPageBytes);
  if (page >= size()) return kUnknown;
  alignas(kPageBytes) std::array<std::byte, kPageBytes> bytes;
  const std::span<std::byte> home = std::span(bytes).first(std::min(kPageBytes, size() - page));
  const KeptSentence sentence;
  const bool differs = home_.read(page, home).ok() && load({page, home.size()}).ok() &&
                       std::memcmp(home.data(), address() + page, home.size()) != 0;
  return differs ? kInMemory : kUnknown;
}

}  // namespace memlith::core
