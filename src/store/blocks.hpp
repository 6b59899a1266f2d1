// Whole physical blocks of homes, for stores that do not trust a block's neighbours in a torn write. Floor: store.
//
// A checkpoint writes parts of blocks home. If a power cut may spoil the whole physical block around a sector in flight, the rest of
// the block would be lost, because the log has only the parts. So the blocks are written to a file beside the log first, whole.
// Recovery lays them below the log's commits: both together are the block, whatever is at home.
//
// Opening for writing makes the file anew, and gives the file its name. From then on the store writes the file in place, through the
// open descriptor: the name may lead elsewhere, and the right to make files may have been given up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/mutant.hpp"
#include "store/directory.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Of a store that trusts its disk, each call but keep() does nothing. One thread at a time.
class KeptBlocks {
 public:
  static constexpr std::uint64_t kBlockBytes = 4096;

  KeptBlocks(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // Recovery: lays the blocks that were kept for what lies behind the tail into the empty overlay.
  Status gather(Overlay& overlay);
  [[nodiscard]] bool in_use() const { return files_.whole_blocks() && !MEMLITH_MUTANT(blocks_not_kept); }
  // Before homes are written: keeps all of each block of which the overlay has a part. The homes written before are flushed.
  Status keep(const Overlay& overlay);
  // The overlay that was kept for is at home.
  void homes_are_written() { gathered_.clear(); }
  // At the end of recovery, whose homes are flushed: from here on no name is needed.
  Status settle();
  // Removes no file but the store's own.
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
  std::unique_ptr<Device> device_;                         // null: the file was not made yet
  bool in_place_ = false;                                  // the file has the name that recovery looks for
};

}  // namespace memlith::core
