#include "region/twins.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/pages.hpp"
#include "region/mapped_array.hpp"
#include "region/page_difference.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kPlacesMax = 16384;  // 64 MiB
constexpr std::uint64_t kPendingMax = 1024;  // copies in one capture; further pages are logged completely
constexpr std::uint64_t kRunMax = 64;        // a longer run of pages is logged completely, as one extent
constexpr std::uint32_t kPopulate = 32;      // copies whose memory is allocated at once
constexpr std::int64_t kCreditMax = 4096;
constexpr std::int64_t kCreditForSaving = 4;  // for a page of which at least half needed no logging

}  // namespace

Twins::Twins(std::uint64_t slots) : slots_(slots), copies_max_(slots + kPendingMax), credit_(kCreditMax) {}

Result<std::unique_ptr<Twins>> Twins::make(std::uint64_t capacity_bytes) {
  const std::uint64_t pages = std::max<std::uint64_t>(capacity_bytes / kPageBytes, 1);
  auto twins = std::unique_ptr<Twins>(new Twins(std::min(std::bit_ceil(pages), kPlacesMax)));
  MEMLITH_TRY(map_array(twins->copies_, (twins->copies_max_ + 1) * kPageBytes));
  // Reserve first, so that no copy leaks when memory runs out.
  twins->pending_.reserve(kPendingMax);
  twins->free_.reserve(twins->copies_max_);
  twins->seen_.reserve(twins->copies_max_);
  return twins;
}

Twins::~Twins() { unmap_array(copies_, (copies_max_ + 1) * kPageBytes); }

void Twins::reduce(const std::byte* base, std::span<const Range> stored, const ReadTwin& read,
                   std::vector<SourceExtent>& pieces) {
  MEMLITH_ASSERT(pending_.empty());
  MEMLITH_DCHECK(are_in_order(stored));
  credit_ = std::min(credit_ + 1, kCreditMax);  // so that a page is tried from time to time
  for (const Range& range : stored) {
    const std::uint64_t first = range.offset / kPageBytes;
    const std::uint64_t end = (range.offset + range.bytes + kPageBytes - 1) / kPageBytes;
    const bool pages_only = (range.offset | range.bytes) % kPageBytes == 0;
    if (pages_only && end - first <= kRunMax && pending_.size() + (end - first) <= kPendingMax) {
      for (std::uint64_t page = first; page < end; ++page) reduce_page(base, page, read, pieces);
      continue;
    }
    for (std::uint64_t page = first; page < end; ++page) forget(page);
    pieces.push_back({range, base + range.offset});
  }
}

void Twins::reduce_page(const std::byte* base, std::uint64_t page, const ReadTwin& read,
                        std::vector<SourceExtent>& pieces) {
  MEMLITH_ASSERT(pending_.size() < pending_.capacity());  // nothing is allocated here
  const std::uint64_t offset = page * kPageBytes;
  const std::byte* const memory = base + offset;
  Slot& slot = slot_of(page);
  const bool known = slot.page == page;
  if (!known && credit_ <= 0) return add_whole(offset, memory, pieces);
  const std::uint32_t now = take_copy();
  MEMLITH_ASSERT(now < next_copy_ && next_copy_ <= copies_max_);
  pending_.push_back({page, now});  // within the reserved capacity; the code below may throw
  copy_twin(copy(now), memory);
  if (!known) --credit_;
  const std::byte* before = known ? copy(slot.copy) : nullptr;
  if (std::byte* const target = copy(static_cast<std::uint32_t>(copies_max_));
      !known && read && read(page, {target, kPageBytes})) {
    before = target;
  }
  differences_.clear();
  if (before != nullptr) add_difference(copy(now), before, offset, Exactness::bytes, differences_);
  if (before == nullptr) differences_.push_back({offset, kPageBytes});
  // The new twin is the page as replay of the log would make it.
  MEMLITH_DCHECK(before == nullptr || differ_only_there(copy(now), before, offset, differences_));
  if (known && !differences_.empty() && differences_.front().bytes == kPageBytes) {
    pending_.pop_back();
    free_.push_back(now);
    vacate(slot);
    return add_whole(offset, memory, pieces);
  }
  std::uint64_t bytes = 0;
  for (const Range& range : differences_) {
    bytes += range.bytes;
    pieces.push_back({range, copy(now) + (range.offset - offset)});
  }
  if (bytes <= kPageBytes / 2) credit_ = std::min(credit_ + kCreditForSaving, kCreditMax);
}

// Logs memory without a copy; adjacent pages make one piece.
void Twins::add_whole(std::uint64_t offset, const std::byte* memory, std::vector<SourceExtent>& pieces) {
  SourceExtent* const last = pieces.empty() ? nullptr : &pieces.back();
  if (last != nullptr && last->source + last->range.bytes == memory &&
      last->range.offset + last->range.bytes == offset) {
    last->range.bytes += kPageBytes;
  } else {
    pieces.push_back({{offset, kPageBytes}, memory});
  }
}

void Twins::accept() {
  for (const PendingCopy& each : pending_) {
    Slot& slot = slot_of(each.page);
    vacate(slot);
    slot = {each.page, each.copy};
  }
  pending_.clear();
  MEMLITH_DCHECK(state_holds());
}

void Twins::give_back() {
  MEMLITH_ASSERT(free_.size() + pending_.size() <= copies_max_);
  for (const PendingCopy& each : pending_) free_.push_back(each.copy);
  pending_.clear();
  MEMLITH_DCHECK(state_holds());
}

bool Twins::state_holds() const {
  seen_.assign(next_copy_, false);
  const auto is_new = [this](std::uint32_t copy) {
    if (copy >= seen_.size() || seen_[copy]) return false;
    seen_[copy] = true;
    return true;
  };
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.page != kNone && (&slot_of(slot.page) != &slot || !is_new(slot.copy))) return false;
  }
  const auto pending_is_new = [&](const PendingCopy& each) { return is_new(each.copy); };
  return std::all_of(pending_.begin(), pending_.end(), pending_is_new) &&
         std::all_of(free_.begin(), free_.end(), is_new) && std::find(seen_.begin(), seen_.end(), false) == seen_.end();
}

void Twins::clear() {
  MEMLITH_ASSERT(pending_.empty());
  std::fill(slots_.begin(), slots_.end(), Slot{});
  free_.clear();
  // If the kernel refuses, memory is not released; nothing else happens.
  if (next_copy_ > 0) (void)::madvise(copies_, copies_max_ * kPageBytes, MADV_DONTNEED);
  next_copy_ = 0;
}

const std::byte* Twins::find(std::uint64_t page) const {
  const Slot& slot = slot_of(page);
  return slot.page == page ? copy(slot.copy) : nullptr;
}

void Twins::forget(Range range) {
  MEMLITH_ASSERT(pending_.empty());
  const std::uint64_t end = round_up(range.offset + range.bytes, kPageBytes) / kPageBytes;
  for (std::uint64_t page = range.offset / kPageBytes; page < end; ++page) forget(page);
}

void Twins::forget(std::uint64_t page) {
  Slot& slot = slot_of(page);
  if (slot.page == page) vacate(slot);
}

void Twins::vacate(Slot& slot) {
  MEMLITH_ASSERT(free_.size() < free_.capacity() || slot.page == kNone);
  if (slot.page != kNone) free_.push_back(slot.copy);
  slot = {};
}

std::uint32_t Twins::take_copy() {
  if (free_.empty()) {
    MEMLITH_ASSERT(next_copy_ < copies_max_);
    // Allocates several pages at once, because each page would otherwise cost a fault. If the kernel refuses, each page
    // does.
    if (next_copy_ % kPopulate == 0) {
      const std::uint64_t count = std::min<std::uint64_t>(kPopulate, copies_max_ - next_copy_);
      (void)::madvise(copy(next_copy_), count * kPageBytes, MADV_POPULATE_WRITE);
    }
    return next_copy_++;
  }
  const std::uint32_t index = free_.back();
  MEMLITH_ASSERT(index < next_copy_);
  free_.pop_back();
  return index;
}

}  // namespace memlith::core
