// Discarding: pages of a region become zeros, and take neither memory nor disk space. Floor: region.
//
// A discard is a commit of its own, whose frame says which pages and holds none of their bytes. Memory is restored from
// home, so a checkpoint follows the commit.
#include <cstring>

#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kPartBytes = 1 * kGiB;  // of a larger range, each part is a commit
}

Status Region::discard(const void* address, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(const Range range, range_of(address, bytes));
  if (tracker_ == nullptr)
    return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name_);
  if (guard_ != nullptr) {
    return fail(Errc::unsupported, Detail::tracker,
                "region \"{}\" holds {}, which knows what its pages are for; free what lies in them instead",
                shown_name_, guard_->what());
  }
  if (range.offset % kPageBytes != 0 || range.bytes % kPageBytes != 0) {
    return fail(Errc::invalid, Detail::argument,
                "region \"{}\": {} bytes at offset {} are not whole pages; only whole pages, multiples of {}, can be "
                "discarded",
                shown_name_, range.bytes, range.offset, kPageBytes);
  }
  MEMLITH_TRY(store_.check_process());
  MEMLITH_TRY(store_.close_collectors());
  MEMLITH_TRY(commit_size(true));  // the log must know the size before a frame names the pages
  for (std::uint64_t done = 0; done < range.bytes; done += kPartBytes) {
    MEMLITH_TRY(discard_part({range.offset + done, std::min(range.bytes - done, kPartBytes)}));
  }
  return kOk;
}

Status Region::discard_part(Range part) {
  const Held held(*this);
  MEMLITH_TRY(check_unchanging());
  Status status = kOk;
  // No transaction begins in the region meanwhile: its images would be of bytes that the log does not have any more.
  const bool alone = transactions_.if_none([&]() MEMLITH_REQUIRES(capture_mutex_) { status = discard_held(part); });
  if (alone) return status;
  return fail(Errc::busy, Detail::object,
              "region \"{}\": pages cannot be discarded while a transaction is open in the region; commit or abort it "
              "first",
              shown_name_);
}

// Earlier stores to the pages count as captured.
Status Region::discard_held(Range part) {
  if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(part));
  const Status collected = collect(kAllThreads, part);
  const Result<Lsn> end = collected.ok() ? store_.discard({object_, part.offset, part.bytes}) : collected;
  if (!end.ok()) {
    give_back();
    return end.error();
  }
  note_commit(*end);
  if (twins_ != nullptr) twins_->forget(part);
  if (captured_ != nullptr) captured_->note(part, *end);
  Status status = store_.bring_home(*end);
  if (status.ok()) {
    const auto read = [this](std::uint64_t offset, std::span<std::byte> target) {
      return store_.read_home_into(object_, offset, target);
    };
    status = tracker_->restore(part, read, true);
  }
  accept(part);
  // Memory must not show what the log does not have. These stores count as the program's own.
  if (!status.ok()) std::memset(base_ + part.offset, 0, part.bytes);
  return status;
}

}  // namespace memlith::core
