// One database that is open in this process, shared by all its connections. Part of the SQLite plugin; docs/sqlite.md.
//
// The database file is the home file of a one-file store; its log is FILE.memlith. Connections read and write memory
// (Content). A commit is one frame with the bytes that differ from the last commit.
//
// Two ways to commit:
//   - Rollback journals: SQLite stores into memory under its EXCLUSIVE lock. The bytes that change are kept as they
//     were (undo log) until the commit, which logs what they have become, or the rollback, which puts them back.
//   - WAL: SQLite appends pages to a log in memory; the commit logs how they differ from the last committed version,
//     and leaves this memory alone, because readers of older snapshots read it. The connection waits for the flush
//     when it has released the write lock (in_doubt.cpp). SQLite's checkpoint stores the pages here later; they are
//     durable by then.
//
// Threads: ordered by SQLite's locks, which this class implements; other state has mutexes of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "content.hpp"
#include "disk_journal.hpp"
#include "file_locks.hpp"
#include "memory_file.hpp"
#include "options.hpp"
#include "shared_index.hpp"
#include "usage.hpp"
#include "wal_journal.hpp"
#include "world.hpp"
#include "writer_queue.hpp"

namespace memlith::sqlite {

// See Database::open().
inline constexpr core::Status kIsForSharing{core::Errc::conflict, core::Detail::none, 0, 0};

// A journal that is taken once, by whichever connection looks first. Threads: any.
class JournalToTake {
 public:
  void put(std::shared_ptr<MemoryFile> journal) MEMLITH_EXCLUDES(mutex_) {
    const core::LockGuard guard(mutex_);
    journal_ = std::move(journal);
    there_.store(journal_ != nullptr, std::memory_order_release);  // pairs with the load in take()
  }
  std::shared_ptr<MemoryFile> take() MEMLITH_EXCLUDES(mutex_) {
    // The usual case, at each lock of a connection.
    if (!there_.load(std::memory_order_acquire)) return nullptr;
    const core::LockGuard guard(mutex_);
    there_.store(false, std::memory_order_release);
    return std::exchange(journal_, nullptr);
  }

 private:
  core::Mutex mutex_;
  std::shared_ptr<MemoryFile> journal_ MEMLITH_GUARDED_BY(mutex_);
  std::atomic<bool> there_{false};
};

class Database final : private Used {
 public:
  // Opens and recovers; takes an ordinary database over. `read_only` changes no byte of any file. Waits for another
  // process that has it, as long as the options say; `busy` then. `claim` says before each attempt whether the engine
  // may have the database; with kIsForSharing the opening ends, and nothing is changed.
  static core::Result<std::unique_ptr<Database>> open(World& world, const std::string& path, const Options& options,
                                                      bool read_only, const std::function<core::Status()>& claim);
  // Checks a missing file at `path`: corrupt if its log still holds commits for it.
  static core::Status check_absent(World& world, const std::string& path);
  // True if there is a log at `path` that a process has, or that was not closed cleanly, or that cannot be read.
  static bool has_log_in_use(World& world, const std::string& path);
  ~Database() override;  // leaves the store as a crash would; close() closes it cleanly

  // Writes everything home and makes the file an ordinary database. The object is unusable afterwards, whatever the
  // result.
  core::Status close();
  // True if the file was removed, and not just renamed; after a close() that failed, too.
  [[nodiscard]] bool removed() const { return locks_.host() != nullptr && locks_.host()->removed(); }
  // The file was removed, so its log is not needed: removes the log's name, unless the name leads to another database's
  // log by now.
  core::Status remove_log() { return store() != nullptr ? store()->remove_log() : core::kOk; }

  [[nodiscard]] bool read_only() const { return read_only_.load(std::memory_order_relaxed); }
  [[nodiscard]] const std::string& path() const { return path_; }
  // The parameters of the connection that opened it say that it is for the engine.
  [[nodiscard]] bool mode_was_named() const { return options_.share.has_value(); }

  // ---- the file
  [[nodiscard]] const Content& content() const { return content_; }
  core::Status write(std::uint64_t offset, const void* source, std::uint64_t bytes);
  core::Status truncate(std::uint64_t bytes);

  // ---- rollback journals
  // Makes what was stored since the last commit durable (weak: captured). On full and no_space nothing has changed, and
  // SQLite rolls back; on an I/O error it is unknown until reopening whether the commit took.
  core::Status commit();
  // Restores memory to the last commit.
  void roll_back() { content_.roll_back(); }
  core::Status keep_to_memory() { return content_.keep_to_memory(); }
  [[nodiscard]] bool in_wal() const { return wal_.in_use(); }

  // ---- a transaction over several databases (disk_journal.hpp)
  // The same for a part of one, whose rollback journal names the super-journal: that journal is on the disk from before
  // the commit until end_part(). Durable on ok, also with weak durability.
  core::Status commit_part(const MemoryFile& journal);
  // SQLite has ended the journal: the transaction took effect or was undone. Durable on ok, before the journal is
  // removed.
  core::Status end_part();
  // Threads: the holder of EXCLUSIVE.
  [[nodiscard]] bool part_is_open() const { return part_.is_open; }
  // The journal that SQLite writes, or wrote last; null if it was removed. It may have lost its name to connections of
  // a removed database.
  void note_journal(const std::shared_ptr<MemoryFile>& journal) { journal_ = journal; }
  [[nodiscard]] std::shared_ptr<MemoryFile> journal() const { return journal_.lock(); }
  // The journal that a crash left; SQLite finds it once, under its name. Threads: any.
  std::shared_ptr<MemoryFile> take_left_journal() { return left_journal_.take(); }

  // ---- the write-ahead log, in memory
  WalJournal& wal() { return wal_; }
  // The write that completes a commit logs it. If `holder` has the write lock, end_commit() waits for the flush;
  // otherwise (null, or SQLite takes no locks) this call makes the commit durable.
  core::Status wal_write(Holder* holder, std::uint64_t offset, const void* source, std::uint64_t bytes);
  void wal_truncate(std::uint64_t bytes);
  bool wal_remove();  // whether it was there
  // SQLite may have published the last commit to other connections (and has, if `told`).
  void note_publication(bool told);
  SharedIndex& index() { return index_; }

  // ---- WAL: commits that other connections see before they are durable (in_doubt.cpp)
  // The commit that the connection made, and all that it saw, are durable on ok. On an error it is unknown until
  // reopening whether the commit took.
  core::Status end_commit(Holder& holder);
  // Before the connection gets a page that is not page 1, or page 1: on ok, everything in it is durable.
  core::Status await_page(Holder& holder, bool page_one) {
    return holder.unwaited_lsn == 0 || holder.writes ? core::kOk : await_seen(holder, page_one);
  }
  // Before SQLite's checkpoint stores a page, or cuts the file.
  core::Status await_checkpoint(Holder& holder);
  [[nodiscard]] const std::shared_ptr<WriterQueue>& writers() const { return writers_; }
  // The connection is closed.
  void leave(Holder& holder, std::uint64_t number);
  // The connections by number, so that a file of the write-ahead log finds its own.
  std::uint64_t join(Holder& holder);
  Holder* find(std::uint64_t number);

  // ---- which connections use the database (usage.hpp, database_use.cpp)
  // A connection uses the database from its first lock on, and in WAL mode while it holds a lock of the index. A call
  // without a lock holds a Use. Empty if the process ends.
  class Use {
   public:
    Use(Database& database, Holder& holder);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return status_.ok(); }
    [[nodiscard]] core::Status status() const { return status_; }

   private:
    Database& database_;
    Holder& holder_;
    bool began_;
    core::Status status_;
  };
  // The connection takes no locks: it uses the database as long as it is open.
  core::Status pin(Holder& holder);

  // ---- locks; SQLITE_LOCK_* and SQLite's rules. `busy` where another holds it.
  core::Status lock(Holder& holder, int level);
  void unlock(Holder& holder, int level);
  [[nodiscard]] bool reserved() const { return locks_.reserved(); }
  // A writer that hears `busy` waits in the queue while its busy handler sleeps (writer_queue.hpp).
  core::Status lock_index(Holder& holder, int first, int count, int flags);

  // ---- durability
  core::Status persist() { return content_.persist(); }
  void set_durability(Durability durability) { weak_.store(durability == Durability::weak, std::memory_order_relaxed); }
  // The default of connections.
  [[nodiscard]] bool reads_latest() const { return options_.reads_latest; }
  [[nodiscard]] Durability durability() const {
    return weak_.load(std::memory_order_relaxed) ? Durability::weak : Durability::full;
  }
  // True if the name still leads to this file, in the folder in which it was opened, which may have been moved.
  [[nodiscard]] bool same_file() const;
  [[nodiscard]] std::string describe() const;

 private:
  Database(World& world, std::string path, const Options& options, bool read_only)
      : world_(world), path_(std::move(path)), options_(options), read_only_(read_only) {}

  // database_open.cpp
  struct Head;
  static core::Result<std::unique_ptr<Database>> try_to_open(World& world, const std::string& path,
                                                             const Options& options, bool read_only);
  core::Status open_claimed();
  core::Status attach();
  core::Status claim();
  core::Status open_it();
  core::Status read_head(Head& head);
  core::Status check_log(const Head& head);
  core::Status check_free(const std::string& log_name);
  core::Status check_left_over(const Head& head);
  core::Status check_nothing_left();
  core::Status keep_writers_out(Head& head);
  [[nodiscard]] bool in_wal_mode() const;
  core::Result<bool> look_at_log(const Head& head);
  core::Status discard_log(const std::string& log_name);
  core::Status open_store();
  core::Status find_left_journal();
  core::Status close_store();
  [[nodiscard]] core::Store* store() const { return content_.store(); }

  // database_use.cpp
  core::Status make_ordinary() override;
  [[nodiscard]] bool is_not_ordinary() const override;
  core::Status end() override;
  core::Status begin_use(Holder& holder);
  void end_use_if_idle(Holder& holder);

  // database.cpp
  core::Status lock_index_here(Holder& holder, int first, int count, int flags);
  core::Status begin_writing();
  core::Status check_commits();
  core::Status commit_stored();
  // `later`: null, or the connection that waits for the flush later.
  core::Status commit_changes(std::uint64_t new_size, Holder* later);

  // wal.cpp
  core::Status end_wal_commit(Holder* holder, std::uint64_t offset, const std::byte* page);
  core::Status commit_wal(Holder* later, std::uint64_t last_slot, const std::byte* last_page,
                          const WalJournal::NewestSlots& changed);
  const std::byte* committed_page(std::uint32_t page, std::vector<std::vector<std::byte>>& copies) const;
  core::Status memory_lags();
  void forget_wal();

  // in_doubt.cpp
  core::Status lock_for_writing(Holder& holder, int count);
  void unlock_for_writing(Holder& holder, int count);
  core::Status begin_reading(Holder& holder);
  core::Status await_seen(Holder& holder, bool page_one);
  [[nodiscard]] bool is_durable(std::uint64_t lsn) const { return store()->log().durable_lsn().value >= lsn; }

  World& world_;
  std::string path_;
  Options options_;
  std::atomic<bool> read_only_;
  std::string identity_;  // as of opening
  std::unique_ptr<core::Volume> volume_;
  std::string file_name_;
  Content content_{path_, options_, [this] { usage_->note_not_ordinary(); }};  // destroyed before the volume

  // A part of a transaction over several databases.
  struct Part {
    bool is_open = false;  // there is a journal on the disk
    std::unique_ptr<core::Device> journal;
    bool is_undone = false;   // what is being committed undoes it, and need not be one frame
    bool end_failed = false;  // the journal may come back and undo later commits
  };
  Part part_;
  JournalToTake left_journal_;
  std::weak_ptr<MemoryFile> journal_;  // threads: the holder of RESERVED

  WalJournal wal_;
  SharedIndex index_;
  std::shared_ptr<WriterQueue> writers_ = std::make_shared<WriterQueue>();

  std::atomic<std::uint64_t> visible_lsn_{0};   // the end of the newest commit that connections may see; raised before
  std::atomic<std::uint64_t> page_one_lsn_{0};  // of the newest one that changed what page 1 says, but for its counters
  core::Mutex holders_mutex_;
  std::map<std::uint64_t, Holder*> holders_ MEMLITH_GUARDED_BY(holders_mutex_);

  FileLocks locks_;
  std::shared_ptr<Usage> usage_{new Usage(*this, std::chrono::milliseconds(options_.idle_ms))};

  std::atomic<bool> lags_{false};  // memory lacks a durable commit: no further commit is possible
  std::atomic<bool> weak_{false};
};

}  // namespace memlith::sqlite
