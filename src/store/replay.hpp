// Replay: the only code that writes home files. Used by checkpoints and by recovery. Floor: store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "store/blocks.hpp"
#include "store/directory.hpp"
#include "store/logged_commit.hpp"
#include "store/moment.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class DirectHome;

// Lets replay give way to concurrent commits, whose flushes wait for everything that the device holds.
class ReplayPace {
 public:
  static constexpr std::uint64_t kWriteBytesMax =
      1 * kMiB;  // size of one write of adjacent extents, if replay need not give way

  virtual ~ReplayPace() = default;
  [[nodiscard]] virtual std::uint64_t write_bytes_max() const = 0;  // of one write
  // The number of bytes of pages after which home files are flushed. `home`: the part of the work that is home, 0 to 1.
  virtual std::uint64_t step_bytes(double home) = 0;
  // Called after such a flush. May take a while.
  virtual void pause() = 0;
};

// One thread at a time: recovery, later the holder of the checkpointer's mutex.
class Replay {
 public:
  Replay(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // Begins a new piece of work, with nothing gathered yet.
  void begin() { work_ = {}; }
  // Puts the commits of one frame into the overlay, and returns how many there are.
  Result<std::uint64_t> gather(const Frame& frame);
  // Puts changes of a one-file store that its log does not have behind those that were gathered.
  Status add(const Changes& changes);
  // These bytes do not go home, as far as they were gathered.
  void drop(const Extent& extent) { overlay_.drop(extent); }
  // The part of the work that is in the overlay or home.
  void note_gathered(double gathered) { work_.gathered = gathered; }
  // True if the overlay has to be written home before more is gathered.
  [[nodiscard]] bool is_full() const { return overlay_.bytes_held() > files_.options.replay_bytes_max; }
  // Finds in advance the faults that write_home() would find while writing, and whether the file belongs to the log.
  Status check();
  // Writes the overlay into the home files, not flushed yet, and empties it. Without a pace, there are no commits
  // beside it.
  Status write_home(ReplayPace* pace);
  Status flush_homes();
  // ORDER sums-before-tail: when frames are freed, the sums of what they wrote are durable, or a later reader would
  // take the new blocks for damaged. After flush_homes(). [mutant sums_not_flushed]
  Status flush_sums() { return files_.sums.flush(); }
  // Discards the overlay: the log still has everything, and home files may be partly written.
  void forget() { overlay_.clear(); }

  // Objects in frames whose home file is missing or too short: they must be removed ones.
  [[nodiscard]] const Directory::Unreachable& unreachable() const { return unreachable_; }
  void forget_unreachable() { unreachable_.clear(); }

  // Keeps the moment of a marked file current while the overlay is written to it.
  Status note_moment(LogPosition whole, LogPosition reach) { return moment_.note(whole, reach, overlay_); }
  // Puts the kept blocks into the empty overlay.
  Status gather_blocks() { return blocks_.gather(overlay_); }

  [[nodiscard]] const Overlay& overlay() const { return overlay_; }
  [[nodiscard]] FileMoment& moment() { return moment_; }
  [[nodiscard]] KeptBlocks& blocks() { return blocks_; }

  // Nothing is being written home, and everything written is flushed.
  void assert_at_rest() const;

 private:
  // How far a checkpoint is, as parts of its work.
  struct Work {
    double gathered = 0;
    double home = 0;
    double piece = 0;  // each one in the overlay
  };

  Status gather_commit(const Frame& frame, std::span<const std::byte>& rest);
  Status write_object(ObjectId object, ReplayPace* pace);
  Result<std::unique_ptr<DirectHome>> direct_home(ObjectId object, Device& device, const ReplayPace* pace);
  Status written(ObjectId object, std::uint64_t page_bytes, ReplayPace* pace);
  void note_written(ObjectId object);

  StoreFiles& files_;
  Directory& directory_;
  Overlay overlay_;                    // constant in a read-only store
  std::vector<LoggedExtent> extents_;  // of the commit that is being gathered
  KeptBlocks blocks_{files_, directory_};
  FileMoment moment_{files_, directory_};
  Directory::Unreachable unreachable_;
  std::vector<ObjectId> written_homes_;     // to be flushed
  std::uint64_t home_bytes_unflushed_ = 0;  // of their pages
  Work work_;
};

}  // namespace memlith::core
