// Which commits a marked file holds. Floor: store. docs/format.md, "The in-use header".
//
// An intact file and an intact log need not belong together: one of the two may be an older copy. Therefore a marked
// file says what it holds: every commit before `whole`, none from `reach` on. The log says which commits it still has,
// and whether the file is marked. The two belong together if the file lacks nothing that the log has freed, has nothing
// that the log does not have, and is marked as the log says.
#pragma once

#include <cstdint>
#include <optional>

#include "base/assert.hpp"
#include "log/geometry.hpp"
#include "store/directory.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// In a store that keeps no in-use header, each call does nothing. One thread at a time.
class FileMoment {
 public:
  FileMoment(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // ---- recovery, in the order of Step, which each call asserts: the file's in-use header is read before the log's
  // frames are, which are compared with it one by one; only when all were compared may the file be refused for it.
  // note() comes at any time but while that is undecided. A standby is recovered again when it has more of the archive.
  Status read();  // the in-use header of the file as it is found
  // Adds a position of the log. A file is at the tail, at a later position after a checkpoint, or between the two.
  void look_for(LogPosition tail, LogPosition at);
  // True if the file and the log may belong together, as far as known.
  [[nodiscard]] bool may_belong() const { return (!moment_.has_value() || found_) && is_as_said(); }
  // The directory knows what all frames say of the file. The overlay of a read-only store gets the file's own bytes.
  [[nodiscard]] Status check(Overlay& overlay);
  // The file began with an in-use header and a whole moment when it was read.
  [[nodiscard]] bool has_in_use_header() const { return moment_.has_value(); }
  [[nodiscard]] bool is_found() const { return found_; }  // which the log has

  // Writes the file's new moment home, durably, and into an in-use header in the overlay that is about to go home.
  Status note(LogPosition whole, LogPosition reach, Overlay& overlay);

 private:
  enum class Step : std::uint8_t { begun, frames_are_read, decided };

  [[nodiscard]] InUse said() const { return directory_.record_at_home().own.marked; }
  [[nodiscard]] bool is_as_said() const;

  StoreFiles& files_;
  Directory& directory_;
  Step step_ = Step::begun;
  InUse in_file_ = InUse::none;           // the in-use header with which the file was found
  InUse said_first_ = InUse::none;        // the record's as of the tail of the log
  std::optional<std::uint64_t> moment_;   // of the file as it was found
  bool found_ = false;                    // the log has it
  std::optional<std::uint64_t> flushed_;  // the newest one that was made durable here
};

// A marked file was in use when it was copied, or during a crash; without its log it cannot be taken over.
Status check_not_in_use(StoreFiles& files);
// The file would have two in-use headers.
Status tell_two_in_use_headers(const StoreFiles& files);

}  // namespace memlith::core
