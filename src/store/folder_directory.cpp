#include "store/folder_directory.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "base/bytes.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kDirectoryBytesFirst = 16 * kKiB;  // 63 objects
constexpr std::uint64_t kDirectoryBytesMax = 256 * kMiB;   // a million objects; more is damage
constexpr std::uint64_t kLogFirstBytes = 4 * kMiB;         // slots of 1 MiB: a commit of 1 MiB is cut once or twice
constexpr std::uint64_t kLogGivenBytes = 128 * kMiB;

DirectoryEntry entry_of(const ObjectInfo& info, std::uint64_t log_id) {
  DirectoryEntry entry{};
  entry.object = {info.id.value, 1, info.size_bytes, info.address, info.reserve_bytes};
  MEMLITH_ASSERT(info.name.size() <= kNameBytesMax);
  std::memcpy(entry.name, info.name.data(), info.name.size());
  entry.checksum = header_checksum(entry, log_id);
  return entry;
}

DirectoryHeader header_of(std::uint32_t next_id, std::uint64_t live_count, std::uint64_t log_id) {
  DirectoryHeader header{};
  header.magic = kDirectoryMagic;
  header.version = kFormatVersion;
  header.next_id = next_id;
  header.live_count = static_cast<std::uint32_t>(live_count);
  header.checksum = header_checksum(header, log_id);
  return header;
}

}  // namespace

// ---- changes ---------------------------------------------------------------------------------------------------

DirectoryHeader FolderDirectory::header_bytes(std::uint64_t live_count) const {
  return header_of(next_id_, live_count, files_.log->log_id());
}

std::vector<std::byte> FolderDirectory::file_of(std::span<const ObjectInfo> objects, std::uint32_t next_id,
                                                std::uint64_t log_id) {
  std::uint64_t bytes = kDirectoryBytesFirst;
  while (bytes < (objects.size() + 1) * kDirectoryEntryBytes) bytes *= 2;
  std::vector<std::byte> file(bytes);
  const DirectoryHeader header = header_of(next_id, objects.size(), log_id);
  std::memcpy(file.data(), &header, sizeof header);
  std::uint64_t offset = kDirectoryEntryBytes;
  for (const ObjectInfo& info : objects) {
    const DirectoryEntry entry = entry_of(info, log_id);
    MEMLITH_ASSERT(offset + sizeof entry <= file.size() && info.id.value < next_id);
    std::memcpy(file.data() + offset, &entry, sizeof entry);
    offset += kDirectoryEntryBytes;
  }
  return file;
}

void FolderDirectory::put_record(FrameWriter& writer, const ObjectEntry& entry) {
  const DirectoryEntry bytes = entry_of(entry.info, files_.log->log_id());
  writer.put(&bytes, sizeof bytes);
}

Status FolderDirectory::commit_entries(std::span<const Extent> entries, const std::byte* bytes, const Commit& commit) {
  MEMLITH_ASSERT(!entries.empty() && entries.size() <= 2);
  for (const Extent& each : entries) {
    MEMLITH_ASSERT(each.object == kDirectory && each.bytes == kDirectoryEntryBytes);
    MEMLITH_ASSERT(each.offset % kDirectoryEntryBytes == 0);
  }
  const std::byte* const sources[2] = {bytes, bytes + entries.front().bytes};
  return commit({entries, std::span(sources).first(entries.size()), {}});
}

// Durable on ok. The file stays open, so that it is never looked up by name again.
Status FolderDirectory::create_home(ObjectId id, std::uint64_t size_bytes) {
  const std::string name = files_.names.home(id);
  const auto make = [&] { return files_.volume.open(name, OpenMode::create, Caching::buffered); };
  std::unique_ptr<Device> device;
  if (auto made = make(); made.ok()) {
    device = std::move(*made);
  } else {
    if (made.error().category != Errc::exists) return made.error();
    MEMLITH_TRY(files_.volume.remove(name));  // left by a failed creation
    MEMLITH_TRY_ASSIGN(device, make());
  }
  Status status = device->reserve(size_bytes);
  if (status.ok()) status = device->flush();
  if (status.ok()) status = files_.sums.make(id, size_bytes);
  if (status.ok()) status = files_.volume.sync_folder("objects");
  if (!status.ok()) {
    const KeptSentence why;
    (void)files_.volume.remove(name);
    (void)files_.sums.remove(id);
    return status;
  }
  files_.homes.keep(id, std::move(device));
  return kOk;
}

// The first free entry; the file is long enough for it.
Result<std::uint64_t> FolderDirectory::make_room_for_entry() {
  std::uint64_t slot = 1;
  {
    const LockGuard lock(mutex_);
    while (std::any_of(entries_.begin(), entries_.end(), [slot](const ObjectEntry& e) { return e.slot == slot; }))
      ++slot;
  }
  if ((slot + 1) * kDirectoryEntryBytes > file_bytes_) {
    MEMLITH_TRY(reserve_home(kDirectory, 2 * file_bytes_));
    file_bytes_ *= 2;
  }
  MEMLITH_ASSERT(slot > 0 && (slot + 1) * kDirectoryEntryBytes <= file_bytes_);
  return slot;
}

Result<ObjectInfo> FolderDirectory::create(const ObjectInfo& wanted, const Commit& commit) {
  const LockGuard create_lock(create_mutex_);
  MEMLITH_TRY_ASSIGN(const std::uint64_t slot, make_room_for_entry());
  // ORDER room-before-commit: memory for the entry is allocated before the commit, so that it cannot be lacking once
  // the entry is durable. [test OutOfMemoryStore.ARegionIsMadeOrNot]
  ObjectEntry made{wanted, slot};
  {
    const LockGuard lock(mutex_);
    made.info.id = ObjectId{next_id_};
  }
  const ObjectInfo info = made.info;
  // ORDER growth-before-name: the home file is complete and durable before the directory or any frame names it. [mutant
  // home_created_unflushed]
  MEMLITH_TRY(create_home(info.id, info.size_bytes));
  DirectoryHeader header;
  {
    const LockGuard lock(mutex_);
    entries_.reserve(entries_.size() + 1);
    ++next_id_;
    header = header_bytes(entries_.size() + 1);
  }
  const DirectoryEntry entry = entry_of(info, files_.log->log_id());
  std::byte bytes[2 * kDirectoryEntryBytes];
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + kDirectoryEntryBytes, &entry, sizeof entry);
  const Extent extents[2] = {{kDirectory, 0, kDirectoryEntryBytes},
                             {kDirectory, slot * kDirectoryEntryBytes, kDirectoryEntryBytes}};
  const Status committed = commit_entries(extents, bytes, commit);
  if (!committed.ok()) {
    files_.homes.forget(info.id);
    return committed;
  }
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(find_entry(info.id) == nullptr && info.id.value < next_id_);
  MEMLITH_ASSERT(entries_.size() < entries_.capacity());  // room-before-commit
  entries_.push_back(std::move(made));
  return info;
}

Status FolderDirectory::set_reserve(ObjectId id, std::uint64_t reserve_bytes, const Commit& commit) {
  const LockGuard create_lock(create_mutex_);
  ObjectEntry changed;
  {
    const LockGuard lock(mutex_);
    const ObjectEntry* const entry = find_entry(id);
    if (entry == nullptr) return no_such_object(id);
    changed = *entry;
  }
  changed.info.reserve_bytes = reserve_bytes;
  const DirectoryEntry bytes = entry_of(changed.info, files_.log->log_id());
  const Extent extent{kDirectory, changed.slot * kDirectoryEntryBytes, kDirectoryEntryBytes};
  MEMLITH_TRY(commit_entries({&extent, 1}, reinterpret_cast<const std::byte*>(&bytes), commit));
  const LockGuard lock(mutex_);
  find_entry(id)->info.reserve_bytes = reserve_bytes;
  return kOk;
}

Status FolderDirectory::remove(ObjectId id, const Commit& commit, const Checkpoint& checkpoint) {
  const LockGuard create_lock(create_mutex_);
  Extent extents[2] = {{kDirectory, 0, kDirectoryEntryBytes}, {kDirectory, 0, kDirectoryEntryBytes}};
  std::byte bytes[2 * kDirectoryEntryBytes] = {};  // the header, and an empty entry
  {
    const LockGuard lock(mutex_);
    const ObjectEntry* const entry = find_entry(id);
    if (entry == nullptr) return no_such_object(id);
    extents[1].offset = entry->slot * kDirectoryEntryBytes;
    const DirectoryHeader header = header_bytes(entries_.size() - 1);
    std::memcpy(bytes, &header, sizeof header);
  }
  MEMLITH_TRY(commit_entries(extents, bytes, commit));
  {
    const LockGuard lock(mutex_);
    std::erase_if(entries_, [id](const ObjectEntry& entry) { return entry.info.id == id; });
  }
  // ORDER replay-before-unlink: the home file stays as long as the log has frames for the object. [mutant
  // unlink_before_checkpoint]
  MEMLITH_TRY(checkpoint());
  files_.homes.forget(id);
  MEMLITH_TRY(files_.sums.remove(id));
  return files_.volume.remove(files_.names.home(id));
}

// ---- creating a store ------------------------------------------------------------------------------------------

Status FolderDirectory::check_before_create() {
  MEMLITH_TRY(files_.volume.make_folder(""));
  MEMLITH_TRY_ASSIGN(const auto names, files_.volume.list(""));
  for (const std::string& name : names) {
    if (name == "log" || name == "log.new" || name == "objects" || name == "lost+found" || name == "stats") continue;
    if (name == "blocks" || name == "blocks.new") continue;
    return fail(Errc::invalid, Detail::open,
                "{}: this folder is neither empty nor a memlith store (it holds \"{}\"); choose another for the new "
                "store",
                files_.path(), name);
  }
  if (std::find(names.begin(), names.end(), "log") != names.end()) return kOk;  // another process was faster
  return check_log_not_removed();
}

Status FolderDirectory::check_log_not_removed() {
  const auto objects = files_.volume.list("objects");
  if (!objects.ok() && objects.error().category == Errc::not_found) return kOk;
  MEMLITH_TRY(objects.status());
  for (const std::string& name : *objects) {
    if (name == "0") continue;  // left by an interrupted creation
    // Another process may have created the store, and an object in it, since the folder was listed.
    // [schedule/two-opens]
    MEMLITH_TRY_ASSIGN(const bool made_meanwhile, files_.volume.exists(files_.names.log));
    if (made_meanwhile) return kOk;
    return fail(Errc::corrupt, Detail::open,
                "{0}: there are regions (\"objects/{1}\") but no log; {2} was removed, and with it the newest commits. "
                "Put the log back. To abandon the store, remove the folder; {0}/objects has what checkpoints wrote of "
                "the regions, which may be incomplete. Nothing was changed",
                files_.path(), name, files_.volume.path_of(files_.names.log));
  }
  return kOk;
}

Status FolderDirectory::tell_log_is_missing() {
  MEMLITH_TRY(check_log_not_removed());
  return no_store();
}

Status FolderDirectory::make_first(std::uint64_t log_id) {
  MEMLITH_TRY(files_.volume.make_folder("objects"));
  const DirectoryHeader header = header_of(1, 0, log_id);
  MEMLITH_TRY(files_.volume.remove("objects/0"));
  MEMLITH_TRY_ASSIGN(auto directory, files_.volume.open("objects/0", OpenMode::create, Caching::buffered));
  MEMLITH_TRY(directory->reserve(kDirectoryBytesFirst));
  MEMLITH_TRY(directory->write(0, std::as_bytes(std::span(&header, 1))));
  MEMLITH_TRY(directory->flush());
  return files_.volume.sync_folder("objects");
}

void FolderDirectory::undo_creation(bool log_was_made) {
  if (log_was_made) (void)files_.volume.remove("objects/0");
}

// ---- recovery --------------------------------------------------------------------------------------------------

Status FolderDirectory::load(const Overlay& overlay) {
  MEMLITH_TRY_ASSIGN(const std::vector<std::byte> bytes, bytes_with(overlay));
  DirectoryHeader header;
  MEMLITH_TRY(read_header(bytes, header));
  const LockGuard lock(mutex_);
  std::vector<ObjectEntry> before;
  before.swap(entries_);
  const Status taken = take_entries(bytes, header);
  if (!taken.ok()) entries_.swap(before);
  return taken;
}

Status FolderDirectory::take_entries(std::span<const std::byte> bytes, const DirectoryHeader& header) {
  next_id_ = header.next_id;
  MEMLITH_TRY(read_entries(bytes));
  if (entries_.size() != header.live_count) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: expected {} regions, found the entries of {}; the file was damaged or cut short",
                files_.volume.path_of(files_.names.home(kDirectory)), header.live_count, entries_.size());
  }
  return kOk;
}

Status FolderDirectory::look_at_home() {
  MEMLITH_TRY_ASSIGN(followed_, read_file());
  return kOk;
}

Result<std::vector<std::byte>> FolderDirectory::bytes_with(const Overlay& overlay) {
  std::vector<std::byte> bytes = followed_;
  if (bytes.empty()) {
    MEMLITH_TRY_ASSIGN(bytes, read_file());
  }
  MEMLITH_TRY(overlay.for_each(kDirectory, [&](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
    const std::uint64_t end = offset + piece.size();
    // The file of a store that is followed may have been extended since.
    if (files_.options.follow && end > bytes.size() && end <= kDirectoryBytesMax) bytes.resize(end);
    if (end <= bytes.size()) std::memcpy(bytes.data() + offset, piece.data(), piece.size());
    return kOk;
  }));
  return bytes;
}

Result<std::vector<std::byte>> FolderDirectory::read_file() {
  auto opened = files_.homes.get(kDirectory);
  if (!opened.ok() && opened.error().category == Errc::not_found) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the directory of regions is missing, but there is a log; restore the file",
                files_.volume.path_of(files_.names.home(kDirectory)));
  }
  MEMLITH_TRY(opened.status());
  Device* const device = *opened;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  if (size < kDirectoryBytesFirst || size > kDirectoryBytesMax) {
    return fail(Errc::corrupt, Detail::directory, "{}: the directory has {} bytes; expected {} to {}", device->path(),
                size, kDirectoryBytesFirst, kDirectoryBytesMax);
  }
  // The file may have been extended by a program that was killed before the flush; entries must not rely on that part.
  if (!files_.read_only() && !files_.was_clean) MEMLITH_TRY(device->flush());
  std::vector<std::byte> bytes(round_down(size, kDirectoryEntryBytes));
  {
    const LockGuard create_lock(create_mutex_);
    file_bytes_ = bytes.size();
  }
  MEMLITH_TRY(device->read(0, bytes));
  return bytes;
}

Status FolderDirectory::read_header(std::span<const std::byte> bytes, DirectoryHeader& header) {
  const std::string path = files_.volume.path_of(files_.names.home(kDirectory));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kDirectoryMagic || header.checksum != header_checksum(header, files_.log->log_id())) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the directory's header is damaged or belongs to another store (offset 0, expected magic {:#018x}, "
                "found {:#018x})",
                path, kDirectoryMagic, header.magic);
  }
  if (header.version != kFormatVersion) {
    return fail(Errc::incompatible, Detail::version,
                "{}: the directory is of version {}; this memlith reads version {}", path, header.version,
                kFormatVersion);
  }
  return kOk;
}

Status FolderDirectory::read_entries(std::span<const std::byte> bytes) {
  const std::string path = files_.volume.path_of(files_.names.home(kDirectory));
  std::unordered_set<std::uint32_t> ids;
  for (std::uint64_t slot = 1; slot * kDirectoryEntryBytes < bytes.size(); ++slot) {
    const auto raw = bytes.subspan(slot * kDirectoryEntryBytes, kDirectoryEntryBytes);
    if (is_zero(raw)) continue;
    DirectoryEntry entry;
    std::memcpy(&entry, raw.data(), sizeof entry);
    const ObjectRecord& object = entry.object;
    const bool sane = entry.checksum == header_checksum(entry, files_.log->log_id()) && object.live == 1 &&
                      object.id != 0 && object.id < next_id_ && object.address % kPageBytes == 0 &&
                      object.size_bytes % kPageBytes == 0 && object.size_bytes <= object.reserve_bytes &&
                      std::memchr(entry.name, 0, sizeof entry.name) != nullptr;
    if (!sane) {
      return fail(Errc::corrupt, Detail::directory,
                  "{}: the entry at offset {} is damaged (id {}, size {}, address {:#x})", path,
                  slot * kDirectoryEntryBytes, object.id, object.size_bytes, object.address);
    }
    // A sector written to the wrong place carries complete entries with valid checksums.
    if (!ids.insert(object.id).second) {
      return fail(Errc::corrupt, Detail::directory, "{}: the entry at offset {} exists twice (id {})", path,
                  slot * kDirectoryEntryBytes, object.id);
    }
    entries_.push_back({{ObjectId{object.id}, entry.name, object.size_bytes, object.address, object.reserve_bytes},
                        slot});
  }
  return kOk;
}

Status FolderDirectory::check_homes(const Unreachable& unreachable) {
  for (const ObjectInfo& info : objects()) {
    const std::string name = files_.names.home(info.id);
    auto device = files_.homes.get(info.id);
    if (!device.ok() && device.error().category == Errc::not_found) {
      return fail(Errc::corrupt, Detail::object, "{}: the home file of region \"{}\" is missing",
                  files_.volume.path_of(name), info.name);
    }
    MEMLITH_TRY(device.status());
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, (*device)->size());
    if (size < info.size_bytes) {
      return fail(Errc::corrupt, Detail::object,
                  "{}: the home file of region \"{}\" was cut short: expected {} bytes, found {}",
                  files_.volume.path_of(name), info.name, info.size_bytes, size);
    }
  }
  for (const auto& [object, end] : unreachable) {
    const bool live = object == kDirectory || find(object).has_value();
    if (live) {
      return fail(Errc::corrupt, Detail::object,
                  "{}: the log has bytes up to offset {} for it, but the file is shorter or missing",
                  files_.volume.path_of(files_.names.home(object)), end);
    }
  }
  return kOk;
}

Status FolderDirectory::fill_holes(const Overlay& due) {
  MEMLITH_TRY(Directory::fill_holes(due));
  MEMLITH_TRY_ASSIGN(Device* const directory, files_.homes.get(kDirectory));
  return directory->fill_holes();
}

Status FolderDirectory::undo_uncommitted_growth() {
  if (files_.was_clean) return kOk;
  const auto cut = [this](ObjectId id, std::uint64_t bytes) -> Status {
    MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(id));
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
    return size > bytes ? device->truncate(bytes) : kOk;
  };
  const LockGuard create_lock(create_mutex_);
  const LockGuard lock(mutex_);
  std::uint64_t directory_bytes = kDirectoryBytesFirst;
  for (const ObjectEntry& entry : entries_) {
    MEMLITH_TRY(cut(entry.info.id, entry.info.size_bytes));
    while (directory_bytes < (entry.slot + 1) * kDirectoryEntryBytes) directory_bytes *= 2;
  }
  MEMLITH_TRY(cut(kDirectory, directory_bytes));
  file_bytes_ = std::min(file_bytes_, directory_bytes);
  return kOk;
}

Status FolderDirectory::remove_orphans() {
  MEMLITH_TRY_ASSIGN(const auto names, files_.volume.list("objects"));
  for (const std::string& name : names) {
    const bool is_home = !name.ends_with(kSumsSuffix);
    const std::optional<ObjectId> id =
        StoreNames::object_named(std::string_view(name).substr(0, name.size() - (is_home ? 0 : kSumsSuffix.size())));
    if (!id.has_value() || *id == kDirectory || find(*id).has_value()) continue;
    if (is_home) files_.homes.forget(*id);
    MEMLITH_TRY(files_.volume.remove("objects/" + name));
  }
  return kOk;
}

// ---- replay ----------------------------------------------------------------------------------------------------

Result<std::uint64_t> FolderDirectory::size_at_home(ObjectId id) {
  std::uint64_t slot = 0;
  {
    const LockGuard lock(mutex_);
    const ObjectEntry* const entry = find_entry(id);
    if (entry == nullptr) return no_such_object(id);
    if (files_.read_only()) return entry->info.size_bytes;  // constant from here on
    slot = entry->slot;
  }
  DirectoryEntry entry{};
  MEMLITH_TRY_ASSIGN(Device* const directory, files_.homes.get(kDirectory));
  MEMLITH_TRY(directory->read(slot * kDirectoryEntryBytes, std::as_writable_bytes(std::span(&entry, 1))));
  if (entry.object.id == id.value) return entry.object.size_bytes;
  return fail(Errc::corrupt, Detail::directory, "{}: entry {} should be of object {}, but is of object {}",
              files_.volume.path_of(files_.names.home(kDirectory)), slot, id.value, entry.object.id);
}

std::uint64_t FolderDirectory::log_bytes_first() const { return kLogFirstBytes; }

std::uint64_t FolderDirectory::log_bytes_given() const {
  return files_.options.log_busy_bytes != 0 ? 0 : kLogGivenBytes;
}

}  // namespace memlith::core
