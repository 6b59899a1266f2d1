// Follows the log of a store that another process may be writing. Floor: store. docs/architecture.md, "Readers beside a
// writer".
//
// A follower takes no lock, and the writer does not know of it. Its user copies home files and has the follower read
// the log along. The follower gathers, in the overlay of Replay, the frames from the tail, as it was before the copying
// began, to a durable commit, as it is after the copying has ended. Whatever a checkpoint wrote home meanwhile comes
// from these frames, and they are laid over the copy: the rest of the argument is that of recovery.
//
// A follower shows durable commits only. A living writer shows on its page of counters (StatsPage) how far its log is
// durable, before a checkpoint writes home what lies before that; frames and superblocks tell it, too. If no writer is
// alive, the follower flushes the commits that can be read, as an opening for reading does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "log/reader.hpp"
#include "store/directory.hpp"
#include "store/opening.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// One thread at a time.
class Follower {
 public:
  // How often a user that has lost the writer begins anew, at least; then for as long as follow_patience says.
  static constexpr int kTries = 6;
  static constexpr std::chrono::milliseconds kAskEvery{1};  // between two looks at what a writer may change

  Follower(StoreFiles& files, Opening& opening, Replay& replay) : files_(files), opening_(opening), replay_(replay) {}

  // Reads the superblock and the slots anew, and whether a process writes. `kept`: segments from there on are looked
  // for, even before the tail. Errors: those of opening a store; not_found: the store was removed, or another has taken
  // its place.
  Status look(Lsn kept);
  // The next frame that is gathered.
  void start_at(LogPosition at) { at_ = at; }
  // Reads along while homes are copied: gathers what is durable. False: the writer has ended, or has overwritten frames
  // that were not gathered yet; begin anew.
  Result<bool> gather();
  // Gathers up to a durable commit that is not older than the call. The homes are copied. False: the writer has gone
  // on too far, or has begun or ended: begin anew.
  Result<bool> finish() { return writes_ ? follow_writer() : follow_nobody(); }
  // Forgets frames that are not known to be durable yet.
  void forget() { waiting_.clear(); }
  // Called when the overlay holds more than replay_bytes_max. Empties the overlay.
  void set_on_full(std::function<Status()> on_full) { on_full_ = std::move(on_full); }

  // As of the last look.
  [[nodiscard]] bool writes() const { return writes_; }
  [[nodiscard]] std::uint32_t writer() const { return writer_; }  // the process; 0: none
  // Everything before it is in the overlay.
  [[nodiscard]] LogPosition at() const { return at_; }
  // True if no process writes to the store, and none has written since finish() was called last, at that position.
  [[nodiscard]] bool nothing_new(LogPosition since) const;
  // The effects of a writer that goes on, or ends, on the bytes that are read.
  static bool may_pass(const Status& status) {
    return status.category == Errc::corrupt || status.category == Errc::not_found;
  }

 private:
  Result<bool> look_at_writer();
  Status look_at_log();
  Result<bool> read();
  Result<bool> follow_writer();
  Result<bool> follow_nobody();
  Status gather_waiting();
  Status gather_frame(const Frame& frame);
  Result<bool> superblock_is_the_same();

  StoreFiles& files_;
  Opening& opening_;
  Replay& replay_;
  std::function<Status()> on_full_;

  std::uint64_t sequence_ = 0;  // of the superblock, as of the last look
  std::uint64_t at_rest_ = 0;   // likewise, when no process was found writing
  std::uint64_t log_id_ = 0;
  LogPosition at_;
  Lsn durable_;           // everything before it is durable
  Lsn readable_;          // the end of the frames that could be read
  bool writes_ = false;   // a writer is alive,
  bool stalled_ = false;  // but its log is poisoned
  std::uint32_t writer_ = 0;
  std::vector<PendingFrame> waiting_;  // not known to be durable yet
};

}  // namespace memlith::core
