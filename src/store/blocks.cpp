// Whole physical blocks of homes, for stores that do not trust a block's neighbours in a torn write. Floor: store.
//
// A checkpoint writes parts of blocks home. If a power cut may spoil the whole physical block around a sector in flight, the rest of
// the block would be lost, because the log has only the parts. So the blocks are written to a file beside the log first, whole.
// Recovery lays them below the log's commits: both together are the block, whatever is at home.
//
// Opening for writing makes the file anew, and gives the file its name. From then on the store writes the file in place, through the
// open descriptor: the name may lead elsewhere, and the right to make files may have been given up.
#include <cstring>
#include <map>

#include "base/mutant.hpp"
#include "log/geometry.hpp"
#include "store/store.hpp"

namespace memlith::core {

std::string Store::blocks_name() const { return one_file() ? log_name() + "-blocks" : "blocks"; }

// Before homes are written: all of each block of which the overlay has a part.
Status Store::keep_blocks() {
  if (!whole_blocks() || MEMLITH_MUTANT(blocks_not_kept)) return kOk;
  // ORDER homes-before-blocks: homes that were written under the older blocks need them until they are flushed. Once they are, no home
  // is half written, and the older blocks may be written over: a file of blocks that is torn does not count (the header has the checksum
  // of the content), and need not. [lab/blocks]
  MEMLITH_TRY(flush_homes());
  std::vector<std::byte> content(sizeof(BlocksHeader));
  for (const ObjectId object : overlay_.objects()) {
    if (one_file() && object == kDirectory) continue;
    MEMLITH_TRY_ASSIGN(Device* const device, home_if_there(object));
    if (device == nullptr) continue;
    MEMLITH_TRY_ASSIGN(const bool removed, device->removed());
    if (removed) continue;
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
    std::map<std::uint64_t, std::vector<std::byte>> blocks;  // by offset
    const auto each_block = [&](const auto& act) {
      return overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
        const std::uint64_t end = std::min(size, offset + bytes.size());
        for (std::uint64_t block = round_down(offset, kBlockBytes); block < end; block += kBlockBytes) {
          const std::uint64_t from = std::max(block, offset);
          const std::uint64_t until = std::min(block + kBlockBytes, end);
          MEMLITH_TRY(act(block, from - block, bytes.subspan(from - offset, until - from)));
        }
        return kOk;
      });
    };
    MEMLITH_TRY(each_block([&](std::uint64_t block, std::uint64_t, std::span<const std::byte> bytes) -> Status {
      if ((bytes.size() == kBlockBytes && !kept_blocks_.contains({object, block})) || blocks.contains(block))
        return kOk;
      std::vector<std::byte>& whole = blocks[block];
      whole.resize(std::min(kBlockBytes, size - block));
      return device->read(block, whole);
    }));
    MEMLITH_TRY(each_block([&](std::uint64_t block, std::uint64_t begin, std::span<const std::byte> bytes) -> Status {
      if (const auto found = blocks.find(block); found != blocks.end()) {
        std::memcpy(found->second.data() + begin, bytes.data(), bytes.size());
      }
      return kOk;
    }));
    for (const auto& [offset, bytes] : blocks) {
      const ExtentRecord record{object.value, static_cast<std::uint32_t>(bytes.size()), offset};
      const auto raw = std::as_bytes(std::span(&record, 1));
      content.insert(content.end(), raw.begin(), raw.end());
      content.insert(content.end(), bytes.begin(), bytes.end());
    }
  }
  if (content.size() == sizeof(BlocksHeader)) return kOk;
  BlocksHeader header{};
  header.magic = kBlocksMagic;
  header.log_id = log_->log_id();
  header.tail_lsn = log_->tail().lsn.value;
  header.content_bytes = content.size() - sizeof header;
  header.content_checksum = checksum(std::span(content).subspan(sizeof header), log_->log_id());
  header.checksum = header_checksum(header, log_->log_id());
  std::memcpy(content.data(), &header, sizeof header);

  MEMLITH_TRY(make_blocks());
  MEMLITH_TRY(blocks_->reserve(content.size()));
  MEMLITH_TRY(blocks_->write(0, content));
  // ORDER blocks-before-home: a part of a block goes home when the whole block is on the medium. [lab/blocks]
  MEMLITH_TRY(blocks_->flush());
  return put_blocks_in_place();
}

// The file has no blocks yet, and not its name: recovery needs the one that a crash left until the new one is whole.
Status Store::make_blocks() {
  if (blocks_ != nullptr) return kOk;
  const std::string fresh = blocks_name() + ".new";
  // One that is there already is written over, and not removed: or a power cut might undo the removal, but not the renaming.
  MEMLITH_TRY_ASSIGN(const bool left_over, volume_.exists(fresh));
  MEMLITH_TRY_ASSIGN(auto device,
                     volume_.open(fresh, left_over ? OpenMode::read_write : OpenMode::create, Caching::buffered));
  MEMLITH_TRY(device->truncate(0));
  if (one_file()) MEMLITH_TRY(match_permissions(*device));
  blocks_ = std::move(device);
  return kOk;
}

// ORDER blocks-before-name: the homes that a crash left half written need the older blocks until the newer ones are flushed, or until
// those homes are. [lab/blocks]
Status Store::put_blocks_in_place() {
  if (blocks_in_place_) return kOk;
  MEMLITH_TRY(volume_.rename(blocks_name() + ".new", blocks_name()));
  blocks_in_place_ = true;
  return volume_.sync_folder("");
}

// At the end of recovery, whose homes are flushed: from here on no name is needed.
Status Store::settle_blocks() {
  if (!whole_blocks()) return kOk;
  MEMLITH_TRY(make_blocks());
  return put_blocks_in_place();
}

// Removes no file but the store's own.
Status Store::drop_blocks() {
  if (blocks_ == nullptr) return kOk;
  const Status removed = volume_.remove_own(blocks_in_place_ ? blocks_name() : blocks_name() + ".new", *blocks_);
  blocks_ = nullptr;
  // A process that gave up the right to remove the file leaves it there: the log says that it is of no use.
  return removed.category == Errc::permission ? kOk : removed;
}

// Lays the blocks that were kept for what lies behind the tail into the empty overlay.
Status Store::gather_blocks() {
  if (!whole_blocks() || was_clean_) return kOk;
  MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(blocks_name()));
  if (!there) return kOk;
  MEMLITH_TRY_ASSIGN(const auto device, volume_.open(blocks_name(), OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  BlocksHeader header;
  if (size < sizeof header) return kOk;
  MEMLITH_TRY(device->read(0, std::as_writable_bytes(std::span(&header, 1))));
  const std::uint64_t log_id = log_->log_id();
  const bool counts = header.magic == kBlocksMagic && header.log_id == log_id &&
                      header.checksum == header_checksum(header, log_id) && header.tail_lsn == log_->tail().lsn.value &&
                      header.content_bytes <= size - sizeof header;
  if (!counts) return kOk;  // of an earlier checkpoint, or not finished: no home was written under it
  std::vector<std::byte> content(header.content_bytes);  // behind it lies what is left of longer ones
  MEMLITH_TRY(device->read(sizeof header, content));
  auto rest = std::span<const std::byte>(content);
  if (header.content_checksum != checksum(rest, log_id)) return kOk;  // likewise
  while (rest.size() >= sizeof(ExtentRecord)) {
    ExtentRecord record;
    std::memcpy(&record, rest.data(), sizeof record);
    rest = rest.subspan(sizeof record);
    if (record.bytes > rest.size()) break;
    MEMLITH_TRY(overlay_.apply(ObjectId{record.object}, record.offset, rest.first(record.bytes)));
    kept_blocks_.insert({ObjectId{record.object}, record.offset});
    rest = rest.subspan(record.bytes);
  }
  return kOk;
}

}  // namespace memlith::core
