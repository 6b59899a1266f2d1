/* memlith: an application log. The C interface; memlith/applog.hpp is the C++ one. Conventions: memlith.h.
 * Guide: docs/applog.md.
 *
 *     memlith_applog_options options = {.struct_size = sizeof options, .flags = MEMLITH_CREATE};
 *     memlith_applog* log = NULL;
 *     memlith_applog_entry entry;
 *     const memlith_bytes order = {"sell marble", 11};
 *     if (memlith_applog_open(store, "orders", &options, &log) != 0) return;
 *     if (memlith_applog_append(log, &order, 1, NULL) != 0) return;
 *     if (memlith_applog_write(log, MEMLITH_COMMIT_SYNC, NULL) != 0) return;  // the order can be acknowledged
 *     while (memlith_applog_read(log, 0, &entry) == 0) {
 *       ...  // what the entry says
 *       if (memlith_applog_consume(log, entry.number) != 0) return;
 *     }
 *
 * An application log lies in a region of a memlith store. It is a bounded, circular list of entries, which are strings
 * of bytes. Entries have numbers, 1, 2, 3, ..., in the order of the log, which go on after a crash and a close.
 *
 * A server appends each operation and writes the log before it acknowledges the operation. A thread behind reads the
 * entries, changes other structures of the same memlith store, and commits the changes together with the number of the
 * newest entry that it has consumed, in one transaction of the store (memlith_begin, memlith_txn_consume): after any
 * crash the structures have the effects of exactly the consumed entries, and the log has all others.
 *
 * DURABILITY. After a crash the log holds a prefix of the entries that were appended. It has every entry whose write
 * returned; entries of one append are all there or none. Appended entries are commits of the memlith store like all
 * others: whatever is committed and durable behind them keeps them, and they keep what was committed before them.
 *
 * THREADS. Any number of threads append, write and get. One thread at a time reads, rewinds, consumes, truncates,
 * restarts and commits.
 * Opening and closing: while no other thread uses the log.
 */
#ifndef MEMLITH_APPLOG_H
#define MEMLITH_APPLOG_H

#include "memlith/memlith.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlith_applog memlith_applog;

/* The effect of an append that finds no room, because entries are not consumed.
 * BLOCK  It waits until another thread has consumed entries; what was appended is written meanwhile.
 * FAIL   It fails with FULL.
 * GROW   The log grows, up to max_size; at max_size it fails with FULL. A log never shrinks. */
enum { MEMLITH_APPLOG_BLOCK = 0, MEMLITH_APPLOG_FAIL = 1, MEMLITH_APPLOG_GROW = 2 };

typedef struct memlith_applog_options {
  uint64_t struct_size;
  uint32_t flags;     /* MEMLITH_CREATE, MEMLITH_EXCLUSIVE */
  uint32_t when_full; /* MEMLITH_APPLOG_* */
  uint64_t size;      /* of a new log; each entry takes its bytes and 24, rounded up to 8. 0: 64 MiB */
  uint64_t max_size;  /* of a new log that may grow, later too. 0: the size, or with GROW 1 TiB; addresses only */
  /* of memlith_applog_open_shared alone, as in memlith_shared_options (memlith/shared.h) */
  const char* program;  /* the path of the program `memlith`, if a keeper has to be started; null = it is looked for */
  uint64_t patience_ms; /* how long to wait for a keeper that begins or ends; 0 = a minute */
} memlith_applog_options;

/* Opens the log in region `name`; `options` may be null. Reads and checks every entry that is not consumed: the
 * reader begins with the first of them. A new log is durable on return.
 * Errors: NOT_FOUND (set MEMLITH_CREATE; also where a crash cut the making of the log), EXISTS, BUSY (open
 * already), NO_SPACE; INCOMPATIBLE - the region holds something else, the log of another store, or a later format;
 * CORRUPT - the message names the place. */
MEMLITH_API int32_t memlith_applog_open(memlith_store* store, const char* name, const memlith_applog_options* options,
                                        memlith_applog** log);

/* Opens the log `name` of the memlith store in folder `store` for this process and others: any number of processes
 * append, write and read it at once, each with a handle of its own. The store is in a keeper, a process of its own,
 * which the first opening starts and which ends soon after the last handle was closed (memlith/shared.h); meanwhile no
 * process can open the store by memlith_store_open, but to follow it. With MEMLITH_CREATE a missing store is created,
 * too. docs/several-processes.md.
 *   APPEND, WRITE  are messages to the keeper. The order of the log is that in which they came. Writes of all processes
 *                  share flushes. What one process has appended, the write of another makes durable, too.
 *   READ           is made in this process, on memory that it shares with the keeper and cannot write to. It sends no
 *                  message for an entry that is known to be durable, and waits for no other process.
 *   THE READER     is one in each handle: each reads all entries, in order, from a place of its own. Consumed is
 *                  consumed for all: readers that have not come so far go on behind it. A process that only looks does
 *                  not consume.
 *   WHEN FULL      as in one process, for each handle as it was opened: BLOCK waits until any process has consumed.
 *   A DEATH        of a process: each append was made as a whole, or not; what was appended and not written stays in
 *                  the keeper, and is durable with the next write of any process. Of the keeper: every call on the
 *                  handle returns POISONED, and one that was under way IO: it may have taken effect or not. Close the
 *                  handle, and open the log again: it is as the last durable write left it.
 *   A CHILD        that was forked cannot use its parent's handle (INVALID): it opens its own.
 *   UNSUPPORTED    here: memlith_txn_append, memlith_txn_consume.
 * Errors: as memlith_applog_open; those of memlith_shared_open. */
MEMLITH_API int32_t memlith_applog_open_shared(const char* store, const char* name,
                                               const memlith_applog_options* options, memlith_applog** log);

/* Makes durable what was appended, and closes the log. Null is ignored. To be called before memlith_store_close, which
 * writes what was appended, too, but cannot be tried again.
 * Errors, nothing was closed, and the handle stays: BUSY - a transaction of the store has a part in the log: end it
 * first. NO_SPACE, FULL, NO_MEMORY - there is no room for entries that were appended: make room and try again, or close
 * the store without them. After any other error it is closed. */
MEMLITH_API int32_t memlith_applog_close(memlith_applog* log);

/* ---- writers --------------------------------------------------------------------------------------------------- */

/* Copies `count` entries into the log in memory. `number`, which may be null, gets the number of the last of them. At
 * most about 1 MiB of entries stays in memory only: an append that finds so much writes it first, without waiting for
 * the flush.
 * Errors, nothing was appended: FULL - there is no room (see above), or the entries are larger than the log, or than
 * half of log_max_bytes of the store. NO_SPACE - earlier entries have to be written first, for which the disk has no
 * space; they stay in memory, and are written when there is room. INVALID - no entries, or one of 4 GiB or more. */
MEMLITH_API int32_t memlith_applog_append(memlith_applog* log, const memlith_bytes* entries, uint64_t count,
                                          uint64_t* number);

/* Makes everything durable that was appended before the call. `mode` is MEMLITH_COMMIT_*: SYNC returns when it is
 * durable; WEAK when it is on its way, and memlith_wait(`ticket`) waits for it. `ticket` may be null. Threads share
 * flushes.
 * Errors: NO_SPACE, FULL, NO_MEMORY - there is no room for it yet; nothing is lost, try again. IO, POISONED - the store
 * acknowledges nothing any more; reopen it. */
MEMLITH_API int32_t memlith_applog_write(memlith_applog* log, uint32_t mode, uint64_t* ticket);

/* Returns when everything up to `ticket`, which memlith_applog_write returned, is durable. Errors: INVALID - no such
 * ticket yet; and those of memlith_wait, which is the same where the caller has the memlith store. */
MEMLITH_API int32_t memlith_applog_wait(memlith_applog* log, uint64_t ticket);

/* The number of the newest durable entry; 0: none, or there is no keeper any more. */
MEMLITH_API uint64_t memlith_applog_durable(memlith_applog* log);

/* ---- the reader ------------------------------------------------------------------------------------------------ */

typedef struct memlith_applog_entry {
  uint64_t number;
  memlith_bytes content; /* valid until the next call of memlith_applog_read, or memlith_store_refresh */
} memlith_applog_entry;

/* The next durable entry. If there is none, waits up to `wait_ms` milliseconds for one to be written.
 * Errors: NOT_FOUND - there was none. CORRUPT - the entry was damaged in memory or on the disk. */
MEMLITH_API int32_t memlith_applog_read(memlith_applog* log, uint64_t wait_ms, memlith_applog_entry* entry);

/* The next entry to be read is the first that is not consumed, as after opening. */
MEMLITH_API int32_t memlith_applog_rewind(memlith_applog* log);

/* Everything up to entry `number`, which was read, is consumed; entries that were consumed before are ignored. Durable
 * a moment later, and at the latest with the next write: until then a crash may bring consumed entries back.
 * Errors: INVALID - the entry was not read. */
MEMLITH_API int32_t memlith_applog_consume(memlith_applog* log, uint64_t number);

/* ---- by number -------------------------------------------------------------------------------------------------
 * The needs of a consensus engine: docs/applog.md, "The log of a consensus engine". The first entry is number
 * consumed + 1 of memlith_applog_info, the last one is `newest`. Truncating and restarting take effect at once and in
 * order, without waiting for the disk: a crash keeps all that came before if it keeps what came behind. Each is durable
 * a moment later, and at the latest with the next write. */

/* Copies the durable entry `number`, read or not, to `buffer`, which has `bytes` bytes, and the size of the entry to
 * `size`. If the entry is larger than the buffer, only its first bytes are copied. Any thread.
 * Errors: NOT_FOUND - no such entry is durable, or it was consumed or truncated. CORRUPT - it was damaged in memory or
 * on the disk. */
MEMLITH_API int32_t memlith_applog_get(memlith_applog* log, uint64_t number, void* buffer, uint64_t bytes,
                                       uint64_t* size);

/* Drops every entry behind entry `last`, also those that were not written yet; the next one that is appended is number
 * last + 1. Without such entries nothing happens.
 * Errors: INVALID - entry last + 1 was consumed. */
MEMLITH_API int32_t memlith_applog_truncate_after(memlith_applog* log, uint64_t last);

/* Drops every entry before entry `first`, as memlith_applog_consume does, but also those that were not read.
 * Errors: INVALID - entry first - 1 was not appended yet. */
MEMLITH_API int32_t memlith_applog_truncate_before(memlith_applog* log, uint64_t first);

/* Drops all entries. The next one that is appended is number `next`, which may leave out numbers or be one that was
 * used before. Errors: INVALID - 0. */
MEMLITH_API int32_t memlith_applog_restart(memlith_applog* log, uint64_t next);

/* ---- in a transaction of the store ----------------------------------------------------------------------------- */

/* Has memlith_commit append `count` entries, which are copied, in the frame of the transaction: they are durable with
 * its other parts or not at all. They get their numbers, one behind the other, when it is committed. Such an append
 * does not wait for room: without room, memlith_commit is FULL and nothing has happened; entries that the same
 * transaction consumes leave room for the next one only.
 * Errors: INVALID - no entries, one of 4 GiB or more, or the log is of another store; FULL - the entries of the
 * transaction are larger than half of log_max_bytes. */
MEMLITH_API int32_t memlith_txn_append(memlith_txn* txn, memlith_applog* log, const memlith_bytes* entries,
                                       uint64_t count);

/* Has memlith_commit consume everything up to entry `number`, in the frame of the transaction. Together with
 * memlith_txn_add_kv or memlith_txn_add_region: after a crash, the effects of exactly the consumed entries are there.
 * Errors: INVALID - the entry was not read, or the log is of another store. */
MEMLITH_API int32_t memlith_txn_consume(memlith_txn* txn, memlith_applog* log, uint64_t number);

/* ---- looking inside -------------------------------------------------------------------------------------------- */

typedef struct memlith_applog_info {
  uint64_t struct_size; /* set by the caller */
  uint64_t size;        /* bytes for entries that are not consumed, with 24 bytes and the rounding of each */
  uint64_t room;        /* of these, free */
  uint64_t newest;      /* numbers of entries, 0: none: the newest that was appended */
  uint64_t durable;     /* the newest durable one */
  uint64_t read;        /* the newest that was read */
  uint64_t consumed;    /* the newest that was consumed */
} memlith_applog_info;
MEMLITH_API int32_t memlith_applog_get_info(memlith_applog* log, memlith_applog_info* info);

#ifdef __cplusplus
}
#endif

#endif
