#include "region/snapshot.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/process.hpp"
#include "region/address.hpp"

namespace memlith::core {

Result<std::unique_ptr<Snapshot>> Snapshot::make(std::span<Region* const> regions) {
  if (regions.empty()) return fail(Errc::invalid, Detail::argument, "a snapshot needs at least one region");
  Store& store = regions.front()->store();
  if (store.view() != nullptr) {
    return fail(Errc::unsupported, Detail::open,
                "{}: the regions of a store that is followed are a snapshot already, until they are refreshed",
                store.path());
  }
  std::vector<ObjectId> objects;
  for (const Region* const region : regions) {
    if (&region->store() != &store) {
      return fail(Errc::invalid, Detail::argument, "regions of two stores cannot be in one snapshot");
    }
    objects.push_back(region->object());
  }
  std::unique_ptr<Snapshot> snapshot(new Snapshot);
  snapshot->process_mark_ = process_mark();
  snapshot->views_.resize(regions.size());
  MEMLITH_TRY_ASSIGN(HomeCopies homes, store.copy_homes(objects));
  MEMLITH_ASSERT(homes.copies.size() == regions.size());
  snapshot->lsn_ = homes.lsn;
  MEMLITH_ASSERT(objects.size() == snapshot->views_.size());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    View& view = snapshot->views_[i];
    view.memory = std::move(homes.copies[i].memory);
    view.size_bytes = homes.copies[i].size_bytes;
    view.region_base = regions[i]->address();
    view.region_lies = regions[i]->lies();
    if (view.size_bytes == 0) continue;
    const std::uint64_t bytes = round_up(view.size_bytes, kPageBytes);
    void* const got = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, view.memory.get(), 0);
    if (got == MAP_FAILED) {
      return fail_errno(errno, Detail::mapping, "cannot map {} bytes for a snapshot of region \"{}\"", bytes,
                        regions[i]->shown_name());
    }
    view.base = static_cast<std::byte*>(got);
  }
  return snapshot;
}

Snapshot::~Snapshot() {
  for (const View& view : views_) {
    if (view.base != nullptr) ::munmap(view.base, round_up(view.size_bytes, kPageBytes));
  }
}

const std::byte* Snapshot::address(std::uint64_t index) const {
  return index < views_.size() ? views_[index].base : nullptr;
}

std::uint64_t Snapshot::size(std::uint64_t index) const { return index < views_.size() ? views_[index].size_bytes : 0; }

Status Snapshot::place() {
  if (process_mark_ == process_mark()) {
    return fail(Errc::invalid, Detail::mapping,
                "this process made the snapshot, and its regions are in use; place it in a forked child");
  }
  for (View& view : views_) {
    if (view.size_bytes == 0) continue;
    const std::uint64_t bytes = round_up(view.size_bytes, kPageBytes);
    // ORDER look-before-mapping: a mapping at a fixed address replaces whatever is mapped there. Only addresses that
    // the parent had mapped for the region at the fork belong to the region in this process. [test
    // Snapshots.OutliveRegionsAndStore]
    if (!view.region_lies->load() && !view.placed) {
      MEMLITH_TRY(reserve_addresses(reinterpret_cast<std::uintptr_t>(view.region_base), bytes));
    }
    view.placed = true;
    void* const got =
        ::mmap(view.region_base, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, view.memory.get(), 0);
    if (got == MAP_FAILED) {
      return fail_errno(errno, Detail::mapping, "cannot map {} bytes of a snapshot at {}", bytes,
                        static_cast<const void*>(view.region_base));
    }
  }
  return kOk;
}

}  // namespace memlith::core
