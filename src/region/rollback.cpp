// Rollback of one region: memory is again as it was last captured. Floor: region.
#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kReadBackBytesMax = 1 * kMiB;  // without a checkpoint
}

Status Region::roll_back_guarded(ThreadNumber thread) {
  const Status done = roll_back(thread);
  if (guard_ != nullptr) guard_->rolled_back();  // some of it may be, even where it failed
  return done;
}

Status Region::roll_back(ThreadNumber thread) {
  stored_.clear();
  struct GiveBack {
    Tracker* tracker;
    ~GiveBack() {
      if (tracker != nullptr) tracker->give_back();
    }
  } taken{tracker_.get()};
  if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(kWholeRegion));
  if (tracker_->rollback_needs_home(thread)) MEMLITH_TRY(complete_home());
  MEMLITH_TRY(tracker_->rollback(thread, stored_));
  normalize(stored_);
  cut_to_size();
  MEMLITH_ASSERT(stored_.empty() || stored_.back().offset + stored_.back().bytes <= mapped_bytes_);
  if (!stored_.empty()) MEMLITH_TRY(restore_stored());
  taken.tracker->accept();
  taken.tracker = nullptr;
  return kOk;
}

// A few bytes are read: from home, and from the log what is not home yet. For many, a checkpoint brings all of it home,
// and the pages need not be read.
Status Region::restore_stored() {
  std::uint64_t bytes = 0;
  for (const Range& range : stored_) bytes += range.bytes;
  const bool many = bytes > kReadBackBytesMax;
  Overlay in_log;
  if (many) {
    MEMLITH_TRY(complete_home());
  } else {
    std::vector<Extent> wanted;
    for (const Range& range : stored_) wanted.push_back({object_, range.offset, range.bytes});
    MEMLITH_TRY(store_.read_log(wanted, newest_commit(), in_log));
  }
  const auto read = [&](std::uint64_t offset, std::span<std::byte> target) -> Status {
    MEMLITH_TRY(store_.read_home_into(object_, offset, target));
    return in_log.copy_to(object_, offset, target);
  };
  for (const Range& range : stored_) {
    MEMLITH_TRY(tracker_->restore(range, read, many));
    if (!many) note_copied(range);
  }
  return kOk;
}

// The newest captured bytes may be in the log only; a checkpoint brings them home, where they can be read.
Status Region::complete_home() {
  const Lsn newest = newest_commit();
  MEMLITH_TRY(store_.sync(newest));
  return store_.home_lsn() < newest ? store_.checkpoint() : kOk;
}

}  // namespace memlith::core
