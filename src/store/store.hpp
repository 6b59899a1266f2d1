// A store: named objects whose changes are committed through the redo log. Floor: store. docs/architecture.md.
//
// INVARIANT 1: only replay writes a home file. A commit appends one frame to the log; a checkpoint reads frames from the
// tail of the log, writes their extents home, flushes those, and moves the tail; recovery is the same at open.
// Growing a home file with zeros is the one thing done ahead of the log, durable before any frame refers to it.
//
// A folder store has its log in "log" and object n in "objects/n"; object 0 is the directory. A one-file store has one
// object, 1, which is the user's file; its directory is one record in the superblock.
//
// Threads: any number may commit; the directory is changed by one at a time; open and close alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/mutant.hpp"
#include "base/sync.hpp"
#include "device/volume.hpp"
#include "log/log.hpp"
#include "store/background.hpp"
#include "store/format.hpp"
#include "store/overlay.hpp"
#include "store/pace.hpp"
#include "store/stats.hpp"

namespace memlith::core {

inline constexpr ObjectId kDirectory{0};
inline constexpr ObjectId kFile{1};  // one_file: the user's

// How long an asynchronous commit may wait for its flush. 0 ms: none longer than the flush before it takes.
struct FlushWindow {
  std::uint64_t interval_ms = 0;
  std::uint64_t bytes = 16 * kMiB;  // of frames; beyond them the flush comes at once
};

struct StoreOptions {
  StoreKind kind = StoreKind::folder;
  std::string file_name;    // one_file: the file, in the volume; its log is file_log_name()
  bool keeps_mark = false;  // one_file: where the file begins with kFileMark, replay writes its moment behind that
  bool create = false;
  bool exclusive = false;  // with create: fail where there is one
  bool read_only = false;
  bool direct_io = true;  // past the page cache, where the file system takes that: the log, and a recovery's homes
  bool manual_checkpoint = false;  // none in the background
  std::uint64_t log_bytes = 0;     // 0 = 1 MiB
  std::uint64_t log_max_bytes = 0;
  // A log that commits fill within a minute grows to so much, at most log_max_bytes, as it earns it; 0 = where log_bytes is 0, at once
  // to 128 MiB, of one file to half of the file, from 16 to 64 MiB, and from there to 1 GiB; else not at all.
  std::uint64_t log_busy_bytes = 0;
  std::uint64_t slot_bytes = 0;  // 0 = chosen from log_bytes
  // Of a new store: how much a power cut may spoil around what is being written. 0 or 512: what is written and nothing beside it
  // (powersafe overwrite); 4096: the whole block.
  std::uint32_t physical_block_bytes = 0;
  LogOptions log;                               // slot_count_max is set from log_max_bytes
  std::uint64_t replay_bytes_max = 256 * kMiB;  // memory that a checkpoint or recovery gathers before it writes home
  std::uint64_t direct_replay_bytes_min = 4 * kMiB;  // recovery writes home past the page cache from here on
  std::uint64_t home_flush_bytes = 2 * kMiB;         // a checkpoint flushes homes after so much of them, at most
  bool manual_flush = false;                         // flush_soon() does nothing
  std::uint32_t flusher_looks =
      10;  // how many times, 100 us apart, a thread that has flushed looks whether there is more to flush
  FlushWindow flush_window;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// The name of the log of a one-file store, in the volume of the file.
std::string file_log_name(const std::string& file_name);

struct ObjectInfo {
  ObjectId id;
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;
  std::uint64_t reserve_bytes = 0;
};

struct Extent {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct SizeChange {
  ObjectId object;
  std::uint64_t size_bytes = 0;
};

// What one commit changes: bytes of objects, and sizes of objects.
struct Changes {
  std::span<const Extent> extents;
  std::span<const std::byte* const> sources;  // of each extent: where its bytes are to be read
  std::span<const SizeChange> sizes;
};

// One for each object asked for, in that order.
struct HomeCopies {
  struct Copy {
    Descriptor memory;  // a file of at least size_bytes
    std::uint64_t size_bytes = 0;
  };
  Lsn lsn;  // they hold everything before it
  std::vector<Copy> copies;
};

struct StoreCounters {
  std::atomic<std::uint64_t> captured_bytes{0};
  std::atomic<std::uint64_t> captured_pages{0};
  std::atomic<std::uint64_t> last_captured_pages{0};
  std::atomic<std::uint64_t> checkpoints{0};
  std::atomic<std::uint64_t> home_bytes{0};
  std::uint64_t replayed_frames = 0;  // constant after open
  std::uint64_t replayed_bytes = 0;
};

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
  [[nodiscard]] std::vector<ObjectInfo> objects() const;
  [[nodiscard]] std::optional<ObjectInfo> find(std::string_view name) const;
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
  // the extents' bytes. The caller puts those, in order, finishes the writer, and says so with finished(), which wakes the checkpointer
  // when the log has filled up.
  Result<FrameWriter> begin_commit(std::span<const Extent> extents, std::span<const SizeChange> sizes,
                                   bool will_sync = true);
  void finished(Lsn end);
  // Why nothing can be committed any more; ok as long as the store is not poisoned.
  [[nodiscard]] Status failure() const;
  Status sync(Lsn lsn) {
    if (MEMLITH_MUTANT(persist_does_not_wait)) return kOk;
    MEMLITH_TRY(check_process());
    return log_->sync(lsn);
  }

  // Lets a thread of the process make everything up to `lsn` durable, within the window and in order. The idea of a window, with
  // a prefix surviving a crash: AciKV (weak durability).
  void flush_soon(Lsn lsn);
  void set_flush_window(FlushWindow window);
  // An eventfd that is raised by one whenever more has become durable, or nothing can any more; -1 for none.
  // When this returns, the one before is not used any more.
  void set_durable_eventfd(int fd);

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
  [[nodiscard]] Lsn home_lsn() const { return log_->tail().lsn; }

  // A descriptor to map an object's home from. It has what was brought home (read-only stores: the overlay is still to be laid over it).
  Result<int> home_descriptor(ObjectId id);
  // The LSN behind the newest commit to the object since the store was opened, for those who commit to it to note. What the store found
  // when it was opened is home already.
  std::shared_ptr<Atomic<std::uint64_t>> committed_lsn(ObjectId id);
  // Returns when everything before `end` is home. It makes a checkpoint only if something is not, and lets the commits of others
  // go first.
  Status bring_home(Lsn end);
  [[nodiscard]] const Overlay& overlay() const { return overlay_; }

  [[nodiscard]] bool read_only() const { return options_.read_only; }
  [[nodiscard]] bool one_file() const { return options_.kind == StoreKind::one_file; }
  [[nodiscard]] const Log& log() const { return *log_; }
  [[nodiscard]] bool was_clean() const { return was_clean_; }
  [[nodiscard]] const StoreCounters& counters() const { return counters_; }
  // Null in a read-only store. Histograms are the caller's to fill; counters follow with publish_stats().
  [[nodiscard]] StatsPage* stats() const { return stats_.has_value() ? &**stats_ : nullptr; }
  void publish_stats();
  [[nodiscard]] static std::string stats_name(StoreKind kind, const std::string& file_name);
  [[nodiscard]] std::string path() const { return volume_.path_of(one_file() ? options_.file_name : ""); }

  // The bytes of an object as they are at home, for tests and verification.
  Result<std::vector<std::byte>> read_home(ObjectId id);
  Status read_home_into(ObjectId id, std::uint64_t offset, std::span<std::byte> target);

  // One-file stores: gives another file, or the log, the permissions of the user's, which may have changed.
  Status match_permissions(Device& other);
  Status match_log_permissions() { return match_permissions(*log_device_); }
  // One-file stores: whether the name that the file was opened by, in the folder that it was opened in, leads to it still.
  Result<bool> file_has_its_name();
  // One-file stores: removes the log's name, unless that leads to another store's log by now.
  Status remove_log();

  // A child of fork() has a copy of the memory and shares the files; it must leave those alone.
  [[nodiscard]] bool in_forked_child() const;
  Status check_process() const;

 private:
  struct Entry {
    ObjectInfo info;
    std::uint64_t slot = 0;  // in the directory
    std::shared_ptr<Atomic<std::uint64_t>> committed_lsn = std::make_shared<Atomic<std::uint64_t>>(0);
  };

  // While there is one, a checkpoint makes haste: somebody waits for it.
  class Haste {
   public:
    explicit Haste(Store& store) : store_(store) {
      {
        const std::lock_guard lock(store_.wake_mutex_);
        ++store_.hurrying_;
      }
      store_.wake_.notify_one();
    }
    ~Haste() {
      const std::lock_guard lock(store_.wake_mutex_);
      --store_.hurrying_;
    }
    Haste(const Haste&) = delete;
    Haste& operator=(const Haste&) = delete;

   private:
    Store& store_;
  };

  Store(Volume& volume, StoreOptions options) : volume_(volume), options_(std::move(options)) {}

  // open.cpp
  [[nodiscard]] std::string log_name() const;
  [[nodiscard]] Caching log_caching() const { return options_.direct_io ? Caching::direct : Caching::buffered; }
  [[nodiscard]] std::string home_name(ObjectId id) const;
  Status open_it();
  Status open_or_create();
  Status check_before_create();
  Status check_log_not_removed();
  Status create_files();
  Status make_log(const std::string& fresh_name);
  Status lock_log(const std::string& name);
  Status lock_file();
  Status who_holds_it(Status status);
  Status leave_holder_note();
  Status recover();
  [[nodiscard]] std::uint64_t commit_bytes(std::span<const Extent> extents, std::span<const SizeChange> sizes) const;
  void put_commit_header(FrameWriter& writer, std::span<const Extent> extents, std::span<const SizeChange> sizes);
  Result<Lsn> put_bytes(FrameWriter& writer, const Changes& changes);
  Status gather_log();
  [[nodiscard]] bool whole_blocks() const { return physical_block_bytes_ != 0; }
  [[nodiscard]] std::string blocks_name() const;
  Status keep_blocks();
  Status make_blocks();
  Status put_blocks_in_place();
  Status settle_blocks();
  Status drop_blocks();
  Status gather_blocks();
  Result<bool> homes_are_as_said();
  Status check_overlay();
  Status read_store_header();
  Status load_directory();
  Status load_folder_directory();
  Status load_file_directory();
  Status settle_lengths();
  Status settle_file_length();
  Status check_homes();
  Status fill_holes();
  Status remove_orphans();
  [[nodiscard]] ClientBytes client_bytes() const;
  LogFormat log_format(std::uint32_t block_bytes) const;
  // What a log that commits fill quickly grows to without having to earn it. A checkpoint writes each page home once, however often
  // it changed: the more pages a file has, the longer it is worth waiting. Under checkpoint_mutex_.
  [[nodiscard]] std::uint64_t log_bytes_given() const;

  // store.cpp
  Result<Device*> home(ObjectId id);
  Result<Device*> home_if_there(ObjectId id);
  Status create_home(ObjectId id, std::uint64_t size_bytes);
  [[nodiscard]] DirectoryEntry entry_bytes(const ObjectInfo& info) const;
  [[nodiscard]] DirectoryHeader header_bytes(std::uint64_t live_count) const;
  Status commit_directory(std::span<const Extent> entries, const std::byte* bytes);
  Entry* find_entry(ObjectId id);
  std::optional<Workers::Time> checkpoint_step();
  std::optional<Workers::Time> flush_step();
  std::optional<Workers::Time> show_step();
  void want_checkpoint(Lsn end);
  // Checkpoints of other stores wait for a thread: this one does not pause.
  [[nodiscard]] bool others_wait() const { return background_ != nullptr && background_->checkpoints.crowded(); }
  Status make_room();
  void note_change_of_stats();
  void tell_durable();
  Status finish();  // all of close() but letting go of the lock
  void stop_jobs();
  void drop_stats();
  bool grow_log();
  Status checkpoint_unless_poisoned();
  Status checkpoint_in_background(bool hurry);
  Status checkpoint_once(bool hurry);
  Status checkpoint_for_all(bool hurry);
  Status poison_on_failure(Status status);
  Status checkpoint_locked();

  // moment.cpp
  Status read_moment();
  void look_for_moment(LogPosition tail, LogPosition at);
  Status check_moment() const;
  Status note_moment(LogPosition whole, LogPosition reach);
  Status check_no_mark();

  // copies.cpp
  Result<std::uint64_t> size_at_home(ObjectId id);
  Status lay_overlay_over(ObjectId id, const HomeCopies::Copy& copy);

  // replay.cpp
  Status gather(const Frame& frame);
  Status write_home();
  Status write_object_home(ObjectId object);
  Status flush_homes();
  Status give_way(ObjectId object);

  Volume& volume_;
  StoreOptions options_;
  std::unique_ptr<VolumeLock> lock_;
  std::unique_ptr<VolumeLock> file_lock_;  // of a one-file store
  std::unique_ptr<Device> log_device_;
  std::unique_ptr<Log> log_;
  std::string made_log_;    // the name of the log that was made by opening; empty: it was there
  bool made_file_ = false;  // one_file: likewise
  bool was_clean_ = false;
  bool keeps_mark_ = options_.keeps_mark;  // constant after open
  std::optional<std::uint64_t> moment_;    // of the file as it was found; constant after open
  bool moment_found_ = false;              // the log has it; likewise
  bool closed_ = false;

  Mutex homes_mutex_;
  std::map<ObjectId, std::unique_ptr<Device>> homes_;

  mutable Mutex directory_mutex_;  // the directory in memory; held across the append of its changes, not the sync
  std::vector<Entry> entries_;
  std::uint32_t next_id_ = 1;
  std::uint64_t directory_size_bytes_ = 0;  // of the home file
  ObjectRecord file_record_{};              // one_file: as committed
  Mutex create_mutex_;                      // one create, remove or growth at a time, I/O included

  Mutex checkpoint_mutex_;           // one replay at a time
  Overlay overlay_;                  // under checkpoint_mutex_; constant in a read-only store
  ObjectRecord home_file_record_{};  // one_file: as of the tail, under checkpoint_mutex_
  std::map<ObjectId, std::uint64_t>
      unreachable_;                      // objects that frames named but that have no home: must be removed ones
  std::vector<ObjectId> written_homes_;  // to be flushed
  static constexpr std::uint64_t kBlockBytes = 4096;
  std::uint32_t physical_block_bytes_ = 0;                    // as in the store's header; constant after open
  std::set<std::pair<ObjectId, std::uint64_t>> kept_blocks_;  // that recovery found, by offset
  std::unique_ptr<Device> blocks_;                            // the file of blocks; null: none was made yet
  bool blocks_in_place_ = false;                              // the file has the name that recovery looks for
  std::uint64_t home_bytes_unflushed_ = 0;                    // of their pages, under checkpoint_mutex_
  // How far the checkpoint under way is, as parts of its work; under checkpoint_mutex_, as is pacing_.
  struct Work {
    double gathered = 0;
    double home = 0;
    double piece = 0;  // each one in the overlay
  };
  Work work_;
  struct Pacing {
    CheckpointPace pace;
    Lsn head_at_begin;
    SteadyClock::time_point begin;
    bool caller_waits = false;  // pauses only for commits that there are
  };
  std::optional<Pacing> pacing_;  // empty: somebody waits for it, and commits may wait, too

  // Where the log stood when a checkpoint was asked for last; under checkpoint_mutex_.
  struct Woken {
    Lsn head;
    SteadyClock::time_point time;
  };
  Woken woken_;
  std::uint64_t busy_slots_max_ = 0;  // what the log grows to while commits fill it quickly; likewise
  std::uint64_t grown_bytes_ = 0;     // by that, beyond what is given; likewise

  Mutex wake_mutex_;
  ConditionVariable wake_;      // of a checkpoint that pauses
  bool checkpointing_ = false;  // a job, or a commit that found the log full, makes room
  bool log_full_ = false;       // a commit waits for that
  bool bringing_home_ = false;  // bring_home() has a checkpoint under way
  bool stopping_ = false;
  std::uint32_t hurrying_ = 0;                // callers of checkpoint()
  Atomic<std::uint64_t> trigger_lsn_{~0ull};  // a commit that reaches it asks for a checkpoint

  Mutex flush_mutex_;
  ConditionVariable flush_wake_;
  FlushWindow flush_window_ = options_.flush_window;
  Lsn flush_target_;           // to be made durable
  bool flush_queued_ = false;  // the job waits or runs, and looks at the target before it is done
  bool flush_now_ = false;     // the window's bytes are used up, or it was changed
  bool flush_stopping_ = false;
  std::mutex durable_eventfd_mutex_;  // held while it is raised
  std::atomic<int> durable_eventfd_{-1};
  std::uint64_t process_mark_ = 0;  // of the process that opened it for writing; 0: read-only
  int process_ = 0;                 // its number, for messages

  StoreCounters counters_;
  std::optional<LiveStats> stats_;
  std::atomic<bool> show_idle_{true};            // the job neither waits nor runs
  std::atomic<std::uint64_t> stats_changes_{0};  // raised before one looks whether it is idle
  std::uint64_t stats_shown_ = 0;                // as of which change; the job's own

  // The threads are the process's. Null in a store that was not opened for writing, or was closed.
  std::shared_ptr<Background> background_;
  Workers::Job checkpoint_job_{[this] { return checkpoint_step(); }};
  Workers::Job flush_job_{[this] { return flush_step(); }};
  Workers::Job show_job_{[this] { return show_step(); }};
};

}  // namespace memlith::core
