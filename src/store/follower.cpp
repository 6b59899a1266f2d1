#include "store/follower.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "store/stats.hpp"

namespace memlith::core {

namespace {
constexpr int kPageReads = 100;
}  // namespace

// ---- who writes ------------------------------------------------------------------------------------------------

Status Follower::look(Lsn kept) {
  files_.options.log.followed_to = kept;
  MEMLITH_TRY(look_at_log());
  MEMLITH_TRY_ASSIGN(writes_, look_at_writer());
  return kOk;
}

Status Follower::look_at_log() {
  MEMLITH_TRY(opening_.look());
  MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> named, files_.volume.identity_of(files_.names.log));
  MEMLITH_TRY_ASSIGN(const FileIdentity own, files_.log_device->identity());
  if (log_id_ == 0) log_id_ = files_.log->log_id();
  if (named != own || files_.log->log_id() != log_id_) {
    return fail(Errc::not_found, Detail::open,
                "{}: the store was removed, or another has taken its place; close it and open what is there now",
                files_.path());
  }
  sequence_ = files_.log->superblock().sequence;
  return kOk;
}

// True if the process that writes is alive, and how far it is.
Result<bool> Follower::look_at_writer() {
  writer_ = 0;
  for (int reads = 0; reads < kPageReads; ++reads) {
    const auto seen = SeenStats::look(files_.volume, files_.names.stats);
    // A writer that shows no page, or one of another version, is one whose commits are taken as they can be read.
    if (!seen.ok() || !seen->held() || (*seen)->incarnation != files_.log->superblock().incarnation) return false;
    const std::optional<std::uint64_t> durable = seen->durable_lsn();
    if (!durable.has_value()) continue;
    durable_ = std::max({durable_, Lsn{*durable}, Lsn{files_.log->superblock().head_lsn}});
    stalled_ = (*seen)->poisoned.load(std::memory_order_relaxed) != 0;
    writer_ = (*seen)->process;
    return true;
  }
  return fail(Errc::corrupt, Detail::open, "{}: its counters are damaged", files_.volume.path_of(files_.names.stats));
}

bool Follower::nothing_new(LogPosition since) const {
  if (at_rest_ != sequence_) return false;
  auto next = files_.log->follower(since).next();
  return next.ok() && !next->has_value();
}

Result<bool> Follower::superblock_is_the_same() {
  Superblocks now(*files_.log_device);
  MEMLITH_TRY(now.read());
  return now.unshared().sequence == sequence_;
}

// ---- the log ---------------------------------------------------------------------------------------------------

Status Follower::gather_frame(const Frame& frame) {
  MEMLITH_ASSERT(at_.lsn <= frame.lsn && frame.lsn < frame.after.lsn);  // in the order of the log
  MEMLITH_TRY_ASSIGN(const std::uint64_t commits, replay_.gather(frame));
  files_.counters.replayed_commits += commits;
  files_.counters.replayed_bytes += bytes_between(frame.lsn, frame.after.lsn);
  at_ = frame.after;
  return on_full_ && replay_.is_full() ? on_full_() : kOk;
}

Status Follower::gather_waiting() {
  std::size_t done = 0;
  for (; done < waiting_.size() && waiting_[done].frame.after.lsn <= durable_; ++done) {
    waiting_[done].frame.payload = waiting_[done].payload;
    MEMLITH_TRY(gather_frame(waiting_[done].frame));
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
  return kOk;
}

// Takes what is durable and can be read. False: the writer has ended.
Result<bool> Follower::read() {
  MEMLITH_TRY_ASSIGN(const bool writes, look_at_writer());
  if (!writes) return false;
  waiting_.clear();
  LogReader reader = files_.log->follower(at_);
  for (;;) {
    MEMLITH_TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame.has_value()) break;
    durable_ = std::max(durable_, frame->durable);
    MEMLITH_TRY(gather_waiting());
    if (frame->after.lsn <= durable_) {
      MEMLITH_TRY(gather_frame(*frame));
    } else {
      MEMLITH_ASSERT(waiting_.empty() || waiting_.back().frame.after.lsn <= frame->lsn);
      waiting_.push_back({*frame, {frame->payload.begin(), frame->payload.end()}});
    }
  }
  readable_ = reader.position().lsn;
  return true;
}

Result<bool> Follower::gather() {
  for (;;) {
    const LogPosition before = at_;
    MEMLITH_TRY_ASSIGN(const bool writes, read());
    if (!writes || at_.lsn >= durable_) return writes;
    // The log goes on in slots that it has taken since, or what is missing was overwritten.
    const std::uint64_t incarnation = files_.log->superblock().incarnation;
    files_.options.log.followed_to = at_.lsn;
    MEMLITH_TRY(look_at_log());
    if (files_.log->superblock().incarnation != incarnation) return false;
    MEMLITH_TRY_ASSIGN(const bool still, read());
    if (!still || at_.lsn >= durable_) return still;
    if (at_ == before) return false;
  }
}

Result<bool> Follower::follow_writer() {
  const auto give_up = std::chrono::steady_clock::now() + files_.options.follow_patience;
  Lsn wanted;  // what was readable at first; the writer goes on meanwhile
  for (;;) {
    MEMLITH_TRY_ASSIGN(const bool followed, gather());
    if (!followed) return false;
    // Commits acknowledged before this call are readable; the writer tells within moments that it is durable.
    if (wanted == Lsn{}) wanted = readable_;
    if (wanted <= at_.lsn || stalled_ || std::chrono::steady_clock::now() >= give_up) return true;
    std::this_thread::sleep_for(kAskEvery);
  }
}

Result<bool> Follower::follow_nobody() {
  MEMLITH_TRY(replay_.gather_blocks());
  MEMLITH_TRY(files_.log->recover([this](const Frame& frame) { return gather_frame(frame); }));
  at_ = files_.log->recovered();
  durable_ = at_.lsn;
  // ORDER flush-before-view: what a writer that was killed did not flush can be read, and lost in a power cut. [test
  // Follow.ShowsOnlyWhatAPowerCutKeeps]
  if (!files_.was_clean) {
    const Status flushed = files_.log_device->flush();
    const bool no_flush_here = flushed.os_errno == EINVAL || flushed.os_errno == EROFS;
    if (!no_flush_here) MEMLITH_TRY(flushed);
  }
  MEMLITH_TRY_ASSIGN(const bool same, superblock_is_the_same());
  if (same) at_rest_ = sequence_;
  return same;
}

}  // namespace memlith::core
