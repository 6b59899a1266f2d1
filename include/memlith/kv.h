/* memlith: a transactional key-value store. The C interface; memlith/kv.hpp is the C++ one. Conventions: memlith.h.
 * Guide: docs/kv.md.
 *
 *     memlith_kv_options options = {.struct_size = sizeof options, .flags = MEMLITH_CREATE};
 *     memlith_kv* kv = NULL;
 *     memlith_kv_map stock = 0;
 *     memlith_kv_txn* txn = NULL;
 *     if (memlith_kv_open(store, "kv", &options, &kv) != 0) return;
 *     if (memlith_kv_map_open(kv, "stock", MEMLITH_CREATE, &stock) != 0) return;
 *     if (memlith_kv_begin(kv, 0, &txn) != 0) return;
 *     if (memlith_kv_put(txn, stock, "marble", 6, "19", 2) != 0) return;
 *     if (memlith_kv_commit(txn, MEMLITH_COMMIT_SYNC, NULL) != 0) return;  // durable when it is 0
 *     memlith_kv_txn_free(txn);
 *
 * A kv store lies in a region of a memlith store and holds named maps. A map is an ordered set of records; keys and
 * values are strings of bytes, and keys are in the order of memcmp, a prefix before what it begins. Transactions over
 * all maps are strictly serialisable.
 *
 * DURABILITY is chosen per commit. After any crash the kv store is as some commit left it: a prefix of the order in
 * which commits took effect, all maps together, that holds every commit acknowledged as durable. A commit's ticket is
 * one of the memlith store's (memlith_wait): tickets rise in the order of the commits. Weak commits that wait for
 * the log together have the same ticket: when it is durable, all of them are.
 *   SYNC  The call returns when the commit, and with it every commit before it, is durable. Threads share flushes.
 *   WEAK  The call returns when the commit has taken effect in memory. It becomes durable in order, at most the window
 *         (memlith_kv_set_window) later, or with the next commit of the memlith store that is waited for, in whatever
 *         structure. When the log has no room for weak commits and cannot grow (the disk is full, say), further commits
 *         of every kind, in the whole memlith store, are refused with NO_SPACE or FULL, so that those in memory stay
 *         the last ones of one window. They are tried again in the background and by each call that commits, and become
 *         durable when there is room.
 * All commits of a memlith store are one sequence: a crash keeps none without those that had returned before it began.
 *
 * ISOLATION. A transaction that writes locks the records that it reads or writes, and the gaps between the keys that it
 * scans, until it ends. A call that meets a lock of another transaction returns MEMLITH_CONFLICT and the transaction is
 * ended, as by memlith_kv_abort; begin it again (transact() of kv.hpp does, with growing pauses). By default the call
 * returns so at once; with memlith_kv_txn_set_wait it waits first for the other transaction to end. A READ_ONLY
 * transaction sees the state as of its beginning, takes no locks, never meets a conflict, and makes no writer wait.
 *
 * MEMORY of keys and values that a call returns stays valid and constant until the transaction ends. A READ_ONLY
 * transaction copies no values: the pointer leads to where the value lies in the kv store. That of a value of more than
 * some 1,300 bytes is a multiple of 16, and the call takes as long for 16 MiB as for 2 KiB.
 *
 * THREADS: any number, with any number of transactions each. One transaction, with its cursors, is used by one thread
 * at a time. Opening and closing the kv store: while no other thread uses it.
 */
#ifndef MEMLITH_KV_H
#define MEMLITH_KV_H

#include "memlith/memlith.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MEMLITH_KV_KEY_BYTES_MAX 1024 /* maximum length of a key in bytes; the minimum is 1 */
#define MEMLITH_KV_VALUE_BYTES_MAX (16 << 20)
#define MEMLITH_KV_NAME_BYTES_MAX 255 /* maximum length of a map's name; the minimum is 1; no zeros */

typedef struct memlith_kv memlith_kv;
typedef struct memlith_kv_txn memlith_kv_txn;
typedef struct memlith_kv_cursor memlith_kv_cursor;
/* The number of a map, valid as long as the kv store is open and the map is not removed. Never 0. The number of a map
 * that was removed is never given to another one, as long as the kv store is open. */
typedef uint32_t memlith_kv_map;

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Each page is compared with the checksum that is kept of it (docs/guarantees.md, "Rot") once, when it is first used
 * after the opening. A call that meets a page which the disk has changed returns CORRUPT. Not for one-file stores and
 * stores that are followed (UNSUPPORTED). */
enum { MEMLITH_KV_CHECK_PAGES = 32 };

typedef struct memlith_kv_options {
  uint64_t struct_size;
  uint32_t flags;     /* MEMLITH_CREATE, MEMLITH_EXCLUSIVE, MEMLITH_KV_CHECK_PAGES (not of memlith_kv_open_shared) */
  uint32_t reserved;  /* 0 */
  uint64_t max_size;  /* the largest size of the region of a new kv store; 0 = 1 TiB; takes addresses only */
  uint64_t window_ms; /* the window of weak commits; see memlith_kv_set_window */
  uint64_t window_bytes;
  /* of memlith_kv_open_shared alone, as in memlith_shared_options (memlith/shared.h) */
  const char* program;  /* the path of the program `memlith`, if a keeper has to be started; null = it is looked for */
  uint64_t patience_ms; /* how long to wait for a keeper that begins or ends; 0 = a minute */
} memlith_kv_options;

/* Opens the kv store in region `name` of the store. With MEMLITH_CREATE a missing one is created, durably.
 * Takes the same time for every size: pages are loaded and checked when they are first used.
 * In a store that was opened read-only, only READ_ONLY transactions can be begun.
 * Errors: as memlith_region_open; NOT_FOUND - also where a crash cut the making of the kv store: set
 *         MEMLITH_CREATE. INCOMPATIBLE - the region holds something else, or a kv store of another format.
 *         CORRUPT - its header is damaged. */
MEMLITH_API int32_t memlith_kv_open(memlith_store* store, const char* name, const memlith_kv_options* options,
                                    memlith_kv** kv);

/* Opens the kv store `name` of the memlith store in folder `store` for this process and others: any number of processes
 * read and write it at once, each with a handle of its own. The store is in a keeper, a process of its own, which the
 * first opening starts and which ends soon after the last handle was closed (memlith/shared.h); meanwhile no process
 * can open the store by memlith_store_open, but to follow it. With MEMLITH_CREATE a missing store is created, too.
 * docs/several-processes.md.
 *   READS        are made in this process, on memory that it shares with the keeper and cannot write to. They cost no
 *                message and wait for no other process.
 *   WRITES       wait in the transaction for its commit, which is a message to the keeper. The keeper applies one
 *                commit after the other, in the order in which they came. SYNC commits of all processes share flushes.
 *   ISOLATION    Transactions are strictly serialisable, those that read and those that write. None takes locks: each
 *                sees the state of its beginning, and the commit of one that writes returns MEMLITH_CONFLICT, and has
 *                no effect, if a record that it read, or a range that it scanned, is not as it was then. So a process
 *                that is stopped, or dies, is in no other's way. Writes alone never conflict. memlith_kv_txn_set_wait
 *                and memlith_kv_set_txn_timeout have nothing to do. A handle has at most 128 transactions active at a
 *                time (BUSY), of whatever kind; 255 handles of all processes may be open.
 *   A DEATH      of a process: each of its transactions was committed as a whole, or nothing of it was. Of the keeper:
 *                every call on the handle returns POISONED, and a commit or a wait that was under way returns IO: its
 *                commit may be durable or not. Close the handle, and open the kv store again: it is as the last durable
 *                commit left it.
 *   A CHILD      that was forked cannot use its parent's handle (INVALID): it opens its own.
 *   UNSUPPORTED  here: memlith_txn_add_kv, memlith_kv_set_eventfd, memlith_kv_on_durable.
 * The window is one for all: an opening or memlith_kv_set_window changes it where a number is not 0.
 * A process needs addresses for the largest size of the region; `max_size` is that of a new one.
 * Errors: as memlith_kv_open; those of memlith_shared_open. */
MEMLITH_API int32_t memlith_kv_open_shared(const char* store, const char* name, const memlith_kv_options* options,
                                           memlith_kv** kv);

/* Makes every commit durable and closes the kv store and its region. Free the transactions before, and close the kv
 * store before its store: memlith_store_close makes weak commits that wait durable, too, but cannot be tried again.
 * Null is ignored.
 * Errors, nothing was closed, and the handle stays: BUSY - transactions were not freed. NO_SPACE, FULL, NO_MEMORY - the
 *         log has no room for weak commits that wait; the message says which. Make room and try again, or close the
 *         store without them.
 * Errors, closed nevertheless: IO, POISONED. */
MEMLITH_API int32_t memlith_kv_close(memlith_kv* kv);

/* ---- maps ------------------------------------------------------------------------------------------------------ */

/* Finds map `name`. With MEMLITH_CREATE a missing map is created, in a transaction of its own that is durable on
 * return; with EXCLUSIVE as well an existing one is refused.
 * Errors: NOT_FOUND, EXISTS, INVALID (the name), READ_ONLY, and those of memlith_kv_commit. */
MEMLITH_API int32_t memlith_kv_map_open(memlith_kv* kv, const char* name, uint32_t flags, memlith_kv_map* map);

/* Removes a map with all its records, durably on return. A large map's memory is freed in steps, beside which other
 * threads commit. Errors: NOT_FOUND; CONFLICT - a transaction uses the map, try again later; CORRUPT - the map is
 * removed if a page of it is damaged, but its memory is not free; and those of memlith_kv_commit. */
MEMLITH_API int32_t memlith_kv_map_remove(memlith_kv* kv, const char* name);

/* Fills a map quickly: puts records behind all that it has, in the order of their keys, in commits of some 100 KiB
 * each, durable on return. `next` sets key and value and returns 0, or returns other than 0 when there are no more; it
 * may not use the kv store, and its bytes are read before it is called again. `count`, which may be null, tells how
 * many records were put, also after an error: a crash or an error leaves the first of them. Errors: INVALID - a key is
 * not above the one before; CONFLICT - a transaction uses the map; and those of memlith_kv_put and memlith_kv_commit.
 */
MEMLITH_API int32_t memlith_kv_map_append(memlith_kv* kv, memlith_kv_map map,
                                          int (*next)(void* context, memlith_bytes* key, memlith_bytes* value),
                                          void* context, uint64_t* count);

/* The name of map number `index` (0, 1, ...) in the order of the names, cut to `bytes` and terminated by a zero.
 * Errors: NOT_FOUND - the store has fewer maps. */
MEMLITH_API int32_t memlith_kv_map_at(memlith_kv* kv, uint64_t index, char* name, size_t bytes);

/* ---- transactions ---------------------------------------------------------------------------------------------- */

enum { MEMLITH_KV_READ_ONLY = 1 };

/* Begins a transaction. Errors: INVALID (flags), READ_ONLY (the store was opened read-only: ask for READ_ONLY),
 * POISONED, NO_MEMORY. */
MEMLITH_API int32_t memlith_kv_begin(memlith_kv* kv, uint32_t flags, memlith_kv_txn** txn);

/* From now on, also after memlith_kv_renew, a call of this transaction that meets a lock of another transaction waits
 * until that one has ended, but at most `wait_ms` milliseconds; 0, as it begins: it does not wait. The call takes the
 * lock then, or returns CONFLICT and the transaction is ended. Transactions never wait for each other in a circle: the
 * call that would close a circle returns CONFLICT at once. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_kv_txn_set_wait(memlith_kv_txn* txn, uint64_t wait_ms);

/* A transaction that was not used for `timeout_ms` milliseconds loses its locks to the first one that needs any of
 * them, and its next call returns CONFLICT; so no transaction waits for an abandoned one for ever. For all
 * transactions of the kv store, until it is closed; 0, as it begins: never. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_kv_set_txn_timeout(memlith_kv* kv, uint64_t timeout_ms);

/* Commits: everything the transaction wrote takes effect at once, or nothing does. The transaction has ended then,
 * whatever the result; its handle stays until memlith_kv_txn_free. `mode` is one of MEMLITH_COMMIT_*: SYNC returns when
 * the commit is durable, and with it all that the transaction read, also of a transaction that wrote nothing or is
 * READ_ONLY: at once if that is durable already, otherwise with the next flush. WEAK returns when the commit has taken
 * effect, and waits for nothing. `ticket`, which may be null, receives the ticket of the commit; of a transaction that
 * wrote nothing, that of the newest commit that it may have read.
 * Errors, nothing took effect: INVALID (ended before), FULL - more than the log may grow to, or than the process has
 *         memory for (docs/kv.md, "Errors"); split the work. NO_SPACE -
 *         the region or the file system is full, or there is no room yet for commits before this one. POISONED,
 *         CORRUPT - a page that had to be changed is damaged. IO with the detail READ - it cannot be read. NO_MEMORY.
 * Errors of SYNC alone, the commit took effect in memory, is a weak one, and `ticket` is set (what was read may be lost
 *         in a crash): IO - the flush failed, and the store is poisoned. NO_SPACE - the log cannot grow, and
 *         memlith_kv_persist tries again. */
MEMLITH_API int32_t memlith_kv_commit(memlith_kv_txn* txn, uint32_t mode, uint64_t* ticket);

/* Makes the transaction `part` a part of `txn`, a transaction of the store (memlith_txn_add_region): memlith_commit
 * commits `part` in the same frame as the other parts, and memlith_abort aborts it. Then it has ended, and its handle
 * stays until memlith_kv_txn_free. Until then memlith_kv_commit, memlith_kv_abort and memlith_kv_renew of `part` are
 * INVALID. A conflict ends it as ever; memlith_commit is INVALID then, and nothing is committed. Weak commits that wait
 * for their window enter the log before. A SYNC memlith_commit makes durable what `part` has read, too.
 * Errors: INVALID - the kv store is of another store, or has a part in `txn` already; READ_ONLY. */
MEMLITH_API int32_t memlith_txn_add_kv(memlith_txn* txn, memlith_kv_txn* part);

/* Ends the transaction without any effect, and without I/O: what it read need not be durable. Its handle stays until
 * memlith_kv_txn_free. */
MEMLITH_API int32_t memlith_kv_abort(memlith_kv_txn* txn);

/* Begins the ended transaction anew, with the flags that it had: saves an allocation. Errors: INVALID (not ended). */
MEMLITH_API int32_t memlith_kv_renew(memlith_kv_txn* txn);

/* Frees the handle, and its cursors; aborts the transaction if it has not ended. Null is ignored. */
MEMLITH_API void memlith_kv_txn_free(memlith_kv_txn* txn);

/* 1 while the transaction has neither committed nor aborted, also by a conflict. */
MEMLITH_API int32_t memlith_kv_txn_active(const memlith_kv_txn* txn);

/* A point in the transaction to which its writes can be undone. Locks stay. Numbers of savepoints rise. */
MEMLITH_API int32_t memlith_kv_savepoint(memlith_kv_txn* txn, uint64_t* savepoint);
/* Undoes what the transaction wrote since the savepoint, which stays. Errors: INVALID - no such savepoint. */
MEMLITH_API int32_t memlith_kv_undo_to(memlith_kv_txn* txn, uint64_t savepoint);

/* Errors of all calls below: INVALID - the transaction has ended, no such map, a key of no bytes; the message says
 * which. CONFLICT - see above, the transaction has ended. CORRUPT - a page is damaged, IO - the disk does not give a
 * page back that is used for the first time; the message says which, and the transaction goes on. NO_MEMORY. */

/* Reads a record: that of the newest commit, or of the snapshot, durable or not. When a SYNC commit of the transaction
 * has returned, it is durable. Errors: NOT_FOUND. */
MEMLITH_API int32_t memlith_kv_get(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes,
                                   memlith_bytes* value);

/* Writes a record, a new one or over the old one. Visible to this transaction at once. Errors: INVALID - the key or the
 * value is too long; READ_ONLY; FULL - with this record the transaction would be more than the log may grow to, or than
 * the process has memory for: the record was not written, and the transaction goes on without it. */
MEMLITH_API int32_t memlith_kv_put(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes,
                                   const void* value, uint64_t value_bytes);

/* Removes a record. Errors: NOT_FOUND; READ_ONLY; FULL, as memlith_kv_put. */
MEMLITH_API int32_t memlith_kv_remove(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes);

/* Compare and swap: if the record's value is `expected`, or, with a null `expected`, there is no such record, it gets
 * `value`; with a null `value` it is removed. `done` tells whether. The record was read in any case, so the transaction
 * conflicts with others as after memlith_kv_get. Errors: those of memlith_kv_put. */
MEMLITH_API int32_t memlith_kv_put_if(memlith_kv_txn* txn, memlith_kv_map map, const void* key, uint64_t key_bytes,
                                      const memlith_bytes* expected, const memlith_bytes* value, int32_t* done);

/* Removes the records with from <= key < to. Null `from`: from the first on; null `to`: up to the last. `count`, which
 * may be null, tells how many were removed. No other transaction reads or puts a record there before this one has
 * ended. Memory, log and the time of the commit do not grow with the number of records: the commit takes whole pages
 * out of the map, and frees them in steps, beside other commits, before it returns. Errors: those of memlith_kv_remove;
 * on one nothing was removed. */
MEMLITH_API int32_t memlith_kv_remove_range(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from,
                                            const memlith_bytes* to, uint64_t* count);

/* Calls `record` for each record with from <= key < to, in order, until it returns other than 0. Null `from`: from the
 * first on; null `to`: up to the last. The function may not use the transaction. Key and value are valid only until it
 * returns, so that the records of a long range take no memory. A transaction that may write keeps the keys, which it
 * has locked, until it ends. */
MEMLITH_API int32_t memlith_kv_get_range(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from,
                                         const memlith_bytes* to,
                                         int (*record)(void* context, memlith_bytes key, memlith_bytes value),
                                         void* context);

/* Reads the rest of a map whose kv store is damaged or lies on a disk that fails: as memlith_kv_get_range over all of
 * the map, but a page that cannot be read, or is not what it should be, ends nothing. `lost` is called for the keys
 * between which records are missing, from <= key < to (null: from the first, up to the last), with the sentence that
 * says why, and reading goes on behind them. The transaction is READ_ONLY. Errors: INVALID (it is not). */
MEMLITH_API int32_t memlith_kv_salvage(memlith_kv_txn* txn, memlith_kv_map map,
                                       int (*record)(void* context, memlith_bytes key, memlith_bytes value),
                                       void (*lost)(void* context, const memlith_bytes* from, const memlith_bytes* to,
                                                    const char* sentence),
                                       void* context);

/* About how many records with from <= key < to there are, and how many bytes their keys and values have: exact if they
 * lie in one page of 4 KiB, otherwise reckoned from the pages at both ends. Looks at a few pages, however long the
 * range is. Takes no lock, and does not see what the transaction has written. Null ends as in memlith_kv_get_range;
 * `records` and `bytes` may be null. */
MEMLITH_API int32_t memlith_kv_estimate(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from,
                                        const memlith_bytes* to, uint64_t* records, uint64_t* bytes);

/* ---- cursors --------------------------------------------------------------------------------------------------- */

/* A cursor stands on a record or on none. It sees the transaction's own writes. It is freed with its transaction, or by
 * memlith_kv_cursor_close; after the transaction ended its calls return INVALID. */
MEMLITH_API int32_t memlith_kv_cursor_open(memlith_kv_txn* txn, memlith_kv_map map, memlith_kv_cursor** cursor);
MEMLITH_API void memlith_kv_cursor_close(memlith_kv_cursor* cursor); /* null is ignored */

/* Each puts the cursor on a record. NOT_FOUND: there is none; the cursor stands on none then, before the first
 * record after prev, behind the last after next and seek. From there next and prev lead back, as far as there are
 * records. Of a new cursor next is first and prev is last. */
MEMLITH_API int32_t memlith_kv_cursor_first(memlith_kv_cursor* cursor);
MEMLITH_API int32_t memlith_kv_cursor_last(memlith_kv_cursor* cursor);
MEMLITH_API int32_t memlith_kv_cursor_next(memlith_kv_cursor* cursor);
MEMLITH_API int32_t memlith_kv_cursor_prev(memlith_kv_cursor* cursor);
/* The first record whose key is not less than the given one. */
MEMLITH_API int32_t memlith_kv_cursor_seek(memlith_kv_cursor* cursor, const void* key, uint64_t key_bytes);

/* From now on there are only the records with from <= key < to for the cursor; a null end is none. The cursor stands on
 * none, as a new one. A transaction that writes locks no more than these records, the room between them, and `to`. */
MEMLITH_API int32_t memlith_kv_cursor_set_bounds(memlith_kv_cursor* cursor, const memlith_bytes* from,
                                                 const memlith_bytes* to);
/* The same for the records whose keys begin with these bytes. */
MEMLITH_API int32_t memlith_kv_cursor_set_prefix(memlith_kv_cursor* cursor, const void* prefix, uint64_t prefix_bytes);

/* The record on which the cursor stands. `key` and `value` may be null; without `value`, it is not read. Errors:
 * NOT_FOUND - on none, or the transaction removed the record. */
MEMLITH_API int32_t memlith_kv_cursor_current(memlith_kv_cursor* cursor, memlith_bytes* key, memlith_bytes* value);
/* Removes that record; next and prev go on from its place. */
MEMLITH_API int32_t memlith_kv_cursor_remove(memlith_kv_cursor* cursor);

/* ---- durability ------------------------------------------------------------------------------------------------ */

/* Makes every commit that has returned durable. Errors: IO, POISONED; NO_SPACE - the log cannot grow: nothing is lost,
 * try again. */
MEMLITH_API int32_t memlith_kv_persist(memlith_kv* kv);

/* Returns when everything up to `ticket`, which a commit of this kv store returned, is durable. Errors: INVALID - no
 * such ticket yet; and those of memlith_wait, which is the same where the caller has the memlith store. */
MEMLITH_API int32_t memlith_kv_wait(memlith_kv* kv, uint64_t ticket);

/* The newest ticket up to which the commits of this kv store are durable. Only rises. memlith_store_durable is about
 * all structures of the memlith store. */
MEMLITH_API uint64_t memlith_kv_durable(memlith_kv* kv);

/* The window: a weak commit becomes durable at most `window_ms` (and a flush) after it returned, or as soon as
 * `window_bytes` of changes wait. 0 = 100 ms, 0 = 16 MiB. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_kv_set_window(memlith_kv* kv, uint64_t window_ms, uint64_t window_bytes);

/* Adds 1 to the eventfd `fd` when more commits have become durable, and when the store is poisoned. -1 ends that. */
MEMLITH_API int32_t memlith_kv_set_eventfd(memlith_kv* kv, int fd);

/* Calls `done` once, from a thread of the library, when the commit is durable (code 0) or will not be (the code of the
 * failure). Does not hurry the commit. `done` may not close the kv store. Calls come in the order of the tickets, one
 * at a time: a slow `done` delays those behind it, and nothing else.
 * Errors: INVALID - no such ticket yet. */
MEMLITH_API int32_t memlith_kv_on_durable(memlith_kv* kv, uint64_t ticket,
                                          void (*done)(void* context, uint64_t ticket, int32_t code), void* context);

/* ---- looking inside -------------------------------------------------------------------------------------------- */

typedef struct memlith_kv_info {
  uint64_t struct_size; /* set by the caller */
  uint64_t maps;
  uint64_t records;
  uint64_t region_bytes;
  uint64_t page_bytes;
  uint64_t pages; /* in use and free */
  uint64_t free_pages;
  uint64_t commits;        /* ever made in this kv store */
  uint64_t durable;        /* of them, how many are durable: the first ones */
  uint64_t logged_bytes;   /* since opening: bytes of pages that commits changed and the log took */
  uint64_t conflicts;      /* since opening: transactions ended by a conflict */
  uint64_t snapshot_bytes; /* memory that older states of pages take, for READ_ONLY transactions */
  uint64_t transactions;   /* active */
} memlith_kv_info;
MEMLITH_API int32_t memlith_kv_get_info(memlith_kv* kv, memlith_kv_info* info);

typedef struct memlith_kv_report {
  uint64_t struct_size; /* set by the caller */
  uint64_t maps;
  uint64_t records;
  uint64_t leaf_pages;
  uint64_t inner_pages;
  uint64_t overflow_pages; /* of values that are too long for a leaf */
  uint64_t free_pages;
  uint64_t used_bytes; /* of leaves: records and their places */
  uint32_t depth_max;
  uint32_t reserved;
} memlith_kv_report;

/* Checks every page: its structure, the order of the keys, and that each page belongs to exactly one map or is free.
 * Commits of other threads wait. `report` may be null. Errors: CORRUPT - the message names the page. */
MEMLITH_API int32_t memlith_kv_verify(memlith_kv* kv, memlith_kv_report* report);

/* ---- keys that are integers ------------------------------------------------------------------------------------ */

/* Eight bytes whose order is that of the numbers. For signed numbers, memlith_kv_key_of_i64. */
static inline void memlith_kv_key_of_u64(uint64_t number, unsigned char key[8]) {
  for (int i = 0; i < 8; ++i) key[i] = (unsigned char)(number >> (56 - 8 * i));
}
static inline uint64_t memlith_kv_u64_of_key(const unsigned char key[8]) {
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | key[i];
  return number;
}
static inline void memlith_kv_key_of_i64(int64_t number, unsigned char key[8]) {
  memlith_kv_key_of_u64((uint64_t)number ^ (uint64_t)1 << 63, key);
}
static inline int64_t memlith_kv_i64_of_key(const unsigned char key[8]) {
  return (int64_t)(memlith_kv_u64_of_key(key) ^ (uint64_t)1 << 63);
}

#ifdef __cplusplus
}
#endif

#endif
