#include "store/recovery.hpp"

#include <cerrno>

#include "store/common_log.hpp"

namespace memlith::core {

Status Recovery::run() {
  MEMLITH_TRY(directory_.prepare_to_recover());
  files_.sums.begin(files_.options.makes_sums && !files_.one_file(), files_.was_clean, files_.log->log_id());
  if (!files_.was_clean && !files_.made_log) MEMLITH_TRY(flush_log());
  MEMLITH_TRY(replay_.gather_blocks());
  MEMLITH_TRY(replay_.moment().read());
  MEMLITH_TRY(gather_log());
  if (files_.one_file() && !files_.was_clean) MEMLITH_TRY(find_common_commits());
  MEMLITH_TRY(replay_.check());
  MEMLITH_TRY(directory_.load(replay_.overlay()));
  MEMLITH_TRY(directory_.check_homes(replay_.unreachable()));
  replay_.forget_unreachable();
  return files_.read_only() ? kOk : bring_home();
}

Status Recovery::flush_log() {
  // ORDER log-before-home: after a kill the log may hold frames that can be read but were never flushed. If they were
  // replayed first, a power cut could keep part of them at home and lose them from the log. A reader must not see what
  // a power cut can still lose, either. [test AfterAKill.FramesAreFlushedBeforeAReaderSeesThem]
  const Status flushed = files_.log_device->flush();
  const bool no_flush_here =
      flushed.os_errno == EINVAL || flushed.os_errno == EROFS;  // a file system mounted read-only
  if (!files_.read_only() || !no_flush_here) MEMLITH_TRY(flushed);
  if (files_.read_only()) return kOk;
  // The last steps of the creation must not be lost either, once the store is in use: incarnation 0 was never opened
  // before.
  const bool never_opened = files_.log->superblock().incarnation == 0;
  return never_opened ? files_.volume.sync_folder("") : kOk;
}

// ---- reading the log -------------------------------------------------------------------------------------------

// Gathers the log's frames in the overlay, and writes the overlay home whenever it is too large for memory.
Status Recovery::gather_log() {
  tail_ = gathered_ = files_.log->tail();
  replay_.moment().look_for(tail_, tail_);
  MEMLITH_TRY(files_.log->recover([this](const Frame& frame) { return take(frame); }));
  MEMLITH_TRY(gather_waiting());
  files_.counters.replayed_bytes = frames_bytes_;
  return kOk;
}

Status Recovery::take(const Frame& frame) {
  replay_.moment().look_for(tail_, frame.after);
  frames_bytes_ += bytes_between(frame.lsn, frame.after.lsn);
  if (files_.options.progress) files_.options.progress(frames_bytes_, files_.log->mapped_bytes());
  if (files_.read_only() || !replay_.is_full()) {
    MEMLITH_ASSERT(waiting_.empty());  // the overlay stays full as long as frames wait
    return gather(frame);
  }
  const bool proven = frame.durable >= gathered_.lsn;
  if (!proven) {
    waiting_.push_back({frame, {frame.payload.begin(), frame.payload.end()}});
    return kOk;
  }
  MEMLITH_TRY(write_piece_home());
  MEMLITH_TRY(gather_waiting());
  MEMLITH_ASSERT(waiting_.empty());
  return gather(frame);
}

Status Recovery::gather(const Frame& frame) {
  MEMLITH_ASSERT(gathered_.lsn <= frame.lsn && frame.lsn < frame.after.lsn);  // in the order of the log
  MEMLITH_TRY_ASSIGN(const std::uint64_t commits, replay_.gather(frame));
  files_.counters.replayed_commits += commits;
  gathered_ = frame.after;
  const std::uint64_t most = files_.options.overlay_bytes_max;
  if (!files_.read_only() || most == 0 || replay_.overlay().bytes_held() <= most) return kOk;
  return fail(Errc::no_memory, Detail::object,
              "{}: its log has changes of more than {} bytes that are not at home, as a program left it that was "
              "killed; a read-only opening would hold them in memory. Open the store for writing once, which writes "
              "them home",
              files_.path(), most);
}

Status Recovery::gather_waiting() {
  for (PendingFrame& each : waiting_) {
    each.frame.payload = each.payload;
    MEMLITH_TRY(gather(each.frame));
  }
  waiting_.clear();
  return kOk;
}

// Those that the log lacks. Of a store that is opened for writing they go to the log later (Store::start).
Status Recovery::find_common_commits() {
  MEMLITH_TRY(directory_.take_record(replay_.overlay()));
  const CommonMark mark = directory_.record_at_home().common;
  if (mark.log_id == 0) return kOk;
  auto found = CommonLog::find(files_.volume, files_.options, files_.path(), files_.log->log_id(), mark);
  if (!found.ok() && found.error().category == Errc::corrupt && files_.options.accept_copy) return kOk;
  MEMLITH_TRY_ASSIGN(files_.common, std::move(found));
  if (!files_.read_only()) return kOk;
  const auto common = std::move(files_.common);
  return common->for_each_missing([this](std::uint64_t, const Changes& changes) { return replay_.add(changes); });
}

Status Recovery::write_piece_home() {
  MEMLITH_ASSERT(!files_.read_only() && tail_.lsn <= gathered_.lsn);
  MEMLITH_TRY_ASSIGN(const bool as_said, directory_.homes_are_as_said(replay_.overlay()));
  if (!as_said || !replay_.moment().may_belong()) return kOk;
  MEMLITH_TRY(replay_.note_moment(tail_, gathered_));
  return replay_.write_home(nullptr);
}

// ---- writing home ----------------------------------------------------------------------------------------------

Status Recovery::bring_home() {
  Log& log = *files_.log;
  MEMLITH_ASSERT(!files_.read_only() && waiting_.empty());
  MEMLITH_ASSERT(log.tail().lsn <= gathered_.lsn && gathered_.lsn <= log.recovered().lsn);
  // An archive has what is before this place, and not what the file has become. A marked file is as the log says, and
  // its moment names the chain.
  const bool is_empty = files_.was_clean && log.tail() == log.recovered();
  if (files_.file_was_changed && is_empty && !replay_.moment().has_in_use_header()) log.break_chain();
  MEMLITH_TRY(directory_.fill_holes(replay_.overlay()));
  // ORDER proof-before-home: the newest frames may have been read from a page cache whose flush had failed. Only frames
  // that are on the medium go home. Otherwise a power cut between two home files would keep half of a commit. [mutant
  // unproven_frames_believed]
  MEMLITH_TRY(log.secure());
  if (!replay_.overlay().objects().empty()) MEMLITH_TRY(replay_.note_moment(log.tail(), log.recovered()));
  MEMLITH_TRY(replay_.write_home(nullptr));
  replay_.forget_unreachable();  // as check_homes() found it
  MEMLITH_TRY(directory_.undo_uncommitted_growth());
  MEMLITH_TRY(replay_.flush_homes());
  for (const ObjectInfo& info : directory_.objects()) MEMLITH_TRY(files_.sums.keep(info.id, info.size_bytes));
  MEMLITH_TRY(replay_.flush_sums());
  replay_.assert_at_rest();
  MEMLITH_TRY(replay_.blocks().renew());
  const bool has_moment = is_empty && replay_.moment().is_found();  // since the clean close
  // ORDER home-before-moment: as in Checkpointer::free_frames(). [test Crash.EveryOperation]
  if (!has_moment) MEMLITH_TRY(replay_.note_moment(log.recovered(), log.recovered()));
  // ORDER home-before-tail: frames are freed only when their bytes are durable in the home files. [mutant
  // home_not_flushed_by_recovery]
  MEMLITH_TRY(files_.options.held ? log.hold(directory_.client_bytes())
                                  : log.start(log.recovered(), directory_.client_bytes(), files_.made_log));
  return directory_.remove_orphans();
}

}  // namespace memlith::core
