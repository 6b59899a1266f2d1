#include "region/hot_pages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "region/mapped_array.hpp"
#include "region/page_difference.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kTracesMax = 4096;
constexpr std::uint64_t kHotRunMax = 64;        // pages of a longer run are no hot pages
constexpr std::uint64_t kDifferencesMax = 256;  // of a page; add_difference() takes the whole page before that
constexpr std::uint32_t kAllCaptures = (1u << HotPages::kCaptures) - 1;

}  // namespace

Result<std::unique_ptr<HotPages>> HotPages::make(Tracker& tracker, std::byte* base, std::uint64_t capacity_bytes) {
  const std::uint64_t pages = std::max<std::uint64_t>(capacity_bytes / kPageBytes, 1);
  auto hot = std::unique_ptr<HotPages>(new HotPages(tracker, base, std::min(std::bit_ceil(pages), kTracesMax)));
  MEMLITH_TRY(map_array(hot->copies_, 2 * kPagesMax * kPageBytes));
  // Reserve first, so that a capture allocates nothing.
  hot->pages_.reserve(kPagesMax);
  hot->differences_.reserve(kDifferencesMax);
  for (std::uint32_t i = kPagesMax; i-- > 0;) hot->free_.push_back(i);
  MEMLITH_ASSERT(hot->free_.size() == kPagesMax && hot->free_.back() == 0);
  return hot;
}

HotPages::~HotPages() { unmap_array(copies_, 2 * kPagesMax * kPageBytes); }

// ---- a capture -------------------------------------------------------------------------------------------------

void HotPages::add_pieces(Range part, std::vector<SourceExtent>& pieces) {
  MEMLITH_ASSERT(pages_.size() + free_.size() == kPagesMax);  // each pair of copies is a page's, or free
  for (HotPage& hot : pages_) {
    if (part == kWholeRegion || lies_in({hot.page * kPageBytes, kPageBytes}, part)) add_pieces(hot, pieces);
  }
}

void HotPages::add_pieces(HotPage& hot, std::vector<SourceExtent>& pieces) {
  MEMLITH_ASSERT(hot.copies < kPagesMax && hot.found == Found::not_compared);
  const std::uint64_t offset = hot.page * kPageBytes;
  const std::byte* const twin = copy(hot, hot.second_is_twin);
  std::byte* const now = copy(hot, !hot.second_is_twin);
  hot.found = Found::unchanged;
  // Other threads may be storing to the page; a store that the comparison or the copy misses is found by the next
  // capture.
  if (hot.has_twin && equals_twin(base_ + offset, twin)) return;
  copy_twin(now, base_ + offset);
  differences_.clear();
  if (hot.has_twin) {
    add_difference(now, twin, offset, Exactness::bytes, differences_);
    MEMLITH_DCHECK(differ_only_there(now, twin, offset, differences_));
  } else {
    differences_.push_back({offset, kPageBytes});
  }
  for (const Range& range : differences_) pieces.push_back({range, now + (range.offset - offset)});
  if (!differences_.empty()) hot.found = Found::changed;
}

void HotPages::accept() {
  for (HotPage& hot : pages_) {
    if (hot.found == Found::changed) {
      hot.second_is_twin = !hot.second_is_twin;
      hot.has_twin = true;
    }
    if (hot.found != Found::not_compared) hot.unchanged = hot.found == Found::changed ? 0 : hot.unchanged + 1;
    hot.found = Found::not_compared;
  }
}

void HotPages::give_back() {
  for (HotPage& hot : pages_) hot.found = Found::not_compared;
  MEMLITH_DCHECK(pages_.size() + free_.size() == kPagesMax);
}

// ---- which pages are hot ---------------------------------------------------------------------------------------

bool HotPages::is_hot(std::uint64_t page) const {
  return std::any_of(pages_.begin(), pages_.end(), [page](const HotPage& hot) { return hot.page == page; });
}

void HotPages::note_capture(std::span<const Range> stored, std::uint64_t size_bytes, Twins* twins) {
  ++captures_;
  // A page that the tracker refuses to take back stays hot, and is tried again.
  std::erase_if(pages_, [this](const HotPage& hot) { return hot.unchanged >= kUnchanged && cool(hot).ok(); });
  std::uint64_t next = 0;  // the ranges of a page may be many
  for (const Range& range : stored) {
    const std::uint64_t first = std::max(range.offset / kPageBytes, next);
    const std::uint64_t end = (range.offset + range.bytes + kPageBytes - 1) / kPageBytes;
    if (end > first && end - first <= kHotRunMax) {
      for (std::uint64_t page = first; page < end; ++page) note_stored(page, size_bytes, twins);
    }
    next = std::max(next, end);
  }
}

void HotPages::note_stored(std::uint64_t page, std::uint64_t size_bytes, Twins* twins) {
  Trace& trace = traces_[page & (traces_.size() - 1)];
  const std::uint32_t age = captures_ - trace.newest;
  if (trace.page != page) {
    // A page that is stored to often keeps its place.
    const bool in_use = trace.page != Trace::kNone && age < kCaptures / 2 && std::popcount(trace.captures) > 1;
    if (!in_use) trace = {page, captures_, 1};
    return;
  }
  trace.captures = age < kCaptures ? ((trace.captures << age) | 1) & kAllCaptures : 1;
  trace.newest = captures_;
  if (std::popcount(trace.captures) < kStored) return;
  trace = {};  // if the page cools, or the tracker refuses, it begins anew
  // Bytes beyond the end of a file are no part of it.
  if ((page + 1) * kPageBytes <= size_bytes) heat(page, twins);
}

void HotPages::heat(std::uint64_t page, Twins* twins) {
  if (free_.empty() || is_hot(page)) return;
  HotPage hot{.page = page, .copies = free_.back()};
  MEMLITH_ASSERT(hot.copies < kPagesMax);
  MEMLITH_ASSERT(pages_.size() + free_.size() == kPagesMax);
  const Tracker::LeftOpen left = tracker_.leave_open(page, copy(hot, false));
  if (left == Tracker::LeftOpen::refused) return;
  hot.has_twin = left == Tracker::LeftOpen::with_twin;
  if (twins != nullptr) {
    if (const std::byte* const twin = twins->find(page); twin != nullptr && !hot.has_twin) {
      std::memcpy(copy(hot, false), twin, kPageBytes);
      hot.has_twin = true;
    }
    twins->forget({page * kPageBytes, kPageBytes});
  }
  free_.pop_back();
  MEMLITH_ASSERT(pages_.size() < pages_.capacity());  // nothing is allocated here
  pages_.push_back(hot);
}

Status HotPages::cool(const HotPage& hot) {
  MEMLITH_TRY(tracker_.track_again(hot.page, hot.has_twin ? copy(hot, hot.second_is_twin) : nullptr));
  MEMLITH_ASSERT(free_.size() < kPagesMax && hot.copies < kPagesMax);
  free_.push_back(hot.copies);
  return kOk;
}

Status HotPages::cool(Range range) {
  for (std::size_t i = pages_.size(); i-- > 0;) {
    const HotPage hot = pages_[i];
    if (range != kWholeRegion && !lies_in({hot.page * kPageBytes, kPageBytes}, range)) continue;
    MEMLITH_TRY(cool(hot));
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return kOk;
}

}  // namespace memlith::core
