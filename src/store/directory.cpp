// The directory of a store: which objects there are, and how one comes, grows and goes.
#include <algorithm>
#include <cstring>

#include "base/mutant.hpp"
#include "store/store.hpp"

namespace memlith::core {

std::vector<ObjectInfo> Store::objects() const {
  const std::lock_guard lock(directory_mutex_);
  std::vector<ObjectInfo> result;
  for (const Entry& entry : entries_) result.push_back(entry.info);
  return result;
}

std::optional<ObjectInfo> Store::find(std::string_view name) const {
  const std::lock_guard lock(directory_mutex_);
  for (const Entry& entry : entries_) {
    if (entry.info.name == name) return entry.info;
  }
  return std::nullopt;
}

Store::Entry* Store::find_entry(ObjectId id) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [id](const Entry& e) { return e.info.id == id; });
  return found == entries_.end() ? nullptr : &*found;
}

DirectoryEntry Store::entry_bytes(const ObjectInfo& info) const {
  DirectoryEntry entry{};
  entry.object = {info.id.value, 1, info.size_bytes, info.address, info.reserve_bytes};
  MEMLITH_ASSERT(info.name.size() <= kNameBytesMax);
  std::memcpy(entry.name, info.name.data(), info.name.size());
  entry.checksum = header_checksum(entry, log_->log_id());
  return entry;
}

DirectoryHeader Store::header_bytes(std::uint64_t live_count) const {
  DirectoryHeader header{};
  header.magic = kDirectoryMagic;
  header.version = kFormatVersion;
  header.next_id = next_id_;
  header.live_count = static_cast<std::uint32_t>(live_count);
  header.checksum = header_checksum(header, log_->log_id());
  return header;
}

// Commits entries of the directory, whose bytes lie behind each other, and waits until they are durable.
Status Store::commit_directory(std::span<const Extent> entries, const std::byte* bytes) {
  MEMLITH_ASSERT(entries.size() <= 2);
  const std::byte* const sources[2] = {bytes, bytes + entries.front().bytes};
  return commit({entries, std::span(sources).first(entries.size()), {}});
}

// Durable on ok. It stays open, so that nobody looks it up by name again.
Status Store::create_home(ObjectId id, std::uint64_t size_bytes) {
  const std::string name = home_name(id);
  const auto make = [&] { return volume_.open(name, OpenMode::create, Caching::buffered); };
  std::unique_ptr<Device> device;
  if (auto made = make(); made.ok()) {
    device = std::move(*made);
  } else {
    if (made.error().category != Errc::exists) return made.error();
    MEMLITH_TRY(volume_.remove(name));  // of a creation that failed
    MEMLITH_TRY_ASSIGN(device, make());
  }
  Status status = device->reserve(size_bytes);
  if (status.ok() && !MEMLITH_MUTANT(home_created_unflushed)) status = device->flush();
  if (status.ok() && !MEMLITH_MUTANT(home_created_unsynced)) status = volume_.sync_folder("objects");
  if (!status.ok()) {
    (void)volume_.remove(name);
    return status;
  }
  const std::lock_guard lock(homes_mutex_);
  homes_[id] = std::move(device);
  return kOk;
}

Result<ObjectInfo> Store::create(std::string_view name, std::uint64_t size_bytes, std::uint64_t address,
                                 std::uint64_t reserve_bytes) {
  MEMLITH_TRY(check_process());  // before its home is made anew, which may be one that the parent has made since
  const std::lock_guard create_lock(create_mutex_);
  ObjectInfo info{kFile, std::string(name), size_bytes, address, reserve_bytes};
  if (one_file()) {
    MEMLITH_TRY(reserve_home(kFile, size_bytes));
    ObjectRecord record{kFile.value, 1, size_bytes, address, reserve_bytes};
    std::vector<Entry> entries{{info, 0, committed_lsn(kFile)}};
    const Extent extent{kDirectory, 0, sizeof record};
    MEMLITH_TRY(commit_directory({&extent, 1}, reinterpret_cast<const std::byte*>(&record)));
    const std::lock_guard lock(directory_mutex_);
    file_record_ = record;
    entries_.swap(entries);
    return info;
  }
  std::uint64_t slot = 1;
  {
    const std::lock_guard lock(directory_mutex_);
    while (std::any_of(entries_.begin(), entries_.end(), [slot](const Entry& e) { return e.slot == slot; })) ++slot;
    info.id = ObjectId{next_id_};
  }
  if ((slot + 1) * kDirectoryEntryBytes > directory_size_bytes_) {
    MEMLITH_TRY(reserve_home(kDirectory, 2 * directory_size_bytes_));
    directory_size_bytes_ *= 2;
  }
  // ORDER growth-before-name: the home is there, whole and durable, before the directory or any frame names it.
  // [crash/create]
  MEMLITH_TRY(create_home(info.id, size_bytes));
  DirectoryHeader header;
  // ORDER room-before-commit: what is durable is in memory, too, whatever memory there is by then. [capi/allocation]
  Entry made{info, slot};
  {
    const std::lock_guard lock(directory_mutex_);
    entries_.reserve(entries_.size() + 1);
    ++next_id_;
    header = header_bytes(entries_.size() + 1);
  }
  const DirectoryEntry entry = entry_bytes(info);
  std::byte bytes[2 * kDirectoryEntryBytes];
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + kDirectoryEntryBytes, &entry, sizeof entry);
  const Extent extents[2] = {{kDirectory, 0, kDirectoryEntryBytes},
                             {kDirectory, slot * kDirectoryEntryBytes, kDirectoryEntryBytes}};
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(directory_header_not_logged)) {
    MEMLITH_TRY(commit_directory({extents + 1, 1}, bytes + kDirectoryEntryBytes));
    const std::lock_guard directory_lock(directory_mutex_);
    entries_.push_back({info, slot});
    return info;
  }
#endif
  if (const Status committed = commit_directory(extents, bytes); !committed.ok()) {
    const std::lock_guard lock(homes_mutex_);
    homes_.erase(info.id);
    return committed;
  }
  const std::lock_guard lock(directory_mutex_);
  entries_.push_back(std::move(made));
  return info;
}

Status Store::remove(ObjectId id) {
  const std::lock_guard create_lock(create_mutex_);
  if (one_file()) {
    return fail(Errc::invalid, Detail::object, "{}: the region of a one-file store is the file; remove that instead",
                path());
  }
  Extent extents[2] = {{kDirectory, 0, kDirectoryEntryBytes}, {kDirectory, 0, kDirectoryEntryBytes}};
  std::byte bytes[2 * kDirectoryEntryBytes] = {};  // the header, and an empty entry
  {
    const std::lock_guard lock(directory_mutex_);
    const Entry* const entry = find_entry(id);
    if (entry == nullptr) return fail(Errc::not_found, Detail::object, "{}: there is no object {}", path(), id.value);
    extents[1].offset = entry->slot * kDirectoryEntryBytes;
    const DirectoryHeader header = header_bytes(entries_.size() - (MEMLITH_MUTANT(wrong_live_count) ? 0 : 1));
    std::memcpy(bytes, &header, sizeof header);
  }
  MEMLITH_TRY(commit_directory(extents, bytes));
  {
    const std::lock_guard lock(directory_mutex_);
    std::erase_if(entries_, [id](const Entry& entry) { return entry.info.id == id; });
  }
  // ORDER replay-before-unlink: while the log still has frames for the object, its home stays. [crash/remove]
  if (!MEMLITH_MUTANT(unlink_before_checkpoint)) MEMLITH_TRY(checkpoint());
  {
    const std::lock_guard lock(homes_mutex_);
    homes_.erase(id);
  }
  return volume_.remove(home_name(id));
}

Status Store::reserve_home(ObjectId id, std::uint64_t size_bytes) {
  MEMLITH_TRY(check_process());
  MEMLITH_TRY_ASSIGN(Device* const device, home(id));
  MEMLITH_TRY_ASSIGN(const std::uint64_t present, device->size());
  if (present >= size_bytes) {
    // Long enough, but is that durable? Whoever made it so may have been killed before the flush, or the flush failed.
    // What the directory says was flushed before it said so. [crash/killed]
    {
      const std::lock_guard lock(directory_mutex_);
      const Entry* const entry = find_entry(id);
      if (entry != nullptr && entry->info.size_bytes >= size_bytes) return kOk;
    }
    return poison_on_failure(device->flush());
  }
  MEMLITH_TRY(poison_on_failure(device->reserve(size_bytes)));
  if (MEMLITH_MUTANT(home_grown_unflushed)) return kOk;
  return poison_on_failure(device->flush());
}

// A home that can be written no more ends the store at once, and not at the next checkpoint.
Status Store::poison_on_failure(Status status) {
  if (status.category == Errc::io && !log_->poisoned()) log_->poison(status);
  return status;
}

}  // namespace memlith::core
