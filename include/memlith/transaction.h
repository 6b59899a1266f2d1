/* memlith/transaction.h: changes that are committed together or undone. Conventions: memlith.h. Guide:
 * docs/transactions.md.
 *
 *     memlith_txn* txn = NULL;
 *     if (memlith_begin(store, &txn) != 0) return;
 *     memlith_touch_before(txn, &from->balance, sizeof from->balance);  // in EXPLICIT regions
 *     memlith_touch_before(txn, &to->balance, sizeof to->balance);
 *     from->balance -= 10;
 *     to->balance += 10;
 *     if (from->balance < 0 || memlith_commit(txn, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_abort(txn);
 */
#ifndef MEMLITH_TRANSACTION_H
#define MEMLITH_TRANSACTION_H

#include "memlith/region.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transactions ---------------------------------------------------------------------------------------------- */

typedef struct memlith_txn memlith_txn;

/* When a commit of any kind returns (memlith_commit, memlith_kv_commit, memlith_applog_write): */
enum {
  MEMLITH_COMMIT_SYNC = 0, /* when it is durable */
  MEMLITH_COMMIT_WEAK = 1  /* when it has taken effect in memory; it becomes durable in order, within the window */
};

/* Begins a transaction: changes of EXPLICIT regions of one store that are committed together or undone. memlith keeps
 * an image of the bytes that each range had before, so an abort needs no I/O. Transactions are independent of each
 * other and of what other threads have stored and not persisted. A persist leaves out what open transactions have
 * announced. One thread at a time uses a transaction. Until a transaction has ended, no other thread may store to its
 * ranges: if threads share data, a transaction ends before its lock is unlocked (MEMLITH_COMMIT_WEAK, unlock,
 * memlith_wait).
 * The handle is freed by memlith_abort, by a memlith_commit that returned 0, and with the store.
 * Durability: none. Errors: READ_ONLY, NO_MEMORY. */
MEMLITH_API int32_t memlith_begin(memlith_store* store, memlith_txn** txn);

/* Announces that the program is about to change [address, address + bytes), and keeps an image of these bytes. Call it
 * before the change. Ranges may overlap. memlith_touch is not needed. A region cannot be closed or release its memory
 * while a transaction has ranges in it (BUSY).
 * Errors: INVALID (in no open region of the store), UNSUPPORTED (not an EXPLICIT region, or it holds a heap),
 *         NO_MEMORY. Nothing was announced. */
MEMLITH_API int32_t memlith_touch_before(memlith_txn* txn, const void* address, uint64_t bytes);

/* Copies `count` bytes to `target`, which it announces before, as memlith_touch_before: for programs that build a
 * change aside. `bytes` may lie anywhere. Errors: those of memlith_touch_before; memory is as it was. */
MEMLITH_API int32_t memlith_txn_write(memlith_txn* txn, void* target, const void* bytes, uint64_t count);

/* Makes the announced ranges, as they are now, durable: all of them or none, in all regions together. `mode` is
 * MEMLITH_COMMIT_*. `ticket` may be null; memlith_wait waits for it, as after memlith_persist_async. A growth of these
 * regions that was not persisted becomes durable before. On 0, the transaction has ended. On an error it is still open,
 * and memlith_abort ends it.
 * After a crash during this call, reopening finds all of the changes or none.
 * Errors: FULL, NO_SPACE, NO_MEMORY - nothing was written.
 *         IO - whether the commit took effect is unknown until the store is reopened. POISONED - as memlith_persist.
 * Source: undo images as in NV-Heaps and libpmemobj; the log is memlith's. */
MEMLITH_API int32_t memlith_commit(memlith_txn* txn, uint32_t mode, uint64_t* ticket);

/* Gives every announced range its old bytes back, undoes what was stored to regions with MEMLITH_UNDO, aborts the other
 * parts, and ends the transaction, whatever is returned. Null is ignored. Durability: none; what is undone was never
 * durable.
 * Announced ranges take as long as copying the bytes: no I/O, and other threads are not disturbed. Regions with UNDO
 * are as they were, with the blocks and names of heaps; a growth stays, and pointers to what was allocated since lead
 * nowhere. That costs as much as memlith_rollback: FAULT regions have copies of the pages in memory; the others run a
 * checkpoint and read.
 * Errors: INVALID (a forked child). With UNDO, those of memlith_rollback: a region in which that failed holds half of
 *         the change in memory; memlith never persists that half: every later persist of the region returns BUSY, until
 *         it is opened again. After a commit that failed with IO: POISONED, and the memory of these regions stays. */
MEMLITH_API int32_t memlith_abort(memlith_txn* txn);

enum { MEMLITH_UNDO = 1 }; /* memlith_abort undoes what was stored to the region */

/* Has memlith_commit commit, in the same frame, what memlith_persist with process scope would make durable of the
 * region: the stores of all threads to a region with any tracker, or to the region of a heap. Other structures of the
 * store take part in the same way: a transaction of a kv store (memlith_txn_add_kv), the entries and the read position
 * of an application log (memlith_txn_append, memlith_txn_consume). After a crash all of it has happened or none,
 * whichever program opens the store next.
 *
 *     memlith_txn* txn = NULL;
 *     memlith_begin(store, &txn);
 *     memlith_txn_add_region(txn, counters, 0);     // what was stored there
 *     memlith_txn_add_kv(txn, records);             // the records that it puts and removes
 *     memlith_txn_consume(txn, log, entry.number);  // the entry that was the cause
 *     if (memlith_commit(txn, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_abort(txn);
 *
 * With parts, memlith_commit holds the locks of all of them until the frame is in memory of the log. Its errors leave
 * everything as it was, with the transaction open, except for IO, after which the store is poisoned. memlith_abort
 * aborts a kv transaction, forgets entries and positions, and leaves the memory of this region as it is: its stores
 * stay due for the next persist.
 * Until the transaction has ended, the region is not closed and releases no memory (BUSY). A region may be named twice.
 *
 * UNDO: memlith_abort undoes what was stored to the region since this call. Works with every tracker and with heaps,
 * and needs no announcements; with EXPLICIT and INSTRUMENTED regions, what is not touched or recorded is neither
 * committed nor undone. Of a heap, blocks and names are undone, too: what was allocated is free, what was freed is
 * there again. A null region stands for all open regions of the store.
 *
 *     memlith_txn* txn = NULL;
 *     if (memlith_begin(store, &txn) != 0) return;
 *     if (memlith_txn_add_region(txn, region, MEMLITH_UNDO) != 0 || !rename_everything(region) ||
 *         memlith_commit(txn, MEMLITH_COMMIT_SYNC, NULL) != 0) {
 *       memlith_abort(txn);
 *     }
 *
 * Earlier stores that were not persisted are persisted first, by themselves: they become durable, as after
 * memlith_persist_async, and are not undone.
 * Until the transaction has ended, persists, rollbacks and discards of these regions that any thread asks for, this one
 * included, return BUSY and do nothing, as they would make half of the change durable; so does closing a region, and
 * adding the region to another transaction: changes do not nest. End the transaction before its store is closed.
 * Threads: a change covers the stores of all threads. No other thread stores to these regions, or allocates in these
 * heaps, until the transaction has ended: threads that share data hold one lock from the beginning to the end.
 * Cost of UNDO: what memlith_persist_async costs if nothing was stored since the last persist, which is a look at what
 * changed, without I/O.
 * Errors: INVALID - the region is of another store, or takes part without UNDO; READ_ONLY. With UNDO also BUSY (a
 *         change is under way in the region), and those of memlith_persist_async. The region takes no part then. */
MEMLITH_API int32_t memlith_txn_add_region(memlith_txn* txn, memlith_region* region, uint32_t flags);

#ifdef __cplusplus
}
#endif

#endif
