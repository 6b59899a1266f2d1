// The directory of a folder store: a file with an entry for each object. Floor: store. docs/format.md.
#pragma once

#include "store/directory.hpp"

namespace memlith::core {

class FolderDirectory final : public Directory {
 public:
  explicit FolderDirectory(StoreFiles& files) : Directory(files) {}

  [[nodiscard]] std::uint32_t next_id() const override {
    const LockGuard lock(mutex_);
    return next_id_;
  }
  // The directory file of a store with that log and these objects.
  static std::vector<std::byte> file_of(std::span<const ObjectInfo> objects, std::uint32_t next_id,
                                        std::uint64_t log_id);

  Result<ObjectInfo> create(const ObjectInfo& wanted, const Commit& commit) override
      MEMLITH_EXCLUDES(create_mutex_, mutex_);
  Status remove(ObjectId id, const Commit& commit, const Checkpoint& checkpoint) override
      MEMLITH_EXCLUDES(create_mutex_, mutex_);
  Status set_reserve(ObjectId id, std::uint64_t reserve_bytes, const Commit& commit) override
      MEMLITH_EXCLUDES(create_mutex_, mutex_);

  Status check_before_create() override;
  Status check_log_not_removed() override;
  Status tell_log_is_missing() override;
  Status make_first(std::uint64_t log_id) override;
  void undo_creation(bool log_was_made) override;

  Status look_at_home() override;
  Status load(const Overlay& overlay) override;
  Status check_homes(const Unreachable& unreachable) override;
  Status fill_holes(const Overlay& due) override;
  Status undo_uncommitted_growth() override;
  Status remove_orphans() override;

  Result<std::uint64_t> size_at_home(ObjectId id) override;
  [[nodiscard]] std::uint64_t log_bytes_first() const override;
  [[nodiscard]] std::uint64_t log_bytes_given() const override;

 private:
  [[nodiscard]] std::uint64_t record_bytes() const override { return kDirectoryEntryBytes; }
  [[nodiscard]] std::uint64_t record_offset(const ObjectEntry& entry) const override {
    return entry.slot * kDirectoryEntryBytes;
  }
  void put_record(FrameWriter& writer, const ObjectEntry& entry) override MEMLITH_REQUIRES(mutex_);

  [[nodiscard]] DirectoryHeader header_bytes(std::uint64_t live_count) const MEMLITH_REQUIRES(mutex_);
  // Commits entries, whose bytes are consecutive in memory, and waits until they are durable.
  static Status commit_entries(std::span<const Extent> entries, const std::byte* bytes, const Commit& commit);
  Status create_home(ObjectId id, std::uint64_t size_bytes);
  Result<std::uint64_t> make_room_for_entry() MEMLITH_REQUIRES(create_mutex_);

  Result<std::vector<std::byte>> read_file();
  Result<std::vector<std::byte>> bytes_with(const Overlay& overlay);
  Status take_entries(std::span<const std::byte> bytes, const DirectoryHeader& header) MEMLITH_REQUIRES(mutex_);
  Status read_header(std::span<const std::byte> bytes, DirectoryHeader& header);
  Status read_entries(std::span<const std::byte> bytes) MEMLITH_REQUIRES(mutex_);

  std::vector<std::byte> followed_;  // see look_at_home()
  std::uint32_t next_id_ MEMLITH_GUARDED_BY(mutex_) = 1;
  std::uint64_t file_bytes_ MEMLITH_GUARDED_BY(create_mutex_) = 0;  // of the directory file
};

}  // namespace memlith::core
