// Planted faults for the crash test, which has to notice each of them. Compiled in for that test only. Part of the
// SQLite plugin.
#pragma once

namespace memlith::sqlite {

struct Sabotage {
  bool skip_persist = false;         // a commit is not waited for
  bool persist_each_write = false;   // every write to the database is a commit of its own
  bool skip_mark = false;            // the file looks like a database while its log holds commits
  bool keep_counter = false;         // the file looks like a database to a connection with its first page cached
  bool unmark_too_early = false;     // a clean close says so before everything is home
  bool believe_cached_head = false;  // a file says that it is complete in the page cache only, and its log is removed
  bool wal_after_ack = false;        // WAL: a commit is durable with the next one
  bool skip_commit_wait = false;     // WAL: a commit returns before its flush
  bool skip_seen_wait = false;       // WAL: a COMMIT that changed nothing returns before what it saw is durable
  bool skip_reader_wait = false;     // WAL: a reader gets pages of commits in doubt
  bool share_pages = false;          // WAL: pages are not made private before a commit can change them at home
  bool skip_disk_journal = false;    // several databases: journals stay in memory
  bool skip_journal_flush = false;   // several databases: journals are not on the medium before the commits they undo
  bool skip_super_flush = false;     // several databases: nor is what says which they are
  bool keep_disk_journal = false;    // several databases: journals stay when the transaction has ended
  bool skip_earlier_sync = false;    // several databases: weak commits may be lost that a journal has pages of
  bool skip_part_persist = false;    // several databases: a part of a weak commit is not waited for
  // Mode shared.
  bool shared_skip_commit_wait = false;          // a commit returns before its flush
  bool shared_skip_reader_wait = false;          // a reader gets pages of commits in doubt
  bool shared_look_after_flush = false;          // commits that came during a flush count as flushed
  bool shared_forget_failure = false;            // a failed flush counts as one that succeeded
  bool shared_skip_checkpoint_flush = false;     // a checkpoint stores pages whose frames are not on the medium
  bool shared_believe_late_descriptors = false;  // a flush counts that may not have been told of an earlier failure
  bool shared_forget_promise = false;            // a commit that is not waited for is not flushed within its window
  bool shared_due_after_flush = false;           // commits that came during the flush of a window count as flushed
  bool shared_never_promise = false;             // the oldest that waits is passed over without end
  bool shared_trust_abandoned = false;           // a flush whose leader was killed is not noted
  bool shared_flush_again = false;               // after a failed flush the next one counts
  bool shared_made_early = false;                // a commit waits for what was the newest one before it
  bool shared_skip_early_wait = false;           // what a transaction read that was rolled back is not waited for
  bool shared_ignore_promise = false;            // a connection takes the lock that was promised since it looked
  bool shared_promise_for_ever = false;          // the lock is kept for a connection that does not come
  bool shared_follow_without_look = false;       // a follower waits for its leader to wake it
  bool shared_close_beside_checkpoint = false;   // a connection is closed while a checkpoint that it left is under way
};
#ifdef MEMLITH_SQLITE_SABOTAGE
extern Sabotage sabotage;
#define MEMLITH_SABOTAGED(name) (::memlith::sqlite::sabotage.name)
#else
#define MEMLITH_SABOTAGED(name) false
#endif

}  // namespace memlith::sqlite
