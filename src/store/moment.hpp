// Which commits a marked file holds. Floor: store. docs/format.md, "The in-use header".
//
// An intact file and an intact log need not belong together: one of the two may be an older copy. Therefore a marked
// file says what it holds: every commit before `whole`, none from `reach` on. The log says which commits it still has.
// The two belong together if the file lacks nothing that the log has freed, and has nothing that the log does not have.
#pragma once

#include <cstdint>
#include <optional>

#include "base/assert.hpp"
#include "log/geometry.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// In a store that keeps no header, each call does nothing. One thread at a time.
class FileMoment {
 public:
  explicit FileMoment(StoreFiles& files) : files_(files) {}

  // ---- recovery, in the order of Step, which each call asserts: the file's moment is read before the log's frames
  // are, which are compared with it one by one; only when all were compared may the file be refused for it; whether it
  // stays marked is known from the overlay of all frames. note() comes at any time but while that is undecided.
  // A standby is recovered again when it has more of the archive.
  Status read(bool must_be_in_use);  // the moment of the file as it is found
  // Adds a position of the log. A file is at the tail, at a later position after a checkpoint, or between the two.
  void look_for(LogPosition tail, LogPosition at);
  // True if the file and the log may belong together, as far as known.
  [[nodiscard]] bool may_belong() const { return (!moment_.has_value() || found_) && !lacks_in_use_header_; }
  [[nodiscard]] Status check();
  // The file began with an in-use header and a whole moment when it was read.
  [[nodiscard]] bool has_in_use_header() const { return moment_.has_value(); }
  // A guarded file without its in-use header is another one, or the log has the end of the guard.
  [[nodiscard]] Status check_in_use_header(bool stays_in_use);

  // Writes the file's new moment home, durably, and into an in-use header in the overlay that is about to go home.
  Status note(LogPosition whole, LogPosition reach, Overlay& overlay);

 private:
  enum class Step : std::uint8_t { begun, frames_are_read, compared, decided };
  void take_step(Step from, Step to) {
    MEMLITH_ASSERT(step_ == from);
    step_ = to;
  }

  StoreFiles& files_;
  Step step_ = Step::begun;
  std::optional<std::uint64_t> moment_;  // of the file as it was found
  bool found_ = false;                   // the log has it
  bool lacks_in_use_header_ = false;     // the superblock says that the file has the guard's header, and it has not
};

// A marked file was in use when it was copied, or during a crash; without its log it cannot be taken over.
Status check_not_in_use(StoreFiles& files);

}  // namespace memlith::core
