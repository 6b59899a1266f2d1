// How many pages the splits of a commit may need. Floor: kv.
#include <algorithm>

#include "kv/tree.hpp"

namespace memlith::core::kv {

// A split of a leaf splits, on the way up, at most one page of each level, and the tree may become higher. Beyond three
// splits of each page that there is - a run of rising keys may leave a full page on its left, one cell in the next, and
// on its right a page that has hardly room - a page must have been filled by a third before it is split again.
std::uint64_t TreeWriter::pages_needed(std::uint64_t splits, std::uint64_t cell_bytes, std::uint64_t pages_now,
                                       std::uint64_t depth) {
  if (splits == 0) return 0;
  return std::min(splits * (depth + 1), 3 * pages_now + 8 + 8 * (cell_bytes / kPageBytes + 1)) + depth + 2;
}

void SplitCount::add(const Write& write, const TreeWriter::Found& found) {
  if (write.removes) {
    ++removals_;
    return;
  }
  ++puts_;
  if (found.leaf != leaf_) {
    close_leaf();
    leaf_ = found.leaf;
    used_ = found.used;
  }
  ++puts_in_leaf_;
  const std::uint64_t bytes = TreeWriter::cell_bytes_of(write) + kSlotBytes;
  const std::uint64_t before = found.cell_bytes == 0 ? 0 : found.cell_bytes + kSlotBytes;
  growth_ += bytes - std::min(bytes, before);
}

// A leaf with room for all that comes is not split. After a split, and so before the next one of the same page, each
// half has room for a sixth of a page at least.
void SplitCount::close_leaf() {
  if (used_ + growth_ > kRoomBytes) splits_ += std::min(puts_in_leaf_, 2 + 6 * (growth_ / kPageBytes + 1));
  growth_ = puts_in_leaf_ = 0;
}

// A removal may merge two leaves, and what would have had room in each may split what they have become: as often as
// two leaves of puts that just had room.
std::uint64_t SplitCount::most() {
  close_leaf();
  return any_leaves_ ? puts_ : std::min(puts_, splits_ + 14 * removals_);
}

}  // namespace memlith::core::kv
