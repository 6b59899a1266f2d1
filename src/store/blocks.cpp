#include "store/blocks.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "log/geometry.hpp"

namespace memlith::core {

namespace {

// The parts of blocks that the overlay has of a file of `size` bytes, in order of offset. Bytes behind the end, of a
// user's file that an earlier recovery cut, are in no block.
using VisitPart = std::function<Status(std::uint64_t block, std::uint64_t begin, std::span<const std::byte> bytes)>;

Status for_each_part(const Overlay& overlay, ObjectId object, std::uint64_t size, const VisitPart& visit) {
  constexpr std::uint64_t kBlockBytes = KeptBlocks::kBlockBytes;
  return overlay.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset >= size) return kOk;
    const std::uint64_t end = std::min(size, offset + bytes.size());
    for (std::uint64_t block = round_down(offset, kBlockBytes); block < end; block += kBlockBytes) {
      const std::uint64_t from = std::max(block, offset);
      const std::uint64_t until = std::min(block + kBlockBytes, end);
      MEMLITH_ASSERT(from < until && until - from <= kBlockBytes && until - offset <= bytes.size());
      MEMLITH_TRY(visit(block, from - block, bytes.subspan(from - offset, until - from)));
    }
    return kOk;
  });
}

}  // namespace

Result<KeptBlocks::Blocks> KeptBlocks::whole_blocks_of(ObjectId object, const Overlay& overlay) {
  Blocks blocks;
  MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get_if_there(object));
  if (device == nullptr) return blocks;
  MEMLITH_TRY_ASSIGN(const bool removed, device->removed());
  if (removed) return blocks;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  MEMLITH_TRY(for_each_part(overlay, object, size,
                            [&](std::uint64_t block, std::uint64_t, std::span<const std::byte> bytes) -> Status {
                              const bool is_whole = bytes.size() == kBlockBytes && !gathered_.contains({object, block});
                              if (is_whole || blocks.contains(block)) return kOk;
                              std::vector<std::byte>& whole = blocks[block];
                              whole.resize(std::min(kBlockBytes, size - block));
                              return device->read(block, whole);
                            }));
  MEMLITH_TRY(for_each_part(overlay, object, size,
                            [&](std::uint64_t block, std::uint64_t begin, std::span<const std::byte> bytes) -> Status {
                              if (const auto found = blocks.find(block); found != blocks.end()) {
                                MEMLITH_ASSERT(begin + bytes.size() <= found->second.size());
                                std::memcpy(found->second.data() + begin, bytes.data(), bytes.size());
                              }
                              return kOk;
                            }));
  return blocks;
}

Status KeptBlocks::keep(const Overlay& overlay) {
  std::vector<std::byte> content(sizeof(BlocksHeader));
  for (const ObjectId object : overlay.objects()) {
    if (!directory_.has_home(object)) continue;
    MEMLITH_TRY_ASSIGN(const Blocks blocks, whole_blocks_of(object, overlay));
    for (const auto& [offset, bytes] : blocks) {
      MEMLITH_ASSERT(offset % kBlockBytes == 0 && !bytes.empty() && bytes.size() <= kBlockBytes);
      const ExtentRecord record{object.value, static_cast<std::uint32_t>(bytes.size()), offset};
      const auto raw = std::as_bytes(std::span(&record, 1));
      content.insert(content.end(), raw.begin(), raw.end());
      content.insert(content.end(), bytes.begin(), bytes.end());
    }
  }
  if (content.size() == sizeof(BlocksHeader)) return kOk;
  const BlocksHeader header = header_of(std::span(content).subspan(sizeof(BlocksHeader)));
  std::memcpy(content.data(), &header, sizeof header);
  return write(content);
}

BlocksHeader KeptBlocks::header_of(std::span<const std::byte> content) const {
  const std::uint64_t log_id = files_.log->log_id();
  BlocksHeader header{};
  header.magic = kBlocksMagic;
  header.log_id = log_id;
  header.tail_lsn = files_.log->tail().lsn.value;
  header.content_bytes = content.size();
  header.content_checksum = checksum(content, log_id);
  header.checksum = header_checksum(header, log_id);
  return header;
}

Status KeptBlocks::write(std::span<const std::byte> content) {
  MEMLITH_ASSERT(content.size() > sizeof(BlocksHeader));
  MEMLITH_TRY(make());
  MEMLITH_TRY(device_->reserve(content.size()));
  MEMLITH_TRY(device_->write(0, content));
  // ORDER blocks-before-home: a part of a block goes home only when the whole block is on the medium. [mutant
  // blocks_not_flushed]
  MEMLITH_TRY(device_->flush());
  return put_in_place();
}

// The new file has no blocks and not its final name yet: recovery needs the file that a crash left until the new one is
// complete.
Status KeptBlocks::make() {
  if (device_ != nullptr) return kOk;
  const std::string fresh = files_.names.fresh_blocks();
  // An existing file is overwritten and not removed: a power cut might undo the removal but not the renaming.
  MEMLITH_TRY_ASSIGN(const bool left_over, files_.volume.exists(fresh));
  const OpenMode mode = left_over ? OpenMode::read_write : OpenMode::create;
  MEMLITH_TRY_ASSIGN(auto device, files_.volume.open(fresh, mode, Caching::buffered));
  MEMLITH_TRY(device->truncate(0));
  MEMLITH_TRY(directory_.match_permissions(*device));
  device_ = std::move(device);
  return kOk;
}

// ORDER blocks-before-name: home files that a crash left half written need the older blocks until the newer blocks, or
// those home files, are flushed. [workload blocks]
Status KeptBlocks::put_in_place() {
  MEMLITH_ASSERT(device_ != nullptr);
  if (in_place_) return kOk;
  MEMLITH_TRY(files_.volume.rename(files_.names.fresh_blocks(), files_.names.blocks));
  in_place_ = true;
  return files_.volume.sync_folder("");
}

Status KeptBlocks::renew() {
  if (!files_.whole_blocks()) return kOk;
  MEMLITH_TRY(make());
  return put_in_place();
}

Status KeptBlocks::drop() {
  if (device_ == nullptr) return kOk;
  const std::string& name = in_place_ ? files_.names.blocks : files_.names.fresh_blocks();
  const Status removed = files_.volume.remove_own(name, *device_);
  device_ = nullptr;
  // A process that gave up the right to remove the file leaves it: the log shows that the file is not valid.
  return removed.category == Errc::permission ? kOk : removed;
}

Status KeptBlocks::gather(Overlay& overlay) {
  if (!files_.whole_blocks() || files_.was_clean) return kOk;
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(files_.names.blocks));
  if (!there) return kOk;
  MEMLITH_TRY_ASSIGN(const auto device,
                     files_.volume.open(files_.names.blocks, OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  BlocksHeader header;
  if (size < sizeof header) return kOk;
  MEMLITH_TRY(device->read(0, std::as_writable_bytes(std::span(&header, 1))));
  const std::uint64_t log_id = files_.log->log_id();
  const bool counts = header.magic == kBlocksMagic && header.log_id == log_id &&
                      header.checksum == header_checksum(header, log_id) &&
                      header.tail_lsn == files_.log->tail().lsn.value && header.content_bytes <= size - sizeof header;
  if (!counts) return kOk;  // of an earlier checkpoint, or incomplete: no home file was written under it
  std::vector<std::byte> content(header.content_bytes);  // remains of longer contents follow
  MEMLITH_TRY(device->read(sizeof header, content));
  auto rest = std::span<const std::byte>(content);
  if (header.content_checksum != checksum(rest, log_id)) return kOk;  // likewise
  while (rest.size() >= sizeof(ExtentRecord)) {
    ExtentRecord record;
    std::memcpy(&record, rest.data(), sizeof record);
    rest = rest.subspan(sizeof record);
    if (record.bytes > rest.size()) break;
    MEMLITH_TRY(overlay.apply(ObjectId{record.object}, record.offset, rest.first(record.bytes)));
    gathered_.insert({ObjectId{record.object}, record.offset});
    rest = rest.subspan(record.bytes);
  }
  return kOk;
}

}  // namespace memlith::core
