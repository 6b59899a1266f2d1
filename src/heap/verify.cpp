// verify(): every structure of the heap is looked at anew, and every byte of the region is accounted for. With all
// locks of the heap held.
#include <algorithm>
#include <numeric>

#include "heap/heap.hpp"

namespace memlith::core {

Status Heap::count_segment(std::uint32_t segment, HeapReport& report, const UseBlock& use) {
  std::vector<PageRun> runs;
  const SegmentTable& table = segments_.table();
  MEMLITH_TRY(list_runs(memory_, table, segment, runs));
  const SegmentHeader& header = *memory_.header_at(segment, table[segment].header_page);
  ++report.segments;
  for (const PageRun& run : runs) {
    std::byte* const begin = memory_.page_at(segment, run.page);
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
  return segments_.check_loaded(segment, runs);
}

Result<HeapReport> Heap::count(const UseBlock& use) {
  const AllLocks held(*this);
  // For as long as this looks, the region of a heap for thread scope has what the threads have allocated.
  struct Complete {
    SharedStores* stores;
    ~Complete() {
      if (stores != nullptr) stores->put_back();
    }
  } const complete{memory_.by_thread() ? &shared_stores_ : nullptr};
  if (complete.stores != nullptr) {
    shared_stores_.begin();
    arenas_.store_changes(kAllThreads, false);
  }
  MEMLITH_TRY(check_header());
  const SegmentTable& table = segments_.table();
  MEMLITH_TRY(table.check());
  HeapReport report;
  report.region_bytes = region().size();
  const std::uint32_t segments = memory_.segment_count();
  for (std::uint32_t number = 0; number < segments; ++number) {
    const SegmentEntry& entry = table[number];
    switch (entry.kind) {
      case SegmentKind::unused: report.free_bytes += memory_.pages_in(number) * kPageBytes; break;
      case SegmentKind::table: report.header_bytes += kSegmentBytes; break;
      case SegmentKind::huge_rest: break;
      case SegmentKind::huge:
        ++report.blocks;
        report.block_bytes += entry.pages * kPageBytes;
        use(memory_.page_at(number, 0), entry.pages * kPageBytes);
        break;
      case SegmentKind::headed: MEMLITH_TRY(count_segment(number, report, use)); break;
    }
  }
  // A file may end in the middle of a page, which is then unused.
  const std::uint64_t in_pages = round_down(region().size(), kPageBytes);
  const std::uint64_t sum = report.header_bytes + report.block_bytes + report.slab_bytes + report.free_bytes;
  if (sum != in_pages) return memory_.corrupt(0, fmt::format("{} bytes are accounted for, of {}", sum, in_pages));
  report.names = memory_.header().names_count;
  return report;
}

Result<HeapReport> Heap::verify() {
  MEMLITH_TRY_ASSIGN(const HeapReport report, count([](std::byte*, std::uint64_t) {}));
  MEMLITH_TRY(names_.check());
  MEMLITH_TRY(derived_.check(memory_));
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
  if (const auto all = names_.all(); all.ok()) {
    for (const NamedObject& object : *all) names_of.emplace(object.address, object.name);
  }
  // A heap that is damaged has told so elsewhere.
  (void)for_each_block([&](const std::byte* block, std::uint64_t bytes) {
    const std::uint64_t begin = memory_.offset_of(block);
    auto at = std::lower_bound(order.begin(), order.end(), begin,
                               [&](std::size_t index, std::uint64_t offset) { return offsets[index] < offset; });
    for (; at != order.end() && offsets[*at] < begin + bytes; ++at) {
      const auto name = names_of.find(block);
      if (name != names_of.end() && name->second == kResourceName) continue;
      const std::string object = name == names_of.end() ? fmt::format("block of {} bytes at {:#x}", bytes, begin)
                                 : name->second.empty() ? std::string("its root")
                                                        : fmt::format("object \"{}\"", name->second);
      places[*at] = fmt::format("{}, {}, byte {}", memory_.shown(), object, offsets[*at] - begin);
    }
  });
  return places;
}

}  // namespace memlith::core
