#include "store/directory.hpp"

#include <algorithm>
#include <cstring>

#include "store/file_directory.hpp"
#include "store/folder_directory.hpp"

namespace memlith::core {

std::unique_ptr<Directory> Directory::make(StoreFiles& files) {
  if (files.options.kind == StoreKind::one_file) return std::make_unique<FileDirectory>(files);
  return std::make_unique<FolderDirectory>(files);
}

// ---- objects ---------------------------------------------------------------------------------------------------

std::vector<ObjectInfo> Directory::objects() const {
  const LockGuard lock(mutex_);
  std::vector<ObjectInfo> result;
  for (const ObjectEntry& entry : entries_) result.push_back(entry.info);
  return result;
}

std::optional<ObjectInfo> Directory::find(std::string_view name) const {
  const LockGuard lock(mutex_);
  for (const ObjectEntry& entry : entries_) {
    if (entry.info.name == name) return entry.info;
  }
  return std::nullopt;
}

std::optional<ObjectInfo> Directory::find(ObjectId id) const {
  const LockGuard lock(mutex_);
  const ObjectEntry* const entry = find_entry(id);
  return entry != nullptr ? std::optional(entry->info) : std::nullopt;
}

std::shared_ptr<Atomic<std::uint64_t>> Directory::committed_lsn(ObjectId id) const {
  const LockGuard lock(mutex_);
  const ObjectEntry* const entry = find_entry(id);
  MEMLITH_ASSERT(entry != nullptr);
  return entry->committed_lsn;
}

const Directory::ObjectEntry* Directory::find_entry(ObjectId id) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [id](const ObjectEntry& e) { return e.info.id == id; });
  return found == entries_.end() ? nullptr : &*found;
}

Directory::ObjectEntry* Directory::find_entry(ObjectId id) {
  return const_cast<ObjectEntry*>(static_cast<const Directory*>(this)->find_entry(id));
}

Status Directory::no_such_object(ObjectId id) const {
  return fail(Errc::not_found, Detail::object, "{}: there is no object {}", files_.path(), id.value);
}

Status Directory::no_store() const {
  return fail(Errc::not_found, Detail::open,
              "{}: there is no memlith store ({} is missing); create one, or check the path", files_.path(),
              files_.volume.path_of(files_.names.log));
}

// ---- frames ----------------------------------------------------------------------------------------------------

std::uint64_t Directory::commit_bytes(std::span<const Extent> extents, std::span<const SizeChange> sizes) const {
  std::uint64_t bytes =
      sizeof(CommitHeader) + (extents.size() + sizes.size()) * sizeof(ExtentRecord) + sizes.size() * record_bytes();
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

void Directory::put_extents(FrameWriter& writer, std::span<const Extent> extents) {
  for (const Extent& extent : extents) {
    MEMLITH_ASSERT(extent.bytes <= ~std::uint32_t{0});
    MEMLITH_ASSERT((extent.offset & kDiscardBit) == 0);
    const ExtentRecord record{extent.object.value, static_cast<std::uint32_t>(extent.bytes), extent.offset};
    writer.put(&record, sizeof record);
  }
}

// The sizes go first, so that the caller's bytes follow everything that is written here.
void Directory::put_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes) {
  const CommitHeader header{static_cast<std::uint32_t>(extents.size() + sizes.size()), 0};
  writer.put(&header, sizeof header);
  if (sizes.empty()) {
    put_extents(writer, extents);
    return;
  }
  const LockGuard lock(mutex_);
  for (const SizeChange& change : sizes) {
    const ObjectEntry* const entry = find_entry(change.object);
    MEMLITH_ASSERT(entry != nullptr);
    const ExtentRecord record{kDirectory.value, static_cast<std::uint32_t>(record_bytes()), record_offset(*entry)};
    writer.put(&record, sizeof record);
  }
  put_extents(writer, extents);
  for (const SizeChange& change : sizes) {
    ObjectEntry* const entry = find_entry(change.object);
    entry->info.size_bytes = change.size_bytes;
    put_record(writer, *entry);
  }
}

ClientBytes Directory::client_bytes(std::uint64_t closed_stamp) const {
  StoreHeader header{};
  header.kind = static_cast<std::uint32_t>(files_.options.kind);
  header.physical_block_bytes = static_cast<std::uint16_t>(files_.physical_block_bytes);
  header.by_caller = files_.in_use == InUse::caller ? 1 : 0;
  const FileRecord file = record_at_home();
  header.file = file.object;
  header.own = file.own;
  header.common = file.common;
  header.recoveries = file.recoveries;
  header.origin = files_.origin;
  header.closed_stamp = closed_stamp;
  ClientBytes client{};
  std::memcpy(client.data(), &header, sizeof header);
  return client;
}

Status Directory::check_has_all_commits() const {
  if (files_.was_clean || record_at_home().common.log_id == 0) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "{0}: it was committed together with other files, and a program that was killed has left its newest "
              "commits in their common log. Recover the file first: `memlith recover {0}`",
              files_.path());
}

// ---- homes -----------------------------------------------------------------------------------------------------

Status Directory::reserve_home(ObjectId id, std::uint64_t size_bytes) {
  MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(id));
  MEMLITH_TRY_ASSIGN(const std::uint64_t present, device->size());
  MEMLITH_TRY(poison_on_failure(files_.sums.reserve(id, size_bytes)));
  if (present >= size_bytes) {
    // The file is long enough, but its length may not be durable: the program that set it may have been killed before
    // the flush, or the flush failed. Lengths in the directory were flushed before the directory named them.
    // [crash/killed]
    const std::optional<ObjectInfo> info = find(id);
    if (info.has_value() && info->size_bytes >= size_bytes) return kOk;
    return poison_on_failure(device->flush());
  }
  MEMLITH_TRY(poison_on_failure(device->reserve(size_bytes)));
  return poison_on_failure(device->flush());
}

// A home file that cannot be written any more poisons the store at once, and not at the next checkpoint.
Status Directory::poison_on_failure(Status status) {
  if (status.category == Errc::io && !files_.log->poisoned()) files_.log->poison(status);
  return status;
}

// ORDER space-before-commits: every page of a home file has disk space before a commit may change it. [test
// Environment.SparseFileOnFullTmpfs]
Status Directory::fill_holes(const Overlay&) {
  for (const ObjectInfo& info : objects()) {
    MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(info.id));
    MEMLITH_TRY(device->fill_holes());
  }
  return kOk;
}

}  // namespace memlith::core
