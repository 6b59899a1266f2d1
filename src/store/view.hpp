// A view of a store that another process may be writing: objects as one durable commit left them. Floor: store.
// docs/architecture.md, "Readers beside a writer".
//
// A view takes no lock, and the writer does not know of it. It consists of copies in the reader's memory, so nothing of
// the store is kept for it. A copy is made from a home file and from the log's frames between the tail, as it was
// before the copying began, and a durable commit, as it is after the copying has ended. Whatever a checkpoint wrote
// home meanwhile comes from these frames, and they are laid over the copy: the rest of the argument is that of
// recovery.
//
// A frame that is overwritten before it was read, because the log is circular, is noticed by its checksums. Then the
// copies are made anew, a limited number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "store/directory.hpp"
#include "store/follower.hpp"
#include "store/overlay.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// The memory in which a view shows an object. Any call may replace the memory's content; bytes() of the last
// begin_change() lasts until the end of the change.
class ShownObject {
 public:
  virtual ~ShownObject() = default;
  [[nodiscard]] virtual ObjectId object() const = 0;
  // Memory of zeros for a copy of that many bytes, beside what is shown.
  virtual Result<std::span<std::byte>> begin_copy(std::uint64_t bytes) = 0;
  // Makes the copy, or what is shown if there is no copy, `bytes` bytes long and ready to be changed. What it is longer
  // by is zeros.
  virtual Result<std::span<std::byte>> begin_change(std::uint64_t bytes) = 0;
  // The changed memory is shown from now on.
  virtual Status end_change() = 0;
  // There will be no change, or no more: a copy that is not shown is dropped.
  virtual void drop_copy() = 0;
};

// One thread at a time, and no other uses what is shown while the view moves.
class View {
 public:
  View(StoreFiles& files, Opening& opening, Directory& directory, Replay& replay)
      : files_(files), directory_(directory), replay_(replay), follower_(files, opening, replay) {}

  // Finds the newest durable commit. Errors: those of opening a store.
  Status begin() { return move(nullptr); }
  // Moves to the newest durable commit, with everything that is shown. On failure nothing has moved. Errors: busy (each
  // time that the objects were copied, a process opened or closed the store, or filled its log), not_found (the store
  // was removed, or another has taken its place), no_memory (also beyond view_bytes_max), corrupt, io.
  Status refresh() { return move(nullptr); }
  // The same, and shows this object, too, until hide().
  Status show(ShownObject& object) { return move(&object); }
  void hide(const ShownObject& object);

  // Everything before it is in the view.
  [[nodiscard]] Lsn lsn() const { return position_.has_value() ? position_->lsn : Lsn{}; }
  // The process that has the store open for writing, as of the last move; 0: none.
  [[nodiscard]] std::uint32_t writer() const { return follower_.writer(); }
  [[nodiscard]] std::uint64_t bytes_shown() const { return bytes_shown_; }

 private:
  Status move(ShownObject* added);
  // False: the writer has gone on too far, or has begun or ended; try again.
  Result<bool> try_to_move(ShownObject* added, bool anew);
  Status copy_homes(ShownObject* added, bool anew);
  Status copy_home(ShownObject& object);
  Status show_all(ShownObject* added, bool anew);
  void drop_copies(ShownObject* added);

  StoreFiles& files_;
  Directory& directory_;
  Replay& replay_;
  Follower follower_;

  std::vector<ShownObject*> shown_;
  std::optional<LogPosition> position_;  // what is shown
  FileRecord record_{};                  // of the file, as the superblock had it when the copies were made
  Overlay directory_changes_;            // since then
  std::uint64_t bytes_shown_ = 0;
  bool copies_needed_ = false;  // a move has failed, and may have left the parts of the view at different places
};

}  // namespace memlith::core
