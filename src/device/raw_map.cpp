// Sections: RawMap, the bytes of a map, RawMapCopies, format.
#include "device/raw_map.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/buffer.hpp"
#include "base/host.hpp"
#include "base/random.hpp"

namespace memlith::core {

namespace {

template <class Header>
std::uint64_t checksum_of(const Header& header, std::uint64_t seed) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(sizeof header - sizeof header.checksum), seed);
}

}  // namespace

// ---- RawMap ----------------------------------------------------------------------------------------------------

std::uint64_t RawFileEntry::room_bytes() const {
  std::uint64_t bytes = 0;
  for (const RawExtent& extent : extents) bytes += extent.bytes;
  return bytes;
}

// In the order of their offsets.
std::vector<RawExtent> RawMap::free_runs(const RawHeader& header, std::span<const RawExtent> held) const {
  std::vector<RawExtent> used(held.begin(), held.end());
  for (const auto& [name, file] : files) used.insert(used.end(), file.extents.begin(), file.extents.end());
  std::sort(used.begin(), used.end(), [](const RawExtent& a, const RawExtent& b) { return a.offset < b.offset; });
  const std::uint64_t end = round_down(header.device_bytes, header.unit_bytes);
  used.push_back({end, 0});
  std::vector<RawExtent> runs;
  std::uint64_t at = raw_data_offset(header);
  for (const RawExtent& extent : used) {
    if (extent.offset > at) runs.push_back({at, extent.offset - at});
    at = std::max(at, extent.end());
  }
  return runs;
}

std::uint64_t RawMap::free_bytes(const RawHeader& header, std::span<const RawExtent> held) const {
  std::uint64_t bytes = 0;
  for (const RawExtent& run : free_runs(header, held)) bytes += run.bytes;
  return bytes;
}

// An extent is continued in place if the space behind it is free. A new file begins in the middle of the largest free
// run, if that leaves room before and behind it, so that the file before it and the file itself can grow in place.
Status RawMap::make_room(const RawHeader& header, RawFileEntry& file, std::uint64_t bytes,
                         std::span<const RawExtent> held) {
  const std::uint64_t room = file.room_bytes();
  if (bytes <= room) return kOk;
  std::vector<RawExtent> runs = free_runs(header, held);
  std::uint64_t free = 0;
  for (const RawExtent& run : runs) free += run.bytes;
  const std::uint64_t whole = bytes - room;
  if (whole > free) {
    return fail(Errc::no_space, Detail::resize, "the device has {} free bytes; {} are needed", free, whole);
  }
  std::uint64_t wanted = round_up(whole, header.unit_bytes);
  const auto take = [&](RawExtent& run, std::uint64_t skip) {
    const RawExtent taken{run.offset + skip, std::min(run.bytes - skip, wanted)};
    if (!file.extents.empty() && file.extents.back().end() == taken.offset) {
      file.extents.back().bytes += taken.bytes;
    } else {
      file.extents.push_back(taken);
    }
    wanted -= taken.bytes;
    if (skip == 0) run = {run.offset + taken.bytes, run.bytes - taken.bytes};
  };
  if (!file.extents.empty()) {
    for (RawExtent& run : runs) {
      if (run.offset == file.extents.back().end()) take(run, 0);
    }
  }
  while (wanted > 0) {
    RawExtent& largest =
        *std::max_element(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    const bool spacious = file.extents.empty() && wanted <= largest.bytes / 4;
    take(largest, spacious ? round_up(largest.bytes / 2, header.unit_bytes) : 0);
  }
  return kOk;
}

void RawMap::cut(const RawHeader& header, RawFileEntry& file, std::uint64_t bytes) {
  std::uint64_t left = round_up(bytes, header.unit_bytes);
  for (RawExtent& extent : file.extents) {
    extent.bytes = std::min(extent.bytes, left);
    left -= extent.bytes;
  }
  std::erase_if(file.extents, [](const RawExtent& extent) { return extent.bytes == 0; });
  file.size_bytes = bytes;
}

// ---- the bytes of a map ----------------------------------------------------------------------------------------

namespace {

template <class Record>
void append(std::vector<std::byte>& bytes, const Record& record) {
  const auto source = std::as_bytes(std::span(&record, 1));
  bytes.insert(bytes.end(), source.begin(), source.end());
}

std::vector<std::byte> content_of(const RawMap& map) {
  std::vector<std::byte> bytes;
  for (const auto& [name, file] : map.files) {
    RawFileRecord record{};
    record.number = file.number;
    record.size_bytes = file.size_bytes;
    record.extent_count = static_cast<std::uint32_t>(file.extents.size());
    MEMLITH_ASSERT(name.size() < sizeof record.name);
    std::memcpy(record.name, name.data(), name.size());
    append(bytes, record);
    for (const RawExtent& extent : file.extents) append(bytes, extent);
  }
  return bytes;
}

template <class Record>
bool take(std::span<const std::byte>& bytes, Record& record) {
  if (bytes.size() < sizeof record) return false;
  std::memcpy(&record, bytes.data(), sizeof record);
  bytes = bytes.subspan(sizeof record);
  return true;
}

// False if the content makes no sense. Its checksum is right.
bool parse(const RawHeader& header, std::span<const std::byte> content, std::uint32_t file_count, RawMap& map) {
  std::vector<RawExtent> all;
  for (std::uint32_t i = 0; i < file_count; ++i) {
    RawFileRecord record;
    if (!take(content, record) || std::memchr(record.name, 0, sizeof record.name) == nullptr) return false;
    RawFileEntry file{record.number, record.size_bytes, {}};
    for (std::uint32_t n = 0; n < record.extent_count; ++n) {
      RawExtent extent;
      if (!take(content, extent)) return false;
      const bool sane = extent.offset % header.unit_bytes == 0 && extent.bytes % header.unit_bytes == 0 &&
                        extent.bytes > 0 && extent.offset >= raw_data_offset(header) &&
                        extent.bytes <= header.device_bytes && extent.offset <= header.device_bytes - extent.bytes;
      if (!sane) return false;
      file.extents.push_back(extent);
      all.push_back(extent);
    }
    if (record.size_bytes > file.room_bytes() || record.number == 0 || record.number >= map.next_number) return false;
    if (!map.files.emplace(record.name, std::move(file)).second) return false;
  }
  std::sort(all.begin(), all.end(), [](const RawExtent& a, const RawExtent& b) { return a.offset < b.offset; });
  const auto overlap = [](const RawExtent& a, const RawExtent& b) { return b.offset < a.end(); };
  return content.empty() && std::adjacent_find(all.begin(), all.end(), overlap) == all.end();
}

}  // namespace

// ---- RawMapCopies ----------------------------------------------------------------------------------------------

Result<RawHeader> RawMapCopies::read_header(Device& device) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t device_bytes, device.size());
  bool damaged = false;
  for (const std::uint64_t offset : kRawHeaderOffsets) {
    if (device_bytes < offset + kPageBytes) break;
    MEMLITH_TRY_ASSIGN(const AlignedBuffer block, AlignedBuffer::allocate(kPageBytes));
    MEMLITH_TRY(device.read(offset, block.span()));
    RawHeader header;
    std::memcpy(&header, block.data(), sizeof header);
    if (header.magic != kRawMagic) continue;
    if (header.checksum != checksum_of(header, kRawSeed)) {
      damaged = true;
      continue;
    }
    if (header.version != kRawVersion) {
      return fail(Errc::incompatible, Detail::version,
                  "{}: the device is formatted with version {}; this memlith reads version {}", device.path(),
                  header.version, kRawVersion);
    }
    const bool sane = is_power_of_two(header.unit_bytes) && header.unit_bytes >= kPageBytes && header.device_id != 0 &&
                      header.map_bytes % kPageBytes == 0 && header.map_bytes >= kRawMapBytesMin &&
                      header.map_bytes <= kRawMapBytesMax && raw_data_offset(header) <= header.device_bytes;
    if (!sane) {
      return fail(Errc::corrupt, Detail::superblock, "{}: the device header at offset {} makes no sense (units of {})",
                  device.path(), offset, header.unit_bytes);
    }
    if (device_bytes < header.device_bytes) {
      return fail(Errc::corrupt, Detail::superblock,
                  "{}: the device has {} bytes, but was formatted with {}; it was cut short, or is not the whole "
                  "device",
                  device.path(), device_bytes, header.device_bytes);
    }
    return header;
  }
  if (damaged) {
    return fail(Errc::corrupt, Detail::superblock,
                "{}: both copies of the device header are damaged (offsets {} and {}); restore the device from a copy",
                device.path(), kRawHeaderOffsets[0], kRawHeaderOffsets[1]);
  }
  return fail(Errc::incompatible, Detail::superblock,
              "{}: the device holds no memlith store and is not prepared for one; `memlith format {}` does that",
              device.path(), device.path());
}

// Fails only for reads; a copy that is damaged is not valid.
Result<RawMap> RawMapCopies::read_copy(Device& device, std::size_t index, Copy& copy) const {
  copy = {};
  RawMap map;
  MEMLITH_TRY_ASSIGN(AlignedBuffer bytes, AlignedBuffer::allocate(kPageBytes));
  MEMLITH_TRY(device.read(offset_of(index), bytes.span()));
  RawMapHeader head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kRawMapMagic || head.device_id != header_.device_id ||
      head.checksum != checksum_of(head, header_.device_id) || head.content_bytes > header_.map_bytes - sizeof head) {
    return map;
  }
  if (const std::uint64_t whole = round_up(sizeof head + head.content_bytes, kPageBytes); whole > kPageBytes) {
    MEMLITH_TRY_ASSIGN(bytes, AlignedBuffer::allocate(whole));
    MEMLITH_TRY(device.read(offset_of(index), bytes.span().first(whole)));
  }
  const auto content = std::span<const std::byte>(bytes.span()).subspan(sizeof head, head.content_bytes);
  if (head.content_checksum != checksum(content, header_.device_id)) return map;
  map.generation = head.generation;
  map.next_number = head.next_number;
  if (!parse(header_, content, head.file_count, map)) {
    return fail(Errc::corrupt, Detail::superblock, "{}: the map of files at offset {} makes no sense", device.path(),
                offset_of(index));
  }
  copy = {true, head.generation, head.confirmed != 0};
  return map;
}

Result<RawMap> RawMapCopies::read(Device& device) {
  RawMap newest;
  bool found = false;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    MEMLITH_TRY_ASSIGN(RawMap map, read_copy(device, i, copies_[i]));
    if (!copies_[i].valid || (found && map.generation <= newest.generation)) continue;
    newest = std::move(map);
    found = true;
  }
  if (!found) {
    return fail(Errc::corrupt, Detail::superblock,
                "{}: all {} copies of the map of files are damaged (from offset {} on); restore the device from a copy",
                device.path(), copies_.size(), kRawMapsOffset);
  }
  newest_ = newest.generation;
  proven_ = std::any_of(copies_.begin(), copies_.end(), [this](const Copy& copy) {
    return copy.valid && copy.confirmed && copy.generation == newest_;
  });
  return newest;
}

Result<bool> RawMapCopies::changed(Device& device) const {
  MEMLITH_TRY_ASSIGN(const AlignedBuffer block, AlignedBuffer::allocate(kPageBytes));
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    MEMLITH_TRY(device.read(offset_of(i), block.span()));
    RawMapHeader head;
    std::memcpy(&head, block.data(), sizeof head);
    const bool complete = head.magic == kRawMapMagic && head.checksum == checksum_of(head, header_.device_id);
    if (complete && head.device_id == header_.device_id && head.generation > newest_) return true;
  }
  return false;
}

// ORDER map-before-map: as long as the new map may be torn, another copy is durable: one that is damaged goes first;
// then, if the newest was never acknowledged, the newest; then the oldest confirmed one, because an unconfirmed copy of
// that generation is durable. [mutant map_copies_at_once]
std::size_t RawMapCopies::first_to_write() const {
  const auto damaged = std::find_if(copies_.begin(), copies_.end(), [](const Copy& copy) { return !copy.valid; });
  if (damaged != copies_.end()) return static_cast<std::size_t>(damaged - copies_.begin());
  if (!proven_) {
    const auto newest =
        std::find_if(copies_.begin(), copies_.end(), [this](const Copy& copy) { return copy.generation == newest_; });
    return static_cast<std::size_t>(newest - copies_.begin());
  }
  const auto oldest = std::min_element(copies_.begin(), copies_.end(), [](const Copy& a, const Copy& b) {
    return std::pair(a.generation, !a.confirmed) < std::pair(b.generation, !b.confirmed);
  });
  return static_cast<std::size_t>(oldest - copies_.begin());
}

Status RawMapCopies::write(Device& device, RawMap& map, const Flush& flush) {
  const std::vector<std::byte> content = content_of(map);
  const std::uint64_t whole = round_up(sizeof(RawMapHeader) + content.size(), kPageBytes);
  if (whole > header_.map_bytes) {
    return fail(Errc::no_space, Detail::resize,
                "{}: the map of files is full: it needs {} bytes and has room for {}; remove regions, or format a "
                "larger device",
                device.path(), whole, header_.map_bytes);
  }
  MEMLITH_TRY_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::allocate(whole));
  const std::span<std::byte> bytes = buffer.span().first(whole);
  std::memset(bytes.data(), 0, whole);
  if (!content.empty()) std::memcpy(bytes.data() + sizeof(RawMapHeader), content.data(), content.size());
  RawMapHeader head{};
  head.magic = kRawMapMagic;
  head.device_id = header_.device_id;
  head.generation = newest_ + 1;
  head.file_count = static_cast<std::uint32_t>(map.files.size());
  head.next_number = map.next_number;
  head.content_bytes = content.size();
  head.content_checksum = checksum(content, header_.device_id);
  std::memcpy(bytes.data(), &head, sizeof head);
  const std::size_t first = first_to_write();
  MEMLITH_TRY(write_copy(device, first, bytes, false));
  MEMLITH_TRY(flush());
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (i != first) MEMLITH_TRY(write_copy(device, i, bytes, true));
  }
  MEMLITH_TRY(flush());
  for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i] = {true, head.generation, i != first};
  map.generation = newest_ = head.generation;
  proven_ = true;
  return kOk;
}

Status RawMapCopies::write_copy(Device& device, std::size_t index, std::span<std::byte> bytes, bool confirmed) {
  RawMapHeader head;
  std::memcpy(&head, bytes.data(), sizeof head);
  head.confirmed = confirmed ? 1 : 0;
  head.checksum = checksum_of(head, header_.device_id);
  std::memcpy(bytes.data(), &head, sizeof head);
  return device.write(offset_of(index), bytes);
}

// ---- format ----------------------------------------------------------------------------------------------------

namespace {

Status write_headers(Device& device, const RawHeader& header) {
  MEMLITH_TRY_ASSIGN(const AlignedBuffer block, AlignedBuffer::allocate(kPageBytes));
  std::memset(block.data(), 0, kPageBytes);
  std::memcpy(block.data(), &header, sizeof header);
  for (const std::uint64_t offset : kRawHeaderOffsets) MEMLITH_TRY(device.write(offset, block.span()));
  return device.flush();
}

}  // namespace

Status format_raw(Device& device, const RawFormat& format) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t device_bytes, device.size());
  RawHeader header{};
  header.magic = kRawMagic;
  header.version = kRawVersion;
  header.device_id = random_identity();
  header.device_bytes = device_bytes;
  // This lets the kernel map each extent: any kernel of a large device, this one of a small device.
  const std::uint64_t mapped = device_bytes < 256 * kMiB ? std::max(16 * kKiB, host_page_bytes()) : kHostPageBytesMax;
  header.unit_bytes = static_cast<std::uint32_t>(format.unit_bytes != 0 ? format.unit_bytes : mapped);
  header.map_bytes = format.map_bytes != 0
                         ? format.map_bytes
                         : std::clamp(round_down(device_bytes / 512, kPageBytes), kRawMapBytesMin, 16 * kMiB);
  header.checksum = checksum_of(header, kRawSeed);
  constexpr std::uint64_t kUnitsLeast = 8;
  if (device_bytes < raw_data_offset(header) + kUnitsLeast * header.unit_bytes) {
    return fail(Errc::invalid, Detail::argument, "{}: {} bytes are too few for a store", device.path(), device_bytes);
  }
  // ORDER header-last: while the maps are written, the device is no volume: neither the one that was there before,
  // whose files would be overwritten, nor the new one. [test RawMapTest.AFormatThatIsCutOffLeavesNoVolume]
  MEMLITH_TRY(write_headers(device, RawHeader{}));
  {
    MEMLITH_TRY_ASSIGN(const AlignedBuffer zeros, AlignedBuffer::allocate(kRawMapBytesMin));
    std::memset(zeros.data(), 0, zeros.size());
    MEMLITH_TRY(device.write(kRawNoticeOffset, zeros.span().first(kRawNoticeBytes)));
    for (std::size_t i = 0; i < kRawMapCopies; ++i) {
      MEMLITH_TRY(device.write(kRawMapsOffset + i * header.map_bytes, zeros.span().first(kPageBytes)));
    }
  }
  RawMap empty;
  MEMLITH_TRY(RawMapCopies(header).write(device, empty, [&] { return device.flush(); }));
  return write_headers(device, header);
}

}  // namespace memlith::core
