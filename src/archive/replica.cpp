#include "archive/replica.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "store/recovery.hpp"

namespace memlith::core {

namespace {

StoreOptions holding(StoreKind kind, std::string file_name) {
  StoreOptions options;
  options.kind = kind;
  options.file_name = std::move(file_name);
  options.held = true;
  options.direct_io = false;
  options.manual_checkpoint = options.manual_flush = options.any_medium = true;
  return options;
}

}  // namespace

Replica::Replica(Volume& volume, StoreKind kind, std::string file_name)
    : files_(volume, holding(kind, std::move(file_name))) {}

Replica::~Replica() = default;

// ---- creating --------------------------------------------------------------------------------------------------

Status Replica::create(const FullCopy& full, std::uint64_t log_id, PackReader& copy, std::uint64_t log_bytes_min) {
  MEMLITH_ASSERT(files_.log == nullptr);
  MEMLITH_TRY(files_.volume.make_folder(""));
  if (!files_.one_file()) MEMLITH_TRY(files_.volume.make_folder("objects"));
  StoreHeader header;
  std::memcpy(&header, full.client.data(), sizeof header);
  directory_->read_record({header.file, header.own, {}, header.recoveries});
  MEMLITH_TRY(copy_homes(copy, log_id));
  // ORDER homes-before-log: the replica exists from the name of its log on. [test
  // Archive.AStandbyIsAStateAfterAPowerCut]
  MEMLITH_TRY(files_.volume.sync_folder(""));
  if (!files_.one_file()) MEMLITH_TRY(files_.volume.sync_folder("objects"));
  MEMLITH_TRY(make_log(full, log_id, log_bytes_min));
  MEMLITH_TRY(open());
  MEMLITH_ASSERT(end_ == full.from && this->log_id() == log_id);
  return write_superblock(end_, end_, [&full](Superblock& next) {
    next.slot_count_made = full.slot_count;  // for the log that promote() makes
  });
}

Status Replica::copy_homes(PackReader& copy, std::uint64_t log_id) {
  std::map<ObjectId, NewSums> sums;
  std::unique_ptr<Device> home;  // of `object`
  ObjectId object{};
  std::vector<std::byte> buffer;
  const auto enter = [&](ObjectId id) -> Status {
    if (home != nullptr && object == id) return kOk;
    const bool is_new = sums.try_emplace(id, id).second;
    const OpenMode mode = is_new ? OpenMode::create : OpenMode::read_write;
    object = id;
    MEMLITH_TRY_ASSIGN(home, files_.volume.open(files_.names.home(id), mode, Caching::buffered));
    return kOk;
  };
  for (;;) {
    CopyRecord record;
    MEMLITH_TRY(copy.read(std::as_writable_bytes(std::span(&record, 1))));
    if (record.kind == kCopyEnd) {
      for (auto& [id, of_home] : sums) {
        MEMLITH_TRY(enter(id));
        MEMLITH_TRY(home->flush());
        if (id == kDirectory || files_.one_file()) continue;
        MEMLITH_TRY(of_home.finish(files_.volume, files_.names.sums(id), log_id, *home));
      }
      return copy.finish();
    }
    const ObjectId id{record.object};
    const bool known = record.kind == kCopySize || record.kind == kCopyBytes;
    if (!known || record.offset > (1ull << 62) || record.bytes > (1ull << 62) || (files_.one_file() && id != kFile)) {
      return fail(Errc::corrupt, Detail::read,
                  "{}: a record of this full copy is invalid although its checksum is right", copy.path());
    }
    MEMLITH_TRY(enter(id));
    if (record.kind == kCopySize) {
      MEMLITH_TRY(home->truncate(record.offset));
      continue;
    }
    for (std::uint64_t done = 0; done < record.bytes; done += buffer.size()) {
      buffer.resize(std::min<std::uint64_t>(record.bytes - done, kChunkBytesMax));
      MEMLITH_TRY(copy.read(buffer));
      MEMLITH_ASSERT(!buffer.empty() && sums.contains(id));
      MEMLITH_TRY(home->write(record.offset + done, buffer));
      sums.at(id).note(record.offset + done, buffer);
    }
  }
}

// The frames are added as they are, so the log has the identity of the store's.
Status Replica::make_log(const FullCopy& full, std::uint64_t log_id, std::uint64_t log_bytes_min) {
  LogFormat format;
  format.block_bytes = full.block_bytes;
  format.slot_bytes = full.slot_bytes;
  format.slot_count = std::max(full.slot_count, log_bytes_min / full.slot_bytes + 2);
  const LogBeginning beginning{full.from, 0, LogEnd::held};
  const std::string fresh = files_.names.fresh_log();
  MEMLITH_TRY_ASSIGN(const bool left_over, files_.volume.exists(fresh));
  if (left_over) MEMLITH_TRY(files_.volume.remove(fresh));
  {
    MEMLITH_TRY_ASSIGN(const auto device, files_.volume.open(fresh, OpenMode::create, Caching::buffered));
    MEMLITH_TRY(directory_->match_permissions(*device));
    MEMLITH_TRY(Log::format(*device, format, full.client, log_id, beginning));
  }
  MEMLITH_TRY(files_.volume.rename(fresh, files_.names.log));
  return files_.volume.sync_folder("");
}

Status Replica::open() {
  MEMLITH_TRY(read_log());
  end_ = {Lsn{superblock().head_lsn}, superblock().head_previous};
  return kOk;
}

// Opens the log, or opens it anew.
Status Replica::read_log() {
  superblocks_ = nullptr;
  files_.log = nullptr;
  MEMLITH_TRY(opening_.run());
  superblocks_ = std::make_unique<Superblocks>(*files_.log_device);
  return superblocks_->read();
}

Status Replica::write_superblock(LogPosition tail, LogPosition head, const std::function<void(Superblock&)>& change) {
  MEMLITH_ASSERT(tail.lsn <= head.lsn);
  const LockGuard lock(superblocks_->mutex());
  if (change) change(superblocks_->current());
  return superblocks_->write(tail, superblocks_->client_bytes(), head, LogEnd::held);
}

ClientBytes Replica::client() const {
  const LockGuard lock(superblocks_->mutex());
  return superblocks_->client_bytes();
}

// ---- frames ----------------------------------------------------------------------------------------------------

Status Replica::append(std::span<const std::byte> frames, LogPosition from, LogPosition to, std::uint64_t incarnation) {
  MEMLITH_ASSERT(from.previous == end_.previous && from.lsn >= end_.lsn);
  MEMLITH_ASSERT(!frames.empty() && to.lsn.value - from.lsn.value == frames.size());
  if (from.lsn > end_.lsn) {
    MEMLITH_TRY(checkpoint());
    MEMLITH_TRY(write_superblock(from, from));
    end_ = from;
  }
  MEMLITH_TRY(make_room(to));
  MEMLITH_TRY(write_frames(frames, from.lsn));
  // ORDER frames-before-head: whatever is before the head is complete on the medium. [mutant standby_counts_early]
  MEMLITH_TRY(files_.log_device->flush());
  MEMLITH_TRY(write_superblock({Lsn{superblock().tail_lsn}, superblock().tail_previous}, to,
                               [incarnation, &to](Superblock& next) {
                                 next.incarnation = std::max(next.incarnation, incarnation);
                                 next.begun_lsn = to.lsn.value;
                               }));
  end_ = to;
  return kOk;
}

// Slots for everything from the tail to `to`.
Status Replica::make_room(LogPosition to) {
  const auto needed = [this, &to] {
    const LogGeometry& geometry = files_.log->geometry();
    MEMLITH_ASSERT(superblock().tail_lsn < to.lsn.value);
    const std::uint64_t last = geometry.segment_of(Lsn{to.lsn.value - 1});
    return last - geometry.segment_of(Lsn{superblock().tail_lsn}) + 1;
  };
  if (needed() <= superblock().slot_count) return kOk;
  MEMLITH_TRY(checkpoint());
  const std::uint64_t slots = needed();
  return slots <= superblock().slot_count ? kOk : grow(slots);
}

// The log is empty.
Status Replica::grow(std::uint64_t slots) {
  MEMLITH_ASSERT(slots > superblock().slot_count && superblock().tail_lsn == end_.lsn.value);
  if (slots > kSlotCountMax) {
    return fail(Errc::full, Detail::slot, "{}: a frame does not fit into a log of {} slots", files_.path(),
                kSlotCountMax);
  }
  Device& device = *files_.log_device;
  const LogGeometry geometry = files_.log->geometry();
  const std::uint64_t before = superblock().slot_count;
  MEMLITH_TRY(device.reserve(geometry.slot_offset(static_cast<std::uint32_t>(slots))));
  // Which slot a segment is in depends on their number.
  const std::vector<std::byte> zeros(geometry.block_bytes);
  for (std::uint64_t slot = 0; slot < before; ++slot) {
    MEMLITH_TRY(device.write(geometry.slot_offset(static_cast<std::uint32_t>(slot)), zeros));
  }
  // ORDER unclaim-before-grow: no slot claims a segment that another one will have. [test
  // ArchiveParts.AReplicaGrowsForALargeFrame]
  MEMLITH_TRY(device.flush());
  claimed_.clear();
  return write_superblock(end_, end_, [slots](Superblock& next) { next.slot_count = slots; });
}

Status Replica::write_frames(std::span<const std::byte> frames, Lsn from) {
  const LogGeometry& geometry = files_.log->geometry();
  while (!frames.empty()) {
    const std::uint64_t segment = geometry.segment_of(from);
    MEMLITH_TRY(claim(segment));
    const std::uint64_t count = std::min<std::uint64_t>(frames.size(), geometry.left_in_segment(from));
    MEMLITH_ASSERT(count > 0 && claimed_.contains(segment));
    const auto slot = static_cast<std::uint32_t>(segment % superblock().slot_count);
    MEMLITH_TRY(files_.log_device->write(geometry.slot_offset(slot) + geometry.block_bytes +
                                             geometry.offset_in_segment(from),
                                         frames.first(count)));
    frames = frames.subspan(count);
    from = from.advance(count);
  }
  return kOk;
}

Status Replica::claim(std::uint64_t segment) {
  if (!claimed_.insert(segment).second) return kOk;
  const std::uint64_t slots = superblock().slot_count;
  if (segment >= slots) claimed_.erase(claimed_.begin(), claimed_.upper_bound(segment - slots));
  MEMLITH_ASSERT(claimed_.size() <= slots);  // a slot claims one segment
  std::vector<std::byte> block(files_.log->geometry().block_bytes);
  fill_slot_header(block, segment, 1, log_id());
  return files_.log_device->write(files_.log->geometry().slot_offset(static_cast<std::uint32_t>(segment % slots)),
                                  block);
}

// ---- homes -----------------------------------------------------------------------------------------------------

Status Replica::checkpoint() {
  MEMLITH_TRY(read_log());
  files_.sums.begin(false, false, log_id());
  MEMLITH_TRY(make_homes_fit());
  MEMLITH_TRY(fit_in_use_header());
  files_.file_lock = nullptr;  // recovery takes it again
  MEMLITH_TRY(Recovery(files_, *directory_, replay_).run());
  MEMLITH_TRY(superblocks_->read());
  claimed_.clear();
  return kOk;
}

// A store's process makes home files long enough before the log has anything for them. Here the frames come first.
Status Replica::make_homes_fit() {
  Replay probe(files_, *directory_);
  MEMLITH_TRY(files_.log->recover([&probe](const Frame& frame) { return probe.gather(frame).status(); }));
  if (files_.one_file()) {
    FileRecord record = directory_->record_at_home();
    MEMLITH_TRY(probe.overlay().for_each(kDirectory, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      if (offset <= sizeof record && bytes.size() <= sizeof record - offset) {
        std::memcpy(reinterpret_cast<std::byte*>(&record) + offset, bytes.data(), bytes.size());
      }
      return kOk;
    }));
    return make_home_fit(kFile, record.object.size_bytes);
  }
  std::uint64_t end = 0;
  MEMLITH_TRY(probe.overlay().for_each(kDirectory, [&end](std::uint64_t offset, std::span<const std::byte> bytes) {
    end = std::max(end, offset + bytes.size());
    return kOk;
  }));
  MEMLITH_TRY(make_home_fit(kDirectory, end));
  MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get(kDirectory));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
  std::vector<std::byte> content(size);
  MEMLITH_TRY(home->read(0, content));
  MEMLITH_TRY(probe.overlay().for_each(kDirectory, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
    return kOk;
  }));
  for (std::uint64_t at = kDirectoryEntryBytes; at + kDirectoryEntryBytes <= size; at += kDirectoryEntryBytes) {
    DirectoryEntry entry;
    std::memcpy(&entry, content.data() + at, sizeof entry);
    // Recovery says what is wrong with the others.
    const bool valid = entry.object.live == 1 && entry.checksum == header_checksum(entry, log_id());
    if (valid) MEMLITH_TRY(make_home_fit(ObjectId{entry.object.id}, entry.object.size_bytes));
  }
  return kOk;
}

Status Replica::make_home_fit(ObjectId object, std::uint64_t bytes) {
  const std::string name = files_.names.home(object);
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(name));
  if (!there) {
    MEMLITH_TRY(files_.volume.open(name, OpenMode::create, Caching::buffered).status());
    if (object != kDirectory && !files_.one_file()) {
      MEMLITH_TRY_ASSIGN(const auto sums, SumsFile::make(files_.volume, files_.names.sums(object), log_id(), object,
                                                         SumsFile::Home::zeros));
      MEMLITH_TRY(sums->flush());
    }
    MEMLITH_TRY(files_.volume.sync_folder(files_.one_file() ? "" : "objects"));
  }
  MEMLITH_TRY_ASSIGN(Device* const home, files_.homes.get(object));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, home->size());
  if (size >= bytes) return kOk;
  MEMLITH_TRY(home->reserve(bytes));
  MEMLITH_TRY(files_.sums.reserve(object, bytes));
  return home->flush();
}

// The in-use header of a file says with which moment of its log the file belongs. The file comes from a copy that was
// made while the store went on, so it says nothing of the kind. The file is marked as the record says: a recovery that
// was interrupted may have brought an in-use header home, and the frames bring it, or what follows it, again.
Status Replica::fit_in_use_header() {
  if (!files_.one_file()) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kInUseHeaderBytes) return kOk;
  InUseHeader found;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(&found, 1))));
  const InUse has = in_use_of(found.kind);
  const InUse must_have = directory_->record_at_home().own.marked;
  const bool by_caller = has == InUse::caller && files_.in_use == InUse::caller;
  if (must_have == InUse::none && (has == InUse::none || (has == InUse::caller && !by_caller))) return kOk;
  const InUseHeader fit{by_caller ? found.kind : kind_of(must_have), kNoMoment};
  if (fit.kind == found.kind && fit.moment == found.moment) return kOk;
  return file->write(0, std::as_bytes(std::span(&fit, 1)));
}

// ---- the end ---------------------------------------------------------------------------------------------------

// A new log takes the place of the held one: behind the head of that one may be anything.
Status Replica::promote() {
  MEMLITH_TRY(checkpoint());
  const Superblock old = superblock();
  const LogGeometry geometry = files_.log->geometry();
  LogFormat format;
  format.block_bytes = old.block_bytes;
  format.slot_bytes = old.slot_bytes;
  format.slot_count = old.slot_count_made;
  // An empty log begins with a segment, as after a clean close.
  const std::uint64_t segments = geometry.segment_of(end_.lsn.advance(geometry.segment_bytes() - 1));
  MEMLITH_ASSERT(segments * geometry.segment_bytes() >= end_.lsn.value && old.tail_lsn == end_.lsn.value);
  const LogBeginning beginning{{Lsn{segments * geometry.segment_bytes()}, end_.previous}, old.incarnation};
  const std::string fresh = files_.names.fresh_log();
  MEMLITH_TRY_ASSIGN(const bool left_over, files_.volume.exists(fresh));
  if (left_over) MEMLITH_TRY(files_.volume.remove(fresh));
  {
    MEMLITH_TRY_ASSIGN(const auto device, files_.volume.open(fresh, OpenMode::create, Caching::buffered));
    MEMLITH_TRY(directory_->match_permissions(*device));
    MEMLITH_TRY(Log::format(*device, format, client(), old.log_id, beginning));
  }
  MEMLITH_TRY(files_.volume.rename(fresh, files_.names.log));
  MEMLITH_TRY(files_.volume.sync_folder(""));
  superblocks_ = nullptr;
  files_.log = nullptr;
  files_.log_device = nullptr;
  files_.unlock();
  return kOk;
}

}  // namespace memlith::core
