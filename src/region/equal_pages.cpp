#include "region/equal_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "region/drop_pages.hpp"
#include "region/page_difference.hpp"

namespace memlith::core {

namespace {

// The bytes that are read-only at a time: about 50 us.
constexpr std::uint64_t kPiecePages = 256;

}  // namespace

EqualPages::~EqualPages() {
  if (waiting_room_ != nullptr) release_fault_region(waiting_room_);
}

Status EqualPages::release(std::uint64_t mapped_bytes, std::uint64_t home_bytes, CopiedPages& copied,
                           const Tracker::ReadHome& read) {
  // The end of a file that is no whole page of the kernel's stays.
  const std::uint64_t pages = round_down(home_bytes, host_page_bytes()) / kPageBytes;
  MEMLITH_ASSERT(pages * kPageBytes <= mapped_bytes);
  if (waiting_room_ == nullptr) {
    MEMLITH_TRY_ASSIGN(waiting_room_, claim_fault_region(base_, mapped_bytes, nullptr));
  }
  waiting_room_->end.store(reinterpret_cast<std::uintptr_t>(base_) + mapped_bytes, std::memory_order_release);
  home_.resize(kPiecePages * kPageBytes);
  wanted_.resize(kPiecePages);
  dropped_.reserve(kPiecePages);
  for (std::uint64_t first = 0; first < pages; first += kPiecePages) {
    MEMLITH_TRY(release_piece(first, std::min(first + kPiecePages, pages), copied, read));
  }
  return kOk;
}

// Home is read before the pages are read-only: reading takes locks, whose owners may be waiting in the handler.
Status EqualPages::release_piece(std::uint64_t first, std::uint64_t end, CopiedPages& copied,
                                 const Tracker::ReadHome& read) {
  MEMLITH_ASSERT(first < end && end - first <= kPiecePages);
  bool any = false;
  for (std::uint64_t page = first, next = 0; page < end; page = std::max(next, page + 1)) {
    for (next = page; next < end && copied.has(next); ++next) wanted_[next - first] = true;
    if (next == page) {
      wanted_[page - first] = false;
      continue;
    }
    any = true;
    const std::uint64_t bytes = (next - page) * kPageBytes;
    MEMLITH_TRY(read(page * kPageBytes, {home_.data() + (page - first) * kPageBytes, bytes}));
  }
  if (!any) return kOk;
  const Status status = drop_equal(first, end);
  for (std::uint64_t page = first; page < end; ++page) {
    if (wanted_[page - first]) copied.forget(page);
  }
  return status;
}

// ORDER protect-then-compare-with-home: a store behind the comparison would be dropped with its page.
// [test MemoryLimit.StoresBesideAReleaseStay]
Status EqualPages::drop_equal(std::uint64_t first, std::uint64_t end) {
  std::byte* const at = base_ + first * kPageBytes;
  const std::uint64_t bytes = (end - first) * kPageBytes;
  MEMLITH_ASSERT(bytes <= home_.size() && end - first <= wanted_.size());
  MEMLITH_ASSERT(waiting_room_ != nullptr && !waiting_room_->shut);
  const FaultHold hold(*waiting_room_);
  ++waiting_room_->releases;
  waiting_room_->shut = true;
  Status status = kOk;
  if (::mprotect(at, bytes, PROT_READ) != 0) {
    status = fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region", bytes);
    std::fill(wanted_.begin(), wanted_.end(), false);
  }
  for (std::uint64_t page = 0; page < end - first; ++page) {
    if (!wanted_[page]) continue;
    const bool equal = equals_twin(at + page * kPageBytes, home_.data() + page * kPageBytes);
    if (!equal) wanted_[page] = false;
  }
  dropped_.clear();
  for (std::uint64_t page = 0, next = 0; page < end - first; page = next + 1) {
    for (next = page; next < end - first && wanted_[next]; ++next) {
    }
    const Range equal = host_pages_in({page * kPageBytes, (next - page) * kPageBytes});
    if (equal.bytes > 0) dropped_.push_back({at + equal.offset, equal.bytes});
    for (std::uint64_t kept = page; kept < next; ++kept) {
      wanted_[kept] = lies_in({kept * kPageBytes, kPageBytes}, equal);
    }
  }
  if (!drop_pages(dropped_)) {
    status = fail_errno(errno, Detail::tracker, "cannot drop pages of the region");
    std::fill(wanted_.begin(), wanted_.end(), false);
  }
  waiting_room_->shut = ::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0;
  if (!waiting_room_->shut) return status;
  return fail(Errc::no_memory, Detail::tracker,
              "cannot make {} bytes of the region writable again; each store tries once more", bytes);
}

}  // namespace memlith::core
