// A store: named objects whose changes are committed through the redo log. Floor: store. docs/architecture.md.
//
// INVARIANT 1: only replay writes a home file. A commit appends one frame to the log; a checkpoint reads frames from the
// tail of the log, writes their extents home, flushes those, and moves the tail; recovery is the same at open.
// Growing a home file with zeros is the one thing done ahead of the log, durable before any frame refers to it.
//
// The parts, lowest first; each knows only those before it:
//     StoreFiles    the volume, the log, the homes of the objects that are open, the options
//     Directory     which objects there are; all that differs between a folder store and a one-file store
//     Replay        writes homes, with what a power cut must not spoil (KeptBlocks) and what a marked file says of itself (FileMoment)
//     Opening       finds or makes the log; Recovery brings the store to its last durable commit
//     Checkpointer  when replay runs, and how fast; LogGrower lets the log grow instead
//     Flusher       makes asynchronous commits durable; StatsPublisher shows counters to other processes
//
// Threads: any number may commit; the directory is changed by one at a time; open and close alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutant.hpp"
#include "store/background.hpp"
#include "store/checkpointer.hpp"
#include "store/directory.hpp"
#include "store/durable_event.hpp"
#include "store/flusher.hpp"
#include "store/opening.hpp"
#include "store/publisher.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class Store {
 public:
  // Opens and recovers. The volume outlives the store. An open that fails, but for an I/O error, removes the files that it made.
  static Result<std::unique_ptr<Store>> open(Volume& volume, StoreOptions options);
  ~Store();  // as a crash would leave it; close() is the clean way

  // Checkpoints everything and marks the store clean. The store is unusable afterwards, whatever the result.
  Status close();
  // The same for a store of one file, which is complete by itself then: the log goes too, before anybody else can have it.
  Status close_and_remove_log();
  // Instead of close(), of a store to which nothing was committed yet: removes the files that opening it made, if it made any.
  void undo_creation();

  // ---- directory
  [[nodiscard]] std::vector<ObjectInfo> objects() const { return directory_->objects(); }
  [[nodiscard]] std::optional<ObjectInfo> find(std::string_view name) const { return directory_->find(name); }
  // A new object of zeros, durable on ok. In a one-file store: gives the file its address.
  Result<ObjectInfo> create(std::string_view name, std::uint64_t size_bytes, std::uint64_t address,
                            std::uint64_t reserve_bytes);
  // Durable on ok.
  Status remove(ObjectId id);
  // Makes the home file long enough for `size_bytes` and its space reserved, durably. The object's size is unchanged
  // until a commit carries a SizeChange.
  Status reserve_home(ObjectId id, std::uint64_t size_bytes);

  // ---- commit
  // Makes all of the changes in one frame, durable on ok. Errors: full (nothing happened), no_space (likewise), poisoned.
  Status commit(const Changes& changes);
  // The same without waiting for the disk: the commit is durable when sync() of the LSN returned ok. `will_sync` says that the caller
  // waits for that at once.
  Result<Lsn> commit_async(const Changes& changes, bool will_sync);
  // The same for callers with a lock: nothing if the log has no room right now. Waiting for room, and the I/O that makes room, is
  // make_room()'s then. A frame too large for a batch of the log's is written while it is being filled in any case.
  Result<std::optional<Lsn>> commit_async_at_once(const Changes& changes, bool will_sync);
  Status make_room(const Changes& changes, bool will_sync);
  // For callers who make the bytes while they write them, or have to know the place of the frame: reserves one frame, and writes all but
  // the extents' bytes. The caller puts those, in order, finishes the writer, and calls wake_checkpointer() with the end of the frame.
  Result<FrameWriter> begin_commit(std::span<const Extent> extents, std::span<const SizeChange> sizes,
                                   bool will_sync = true);
  // Wakes the checkpointer if a frame that ends there has filled the log so far.
  void wake_checkpointer(Lsn end) { checkpointer_.wake_at(end); }
  // Why nothing can be committed any more; ok as long as the store is not poisoned.
  [[nodiscard]] Status failure() const;
  Status sync(Lsn lsn) {
    if (MEMLITH_MUTANT(persist_does_not_wait)) return kOk;
    MEMLITH_TRY(check_process());
    return files_.log->sync(lsn);
  }

  // Lets a thread of the process make everything up to `lsn` durable, within the window and in order.
  // A read-only store commits nothing, and these do nothing.
  void flush_soon(Lsn lsn) {
    if (flusher_ != nullptr) flusher_->want(lsn);
  }
  void set_flush_window(FlushWindow window) {
    if (flusher_ != nullptr) flusher_->set_window(window);
  }
  // An eventfd that is raised by one whenever more has become durable, or nothing can any more; -1 for none.
  // When this returns, the one before is not used any more.
  void set_durable_eventfd(int fd) { durable_event_.set(fd); }

  // Writes everything that is durable home, as fast as that goes; so does a checkpoint in the background from then on.
  Status checkpoint();
  // Copies of homes, all of them as one and the same durable commit left them, at or after the last that was durable before the
  // call. They lie in memory, change no more, and outlive the store. Others go on committing meanwhile, for as long as the log has
  // room. Errors: those of checkpoint(), which alone can poison; no_memory, too_many_files, and io where a home cannot be read.
  Result<HomeCopies> copy_homes(std::span<const ObjectId> objects);

  // One-file stores: the file becomes as long as the last checkpoint has it, durably, which undoes growth that no commit made
  // part of the object. Nobody may look at those bytes any more.
  Status cut_home_to_size();
  // Everything before it is home.
  [[nodiscard]] Lsn home_lsn() const { return files_.log->tail().lsn; }

  // A descriptor to map an object's home from. It has what was brought home (read-only stores: the overlay is still to be laid over it).
  Result<int> home_descriptor(ObjectId id);
  // The LSN behind the newest commit to the object since the store was opened, for those who commit to it to note. What the store found
  // when it was opened is home already.
  std::shared_ptr<Atomic<std::uint64_t>> committed_lsn(ObjectId id) { return directory_->committed_lsn(id); }
  // Returns when everything before `end` is home. It makes a checkpoint only if something is not, and lets the commits of others
  // go first.
  Status bring_home(Lsn end);
  [[nodiscard]] const Overlay& overlay() const { return replay_.overlay(); }

  [[nodiscard]] bool read_only() const { return files_.read_only(); }
  [[nodiscard]] bool one_file() const { return files_.options.kind == StoreKind::one_file; }
  [[nodiscard]] const Log& log() const { return *files_.log; }
  [[nodiscard]] bool was_clean() const { return files_.was_clean; }
  [[nodiscard]] const StoreCounters& counters() const { return files_.counters; }
  // Null in a read-only store. Histograms are the caller's to fill; counters follow with publish_stats().
  [[nodiscard]] StatsPage* stats() const { return publisher_ != nullptr ? &publisher_->page() : nullptr; }
  void publish_stats();
  [[nodiscard]] static std::string stats_name(StoreKind kind, const std::string& file_name);
  [[nodiscard]] std::string path() const { return files_.path(); }

  // The bytes of an object as they are at home, for tests and verification.
  Result<std::vector<std::byte>> read_home(ObjectId id);
  Status read_home_into(ObjectId id, std::uint64_t offset, std::span<std::byte> target);

  // One-file stores: gives another file, or the log, the permissions of the user's, which may have changed.
  Status match_permissions(Device& other) { return directory_->match_permissions(other); }
  Status match_log_permissions() { return match_permissions(*files_.log_device); }
  // One-file stores: whether the name that the file was opened by, in the folder that it was opened in, leads to it still.
  Result<bool> file_has_its_name();
  // One-file stores: removes the log's name, unless that leads to another store's log by now.
  Status remove_log();

  // A child of fork() has a copy of the memory and shares the files; it must leave those alone.
  [[nodiscard]] bool in_forked_child() const;
  Status check_process() const;

 private:
  Store(Volume& volume, StoreOptions options) : files_(volume, std::move(options)) {}

  Status open_it();
  Status start();
  Status finish();  // all of close() but letting go of the locks
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
  DurableEvent durable_event_;

  // The threads are the process's. These are null in a store that was not opened for writing, or was closed.
  std::shared_ptr<Background> background_;
  std::unique_ptr<Flusher> flusher_;
  std::unique_ptr<StatsPublisher> publisher_;

  std::uint64_t process_mark_ = 0;  // of the process that opened it for writing; 0: read-only
  int process_ = 0;                 // its number, for messages
  bool closed_ = false;
};

}  // namespace memlith::core
