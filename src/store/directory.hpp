// The directory of a store: the list of its objects on the medium, and their creation, growth and removal. Floor:
// store.
//
// A folder store has a directory file, "objects/0", and its object n in "objects/n" (FolderDirectory). A one-file store
// has one object, 1, which is the user's file; its directory is one record in the superblock of the log
// (FileDirectory). Everything in which the two kinds of store differ is behind this interface.
//
// Threads: any number may look up and commit; create and remove run one at a time; functions for opening and
// checkpoints say so.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sync.hpp"
#include "store/overlay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class Directory {
 public:
  using Commit = std::function<Status(const Changes&)>;  // durable on ok
  using Checkpoint = std::function<Status()>;
  // Objects that frames change beyond the end of their home file, or whose home file is missing, with the end of the
  // frames' bytes.
  using Unreachable = std::map<ObjectId, std::uint64_t>;

  static std::unique_ptr<Directory> make(StoreFiles& files);
  virtual ~Directory() = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // ---- the objects, with every commit that was begun
  [[nodiscard]] std::vector<ObjectInfo> objects() const MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<ObjectInfo> find(std::string_view name) const MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<ObjectInfo> find(ObjectId id) const MEMLITH_EXCLUDES(mutex_);
  // The end of the newest commit to the object since the store was opened; committers to the object update it.
  [[nodiscard]] std::shared_ptr<Atomic<std::uint64_t>> committed_lsn(ObjectId id) const MEMLITH_EXCLUDES(mutex_);

  // ---- for a copy of the store, after load()
  // Folder: no object had this number or a higher one.
  [[nodiscard]] virtual std::uint32_t next_id() const { return 1; }

  // ---- changes
  // An object of zeros, as `wanted` says but for its id. Durable on ok.
  virtual Result<ObjectInfo> create(const ObjectInfo& wanted, const Commit& commit) = 0;
  virtual Status remove(ObjectId id, const Commit& commit, const Checkpoint& checkpoint) = 0;
  // The object may grow to so many bytes from now on, durably on ok. No region of it is open.
  virtual Status set_reserve(ObjectId id, std::uint64_t reserve_bytes, const Commit& commit) = 0;
  // Makes the home file long enough and reserves its space, durably. The object's size changes only with a commit.
  Status reserve_home(ObjectId id, std::uint64_t size_bytes) MEMLITH_EXCLUDES(mutex_);

  // ---- frames
  [[nodiscard]] std::uint64_t commit_bytes(std::span<const Extent> extents, std::span<const SizeChange> sizes) const;
  // Writes everything of a commit except the extents' bytes, which follow.
  void put_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes)
      MEMLITH_EXCLUDES(mutex_);

  // ---- creating a store: alone
  // True if a store may be made here; a one-file store gets its file if there is none.
  virtual Status check_before_create() = 0;
  // True if an opening that crashed left traces of a log. In that case no new log is created.
  virtual Status check_log_not_removed() = 0;
  // Why a store without a log cannot be opened.
  virtual Status tell_log_is_missing() = 0;
  // Creates the empty directory, durably, before the log gets its name.
  virtual Status make_first(std::uint64_t log_id) = 0;
  // Removes the files that this object created; the log, if opening had created one, is removed already.
  virtual void undo_creation(bool log_was_made) = 0;

  // ---- recovery: alone, in this order
  virtual void read_record(const FileRecord&) {}  // of the file, from the superblock
  virtual Status prepare_to_recover() { return kOk; }
  // Keeps the directory as it is at home, for the next calls of load(). For a store that is followed, whose home files
  // change.
  virtual Status look_at_home() { return kOk; }
  // Reads the directory, including the overlay's changes. After a failure everything is as before.
  virtual Status load(const Overlay& overlay) = 0;
  // Checks that every object, and every object of a frame that was not removed, has its home file. `unreachable` comes
  // from the overlay.
  virtual Status check_homes(const Unreachable& unreachable) = 0;
  // A user's file, or a copy of a home, may be sparse. A checkpoint that found no space for a hole would poison the
  // store. `due`: what is written home next.
  virtual Status fill_holes(const Overlay& due);
  // A length that no commit names may be in the page cache only, because its flush failed. Such a growth is undone; a
  // later growth sets it again.
  virtual Status undo_uncommitted_growth() = 0;
  // Removes home files that no entry names: left by an interrupted creation or removal.
  virtual Status remove_orphans() { return kOk; }

  // ---- replay: one thread at a time
  // False: the object's bytes are in the superblock, and take_record() has to hear of their changes.
  [[nodiscard]] virtual bool has_home(ObjectId) const { return true; }
  virtual Status take_record(const Overlay&) { return kOk; }
  // True if frames may have bytes beyond the end of an intact home file.
  [[nodiscard]] virtual bool homes_may_shrink() const { return false; }
  // True if the store's lock is on the only home, and was given when no killed process was writing there any more.
  [[nodiscard]] virtual bool home_has_the_lock() const { return false; }
  // True if the overlay may be written home before all frames were read: see FileDirectory.
  virtual Result<bool> homes_are_as_said(const Overlay&) { return true; }
  // As of the last checkpoint; the objects in memory may be ahead of it.
  virtual Result<std::uint64_t> size_at_home(ObjectId id) = 0;
  // Cuts the file, durably, to its length as of the last checkpoint. This undoes growth that no commit made part of the
  // object.
  virtual Status cut_home_to_size() { return kOk; }
  // For a one-file store, as of the last checkpoint; during recovery, as of what was read of the log.
  [[nodiscard]] virtual FileRecord record_at_home() const { return {}; }
  // For a one-file store that is looked at without a lock, and that no process has open: `unsupported` if commits of it
  // may be in a common log only.
  [[nodiscard]] Status check_has_all_commits() const;
  // For a one-file store: the stamp of its file (Device::stamp).
  virtual Result<std::uint64_t> stamp() { return 0; }
  // The store's part of the superblock, for the next tail.
  [[nodiscard]] ClientBytes client_bytes(std::uint64_t closed_stamp = 0) const;
  // The size of a new log.
  [[nodiscard]] virtual std::uint64_t log_bytes_first() const = 0;
  // The size to which a log under load grows at once. A checkpoint writes each page home once, however often it
  // changed: the more pages a file has, the more a large log pays.
  [[nodiscard]] virtual std::uint64_t log_bytes_given() const = 0;

  // Copies the permissions of the user's file, which may have changed, to another file of the store.
  virtual Status match_permissions(Device&) { return kOk; }
  // The file whose permissions the store's other files get; null: none.
  virtual Result<Device*> permissions_model() { return static_cast<Device*>(nullptr); }

 protected:
  struct ObjectEntry {
    ObjectInfo info;
    std::uint64_t slot = 0;  // in the directory file
    std::shared_ptr<Atomic<std::uint64_t>> committed_lsn = std::make_shared<Atomic<std::uint64_t>>(0);
  };

  explicit Directory(StoreFiles& files) : files_(files) {}
  ObjectEntry* find_entry(ObjectId id) MEMLITH_REQUIRES(mutex_);
  const ObjectEntry* find_entry(ObjectId id) const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Status no_such_object(ObjectId id) const;
  [[nodiscard]] Status no_store() const;

  // A change of an object's size in a frame: bytes of object 0.
  [[nodiscard]] virtual std::uint64_t record_bytes() const = 0;
  [[nodiscard]] virtual std::uint64_t record_offset(const ObjectEntry& entry) const = 0;
  virtual void put_record(FrameWriter& writer, const ObjectEntry& entry) MEMLITH_REQUIRES(mutex_) = 0;

  StoreFiles& files_;
  Mutex create_mutex_;   // one create or remove at a time, I/O included; taken before mutex_
  mutable Mutex mutex_;  // held across the append of the directory's changes, not the sync
  std::vector<ObjectEntry> entries_ MEMLITH_GUARDED_BY(mutex_);

 private:
  static void put_extents(FrameWriter& writer, std::span<const Extent> extents);
  Status poison_on_failure(Status status);
};

}  // namespace memlith::core
