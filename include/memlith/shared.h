/* memlith/shared.h: regions that several processes write. docs/shared-regions.md has the guide.
 *
 * A shared region is bytes of the program's own, of a fixed size: it does not grow, and no heap, kv store or
 * application log is opened in it. Nothing finds out what a process stores: a transaction names each range before it
 * stores there. A region has at most 4,096 ranges at a time; those that a transaction takes in order, each beginning
 * where another one of it ends, count as one.
 *
 * Processes, forked or started by themselves, open one region of a store by its name. All of them have it at the same
 * address, as shared memory: loads and stores are ordinary ones, and each process sees the stores of the others at
 * once. A process takes a range of bytes for a transaction, stores there, and commits: all of the transaction's ranges,
 * or none. A process that dies with stores that it has not committed is undone.
 *
 *     memlith_shared* shared = NULL;
 *     memlith_shared_options options = {0};
 *     options.struct_size = sizeof options;
 *     options.flags = MEMLITH_CREATE;
 *     if (memlith_shared_open("bank", "accounts", 1 << 20, &options, &shared) != 0) return;
 *     uint64_t* account = memlith_shared_address(shared);
 *     memlith_shared_txn* txn = NULL;
 *     if (memlith_shared_begin(shared, &txn) != 0) return;
 *     if (memlith_shared_touch_before(txn, &account[1], sizeof *account, 1000) != 0 ||
 *         memlith_shared_touch_before(txn, &account[2], sizeof *account, 1000) != 0) {
 *       memlith_shared_abort(txn);
 *       return;
 *     }
 *     account[1] -= 10;
 *     account[2] += 10;
 *     if (memlith_shared_commit(txn, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_shared_abort(txn);
 *
 * THE KEEPER is a process that has the store open and does nothing else: `memlith keeper`, which the first
 * memlith_shared_open starts, and which ends soon after the last handle was closed. Meanwhile no other process can open
 * the store for writing; readers that follow it can. The keeper alone writes to the disk, so power cuts and crashes
 * leave what they leave of any store: docs/guarantees.md.
 *
 * RANGES are at once the exclusion between transactions, of whatever process or thread, and the record of what a
 * process is changing. Stores without a range are seen by the others, and are not durable: an undo, or the keeper's
 * end, may take them back at any time. Loads need no range, and see what others have not committed yet. To read what
 * does not change meanwhile, take a range for it.
 *
 * A PROCESS THAT DIES, in any of these calls or outside of them: of each of its transactions the commit took effect, as
 * a whole, or its ranges are as they were committed last, and are free again.
 *
 * IF THE KEEPER DIES, the calls for open transactions return MEMLITH_POISONED, in all processes: abort them. A commit
 * or a wait that was under way returns MEMLITH_IO: whether the commit is durable is unknown until a later begin has
 * succeeded, or the region is open again. When no transaction of a handle is open, memlith_shared_begin starts another
 * keeper and goes on with the region as the last durable commit left it, at the same address. The handle stays poisoned
 * instead if a weak commit of its own is not known to be durable, by a later SYNC commit or a wait, or if the keeper
 * could not make something durable: close the handle, and open the region again. Until then the handle's memory shows
 * what the old keeper had. A ticket is of the keeper that gave it.
 *
 * A FORKED CHILD cannot use its parent's handle (MEMLITH_INVALID), and has not the region's memory. It opens its own.
 *
 * ERRORS and THREADS: as in memlith.h. One thread at a time uses a transaction.
 */
#ifndef MEMLITH_SHARED_H
#define MEMLITH_SHARED_H

#include <memlith/memlith.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlith_shared memlith_shared;
typedef struct memlith_shared_txn memlith_shared_txn;

/* Zero-initialise and set struct_size. Null stands for all defaults. */
typedef struct memlith_shared_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_SHARED_... */
  uint32_t reserved;
  uint64_t address; /* of a new region, a multiple of the kernel's page size; 0 = memlith chooses */
  /* The path of the program `memlith`, if a keeper has to be started. Null: near the library, or near the program that
   * contains it, else in PATH. */
  const char* program;
  uint64_t patience_ms; /* how long to wait for a keeper of others that begins or ends; 0 = a minute */
} memlith_shared_options;

/* Opens region `region` of the store in folder `store` for this process and others. `bytes`: size of a new region,
 * rounded up to 4096; of one that exists, at most its size, or 0. A shared region does not grow. Starts the keeper if
 * there is none, which recovers the store first. The keeper is no child of this process and outlives it.
 * The region takes its size in memory twice, as far as it is not zeros, in the keeper and among the processes.
 * On return, everything that was committed durably before is in place, and a new region is durable.
 * Errors: NOT_FOUND (no store or region: set MEMLITH_CREATE; or no program `memlith`: the message says which),
 *         BUSY (a process that is no keeper has the store open), ADDRESS_TAKEN (also if this process has the region
 *         open already), UNSUPPORTED (the store is not a folder), INCOMPATIBLE (a keeper of another version), INVALID,
 *         and those of memlith_store_open and memlith_region_open. */
MEMLITH_API int32_t memlith_shared_open(const char* store, const char* region, uint64_t bytes,
                                        const memlith_shared_options* options, memlith_shared** shared);

/* Aborts the handle's transactions, unmaps the region and frees the handle. In a forked child, frees the child's copy
 * and nothing else. Null is ignored. Durability: none; weak commits become durable nevertheless. */
MEMLITH_API int32_t memlith_shared_close(memlith_shared* shared);

/* The address of the region, the same in all processes, and its size. Constant. */
MEMLITH_API void* memlith_shared_address(const memlith_shared* shared);
MEMLITH_API uint64_t memlith_shared_size(const memlith_shared* shared);

/* Begins a transaction, which takes no range yet. Transactions of one handle exclude each other as those of different
 * processes do. The handle is freed by memlith_shared_abort, by a memlith_shared_commit that returned 0, and with
 * `shared`. Durability: none. Errors: POISONED, INVALID (a forked child), NO_MEMORY; if it starts another keeper,
 * also those of memlith_shared_open. */
MEMLITH_API int32_t memlith_shared_begin(memlith_shared* shared, memlith_shared_txn** txn);

/* Takes [address, address + bytes) for this transaction, and keeps an image of these bytes. Call it before the stores.
 * If another transaction has a range that overlaps, waits until that one has ended, for at most `timeout_ms`; 0: does
 * not wait. A transaction that takes its first range lets those pass that wait for any of its bytes already.
 * Transactions that wait for each other end by the timeout: abort, and begin again, perhaps in another order. Ranges of
 * one transaction may overlap. A region has at most 4096 ranges at a time, of all processes; few large ranges are
 * faster than many small ones.
 * Durability: none. Errors, after which the range is not taken and the transaction is open:
 *   CONFLICT   another transaction has not ended in time
 *   FULL       the region has no room for a further range
 *   INVALID    outside of the region; a forked child
 *   POISONED, NO_MEMORY */
MEMLITH_API int32_t memlith_shared_touch_before(memlith_shared_txn* txn, const void* address, uint64_t bytes,
                                                uint64_t timeout_ms);

/* Makes the bytes of the transaction's ranges, as they are now, durable: all of them or none. `mode` is
 * MEMLITH_COMMIT_SYNC (returns when they are durable) or MEMLITH_COMMIT_WEAK (returns when the keeper has copied them;
 * memlith_shared_wait(`ticket`) waits until they are durable). `ticket` may be null; it is 0 if the transaction has no
 * range. On 0, the transaction has ended.
 * The ranges are free as soon as the keeper has copied them, with both modes, so before a SYNC commit is durable.
 * Another transaction may then read what is not durable yet, and commit what it made of it. That is safe: tickets, and
 * the log, are in the order of the copies, and a crash that takes back a commit takes back all later ones. What a
 * program tells the world outside because of bytes that it has read is its own concern: it commits (a transaction with
 * a range around them), or waits for a ticket, before it tells.
 * Commits of several processes that arrive while the disk flushes become durable with one flush.
 * Errors: FULL, NO_SPACE, NO_MEMORY - nothing was committed; the transaction is open and has its ranges.
 *         IO - a write or flush failed, or the keeper has ended meanwhile. Whether the commit is durable is unknown
 *         until a later begin has succeeded, or the region is open again.
 *         POISONED - the keeper has ended before; nothing was tried.
 * After an error memlith_shared_abort has to end the transaction. */
MEMLITH_API int32_t memlith_shared_commit(memlith_shared_txn* txn, uint32_t mode, uint64_t* ticket);

/* Gives the ranges their old bytes back, releases them, and ends the transaction; no I/O. After IO or POISONED, only
 * frees the handle. Null is ignored. Durability: none. Errors: INVALID (a forked child). */
MEMLITH_API int32_t memlith_shared_abort(memlith_shared_txn* txn);

/* Returns when everything up to `ticket`, of whatever process, is durable.
 * Errors: INVALID (no such ticket), IO, POISONED: as memlith_shared_commit. */
MEMLITH_API int32_t memlith_shared_wait(memlith_shared* shared, uint64_t ticket);

/* Zero-initialise and set struct_size. Null stands for all defaults. */
typedef struct memlith_keeper_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_CREATE: create the store, if it does not exist */
  uint32_t reserved;
  uint64_t grace_ms; /* the keeper ends after so long without a client; 0 = 200, and 5000 before the first one */
  void (*ready)(void* context); /* called once, when clients can open regions; may be null */
  void* ready_context;
} memlith_keeper_options;

/* The work of `memlith keeper`: keeps the store in folder `store` until the last client has gone, and closes it.
 * Programs need this only if they bring a keeper of their own; such a process does nothing else.
 * Errors: EXISTS (another keeper has the store), those of memlith_store_open, and IO if something could not be made
 * durable, after which all clients are poisoned. */
MEMLITH_API int32_t memlith_shared_keep(const char* store, const memlith_keeper_options* options);

#ifdef __cplusplus
}
#endif

#endif
