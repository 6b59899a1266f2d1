// A store: named objects whose changes are committed through the redo log. Floor: store. docs/architecture.md.
//
// INVARIANT 1: only replay writes a home file. A commit appends one frame to the log. A checkpoint reads frames from
// the tail of the log, writes their extents home, flushes the home files, and moves the tail. Recovery does the same at
// opening. Growing a home file with zeros is the only change ahead of the log; it is durable before any frame refers to
// it.
//
// The parts, lowest first; each knows only those before it, but Collectors also calls Store, which makes its frames:
//     StoreFiles    the volume, the log, the homes of the objects that are open, the options
//     Directory     which objects there are; all that differs between a folder store and a one-file store
//     Replay        writes homes, with what a power cut must not spoil (KeptBlocks) and what a marked file says of
//                   itself (FileMoment)
//     Opening       finds or makes the log; Recovery brings the store to its last durable commit
//     Checkpointer  when replay runs, and how fast; LogGrower lets the log grow instead
//     Collectors    commits that wait in memory for their frame
//     Flusher       makes asynchronous commits durable; StatsPublisher shows counters to other processes
//
// Threads: any number may commit; one at a time changes the directory; open and close while no other thread uses the
// store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.hpp"
#include "store/background.hpp"
#include "store/checkpointer.hpp"
#include "store/collectors.hpp"
#include "store/directory.hpp"
#include "store/durable_event.hpp"
#include "store/flusher.hpp"
#include "store/opening.hpp"
#include "store/publisher.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"
#include "store/time_marker.hpp"
#include "store/view.hpp"

namespace memlith::core {

// docs/states.md draws them, and what leads from one to another. A store that lacks memory, refuses weak commits or has
// failed is `writable`: the log and the collectors know more.
enum class StoreState : std::uint8_t {
  opening,
  recovering,
  writable,
  read_only,
  following,  // also while it is stalled
  closing,
  closed,
  refused,  // the opening failed, or its creation was undone
};

class Store {
 public:
  // Opens and recovers. The volume outlives the store. An opening that fails removes the files that it created, except
  // after an I/O error.
  // The options say how long it waits while the store is locked.
  static Result<std::unique_ptr<Store>> open(Volume& volume, const StoreOptions& options);
  ~Store();  // leaves the store as a crash would; close() closes it cleanly

  // Checkpoints everything and marks the store clean. The store is unusable afterwards, whatever the result.
  Status close();
  // The same for a one-file store, whose file is complete by itself afterwards: also removes the log, before another
  // process can open it, unless an archiver lives beside it.
  Status close_and_remove_log();
  // The structure for which the store was opened was refused. If this opening made the log of a one-file store, and no
  // commit is in the log when the store is closed, the log is removed.
  void forget_new_log() {
    if (one_file() && files_.made_log) refused_at_ = newest_ticket();
  }
  // Instead of close(), for a store without commits: removes the files that opening created, if any.
  void undo_creation();

  // ---- directory
  [[nodiscard]] std::vector<ObjectInfo> objects() const { return directory_->objects(); }
  [[nodiscard]] std::optional<ObjectInfo> find(std::string_view name) const { return directory_->find(name); }
  // A new object of zeros, durable on ok. In a one-file store: gives the file its address.
  Result<ObjectInfo> create(std::string_view name, std::uint64_t size_bytes, std::uint64_t address,
                            std::uint64_t reserve_bytes);
  // Durable on ok.
  Status remove(ObjectId id);
  // The object may grow to so many bytes of addresses from now on, durably on ok. No region of it is open.
  Status set_reserve(ObjectId id, std::uint64_t reserve_bytes);
  // Makes the home file long enough for `size_bytes` and reserves its space, durably. The object's size changes only
  // with a commit that carries a SizeChange.
  Status reserve_home(ObjectId id, std::uint64_t size_bytes);

  // ---- commit
  // Makes all of the changes in one frame, durable on ok. Errors: full (nothing happened), no_space (likewise),
  // poisoned.
  Status commit(const Changes& changes);
  // The same without waiting for the disk: the commit is durable when sync() of the LSN returned ok. `will_sync` says
  // that the caller waits for that at once.
  Result<Lsn> commit_weak(const Changes& changes, bool will_sync);
  // The same for callers with a lock: empty if the log has no room now. make_room() then waits for room and does the
  // I/O that makes room. A frame that is too large for a batch of the log is written while it is being filled in any
  // case.
  Result<std::optional<Lsn>> commit_weak_at_once(const Changes& changes, bool will_sync);
  Status make_room(const Changes& changes, bool will_sync);
  // The same for changes that are not known yet, of so many bytes with their extents.
  Status make_room_for(std::uint64_t bytes, bool will_sync);
  // A commit by which whole pages of a region, within its durable size, read as zeros. A checkpoint gives their disk
  // space back. The pages are less than 4 GiB. Returns the LSN for sync(). No other commit of these pages may run
  // beside it.
  Result<Lsn> discard(const Extent& pages);
  // For callers who make the bytes while they write them, or have to know the place of the frame: reserves one frame,
  // and writes all but the extents' bytes. The caller puts those, in order, finishes the writer, and calls
  // wake_checkpointer() with the end of the frame.
  Result<FrameWriter> begin_commit(std::span<const Extent> extents, std::span<const SizeChange> sizes,
                                   bool will_sync = true);
  // Wakes the checkpointer if a frame that ends there has filled the log so far.
  void wake_checkpointer(Lsn end) { checkpointer_.wake_at(end); }
  // The size that the log may grow to, which limits a commit.
  [[nodiscard]] std::uint64_t log_limit_bytes() const {
    const StoreOptions& options = files_.options;
    return options.log_max_bytes != 0 ? options.log_max_bytes : std::max(kGiB, options.log_bytes);
  }
  // The file system's.
  [[nodiscard]] Result<std::uint64_t> free_bytes() { return files_.volume.free_bytes(); }
  // Reserves what a commit of these changes will need on the disk and in the log, as far as that is possible before it.
  Status prepare_commit(const Changes& changes);
  // Why the store is poisoned; ok if it is not.
  [[nodiscard]] Status failure() const;
  // Nothing is committed from now on: memory has changed in a way that no frame has.
  void poison(Status cause) { files_.log->poison(cause); }
  Status sync(Lsn lsn) {
    MEMLITH_TRY(check_process());
    return files_.log->sync(lsn);
  }
  // Tickets, of whatever structure (store/collectors.hpp): returns when everything up to that one is durable, also
  // what waits in memory for its frame. Errors: invalid - there is no such ticket yet; those of commit().
  Status wait(Lsn ticket);
  Status check_ticket(Lsn ticket);  // `invalid`: there is no such ticket yet
  [[nodiscard]] Lsn durable_ticket() { return read_only() ? durable_lsn() : collectors_.durable_ticket(); }
  // Everything that was committed or appended before the call is durable when this ticket is.
  [[nodiscard]] Lsn newest_ticket() { return read_only() ? durable_lsn() : collectors_.newest_ticket(); }

  // The commits of all structures that wait in memory for their frame (store/collectors.hpp).
  [[nodiscard]] Collectors& collectors() { return collectors_; }
  // Puts it into the log: for a caller that is about to commit something else, which is to lie behind it.
  Status close_collectors() { return collectors_.any_waits() ? collectors_.close(false).status() : kOk; }
  // Waiting commits shall be durable soon after `due`; or be in the log soon.
  void want_closing(Workers::Time due) {
    if (flusher_ != nullptr) flusher_->want_closing(due);
  }
  void want_frame() {
    if (flusher_ != nullptr) flusher_->want_frame();
  }

  // Has a background thread make everything up to `lsn` durable, within the window and in order. A read-only store
  // commits nothing, and these two calls do nothing.
  // The bytes have no meaning behind the commit that ends there, so they need not go home (store/dead_bytes.hpp).
  void note_dead(const Extent& extent, Lsn end) noexcept { files_.dead.note(extent, end); }
  void flush_soon(Lsn lsn) {
    if (flusher_ != nullptr) flusher_->want(lsn);
  }
  // The size to which the log may grow from now on, for a commit that was `full`.
  Status set_log_bytes_max(std::uint64_t bytes) {
    MEMLITH_TRY(check_process());
    return files_.log->set_bytes_max(bytes);
  }
  void set_flush_window(FlushWindow window) {
    if (flusher_ != nullptr) flusher_->set_window(window);
  }
  // Sets the eventfd that is raised by one whenever more has become durable, and when the store is poisoned; -1 for
  // none. When this returns, the previous eventfd is not used any more.
  void set_durable_eventfd(int fd) { durable_event_.set(fd); }

  // Writes everything that is durable home, without pauses; a running background checkpoint stops pausing, too.
  Status checkpoint();
  // Copies of home files, all of them as one and the same durable commit left them: the last one that was durable
  // before the call, or a later one. The copies lie in memory, are constant, and outlive the store. Other threads
  // commit meanwhile, as long as the log has room. Errors: those of checkpoint(), which alone can poison; no_memory,
  // too_many_files, and io if a home file cannot be read.
  Result<HomeCopies> copy_homes(std::span<const ObjectId> objects);

  // Folder stores, with makes_sums: gives every block whose sum is unknown the sum of what is there, durably. Returns
  // their number.
  Result<std::uint64_t> complete_sums();
  // The sums of an object, to be held against blocks of it that no commit has changed since the call: a checkpoint,
  // which may run beside, writes no sums but those of what it writes home. Null: nothing is known. Errors: unsupported
  // (the store is one file, or followed).
  Result<std::unique_ptr<SumsFile>> open_sums(ObjectId id);
  // Compares an object with its sums, as it is home: calls `wrong` for each block that is not as it was written.
  // Returns how many blocks have no sum.
  Result<std::uint64_t> check_sums(ObjectId id, const std::function<void(std::uint64_t offset)>& wrong);

  // One-file stores: cuts the file, durably, to its length as of the last checkpoint. This undoes growth that no commit
  // made part of the object. These bytes must not be in use any more.
  Status cut_home_to_size();
  // Everything before this LSN is home.
  [[nodiscard]] Lsn home_lsn() const { return files_.log->tail().lsn; }

  // Where an object's home file can be mapped, from the offset on. In a read-only store, the overlay has to be laid
  // over the mapping.
  Result<Mappable> mappable_home(ObjectId id, std::uint64_t offset, std::uint64_t bytes);
  // For messages.
  Result<std::string> home_path(ObjectId id);
  // The end of the newest commit to the object since the store was opened; committers to the object update it. What the
  // store found when it was opened is home already.
  std::shared_ptr<Atomic<std::uint64_t>> committed_lsn(ObjectId id) { return directory_->committed_lsn(id); }
  // Returns when everything before `end` is home. Runs a checkpoint only if necessary, and gives way to commits of
  // other threads.
  Status bring_home(Lsn end);
  // Returns when reads of the home files find everything before `end`. Nothing is flushed: the log keeps its frames,
  // and a power cut loses nothing. But if a write or a flush fails before the next checkpoint, reads may find older
  // bytes: the caller asks check_homes() before each.
  Status write_home(Lsn end);
  // `poisoned`: the store is, and home files had bytes of write_home() that were not flushed.
  [[nodiscard]] Status check_homes() const {
    return checkpointer_.has_unflushed_homes() && files_.log->poisoned() ? older_homes() : kOk;
  }
  // In the calling thread, what a thread of the store does while there are no commits: a checkpoint by small pieces,
  // which ends early as soon as there is a commit.
  Status bring_home_while_idle() {
    MEMLITH_TRY(check_process());
    return checkpointer_.run_while_idle();
  }
  // These bytes after the commits up to `end`, as far as the log has them: home has the rest. They are of one object,
  // in order, and no commit changes them meanwhile. Waits until the commits are durable, and for no checkpoint.
  Status read_log(std::span<const Extent> wanted, Lsn end, Overlay& found);
  // For a caller that closes the store next: the checkpoint that close() would begin with, so that close() need not.
  Status bring_all_home();
  [[nodiscard]] const Overlay& overlay() const { return replay_.overlay(); }

  // Not null exactly in a store that is followed: it shows the objects, instead of their home files and the overlay.
  [[nodiscard]] View* view() const { return view_.get(); }
  // In a store that is read only, what it shows.
  [[nodiscard]] Lsn durable_lsn() const {
    if (view_ != nullptr) return view_->lsn();
    return read_only() ? files_.log->recovered().lsn : files_.log->durable_lsn();
  }

  [[nodiscard]] bool read_only() const { return files_.read_only(); }
  [[nodiscard]] const StoreOptions& options() const { return files_.options; }
  // True if regions copy the pages of their homes when they are opened: the medium is slower than memory.
  [[nodiscard]] bool runs_from_copies() const { return files_.log_device->caps().io == IoBackend::dax; }
  [[nodiscard]] bool one_file() const { return files_.options.kind == StoreKind::one_file; }
  // While the returned object is there, the log grows by commits only.
  [[nodiscard]] TimeMarker::Pause without_time_marks() { return TimeMarker::Pause(time_marker_.get()); }
  // The log_id of the store that this store and its copies come from; 0: unknown.
  [[nodiscard]] std::uint64_t origin() const { return files_.origin; }
  [[nodiscard]] const Log& log() const { return *files_.log; }
  [[nodiscard]] bool was_clean() const { return files_.was_clean; }
  [[nodiscard]] bool marked_by_caller() const { return files_.in_use == InUse::caller; }
  [[nodiscard]] const StoreCounters& counters() const { return files_.counters; }
  // Null in a read-only store. The caller fills the histograms; publish_stats() copies the counters.
  [[nodiscard]] StatsPage* stats() const { return publisher_ != nullptr ? &publisher_->page() : nullptr; }
  void publish_stats();
  [[nodiscard]] static std::string stats_name(StoreKind kind, const std::string& file_name);
  [[nodiscard]] std::string path() const { return files_.path(); }
  // A sentence on how the store's place weakens what commits promise; empty: not at all.
  [[nodiscard]] std::string weakness() const;
  // Empty if the store does not have a device for itself.
  Result<std::optional<DeviceUse>> device_use() { return files_.volume.device_use(); }

  // The bytes of an object in its home file, for tests and verification.
  Result<std::vector<std::byte>> read_home(ObjectId id);
  Status read_home_into(ObjectId id, std::uint64_t offset, std::span<std::byte> target);
  // The same if it is in memory. False: the target holds anything.
  bool read_cached_home(ObjectId id, std::uint64_t offset, std::span<std::byte> target);

  // One-file stores: copies the permissions of the user's file, which may have changed, to another file or the log.
  Status match_permissions(Device& other) { return directory_->match_permissions(other); }
  Status match_log_permissions() { return match_permissions(*files_.log_device); }
  // One-file stores: whether the name by which the file was opened, in the folder in which it was opened, still leads
  // to it.
  Result<bool> file_has_its_name();
  // One-file stores: removes the log's name, unless the name leads to another store's log by now.
  Status remove_log();

  // With InUse::guard in the options: the file begins with the in-use header before this returns ok. A caller that
  // commits to the file calls this first, and commits the file's own first kInUseHeaderBytes to kOwnBytesOffset of
  // kDirectory.
  Status put_guard();
  [[nodiscard]] bool is_guarded() const { return has_in_use_header_ && files_.in_use == InUse::guard; }
  [[nodiscard]] bool guards_file() const { return files_.options.in_use == InUse::guard; }  // it may become guarded
  // For structures that leave the first 16 bytes of their region to the in-use header, and have `magic` behind it: the
  // file of a one-file store begins with the in-use header before this returns ok, until the store is closed. A file
  // with other bytes there stays as it is; so do all others. `is_new`: zeros are in the place of the magic. One thread
  // at a time.
  Status put_in_use_header(std::uint64_t magic, bool is_new);

  // True if this process is a forked child, which shares the store's files and must not use them.
  [[nodiscard]] bool in_forked_child() const { return process_mark_ != 0 && process_mark_ != process_mark(); }
  Status check_process() const;

 private:
  Store(Volume& volume, StoreOptions options) : files_(volume, std::move(options)) {}
  [[nodiscard]] Status older_homes() const;

  static Result<std::unique_ptr<Store>> try_to_open(Volume& volume, const StoreOptions& options);
  // The invariants of each state, between two calls.
  void assert_state() const;
  void enter(StoreState next);
  Status open_it();
  Status start();
  Status finish();  // everything of close() except releasing the locks
  Status take_over_in_use_header();
  Status take_common_commits();
  Status begin_in_use_header(const OwnBytes& own);
  Status end_in_use_header();
  Status set_in_use(InUse in_use);
  void stop_jobs();
  void drop_stats();
  void count_capture(std::span<const Extent> extents);
  void put_commit_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes);
  Result<Lsn> put_bytes(FrameWriter& writer, const Changes& changes);
  [[nodiscard]] Directory::Commit committer();
  Status lay_overlay_over(ObjectId id, const HomeCopies::Copy& copy);

  StoreFiles files_;
  std::unique_ptr<Directory> directory_ = Directory::make(files_);
  Opening opening_{files_, *directory_};
  Replay replay_{
      files_, *directory_};  // used by opening, then by the checkpointer; its overlay by readers of a read-only store
  Checkpointer checkpointer_{files_, *directory_, replay_};
  std::unique_ptr<View> view_;
  DurableEvent durable_event_;
  Collectors collectors_{*this};

  // The process owns the threads. These are null in a store that was not opened for writing, or was closed.
  std::shared_ptr<Background> background_;
  std::unique_ptr<Flusher> flusher_;
  std::unique_ptr<TimeMarker> time_marker_;  // null: marks are not wanted
  std::unique_ptr<StatsPublisher> publisher_;

  std::uint64_t process_mark_ = 0;          // of the process that opened it for writing; 0: read-only
  int process_ = 0;                         // its number, for messages
  StoreState state_ = StoreState::opening;  // changes while no other thread uses the store
  bool has_in_use_header_ = false;          // at home, durably; one thread at a time
  std::optional<Lsn> refused_at_;           // see forget_new_log()
};

}  // namespace memlith::core
