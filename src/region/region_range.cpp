// A persist of a part of a region. Floor: region.
#include <algorithm>

#include "region/region.hpp"

namespace memlith::core {

// stored_ is sorted.
void Region::cut_to_part(Range part) {
  if (part == kWholeRegion) return;
  std::size_t kept = 0;
  for (const Range& range : stored_) {
    const std::uint64_t begin = std::max(range.offset, part.offset);
    const std::uint64_t end = std::min(range.offset + range.bytes, part.offset + part.bytes);
    if (begin < end) stored_[kept++] = {begin, end - begin};
  }
  stored_.resize(kept);
  MEMLITH_ASSERT(stored_.empty() || (lies_in(stored_.front(), part) && lies_in(stored_.back(), part)));
}

Status Region::persist_range(const void* address, std::uint64_t bytes, Scope scope) {
  MEMLITH_TRY_ASSIGN(Range part, range_of(address, bytes));
  if (tracker_ == nullptr)
    return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name_);
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, of which a part alone is not whole; persist all of it instead", shown_name_,
                guard_->what());
  }
  const TrackerKind kind = tracker_->kind();
  if (kind == TrackerKind::scan || kind == TrackerKind::fault) {
    const std::uint64_t end = round_up(part.offset + part.bytes, kPageBytes);
    part.offset = round_down(part.offset, kPageBytes);
    part.bytes = end - part.offset;
  }
  Region* const self = this;
  MEMLITH_TRY_ASSIGN(const Lsn end, capture_part({&self, 1}, {scope, true, part}));
  return store_.sync(end);
}

}  // namespace memlith::core
