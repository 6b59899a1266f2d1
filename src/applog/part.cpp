#include "applog/part.hpp"

namespace memlith::core::applog {

Status AppLogPart::append(std::span<const AppLog::Content> entries) {
  MEMLITH_TRY(log_.need_writable());
  AppLog::Entries more;
  MEMLITH_TRY(log_.check_entries(entries, more));
  if (entries_.bytes + more.bytes + kPageBytes > log_.frame_bytes_max()) {
    return too_large(entries_.bytes + more.bytes, log_.frame_bytes_max());
  }
  for (const AppLog::Content& each : entries) contents_.emplace_back(each.begin(), each.end());
  entries_.bytes += more.bytes;
  entries_.sums.insert(entries_.sums.end(), more.sums.begin(), more.sums.end());
  entries_.all.assign(contents_.begin(), contents_.end());  // their bytes stay where they are
  return kOk;
}

Status AppLogPart::consume(std::uint64_t number) {
  MEMLITH_TRY(log_.need_writable());
  MEMLITH_TRY(log_.position_of(number).status());
  consumed_number_ = std::max(consumed_number_, number);
  return kOk;
}

Status AppLogPart::make_ready() { return entries_.all.empty() ? kOk : log_.grow_for(entries_); }

Result<FrameNeed> AppLogPart::prepare() {
  // Two runs of the ring for the entries, two for the mark, and the position.
  FrameNeed need{0, 5};
  changes_ = {};
  changes_.extents.reserve(need.extents);
  changes_.sources.reserve(need.extents);
  consumed_.reset();
  if (consumed_number_ != 0) {
    MEMLITH_TRY_ASSIGN(consumed_, log_.position_of(consumed_number_));
    need.bytes += sizeof(Extent) + sizeof *consumed_;
  }
  if (entries_.all.empty()) return need;
  MEMLITH_TRY(log_.hold_for(entries_));
  need.bytes += entries_.bytes + sizeof(EntryHeader) + 4 * sizeof(Extent);
  return need;
}

Status AppLogPart::add_to(JointFrame& frame) {
  if (!entries_.all.empty()) log_.place_held(entries_, changes_, mark_);
  if (consumed_.has_value()) {
    log_.add(changes_, kPositionOffset, &*consumed_, sizeof *consumed_);
  }
  MEMLITH_ASSERT(changes_.extents.size() <= 5 && changes_.extents.size() == changes_.sources.size());
  frame.extents.insert(frame.extents.end(), changes_.extents.begin(), changes_.extents.end());
  frame.sources.insert(frame.sources.end(), changes_.sources.begin(), changes_.sources.end());
  return kOk;
}

void AppLogPart::finish(Lsn end) noexcept {
  MEMLITH_ASSERT(end != Lsn{0} || (entries_.all.empty() && !consumed_.has_value()));
  if (end != Lsn{0}) region().note_commit(end);
  if (!entries_.all.empty()) log_.held_in_log(mark_, end);
  if (consumed_.has_value()) log_.move_consumed(*consumed_, end);
}

void AppLogPart::cancel() noexcept {
  if (!entries_.all.empty()) log_.end_hold();
}

}  // namespace memlith::core::applog
