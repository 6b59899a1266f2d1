// Replay: the only code that writes home files. Used by checkpoints and by recovery, which is the same thing at open. Floor: store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "store/blocks.hpp"
#include "store/directory.hpp"
#include "store/moment.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class DirectHome;

// How a replay spares the commits beside it, whose flushes wait for all that the device holds.
class ReplayPace {
 public:
  static constexpr std::uint64_t kWriteBytesMax =
      1 * kMiB;  // of one write of neighbouring pieces, where nothing has to be spared

  virtual ~ReplayPace() = default;
  [[nodiscard]] virtual std::uint64_t write_bytes_max() const = 0;  // of one write
  // `home`: the part of the work that is at home, 0 to 1. After how many bytes of pages the homes are flushed.
  virtual std::uint64_t step_bytes(double home) = 0;
  // After such a flush. It may take a while.
  virtual void pause() = 0;
};

// One thread at a time: recovery, and then who holds the checkpointer's mutex.
class Replay {
 public:
  Replay(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // A piece of work begins, of which nothing is gathered yet.
  void begin() { work_ = {}; }
  // Lays one commit into the overlay. `gathered`: the part of the work that is in the overlay or at home then.
  Status gather(const Frame& frame);
  void note_gathered(double gathered) { work_.gathered = gathered; }
  // What was gathered so far has to be written home before more is.
  [[nodiscard]] bool is_full() const { return overlay_.bytes_held() > files_.options.replay_bytes_max; }
  // Finds out what write_home() would find out while writing.
  Status check();
  // Writes the overlay into the home files, not flushed yet, and empties it. Without a pace, nobody commits beside it.
  Status write_home(ReplayPace* pace);
  Status flush_homes();
  // Gives the overlay up: the log still has everything, and homes may be written in part.
  void forget() { overlay_.clear(); }

  // Objects that frames named but that have no home, or too short a one: must be removed ones.
  [[nodiscard]] const Directory::Unreachable& unreachable() const { return unreachable_; }
  void forget_unreachable() { unreachable_.clear(); }

  // Says in a marked file what it holds, while the overlay is on its way there.
  Status note_moment(LogPosition whole, LogPosition reach) { return moment_.note(whole, reach, overlay_); }
  // Lays the blocks that were kept into the empty overlay.
  Status gather_blocks() { return blocks_.gather(overlay_); }

  [[nodiscard]] const Overlay& overlay() const { return overlay_; }
  [[nodiscard]] FileMoment& moment() { return moment_; }
  [[nodiscard]] KeptBlocks& blocks() { return blocks_; }

  // Nothing is on its way home, and everything that is there is flushed.
  void assert_at_rest() const;

 private:
  // How far a checkpoint is, as parts of its work.
  struct Work {
    double gathered = 0;
    double home = 0;
    double piece = 0;  // each one in the overlay
  };

  Status write_object(ObjectId object, ReplayPace* pace);
  Result<std::unique_ptr<DirectHome>> direct_home(ObjectId object, Device& device, const ReplayPace* pace);
  Status written(ObjectId object, std::uint64_t page_bytes, ReplayPace* pace);
  void note_written(ObjectId object);

  StoreFiles& files_;
  Directory& directory_;
  Overlay overlay_;  // constant in a read-only store
  KeptBlocks blocks_{files_, directory_};
  FileMoment moment_{files_};
  Directory::Unreachable unreachable_;
  std::vector<ObjectId> written_homes_;     // to be flushed
  std::uint64_t home_bytes_unflushed_ = 0;  // of their pages
  Work work_;
};

}  // namespace memlith::core
