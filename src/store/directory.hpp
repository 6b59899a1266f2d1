// The directory of a store: which objects there are, how one comes, grows and goes, and what keeps the list on the medium.
// Floor: store.
//
// A folder store has a directory file, "objects/0", and its object n in "objects/n" (FolderDirectory). A one-file store has one
// object, 1, which is the user's file; its directory is one record in the superblock of the log (FileDirectory). Everything in which
// the two kinds of store differ is behind this interface.
//
// Threads: any number may look and commit; create and remove take turns; what opening and checkpoints use says so.
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
  // Objects that frames change where their home has no bytes or is missing, with the end of what the frames have.
  using Unreachable = std::map<ObjectId, std::uint64_t>;

  static std::unique_ptr<Directory> make(StoreFiles& files);
  virtual ~Directory() = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // ---- the objects, with every commit that was begun
  [[nodiscard]] std::vector<ObjectInfo> objects() const MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<ObjectInfo> find(std::string_view name) const MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<ObjectInfo> find(ObjectId id) const MEMLITH_EXCLUDES(mutex_);
  // The LSN behind the newest commit to the object since the store was opened, for those who commit to it to note.
  [[nodiscard]] std::shared_ptr<Atomic<std::uint64_t>> committed_lsn(ObjectId id) const MEMLITH_EXCLUDES(mutex_);

  // ---- changes
  // An object of zeros, as `wanted` says but for its id. Durable on ok.
  virtual Result<ObjectInfo> create(const ObjectInfo& wanted, const Commit& commit) = 0;
  virtual Status remove(ObjectId id, const Commit& commit, const Checkpoint& checkpoint) = 0;
  // Makes the home file long enough and its space reserved, durably. The object's size is unchanged until a commit says it.
  Status reserve_home(ObjectId id, std::uint64_t size_bytes) MEMLITH_EXCLUDES(mutex_);

  // ---- frames
  [[nodiscard]] std::uint64_t commit_bytes(std::span<const Extent> extents, std::span<const SizeChange> sizes) const;
  // Everything of a commit but the extents' bytes, which follow.
  void put_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes)
      MEMLITH_EXCLUDES(mutex_);

  // ---- creating a store: alone
  // Whether a store may be made here; a one-file store gets its file if there is none.
  virtual Status check_before_create() = 0;
  // What an opening left when it crashed says that there was a log. Then nothing takes its place.
  virtual Status check_log_not_removed() = 0;
  // Why a store without a log cannot be opened.
  virtual Status tell_log_is_missing() = 0;
  // The directory of a store without objects, durable, before the log gets its name.
  virtual Status make_first(std::uint64_t log_id) = 0;
  // Removes what this object made; the log is gone, if opening had made one.
  virtual void undo_creation(bool log_was_made) = 0;

  // ---- recovery: alone, in this order
  virtual void read_record(const ObjectRecord&) {}  // of the file, from the superblock
  virtual Status prepare_to_recover() { return kOk; }
  // Reads the directory, with what the overlay changes of it.
  virtual Status load(const Overlay& overlay) = 0;
  // Every object has its home, and every frame's object too unless that was removed. `unreachable` is as the overlay has it.
  virtual Status check_homes(const Unreachable& unreachable) = 0;
  // A user's file, or a copy of a home, may be sparse. A checkpoint that found no space for a hole would poison the store.
  virtual Status fill_holes();
  // A length that no commit names may be in the page cache only, if the flush that was to make it durable failed. Such a growth is
  // undone; whoever needs it grows the file anew.
  virtual Status settle_lengths() = 0;
  // Homes that no entry names: of a creation that was interrupted, or a removal that was.
  virtual Status remove_orphans() { return kOk; }

  // ---- replay: one thread at a time
  // False: the object's bytes are in the superblock, and take_record() has to hear of their changes.
  [[nodiscard]] virtual bool has_home(ObjectId) const { return true; }
  virtual Status take_record(const Overlay&) { return kOk; }
  // Whether frames may have bytes beyond the end of a home that is sound.
  [[nodiscard]] virtual bool homes_may_shrink() const { return false; }
  // Whether to write home while frames are still to come: see FileDirectory.
  virtual Result<bool> homes_are_as_said(const Overlay&) { return true; }
  // As of the last checkpoint; the objects in memory may be ahead of it.
  virtual Result<std::uint64_t> size_at_home(ObjectId id) = 0;
  // The file becomes as long as the last checkpoint has it, durably, which undoes growth that no commit made part of the object.
  virtual Status cut_home_to_size() { return kOk; }
  // What the superblock says of the store, with the next tail.
  [[nodiscard]] ClientBytes client_bytes() const;
  // What a log that commits fill quickly grows to without having to earn it. A checkpoint writes each page home once, however often
  // it changed: the more pages a file has, the longer it is worth waiting.
  [[nodiscard]] virtual std::uint64_t log_bytes_given() const = 0;

  // Gives another file of the store the permissions of the user's file, which may have changed.
  virtual Status match_permissions(Device&) { return kOk; }
  // Whose permissions the files beside it get; null: no file's.
  virtual Result<Device*> permissions_model() { return static_cast<Device*>(nullptr); }

 protected:
  struct Entry {
    ObjectInfo info;
    std::uint64_t slot = 0;  // in the directory file
    std::shared_ptr<Atomic<std::uint64_t>> committed_lsn = std::make_shared<Atomic<std::uint64_t>>(0);
  };

  explicit Directory(StoreFiles& files) : files_(files) {}
  Entry* find_entry(ObjectId id) MEMLITH_REQUIRES(mutex_);
  const Entry* find_entry(ObjectId id) const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Status no_such_object(ObjectId id) const;
  [[nodiscard]] Status no_store() const;

  // How the size of an object is written in a frame: as bytes of object 0.
  [[nodiscard]] virtual std::uint64_t record_bytes() const = 0;
  [[nodiscard]] virtual std::uint64_t record_offset(const Entry& entry) const = 0;
  virtual void put_record(FrameWriter& writer, const Entry& entry) MEMLITH_REQUIRES(mutex_) = 0;
  [[nodiscard]] virtual ObjectRecord record_at_home() const { return {}; }

  StoreFiles& files_;
  Mutex create_mutex_;   // one create or remove at a time, I/O included; taken before mutex_
  mutable Mutex mutex_;  // held across the append of the directory's changes, not the sync
  std::vector<Entry> entries_ MEMLITH_GUARDED_BY(mutex_);

 private:
  static void put_extents(FrameWriter& writer, std::span<const Extent> extents);
  Status poison_on_failure(Status status);
};

}  // namespace memlith::core
