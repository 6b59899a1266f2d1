// A connection to a database in mode shared: SQLite's own file, with the flushes and the write lock of write-ahead
// logging in between. Part of the SQLite plugin.
//
// The database, its log and its index are SQLite's own files, which SQLite's own VFS reads, writes and locks. SQLite's
// flush of a commit only notes here that there is one; the connection waits for the flush in
// SQLITE_FCNTL_COMMIT_PHASETWO, which comes when the write lock is free again, and one flush serves all that wait.
// Where there is no control block (sidecar.hpp), everything is as with plain SQLite.
#pragma once

#include <sqlite3.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../api.hpp"
#include "../c_file.hpp"
#include "../options.hpp"
#include "base/status.hpp"
#include "checkpointer.hpp"
#include "foresight.hpp"
#include "group.hpp"
#include "lock_queue.hpp"

namespace memlith::sqlite::shared {

// A database that connections of this process share.
struct Node {
  explicit Node(std::unique_ptr<Sidecar> attached)
      : sidecar(std::move(attached)), group(*sidecar), lock_queue(*sidecar) {}
  std::unique_ptr<Sidecar> sidecar;
  Group group;
  LockQueue lock_queue;
  const std::shared_ptr<Handover> handover = std::make_shared<Handover>();
};

// A file of SQLite's own VFS.
class RealFile {
 public:
  // Opens it, as xOpen of `vfs`. For the VFS of another SQLite than the caller's (`foreign`), the name is copied: what
  // comes before it in memory differs between versions of SQLite.
  int open(sqlite3_vfs& vfs, const char* name, int flags, int* out_flags, bool foreign = false);
  int close();
  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  [[nodiscard]] sqlite3_file* file() const { return file_; }
  const sqlite3_io_methods* operator->() const { return file_->pMethods; }

 private:
  std::string name_;  // of a foreign file, with its parameters
  std::vector<std::max_align_t> memory_;
  sqlite3_file* file_ = nullptr;
};

// Threads: the connection's, but for what says otherwise.
class Connection final : public Log, public std::enable_shared_from_this<Connection> {
 public:
  // `foreign`: `vfs` is of another SQLite than `api`.
  Connection(const Api& api, sqlite3_vfs& vfs, bool foreign, std::string path, const Options& options);
  ~Connection() override = default;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] sqlite3_vfs& vfs() const { return vfs_; }
  [[nodiscard]] bool foreign() const { return foreign_; }
  [[nodiscard]] bool inherited() const { return opened_.inherited(); }
  [[nodiscard]] core::Status check_own() const { return opened_.check_own(path_); }
  // In a forked child, before it opens a connection: SQLite's own VFS forgets its parent's files.
  void abandon();
  int close();

  // From now on a thread makes the checkpoints that come at the end of commits. Not for the thread's own connection.
  void leave_checkpoints(Opener opener);
  // While it lives, the thread has no connection to this database.
  [[nodiscard]] std::unique_ptr<Handover::Hold> hold_checkpoints() const;
  // The next checkpoint is the program's, and not that of a commit.
  void note_asked_for_checkpoint() { end_committed(); }

  RealFile& database() { return database_; }
  RealFile& wal() { return wal_; }

  // ---- the index of the write-ahead log
  int map_index(int region, int bytes, int extend, void volatile** result);
  int lock_index(int first, int count, int flags);
  int unmap_index(int remove);
  // SQLite is about to look a second time at the header of the index: a transaction begins, perhaps.
  void barrier();
  Foresight& foresight() { return foresight_; }

  // ---- durability
  // Before a page is given to SQLite: on SQLITE_OK, everything that it may show is durable.
  int await_page(bool page_one);
  [[nodiscard]] bool must_wait(bool page_one) const;
  int sync_wal(int flags);
  // ---- the log, in which a frame's header and its page are one write
  int write_wal(const void* bytes, int count, sqlite3_int64 offset);
  int read_wal(void* target, int count, sqlite3_int64 offset);
  // Before anything else is done with the log: what write_wal() kept is written.
  int write_kept();
  int end_commit();
  // Everything that was committed is durable on SQLITE_OK.
  int persist();
  [[nodiscard]] bool reads_latest() const { return reads_latest_; }
  void set_reads_latest(bool latest) { reads_latest_ = latest; }
  // weak: no commit waits. A window: commits that do not wait are durable within it.
  [[nodiscard]] bool is_weak() const { return weak_; }
  void set_weak(bool weak) { weak_ = weak; }
  [[nodiscard]] std::optional<std::uint64_t> window_ms() const;
  void set_window_ms(std::optional<std::uint64_t> window_ms) { window_ms_ = window_ms; }
  // Called before a connection with a window is closed: everything that was promised is kept.
  int keep_promises();
  [[nodiscard]] std::string describe() const;

  // ---- Log
  [[nodiscard]] std::optional<Position> newest() const override;
  int flush() override;
  [[nodiscard]] std::uint64_t opened_at() const override { return wal_opened_at_; }
  int write_again() override;
  // The log is open, and so, perhaps, is the control block.
  void note_wal_opened();

  // The busy handler sleeps, after this connection was refused the lock.
  void sleep(std::chrono::microseconds time);
  // SQLite has to begin the transaction again with the newest snapshot, and need not sleep before.
  [[nodiscard]] bool is_stale() const { return is_stale_; }

 private:
  // A write transaction, as the calls of SQLite tell it. The phases from `ahead` on have the write lock.
  enum class Phase : std::uint8_t {
    idle,
    written,        // to the log, and the lock is released; COMMIT has not returned
    flush_wanted,   // the same, and SQLite has asked for the flush, for which COMMIT waits
    committed,      // COMMIT has returned, and SQLite may make a checkpoint by itself next
    ahead,          // the lock was taken because the transaction is expected to write
    begun,          // SQLite has the lock, and has not written
    writes,         // it has written to the log
    asks_for_flush  // and asked for the flush
  };
  // Asserts that the phase leads to the next one (the table in connection.cpp).
  void enter(Phase next);
  [[nodiscard]] bool has_lock() const { return phase_ >= Phase::ahead; }
  // True if there was one.
  bool end_committed();

  int lock_checkpoint();
  int end_checkpoint();
  int lock_readers_out(int first, int count);
  [[nodiscard]] bool begins_anew_next() const;
  void let_line_go();
  void forget_line();
  [[nodiscard]] std::uint32_t frames_left(Position end) const;
  [[nodiscard]] std::uint32_t frames_stored() const;
  [[nodiscard]] std::uint32_t automatic_limit() const;
  int lock_write(Phase phase, bool for_a_turn);
  int lock_ahead();
  int unlock_write();
  int release_write();
  void write_what_is_published();
  bool promise();
  bool watch();
  [[nodiscard]] bool shows_doubt() const { return reads_latest_ || weak_; }
  int end_reading(int first, int count, int flags);
  void give_up_ahead();
  void give_up_unasked();
  void begin_writing(Phase phase);
  int real_lock(int first, int count, int flags);
  void note_snapshot();
  [[nodiscard]] bool is_seen_durable() const;
  // Under the write lock: the same as newest(), also where a process was killed while it changed the index.
  [[nodiscard]] std::optional<Position> newest_intact() const;

  sqlite3_vfs& vfs_;  // a SQLite's own
  const bool foreign_;
  const std::string path_;
  const OpenedHere opened_;
  RealFile database_;
  RealFile wal_;
  std::optional<Opener> opener_;  // checkpoints are left to the thread
  std::shared_ptr<Node> node_;
  const volatile unsigned char* header_ = nullptr;  // of the index
  Waiter waiter_;
  int wal_flags_ = SQLITE_SYNC_NORMAL;
  std::uint64_t wal_opened_at_ = UINT64_MAX;

  Phase phase_ = Phase::idle;
  Foresight foresight_;
  int readings_ = 0;                  // readers' locks that it has
  int reading_lock_ = -1;             // the newest of them
  bool checkpoints_ = false;          // has the lock for checkpoints
  std::uint32_t limit_ = 0;           // of SQLite's own checkpoints, as it was last asked for; 0: unknown, or none
  bool holds_line_ = false;           // no other one writes until its checkpoint at the end of the commit
  std::vector<unsigned char> frame_;  // its header is kept until its page comes
  sqlite3_int64 kept_at_ = -1;        // where it belongs; -1: none is kept
  sqlite3_int64 read_at_ = -1;        // what was read last
  bool wrote_header_ = false;         // the newest write to the log began a generation
  bool watched_ = false;              // by the flusher
  bool waits_early_ = false;          // its cache may have pages of a transaction that it did not commit
  bool is_stale_ = false;             // another commit came between the snapshot and the write lock
  bool reads_latest_;
  bool weak_;
  std::optional<std::uint64_t> window_ms_;
  std::uint32_t mark_ = 0;                     // as of the snapshot, or of the write lock
  std::optional<Position> seen_ = Position{};  // what it sees or made; empty: it cannot be told
  std::optional<Position> made_;               // the commit to wait for
};

// The connections and databases of this process. Threads: any.
class Registry {
 public:
  static Registry& get();
  Registry();
  // A connection that is not open yet, of a SQLite whose VFS is `own`. Its files are of the VFS that has the database
  // open here already, if there is one: the locks of files belong to the process, and two SQLites, each with a VFS of
  // its own, would take them away from each other. Null if the engine of this process has the database,
  // or one of that name.
  std::shared_ptr<Connection> add(const Api& api, sqlite3_vfs& own, const std::string& path, const Options& options);
  void remove(const Connection& connection);
  // True if a database of this name is open here in mode shared.
  bool knows(std::string_view path);
  // That, or what `look` says. Meanwhile no connection of this process opens it in mode shared: a descriptor that
  // `look` closes takes no lock away.
  bool knows_or(std::string_view path, const std::function<bool()>& look);
  // As shared_files.hpp.
  std::shared_ptr<void> claim_for_engine(const std::string& path);
  // The connection that this thread used last, if its log has this name and is not open yet.
  std::shared_ptr<Connection> owner_of_wal(std::string_view name);
  // Null where there can be no control block.
  std::shared_ptr<Node> node_of(const std::string& path);
  // In a forked child: what its parent had open is let go.
  void leave_parent();
  // Lets go what is open, without the parts of it that others see. The caller holds the lock, or is the only thread.
  void abandon_all();

 private:
  bool has(std::string_view path) const;

  std::mutex mutex_;  // guards the rest; held while the process forks
  std::uint64_t process_mark_;
  std::map<const Connection*, std::shared_ptr<Connection>> connections_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<Node>> nodes_;  // by device and inode
  std::set<std::pair<std::uint64_t, std::uint64_t>> without_page_;                // for which that was said
  std::multiset<std::string> of_engine_;  // paths of databases that the engine of this process has, or opens
};

// The connection that this thread used last, and the one that was refused the write lock a moment ago.
void note_used(const std::shared_ptr<Connection>& connection);
void note_refused(const std::shared_ptr<Connection>& connection);
std::shared_ptr<Connection> take_refused();

}  // namespace memlith::sqlite::shared
