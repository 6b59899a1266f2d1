// Copies of homes for snapshots: what a checkpoint left, before the next one begins.
#include <algorithm>

#include "store/store.hpp"

namespace memlith::core {

Result<HomeCopies> Store::copy_homes(std::span<const ObjectId> objects) {
  MEMLITH_TRY(check_process());
  HomeCopies result;
  result.copies.resize(objects.size());
  const Haste haste(*this);
  // ORDER checkpoint-and-copy: no other checkpoint begins between the one that brings the homes to the commit and the copy of the
  // last of them, or the copies would be of two commits. [capi/snapshot]
  const std::lock_guard lock(checkpoint_mutex_);
  if (!read_only()) MEMLITH_TRY(checkpoint_unless_poisoned());
  result.lsn = read_only() ? log_->durable_lsn() : log_->tail().lsn;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    HomeCopies::Copy& copy = result.copies[i];
    MEMLITH_TRY_ASSIGN(copy.size_bytes, size_at_home(objects[i]));
    MEMLITH_TRY_ASSIGN(Device* const device, home(objects[i]));
    MEMLITH_TRY_ASSIGN(copy.memory, device->copy_to_memory(copy.size_bytes));
    if (read_only()) MEMLITH_TRY(lay_overlay_over(objects[i], copy));
  }
  return result;
}

// As of the last checkpoint; the directory in memory may be ahead of it. Under checkpoint_mutex_.
Result<std::uint64_t> Store::size_at_home(ObjectId id) {
  if (one_file() && !read_only()) return home_file_record_.size_bytes;
  std::uint64_t slot = 0;
  {
    const std::lock_guard lock(directory_mutex_);
    const Entry* const entry = find_entry(id);
    if (entry == nullptr) return fail(Errc::not_found, Detail::object, "{}: there is no object {}", path(), id.value);
    if (read_only()) return entry->info.size_bytes;  // it changes no more
    slot = entry->slot;
  }
  DirectoryEntry entry{};
  MEMLITH_TRY(read_home_into(kDirectory, slot * kDirectoryEntryBytes, std::as_writable_bytes(std::span(&entry, 1))));
  if (entry.object.id == id.value) return entry.object.size_bytes;
  return fail(Errc::corrupt, Detail::directory, "{}: entry {} should be of object {}, but is of object {}",
              volume_.path_of(home_name(kDirectory)), slot, id.value, entry.object.id);
}

// What a read-only store's log says, and nobody has written home.
Status Store::lay_overlay_over(ObjectId id, const HomeCopies::Copy& copy) {
  return overlay_.for_each(id, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset >= copy.size_bytes) return kOk;
    bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), copy.size_bytes - offset));
    return write_to_memory(copy.memory.get(), offset, bytes);
  });
}

}  // namespace memlith::core
