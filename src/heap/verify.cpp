// verify(): every structure of the heap is looked at anew, and every byte of the region is accounted for. With all
// locks of the heap held.
#include <algorithm>
#include <numeric>

#include "heap/heap.hpp"

namespace memlith::core {

Status Heap::count_segment(std::uint32_t segment, HeapReport& report,
                           const std::function<void(std::byte*, std::uint64_t)>& use) const {
  std::vector<Run> runs;
  MEMLITH_TRY(inspect(segment, runs));
  const SegmentHeader& header = *header_at(segment, entry_of(segment).header_page);
  ++report.segments;
  for (const Run& run : runs) {
    std::byte* const begin = base_ + segment * kSegmentBytes + run.page * kPageBytes;
    const std::uint64_t bytes = run.pages * kPageBytes;
    switch (run.kind) {
      case kPageNone: report.free_bytes += bytes; break;
      case kPageHeader:
      case kPageTable: report.header_bytes += bytes; break;
      case kPageHugeEnd: break;  // counted with the block's beginning
      case kPageExtent:
        ++report.blocks;
        report.block_bytes += bytes;
        use(begin, bytes);
        break;
      default: {
        const SizeClass& kind = kSizeClasses[run.kind - kPageSlab];
        std::uint64_t used = 0;
        for (std::uint32_t block = 0; block < kind.blocks; ++block) {
          if ((header.blocks[run.page + block / 256][block / 64 % 4] >> block % 64 & 1) == 0) continue;
          ++used;
          use(begin + std::uint64_t{block} * kind.bytes, kind.bytes);
        }
        report.blocks += used;
        report.block_bytes += used * kind.bytes;
        report.slab_bytes += bytes - used * kind.bytes;
      }
    }
  }
  return kOk;
}

// Compares the state of a loaded segment with its header. A difference is a fault of this library, or of
// the program where it stored to the header.
Status Heap::check_remembered(std::uint32_t segment) const {
  const Segment* const loaded = loaded_[segment].load(std::memory_order_relaxed);
  if (loaded == nullptr) return kOk;
  std::vector<Run> runs;
  MEMLITH_TRY(inspect(segment, runs));
  for (const Run& run : runs) {
    const Slab* const slab = loaded->slab_of(run.page);
    const bool is_slab = run.kind >= kPageSlab && run.kind < kPageSlab + kClasses;
    std::uint32_t used = 0;
    for (std::uint32_t word = 0; is_slab && word < run.pages * 4; ++word) {
      const SegmentHeader& header = *header_at(segment, entry_of(segment).header_page);
      used += static_cast<std::uint32_t>(std::popcount(header.blocks[run.page + word / 4][word % 4]));
    }
    const bool same = (slab != nullptr) == is_slab && loaded->is_free(run.page) == (run.kind == kPageNone) &&
                      (slab == nullptr || (slab->used == used && slab->size_class == run.kind - kPageSlab));
    if (same) continue;
    return corrupt(segment * kSegmentBytes + run.page * kPageBytes,
                   fmt::format("page {} of segment {} is not what it was when it was read", run.page, segment));
  }
  return kOk;
}

Result<HeapReport> Heap::count(const std::function<void(std::byte*, std::uint64_t)>& use) {
  const AllLocks held(*this);
  MEMLITH_TRY(check_header());
  MEMLITH_TRY(check_table());
  HeapReport report;
  report.region_bytes = region_.size();
  const std::uint32_t segments = segment_count();
  for (std::uint32_t number = 0; number < segments; ++number) {
    const SegmentEntry& entry = entry_of(number);
    switch (entry.kind) {
      case SegmentKind::unused: report.free_bytes += pages_in(number) * kPageBytes; break;
      case SegmentKind::table: report.header_bytes += kSegmentBytes; break;
      case SegmentKind::huge_rest: break;
      case SegmentKind::huge:
        ++report.blocks;
        report.block_bytes += entry.pages * kPageBytes;
        use(base_ + number * kSegmentBytes, entry.pages * kPageBytes);
        break;
      case SegmentKind::headed:
        MEMLITH_TRY(count_segment(number, report, use));
        MEMLITH_TRY(check_remembered(number));
        break;
    }
  }
  // A file may end in the middle of a page, which is then unused.
  const std::uint64_t in_pages = round_down(region_.size(), kPageBytes);
  const std::uint64_t sum = report.header_bytes + report.block_bytes + report.slab_bytes + report.free_bytes;
  if (sum != in_pages) return corrupt(0, fmt::format("{} bytes are accounted for, of {}", sum, in_pages));
  report.names = header_->names_count;
  return report;
}

Result<HeapReport> Heap::verify() {
  MEMLITH_TRY_ASSIGN(const HeapReport report, count([](std::byte*, std::uint64_t) {}));
  const LockGuard structure(structure_);
  names_loaded_ = false;
  MEMLITH_TRY(load_names());
  return report;
}

Status Heap::for_each_block(const std::function<void(std::byte* address, std::uint64_t bytes)>& use) {
  return count(use).status();
}

std::vector<std::string> Heap::where(std::span<const std::uint64_t> offsets) {
  std::vector<std::string> places(offsets.size());
  std::vector<std::size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
  std::unordered_map<const std::byte*, std::string> names_of;
  if (const auto all = names(); all.ok()) {
    for (const NamedObject& object : *all) names_of.emplace(object.address, object.name);
  }
  // A heap that is damaged has told so elsewhere.
  (void)for_each_block([&](const std::byte* block, std::uint64_t bytes) {
    const std::uint64_t begin = offset_of(block);
    auto at = std::lower_bound(order.begin(), order.end(), begin,
                               [&](std::size_t index, std::uint64_t offset) { return offsets[index] < offset; });
    for (; at != order.end() && offsets[*at] < begin + bytes; ++at) {
      const auto name = names_of.find(block);
      if (name != names_of.end() && name->second == kResourceName) continue;
      const std::string object = name == names_of.end() ? fmt::format("block of {} bytes at {:#x}", bytes, begin)
                                 : name->second.empty() ? std::string("its root")
                                                        : fmt::format("object \"{}\"", name->second);
      places[*at] = fmt::format("{}, {}, byte {}", place(), object, offsets[*at] - begin);
    }
  });
  return places;
}

}  // namespace memlith::core
