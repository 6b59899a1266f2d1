// Discarding: pages of a region become zeros, and take neither memory nor disk space. Floor: region.
//
// Each part of a range is a commit of its own (RegionCapture::discard).
#include <algorithm>

#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kPartBytes = 1 * kGiB;  // of a larger range, each part is a commit
}

Status Region::discard(const void* address, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(const Range range, range_of(address, bytes));
  MEMLITH_TRY(need_writable());
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, which knows what its pages are for; free what lies in them instead",
                shown_name(), guard_->what());
  }
  if (range.offset % kPageBytes != 0 || range.bytes % kPageBytes != 0) {
    return fail(Errc::invalid, Detail::argument,
                "region \"{}\": {} bytes at offset {} are not whole pages; only whole pages, multiples of {}, can be "
                "discarded",
                shown_name(), range.bytes, range.offset, kPageBytes);
  }
  MEMLITH_TRY(store().check_process());
  MEMLITH_TRY(store().close_collectors());
  MEMLITH_TRY(commit_size(true));  // the log must know the size before a frame names the pages
  for (std::uint64_t done = 0; done < range.bytes; done += kPartBytes) {
    MEMLITH_TRY(discard_part({range.offset + done, std::min(range.bytes - done, kPartBytes)}));
  }
  return kOk;
}

Status Region::discard_part(Range part) {
  MEMLITH_ASSERT(part.bytes > 0 && part.bytes <= kPartBytes);
  const Held held(*this);
  MEMLITH_TRY(check_unchanging());
  Status status = kOk;
  // No transaction begins in the region meanwhile: its images would be of bytes that the log does not have any more.
  const bool alone = transactions_.if_none([&]() MEMLITH_REQUIRES(capture_.mutex) { status = capture_.discard(part); });
  if (alone) return status;
  return fail(Errc::busy, Detail::object,
              "region \"{}\": pages cannot be discarded while a transaction is open in the region; commit or abort it "
              "first",
              shown_name());
}

}  // namespace memlith::core
