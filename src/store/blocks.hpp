// Whole physical blocks of home files, for stores on disks that tear whole blocks. Floor: store.
//
// A checkpoint writes parts of blocks home. If a power cut may damage the whole physical block around a sector in
// flight, the rest of the block would be lost, because the log has only the changed parts. Therefore the complete
// blocks are first written to a file beside the log. Recovery applies them before the log's commits: together they
// restore the block, whatever the home file holds.
//
// Opening for writing creates a new file and gives it its name. From then on the store overwrites the file through the
// open descriptor: the name may lead elsewhere, and the process may have given up the right to create files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "store/directory.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// In a store without physical blocks, each call except keep() does nothing. One thread at a time.
class KeptBlocks {
 public:
  static constexpr std::uint64_t kBlockBytes = 4096;

  KeptBlocks(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // Recovery: puts the blocks that were kept for the commits after the tail into the empty overlay.
  Status gather(Overlay& overlay);
  [[nodiscard]] bool in_use() const { return files_.whole_blocks(); }
  // Before home files are written: keeps every block of which the overlay has a part, complete. Earlier home writes are
  // flushed.
  Status keep(const Overlay& overlay);
  // The overlay whose blocks were kept is home.
  void homes_are_written() { gathered_.clear(); }
  // At the end of recovery, when the home files are flushed: from here on the name is not needed.
  Status renew();
  // Removes the file only if it is the store's own.
  Status drop();
  [[nodiscard]] bool has_its_name() const { return in_place_; }

 private:
  using Blocks = std::map<std::uint64_t, std::vector<std::byte>>;  // by offset
  Result<Blocks> whole_blocks_of(ObjectId object, const Overlay& overlay);
  [[nodiscard]] BlocksHeader header_of(std::span<const std::byte> content) const;
  Status write(std::span<const std::byte> content);
  Status make();
  Status put_in_place();

  StoreFiles& files_;
  Directory& directory_;
  std::set<std::pair<ObjectId, std::uint64_t>> gathered_;  // blocks that recovery found, by offset
  std::unique_ptr<Device> device_;                         // null: the file was not created yet
  bool in_place_ = false;                                  // the file has the name that recovery looks for
};

}  // namespace memlith::core
