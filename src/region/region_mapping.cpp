#include "region/region_mapping.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "region/address.hpp"
#include "region/drop_pages.hpp"
#include "region/pointer_check.hpp"

namespace memlith::core {

RegionMapping::RegionMapping(RegionHome& home, const ObjectInfo& info, std::uint64_t most_bytes, bool anywhere)
    : home_(home),
      name_(info.name),
      shown_name_(home.store().one_file() ? home.store().path() : info.name),
      base_(reinterpret_cast<std::byte*>(info.address)),
      reserve_bytes_(info.reserve_bytes),
      most_bytes_(std::max(most_bytes, info.reserve_bytes)),
      anywhere_(anywhere) {
  MEMLITH_ASSERT(info.address % host_page_bytes() == 0);
  note_region_range(info.address, reserve_bytes_);
}

RegionMapping::~RegionMapping() {
  lies_->store(false);
  forget_region_range(reinterpret_cast<std::uintptr_t>(base_));
  release_addresses(reinterpret_cast<std::uintptr_t>(base_), reserve_bytes_);
}

Status RegionMapping::outside(const void* address, std::uint64_t bytes) const {
  return fail(Errc::invalid, Detail::argument, "{} bytes at {} do not lie in region \"{}\" ({} bytes at {})", bytes,
              address, shown_name_, size(), static_cast<const void*>(base_));
}

Status RegionMapping::begin(std::uint64_t size_bytes) {
  MEMLITH_ASSERT(size() == 0);
  Store& store = home_.store();
  set_size(size_bytes);
  const std::uint64_t end = mapped_bytes();
  if (!store.read_only()) MEMLITH_TRY(home_.begin());
  MEMLITH_TRY(map_pages(0, end, PROT_READ | PROT_WRITE));
  if (!store.read_only()) return kOk;
  // Bytes beyond the end are of a time when the file was longer; a piece may lie across it.
  const auto lay_over = [this, size_bytes](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset >= size_bytes) return kOk;
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), size_bytes - offset);
    MEMLITH_TRY(load({offset, count}));
    std::memcpy(base_ + offset, bytes.data(), count);
    return kOk;
  };
  MEMLITH_TRY(store.overlay().for_each(home_.object(), lay_over));
  if (end > 0 && ::mprotect(base_, end, PROT_READ) != 0) {
    return fail_errno(errno, Detail::mapping, "cannot make region \"{}\" read-only", shown_name_);
  }
  return kOk;
}

Status RegionMapping::map_pages(std::uint64_t begin, std::uint64_t end, int protection) {
  MEMLITH_ASSERT(begin % host_page_bytes() == 0 && end % host_page_bytes() == 0);
  MEMLITH_ASSERT(end <= round_up(reserve_bytes_,
                                 host_page_bytes()));  // what lies behind is another's
  Store& store = home_.store();
  for (std::uint64_t at = begin; at < end;) {
    MEMLITH_TRY_ASSIGN(const Mappable content, store.mappable_home(home_.object(), at, end - at));
    const std::uint64_t bytes = std::min(content.bytes, end - at);
    MEMLITH_ASSERT(bytes > 0);
    void* const got = ::mmap(base_ + at, bytes, protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, content.descriptor,
                             static_cast<off_t>(content.offset));
    if (got == MAP_FAILED) {
      return fail_errno(errno, Detail::mapping, "cannot map {} bytes of region \"{}\" at {}", bytes, shown_name_,
                        static_cast<const void*>(base_ + at));
    }
    at += bytes;
  }
  const bool copied = protection != PROT_READ && !store.read_only() && store.runs_from_copies();
  if (copied) copy_pages(base_ + begin, end - begin);
  return kOk;
}

// A piece of them may be read at the second try, or by another thread.
Status RegionMapping::load(Range range) const {
  const Range pages = host_pages_around(range);
  if (load_pages(base_ + pages.offset, pages.bytes)) return kOk;
  for (std::uint64_t at = pages.offset; at < pages.offset + pages.bytes; at += host_page_bytes()) {
    if (load_pages(base_ + at, host_page_bytes())) continue;
    MEMLITH_TRY_ASSIGN(const std::string file, home_.store().home_path(home_.object()));
    return fail(Errc::io, Detail::read,
                "region \"{}\": cannot read {} at offset {}: the disk does not give it back, or the file was cut "
                "short; `dmesg` names the disk. `memlith verify --data` finds all such places; restore the store from "
                "a copy or an archive",
                shown_name_, file, at);
  }
  return kOk;
}

// ---- growing ---------------------------------------------------------------------------------------------------

Result<std::uint64_t> RegionMapping::size_to_grow_to(std::uint64_t size_bytes) const {
  // A size above the reserve may be too large to be rounded up.
  const bool as_given = home_.store().one_file() || size_bytes > reserve_bytes_;
  const std::uint64_t grown = as_given ? size_bytes : round_up(size_bytes, kPageBytes);
  if (grown < size()) {
    return fail(Errc::invalid, Detail::argument, "region \"{}\" has {} bytes; it cannot shrink to {}", shown_name_,
                size(), size_bytes);
  }
  if (grown > reserve_bytes_ && grown <= most_bytes_) {
    return fail(Errc::no_space, Detail::mapping,
                "region \"{}\" cannot grow to {} bytes in this process, which has reserved {} bytes of addresses for "
                "it: that was enough for the file system, or what RLIMIT_AS (`ulimit -v`) allows; reopen the region, "
                "with a higher limit",
                name_, grown, reserve_bytes_);
  }
  if (grown > reserve_bytes_) {
    return fail(Errc::invalid, Detail::argument,
                "region \"{}\" cannot grow to {} bytes: {} bytes of addresses are set aside for it; open it again with "
                "a larger max_size",
                shown_name_, grown, reserve_bytes_);
  }
  return grown;
}

Status RegionMapping::extend(std::uint64_t size_bytes) {
  MEMLITH_ASSERT(size_bytes > size() && size_bytes <= reserve_bytes_);
  const std::uint64_t mapped = mapped_bytes();
  // The kernel's page with the end of the region may have pages behind that, to which the program stored by mistake.
  const std::uint64_t behind = round_up(size(), kPageBytes);
  MEMLITH_ASSERT(behind <= mapped);
  if (behind < mapped && !is_zero({base_ + behind, mapped - behind})) {
    std::memset(base_ + behind, 0, mapped - behind);
  }
  return map_pages(mapped, round_up(size_bytes, host_page_bytes()), PROT_READ | PROT_WRITE);
}

void RegionMapping::set_size(std::uint64_t size_bytes) {
  MEMLITH_ASSERT(size_bytes <= reserve_bytes_);
  size_bytes_ = size_bytes;
}

}  // namespace memlith::core
