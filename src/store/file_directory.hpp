// The directory of a one-file store: one record in the superblock of the log, of the user's file. Floor: store.
// docs/format.md.
#pragma once

#include "store/directory.hpp"

namespace memlith::core {

class FileDirectory final : public Directory {
 public:
  explicit FileDirectory(StoreFiles& files) : Directory(files) {}

  // Sets the address and the size of the file. No other object can be created.
  Result<ObjectInfo> create(const ObjectInfo& wanted, const Commit& commit) override
      MEMLITH_EXCLUDES(create_mutex_, mutex_);
  Status remove(ObjectId id, const Commit& commit, const Checkpoint& checkpoint) override;
  Status set_reserve(ObjectId id, std::uint64_t reserve_bytes, const Commit& commit) override
      MEMLITH_EXCLUDES(create_mutex_, mutex_);

  Status check_before_create() override;
  Status check_log_not_removed() override;
  Status tell_log_is_missing() override;
  Status make_first(std::uint64_t log_id) override;
  void undo_creation(bool log_was_made) override;

  void read_record(const FileRecord& record) override;
  Status prepare_to_recover() override;
  Status load(const Overlay& overlay) override;
  // The file has the length of its record, or load() would have failed; bytes of the log beyond it belong to a time
  // when the file was longer.
  Status check_homes(const Unreachable&) override { return kOk; }
  Status fill_holes(const Overlay& due) override;
  Status undo_uncommitted_growth() override;

  [[nodiscard]] bool has_home(ObjectId id) const override { return id != kDirectory; }
  Status take_record(const Overlay& overlay) override;
  [[nodiscard]] bool homes_may_shrink() const override { return true; }
  [[nodiscard]] bool home_has_the_lock() const override { return true; }
  // A user's file that is shorter than the frames so far require was either cut by an earlier recovery, as a later
  // frame will show, or is not the file of this log. So nothing is written home yet.
  Result<bool> homes_are_as_said(const Overlay& overlay) override;
  Result<std::uint64_t> size_at_home(ObjectId id) override;
  Status cut_home_to_size() override;
  [[nodiscard]] FileRecord record_at_home() const override;
  Result<std::uint64_t> stamp() override;
  [[nodiscard]] std::uint64_t log_bytes_first() const override;
  [[nodiscard]] std::uint64_t log_bytes_given() const override;

  Status match_permissions(Device& other) override;
  Result<Device*> permissions_model() override { return files_.homes.get(kFile); }

 private:
  [[nodiscard]] std::uint64_t record_bytes() const override { return sizeof(ObjectRecord); }
  [[nodiscard]] std::uint64_t record_offset(const ObjectEntry&) const override { return 0; }
  void put_record(FrameWriter& writer, const ObjectEntry& entry) override MEMLITH_REQUIRES(mutex_);
  // The file is as the record says, in memory and durably.
  Status commit_record(const ObjectInfo& info, const Commit& commit) MEMLITH_REQUIRES(create_mutex_);
  [[nodiscard]] std::uint64_t length_at_home() const;
  [[nodiscard]] bool is_archives_copy() const;
  Status check_closed_before();
  // Another name of the file (a hard link) has a log of its own.
  Status lock_file();

  ObjectRecord committed_ MEMLITH_GUARDED_BY(mutex_){};  // the record including every commit that was begun
  FileRecord at_home_ MEMLITH_GUARDED_BY(mutex_){};      // and as of the tail of the log
  bool made_file_ = false;                               // by opening; used by opening alone
};

}  // namespace memlith::core
