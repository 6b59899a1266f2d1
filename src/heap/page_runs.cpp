#include "heap/page_runs.hpp"

#include <algorithm>

namespace memlith::core {

namespace {

// Bits may be set for the blocks of slabs only.
Status check_blocks(const HeapMemory& memory, const SegmentHeader& header, const PageRun& run) {
  const std::uint32_t blocks = run.is_slab() ? kSizeClasses[run.kind - kPageSlab].blocks : 0;
  const std::uint64_t* const bits = header.blocks[run.page];
  for (std::uint32_t word = blocks / 64; word < run.pages * 4; ++word) {
    const std::uint64_t allowed = word == blocks / 64 ? (std::uint64_t{1} << blocks % 64) - 1 : 0;
    if ((bits[word] & ~allowed) == 0) continue;
    return memory.corrupt(memory.offset_of(&bits[word]),
                          fmt::format("a block is marked in pages {} to {} of segment {} where there is none", run.page,
                                      run.page + run.pages - 1, header.number));
  }
  return kOk;
}

Status check_run(const HeapMemory& memory, const SegmentTable& table, std::uint32_t segment, const PageRun& run) {
  const std::uint32_t header_page = table[segment].header_page;
  const SegmentHeader& header = *memory.header_at(segment, header_page);
  const SegmentEntry* const before = segment == 0 ? nullptr : &table[segment - 1];
  bool fits = false;
  switch (run.kind) {
    case kPageNone: fits = header.pages[run.page] == 0; break;
    case kPageExtent: fits = true; break;
    case kPageHeader: fits = run.page == header_page && run.pages == kSegmentHeaderPages; break;
    case kPageTable:
      fits =
          run.page == 0 && run.pages == header_page && segment == header_extent(memory.header().header_pages).segments;
      break;
    case kPageHugeEnd:
      fits = run.page == 0 && run.pages == header_page && before != nullptr &&
             (before->kind == SegmentKind::huge || before->kind == SegmentKind::huge_rest);
      break;
    default: fits = run.is_slab() && run.pages == kSizeClasses[run.kind - kPageSlab].pages; break;
  }
  for (std::uint32_t page = run.page + 1; page < run.page + run.pages; ++page) {
    fits = fits && (header.pages[page] == 0);
  }
  // The other pages of the header's own run say nothing; a free page that should be the header's is one that lies over
  // it.
  const bool over_header =
      run.kind != kPageHeader && run.page < header_page + kSegmentHeaderPages && run.page + run.pages > header_page;
  if (!fits || over_header) {
    return memory.corrupt(memory.offset_of(&header.pages[run.page]),
                          fmt::format("page {} of segment {} holds a run of kind {} and {} pages, which does not fit",
                                      run.page, segment, run.kind, run.pages));
  }
  return check_blocks(memory, header, run);
}

}  // namespace

Status list_runs(const HeapMemory& memory, const SegmentTable& table, std::uint32_t segment,
                 std::vector<PageRun>& runs) {
  runs.clear();
  MEMLITH_ASSERT(table[segment].kind == SegmentKind::headed);
  const SegmentHeader& header = *memory.header_at(segment, table[segment].header_page);
  const std::uint64_t offset = memory.offset_of(&header);
  if (header.magic != kSegmentMagic || header.number != segment) {
    return memory.corrupt(offset, fmt::format("segment {} has no header there", segment));
  }
  const std::uint32_t limit = memory.pages_in(segment);
  bool header_met = false;
  for (std::uint32_t page = 0; page < kSegmentPages;) {
    const PageWord word = header.pages[page];
    PageRun run{page, word == 0 ? 1u : word >> 8u, word & 0xffu};
    if (page >= limit && word == 0) break;
    if (run.pages == 0 || run.pages > limit - std::min(page, limit)) {
      return memory.corrupt(offset, fmt::format("page {} of segment {} says that {} pages begin there", page, segment,
                                                run.pages));
    }
    MEMLITH_TRY(check_run(memory, table, segment, run));
    header_met = header_met || run.kind == kPageHeader;
    runs.push_back(run);
    page += run.pages;
  }
  if (!header_met) return memory.corrupt(offset, fmt::format("the pages of segment {} leave out its header", segment));
  MEMLITH_ASSERT(runs.back().page + runs.back().pages == limit);
  return kOk;
}

}  // namespace memlith::core
