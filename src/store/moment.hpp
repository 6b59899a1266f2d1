// Which commits a marked file holds. Floor: store. docs/format.md, "The mark".
//
// A file and a log that are both sound need not belong together: one of the two may be a copy of another time. So a file with a mark
// says what it holds: every commit before `whole`, none from `reach` on. The log says which commits it still has. The pair is
// sound where the file lacks nothing that the log gave up, and has nothing that the log does not have.
#pragma once

#include <cstdint>
#include <optional>

#include "log/geometry.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Of a store that keeps no mark, each call does nothing. One thread at a time.
class FileMoment {
 public:
  explicit FileMoment(StoreFiles& files) : files_(files) {}

  // ---- recovery, in this order
  Status read();  // the moment of the file as it is found
  // One more position of the log. A file is at the tail, at a later position to which a checkpoint has brought it, or on its way
  // there from the tail.
  void look_for(LogPosition tail, LogPosition at);
  // Nothing that was found so far says that the file and the log do not belong together.
  [[nodiscard]] bool may_belong() const { return !moment_.has_value() || found_; }
  [[nodiscard]] Status check() const;

  // Says at home, durably, what the file holds from now on, and lets a mark that is on its way home in the overlay say the same.
  Status note(LogPosition whole, LogPosition reach, Overlay& overlay);

 private:
  StoreFiles& files_;
  std::optional<std::uint64_t> moment_;  // of the file as it was found
  bool found_ = false;                   // the log has it
};

// A database of SQLite under the mark was in use when a crash came; without its log it is nobody's to take over.
Status check_no_mark(StoreFiles& files);

}  // namespace memlith::core
