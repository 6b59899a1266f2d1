// Transactions in which several structures take part. Floor: region.
#include <algorithm>

#include "base/no_throw.hpp"
#include "region/transaction.hpp"

namespace memlith::core {

Status Transaction::add(std::unique_ptr<Participant> part) {
  MEMLITH_ASSERT(part != nullptr);
  Region& region = part->region();
  if (&region.store() != &store_) {
    return fail(Errc::invalid, Detail::argument,
                "\"{}\" belongs to another store than the transaction; one commit needs one store", region.name());
  }
  parts_.push_back({std::move(part), nullptr});
  try {
    parts_.back().shard = region.transactions().add(*this);
  } catch (...) {
    parts_.pop_back();
    throw;
  }
  return kOk;
}

Participant* Transaction::part_in(Participant::Kind kind, const Region& region) const {
  const auto is_it = [&](const Part& each) {
    return each.participant->kind() == kind && &each.participant->region() == &region;
  };
  const auto found = std::find_if(parts_.begin(), parts_.end(), is_it);
  return found == parts_.end() ? nullptr : found->participant.get();
}

// Reserves the room in the frame, and returns the bytes of all of them. Counts those that have succeeded.
Result<std::uint64_t> Transaction::prepare_parts(std::size_t& prepared) {
  const auto rank = [](const Part& part) {
    return std::pair(part.participant->kind(), part.participant->region().object());
  };
  std::sort(parts_.begin(), parts_.end(), [&](const Part& a, const Part& b) { return rank(a) < rank(b); });
  MEMLITH_ASSERT(prepared == 0);
  // A structure that is two parts would wait for its own lock.
  const auto same = [&](const Part& a, const Part& b) { return rank(a) == rank(b); };
  MEMLITH_ASSERT(std::adjacent_find(parts_.begin(), parts_.end(), same) == parts_.end());
  FrameNeed need{0, extents_.size()};
  for (const Extent& extent : extents_) need.bytes += sizeof extent + extent.bytes;
  for (const Part& each : parts_) {
    MEMLITH_TRY_ASSIGN(const FrameNeed more, each.participant->prepare());
    ++prepared;
    need.bytes += more.bytes;
    need.extents += more.extents;
  }
  MEMLITH_ASSERT(prepared == parts_.size());
  frame_.reserve(need.extents);
  frame_.sizes.reserve(parts_.size());
  return need.bytes;
}

// The parts are prepared, and the log has room. Counts those that have changed memory.
Result<Lsn> Transaction::commit_frame(bool will_sync, std::size_t& changed) {
  frame_.extents.assign(extents_.begin(), extents_.end());
  frame_.sources.assign(sources_.begin(), sources_.end());
  frame_.sizes.clear();
  for (const Part& each : parts_) {
    MEMLITH_TRY(each.participant->add_to(frame_));
    ++changed;
  }
  MEMLITH_ASSERT(changed == parts_.size() && frame_.extents.size() == frame_.sources.size());
  if (frame_.extents.empty() && frame_.sizes.empty()) return Lsn{0};
  return store_.commit_weak({frame_.extents, frame_.sources, frame_.sizes}, will_sync);
}

// Collectors that are parts are held by their parts, the others by the closing.
Result<Lsn> Transaction::commit_with_parts(bool will_sync) {
  MEMLITH_TRY(store_.failure());
  for (const Part& each : parts_) MEMLITH_TRY(each.participant->make_ready());
  Collectors& collectors = store_.collectors();
  const LockGuard closing(collectors.mutex());
  MEMLITH_TRY(collectors.close_held(false).status());
  MEMLITH_TRY(commit_sizes(will_sync));
  std::size_t prepared = 0;
  // ORDER room-before-change: parts change memory that no abort can change back, so the log must be able to take the
  // frame before any of them does. [test OneCommit.ALogWithoutRoomLeavesEverythingAsItWas]
  const Status ready = no_throw([&]() MEMLITH_REQUIRES(collectors.mutex()) -> Status {
    MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, prepare_parts(prepared));
    // Covers commits of other threads to the parts meanwhile, and all that they may have followed.
    MEMLITH_TRY(collectors.close_held(false).status());
    return store_.make_room_for(bytes, will_sync);
  });
  if (!ready.ok()) {
    while (prepared > 0) parts_[--prepared].participant->cancel();
    return ready;
  }
  Lsn end;
  std::size_t changed = 0;
  const Status done = no_throw([&]() -> Status {
    MEMLITH_TRY_ASSIGN(end, commit_frame(will_sync, changed));
    return kOk;
  });
  if (!done.ok() && changed == 0) {
    while (prepared > 0) parts_[--prepared].participant->cancel();
    return done;
  }
  if (!done.ok()) {
    // The parts' changes in memory are in no frame, and no later commit may rest on them.
    const KeptSentence sentence;
    store_.poison(done);
    while (prepared > 0) parts_[--prepared].participant->give_up();
    return done;
  }
  MEMLITH_ASSERT(changed == parts_.size() && prepared == parts_.size());
  while (prepared > 0) parts_[--prepared].participant->finish(end);
  if (end != Lsn{0}) {
    note_commit(end);
    return end;
  }
  // This commit may have read bytes in flight: a caller that waits for this commit waits for those, too.
  for (const Part& each : parts_) end = std::max(end, each.participant->region().newest_commit());
  return end;
}

}  // namespace memlith::core
