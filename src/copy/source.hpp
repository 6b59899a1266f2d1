// Walks a store that another process may be writing, as one durable commit left it. Floor: copy.
// docs/architecture.md, "Copies of a store in use".
//
// The homes are read in large transfers, several at a time, and the log is read along (Follower). The frames are put on
// top of the homes. No lock is taken, and the writer does not know of the walk: nothing is asked of it. A frame that is
// overwritten before it was read is noticed by its checksums; then the walk begins anew, a limited number of times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "copy/byte_ranges.hpp"
#include "copy/sink.hpp"
#include "store/directory.hpp"
#include "store/follower.hpp"
#include "store/opening.hpp"
#include "store/overlay.hpp"
#include "store/replay.hpp"
#include "store/rot_finder.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

struct CopySteps {
  std::uint64_t transfer_bytes = 1 * kMiB;
  std::uint64_t look_bytes = 4 * kMiB;  // between two looks at the log
};

// One thread at a time.
class CopySource {
 public:
  // Uses from `options` the kind, the name of the file, direct_io, follow_patience (with a store that looks damaged a
  // tenth of it) and replay_bytes_max count. The volume outlives the source.
  CopySource(Volume& volume, StoreOptions options, CopySteps steps = {});

  // Hands the objects to the sink. Errors: those of opening a store; busy (the writer filled its log several times over
  // while the objects were read); not_found (the store was removed, or another has taken its place); corrupt; io; those
  // of the sink.
  Result<CopiedState> walk(CopySink& sink, const CopyProgress& progress = {});

 private:
  // False: the writer has gone on too far, or has begun or ended; try again.
  Result<bool> try_to_walk(CopySink& sink);
  Status look();
  Result<std::vector<ObjectId>> homes_there();
  Result<bool> take_homes(CopySink& sink, std::vector<ObjectId>& left);
  Result<bool> read_home(CopySink& sink, ObjectId object);
  Result<bool> read_along(std::uint64_t bytes);
  Status put_read(CopySink& sink, ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes);
  Status put_gathered(CopySink& sink);
  Status load_directory();
  Status check_objects();
  [[nodiscard]] CopiedState state() const;
  void tell(std::uint64_t bytes);

  StoreFiles files_;
  const CopySteps steps_;
  const std::unique_ptr<Directory> directory_ = Directory::make(files_);
  Opening opening_{files_, *directory_};
  Replay replay_{files_, *directory_};
  Follower follower_{files_, opening_, replay_};
  RotFinder rot_{files_};
  CopyProgress progress_;

  // ---- of the walk that is under way
  FileRecord record_{};        // of the file, as the superblock had it at first
  Overlay directory_changes_;  // since then
  std::set<ObjectId> read_;    // objects whose home is in the sink, all of it
  std::map<ObjectId, ByteRanges>
      put_;  // of the others: frames' bytes that the sink has, which the home must not replace
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t bytes_since_look_ = 0;
};

}  // namespace memlith::core
