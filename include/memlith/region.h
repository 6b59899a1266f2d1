/* memlith/region.h: regions, which are memory; persist, which makes what was stored there durable; and snapshots.
 * Conventions: memlith.h.
 *
 *     memlith_region_options options = {.struct_size = sizeof options, .flags = MEMLITH_CREATE, .size = 1 << 20};
 *     memlith_region* region = NULL;
 *     if (memlith_region_open(store, "counters", &options, &region) != 0) return;
 *     uint64_t* counters = memlith_region_address(region);  // zeros in the first run, found again in every later one
 *     ++counters[0];
 *     ++counters[1];
 *     if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != 0) return;  // both are durable, or neither
 *     memlith_region_close(region);
 */
#ifndef MEMLITH_REGION_H
#define MEMLITH_REGION_H

#include "memlith/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlith_region memlith_region;

/* ---- regions --------------------------------------------------------------------------------------------------- */

/* How memlith finds what was stored to a region. docs/guarantees.md, "Trackers", compares them. */
enum {
  /* SCAN for regions of up to 128 MiB, FAULT for larger ones, also for those that have grown, and with
   * MEMLITH_REGION_THREAD_SCOPE. memlith_region_info says which one and why. */
  MEMLITH_TRACKER_AUTO = 0,
  /* Asks the kernel which pages were written (userfaultfd WP_ASYNC and PAGEMAP_SCAN, Linux 6.7); on older kernels works
   * like FAULT. Finds pages; of pages that were captured lately, the changed bytes, by comparing. Does not distinguish
   * threads. Finds every store, also those of system calls that write into the region. Exception: no direct or
   * asynchronous read into the region (O_DIRECT, aio, io_uring) may be in flight during a persist, a rollback or a
   * release. */
  MEMLITH_TRACKER_SCAN = 1,
  /* Relies on memlith_touch(): a change that was not touched is not persisted. Finds bytes; distinguishes threads. */
  MEMLITH_TRACKER_EXPLICIT = 2,
  /* Protects pages, catches SIGSEGV and SIGBUS, and keeps a copy of each page as it was. Finds the changed words of 8
   * bytes, by comparing. Distinguishes threads by page: of two threads that store to one page, the first counts. A
   * system call that writes into the region can fail with EFAULT: see memlith_prepare. A thread that stores to the
   * region must not block SIGSEGV or SIGBUS, because the kernel would end the process at the store. A thread that
   * reads signals from a signalfd may block all other signals. */
  MEMLITH_TRACKER_FAULT = 3,
  /* Relies on the compiler: programs built with memlith-g++ or memlith-c++ record each store (docs/compiler-pass.md
   * says which stores are not recorded). memlith_touch() records a store that the compiler did not see. Finds bytes;
   * distinguishes threads. MEMLITH_VERIFY_TRACKING=1 in the environment reports changes that were not recorded. */
  MEMLITH_TRACKER_INSTRUMENTED = 4
};

/* The first two are for everything that lies in a store: regions, heaps, kv stores and their maps, application logs. */
enum {
  MEMLITH_CREATE = 1,    /* create what does not exist; a region is filled with zeros */
  MEMLITH_EXCLUSIVE = 2, /* with CREATE: fail with MEMLITH_EXISTS if it exists */
  /* The region is persisted and rolled back with process scope only; thread scope is UNSUPPORTED. In return, FAULT pays
   * 0.2 us instead of 7 us for a page that nearly every persist finds changed (docs/architecture.md, "Hot pages").
   * SCAN and heaps do so without this flag. */
  MEMLITH_REGION_PROCESS_SCOPE = 4,
  /* Only in a store that is open read-only or followed: the region lies wherever this process has room. For data
   * without pointers, where the region's own addresses are taken: in a forked child whose parent has the store open, or
   * where another reader of this process has the region open. */
  MEMLITH_REGION_ANYWHERE = 8,
  /* Threads persist their own stores (MEMLITH_SCOPE_THREAD): AUTO chooses a tracker that distinguishes threads, and
   * SCAN, which does not, is UNSUPPORTED. Holds for this opening. Excludes MEMLITH_REGION_PROCESS_SCOPE (INVALID). For
   * heaps (memlith/heap.h, "THREADS") and regions without a structure: kv stores and application logs refuse it
   * (UNSUPPORTED), because they make each thread's changes durable by themselves. */
  MEMLITH_REGION_THREAD_SCOPE = 16
};

typedef struct memlith_region_options {
  uint64_t struct_size;
  uint32_t flags;   /* MEMLITH_CREATE, MEMLITH_EXCLUSIVE, MEMLITH_REGION_* */
  uint32_t tracker; /* MEMLITH_TRACKER_* */
  uint64_t size; /* size of a new region, rounded up to 4096 (with memlith_file_open: of a new or empty file, exact) */
  /* Address space of the region, which limits growth; for a new region, 0 = 4 times size, at least 1 GiB. A region that
   * exists keeps what it has, and is given more if more is asked for: durable on return. ADDRESS_TAKEN if another
   * region lies in these addresses, with a sentence that says how much the region can have. */
  uint64_t max_size;
  uint64_t address; /* address of a new region, a multiple of the kernel's page size; 0 = memlith chooses */
} memlith_region_options;

/* Maps region `name` at the address at which it was created, so that pointers into the region stay valid.
 * A new region is durable on return and filled with zeros. Pages are loaded when they are first used. A name has 1 to
 * 199 bytes.
 * Errors: NOT_FOUND (set MEMLITH_CREATE), EXISTS, BUSY (open already), ADDRESS_TAKEN, NO_SPACE, UNSUPPORTED. */
MEMLITH_API int32_t memlith_region_open(memlith_store* store, const char* name, const memlith_region_options* options,
                                        memlith_region** region);

/* Unmaps the region. Changes since the last persist are dropped. Null is ignored.
 * Errors: BUSY (a transaction is open in the region, which stays open). */
MEMLITH_API int32_t memlith_region_close(memlith_region* region);

/* The address of the region, the same in every process and every run. Constant. */
MEMLITH_API void* memlith_region_address(const memlith_region* region);

/* How many bytes were stored to since the last persist, as far as the region's tracker knows: whole pages, unless the
 * tracker finds bytes, also if the same bytes were stored. For warnings before a close, which drops these changes. No
 * thread may store to the region meanwhile. Errors: INVALID, READ_ONLY. */
MEMLITH_API int32_t memlith_region_unpersisted(memlith_region* region, uint64_t* bytes);

/* How many bytes of the region may be used now. */
MEMLITH_API uint64_t memlith_region_size(const memlith_region* region);

/* Enlarges the region in place; the new bytes are zeros. Other threads may use the region meanwhile. Disk space is
 * reserved before the call returns. The new size becomes durable with the next persist of the region, together with
 * what is stored in the region by then. Errors: INVALID (smaller, or beyond max_size), NO_SPACE (nothing changed),
 * POISONED. */
MEMLITH_API int32_t memlith_region_grow(memlith_region* region, uint64_t size);

/* Removes a region that is not open. Durable on return. Errors: NOT_FOUND, BUSY. */
MEMLITH_API int32_t memlith_region_remove(memlith_store* store, const char* name);

typedef struct memlith_region_info {
  uint64_t struct_size; /* set by the caller */
  char name[200];
  uint64_t address;
  uint64_t size;
  uint64_t max_size;
  uint32_t tracker; /* MEMLITH_TRACKER_*; 0 while the region is not open */
  uint32_t reserved;
  char tracker_detail[512]; /* how the tracker works on this machine and, if it is not the first choice, why */
} memlith_region_info;

MEMLITH_API int32_t memlith_region_get_info(memlith_region* region, memlith_region_info* info);

/* Describes region number `index` (0, 1, ...) of the store, open or not. Errors: NOT_FOUND (no such number). */
MEMLITH_API int32_t memlith_store_region_at(memlith_store* store, uint64_t index, memlith_region_info* info);

/* Tells memlith that the program has stored to [address, address + bytes), so that the next persist captures the range.
 * Regions with MEMLITH_TRACKER_EXPLICIT need this call, and regions with MEMLITH_TRACKER_INSTRUMENTED for stores that
 * the compiler did not see; the call has no effect on others. Call it after the stores: if it came before, a persist of
 * another thread could capture the old bytes and forget the range.
 * Takes nanoseconds. Durability: none. Errors: INVALID (outside of the region). */
MEMLITH_API int32_t memlith_touch(memlith_region* region, const void* address, uint64_t bytes);

/* Tells memlith that a system call of this thread is about to write into [address, address + bytes), such as read(2) or
 * recv(2). The system call then meets no protected page, and what it writes is persisted with this thread's changes.
 * FAULT regions need this call; it has no effect on others. It counts until the next persist that captures these pages.
 * Durability: none. Errors: INVALID (outside of the region), READ_ONLY. */
MEMLITH_API int32_t memlith_prepare(memlith_region* region, void* address, uint64_t bytes);

/* Tells memlith that the program is about to store to these parts of the region, many by one call: FAULT makes their
 * pages ready, at a fifth of what faults cost, where nothing asks which thread stored what (heaps, and regions with
 * MEMLITH_REGION_PROCESS_SCOPE); no effect elsewhere. A hint, for this thread's own stores: a store that was not
 * announced is found as well, and an announced one need not follow. Parts without bytes are left out.
 * Durability: none. Errors: INVALID (outside of the region; the parts before it are ready). */
MEMLITH_API int32_t memlith_announce(memlith_region* region, const memlith_bytes* parts, uint64_t count);

/* Runs a checkpoint and gives the memory of the region's clean pages back to the system. A released page is read from
 * its home file when it is used again. What this call requires of other threads depends on the tracker:
 *  - EXPLICIT, INSTRUMENTED: every changed range must have been touched or recorded before this call; other changes
 *              are lost. While a transaction is open in the region, the call returns BUSY and releases nothing.
 *  - SCAN:     other threads may store. The region is read-only for a moment: a store waits, in memlith's SIGSEGV
 *              handler, and if its thread blocks SIGSEGV, the kernel ends the process. A system call that writes into
 *              the region can fail with EFAULT. A region whose memory is locked (mlock) keeps its memory.
 *  - FAULT:    other threads may store. They must never block SIGSEGV or SIGBUS (MEMLITH_TRACKER_FAULT).
 * Errors: IO, POISONED, NO_MEMORY. */
MEMLITH_API int32_t memlith_region_release(memlith_region* region);

/* Makes whole pages of the region zeros and gives their memory and disk space back. The zeros are not logged: the call
 * takes one small commit, a flush and a checkpoint, whatever the size of the range. `address` and `bytes` are multiples
 * of 4096. Works with every tracker. Stores to these pages that were not persisted are dropped; memlith_rollback does
 * not undo the call. No other thread may use these pages, and no persist of them may be under way. A commit that stores
 * to the pages later reserves their disk space again; so does the next opening of the store for writing.
 * Durability: durable on return, and ordered with all persists. All or nothing for each GiB of the range.
 * Errors: INVALID (not whole pages; outside of the region), BUSY (a transaction is open in the region), UNSUPPORTED
 * (the region holds a heap), READ_ONLY, FULL, NO_SPACE, NO_MEMORY, IO, POISONED. After BUSY, FULL and NO_SPACE the
 * pages are as they were; after NO_MEMORY they are zeros or as they were, in memory and on disk alike. */
MEMLITH_API int32_t memlith_region_discard(memlith_region* region, void* address, uint64_t bytes);

/* ---- persist --------------------------------------------------------------------------------------------------- */

/* Whose stores a persist or a rollback covers. */
enum {
  MEMLITH_SCOPE_PROCESS =
      0,                   /* those of every thread, also of threads that have ended. The default with every tracker */
  MEMLITH_SCOPE_THREAD = 1 /* those of the calling thread alone. UNSUPPORTED for SCAN regions: open the region with
                                MEMLITH_REGION_THREAD_SCOPE. FAULT distinguishes threads by page: two threads must not
                                store to the same page between two persists, or a thread's persist can leave out a
                                store of that thread */
};

/* Makes the stores to the regions since they were last persisted, in that scope, durable: all of them or none, in all
 * regions together. Returns when they are durable. Memory stays unchanged in every case. If nothing was stored, the
 * call waits for commits of these regions that are under way.
 * After a crash during this call, reopening finds all of the stores or none.
 * Errors: FULL      - the stores need more log than the log may grow to. Nothing was written or lost: raise the limit
 *                     with memlith_store_set_log_max and call again.
 *         NO_SPACE  - the log could not grow on this file system. Nothing was written or lost.
 *         NO_MEMORY - nothing was written or lost: the call can be tried again.
 *         IO        - a write or flush failed. Whether this persist took effect is unknown until the store is reopened.
 *         POISONED  - an earlier call returned IO. This call did nothing. Close and reopen the store.
 *         UNSUPPORTED - thread scope, and the tracker cannot tell which thread made the stores, or a heap was not
 *                     opened for thread scope. Nothing changed.
 *         BUSY      - thread scope, and in a heap a name was given or taken away: persist with process scope first.
 *                     Nothing changed.
 * Threads: a store that races with this call is either in this persist or in the next one. A store that is made after
 * the bytes were captured, while they are being written to the disk, is in the next one.
 * If threads change shared data under a lock, do not unlock before the persist: another thread could be in the middle
 * of its change by then, and a crash would bring half of that change back. Call memlith_persist_async while the lock is
 * held, then unlock, then call memlith_wait: docs/threads.md.
 * Source: MemSnap (ASPLOS 2024), uCheckpoints of a thread, across regions. */
MEMLITH_API int32_t memlith_persist(memlith_region* const* regions, uint64_t count, uint32_t scope);

/* The same for all open regions of the store. */
MEMLITH_API int32_t memlith_persist_all(memlith_store* store, uint32_t scope);

/* As memlith_persist of one region, but only stores to [address, address + bytes) become durable; all other stores stay
 * due. With FAULT and SCAN, the pages that hold the range are persisted. For a persist that does not fit the log
 * (FULL): persist the region part by part. Each part is a commit of its own, so a crash may keep some of the parts.
 * Errors: as memlith_persist. INVALID: the range does not lie in the region. UNSUPPORTED: the region holds a heap. */
MEMLITH_API int32_t memlith_persist_range(memlith_region* region, const void* address, uint64_t bytes, uint32_t scope);

/* As memlith_persist, but returns when the bytes are captured. memlith_wait(`ticket`) waits until they are durable.
 * A ticket is an LSN, a place in the log of the store. Tickets rise in the order of the captures. They are numbers of
 * this opening of the store: what was not durable when the process ended may be lost, and its number is given again.
 * Persists become durable in the same order, within the window of
 * memlith_store_set_window. A persist of more than 1 MiB also waits for its own write. A failed flush is reported
 * by memlith_wait and by every later persist. Small persists that wait for one flush are packed in the log: each takes
 * its bytes, 16 bytes for each range and 8.
 * Source: MemSnap, MS_ASYNC; failure-atomic msync (EuroSys 2013), MS_ASYNC with a meaning. */
MEMLITH_API int32_t memlith_persist_async(memlith_region* const* regions, uint64_t count, uint32_t scope,
                                          uint64_t* ticket);

/* Undoes the stores, in that scope, since the regions were last persisted, synchronously or asynchronously: memory is
 * again as the last persist captured it. With EXPLICIT and INSTRUMENTED, only touched and recorded ranges are undone. A
 * growth stays.
 * FAULT regions take the old bytes from copies in memory, without I/O. Otherwise up to 1 MiB is read from home files
 * and the log. For more, and for pages of FAULT regions of which there is no copy, the call runs a checkpoint first.
 * Threads: with process scope, no other thread may store to the regions during the call; with thread scope, no other
 * thread may store to the pages that are undone.
 * Durability: none; what is undone was never durable.
 * Errors: UNSUPPORTED as for memlith_persist. IO, POISONED: nothing was undone in the region that failed. IO because a
 *         home file cannot be read: part of the region may be undone. A FAULT region needs no I/O for pages of which it
 *         has copies.
 * Source: failure-atomic msync, MS_INVALIDATE with a meaning. */
MEMLITH_API int32_t memlith_rollback(memlith_region* const* regions, uint64_t count, uint32_t scope);

/* ---- snapshots ------------------------------------------------------------------------------------------------- */

typedef struct memlith_snapshot memlith_snapshot;

/* Makes a read-only view of `count` regions of one store, all of them as one and the same durable persist left them:
 * the last one that was acknowledged before the call, or a later one. The view never changes. Any thread may read the
 * view, and so may every process that is forked after this call returned. The view owns its memory, so it outlives the
 * regions and the store.
 * A forked child that needs a consistent state must read a snapshot: the child's inherited memory of a region changes
 * while the parent runs (docs/guarantees.md, "fork").
 * The call runs a checkpoint, then copies the data files into memory. The copy takes as much memory as the regions have
 * pages that are not all zeros, and one descriptor for each region until memlith_snapshot_close. Other threads may
 * store and persist meanwhile; a persist waits only if the log fills up before the copy is complete. A region may be
 * named twice. Stores that were not persisted are not in the snapshot.
 * Durability: none.
 * Errors: INVALID (no region, regions of two stores, a forked child), NO_MEMORY, TOO_MANY_FILES, and IO if a data file
 *         cannot be read: no snapshot was made, and the store is unchanged. IO, POISONED and NO_SPACE of the
 *         checkpoint: as for memlith_store_checkpoint. */
MEMLITH_API int32_t memlith_region_snapshot(memlith_region* const* regions, uint64_t count,
                                            memlith_snapshot** snapshot);

/* The address of the view of region number `index`, in the order of memlith_region_snapshot. The kernel chose the
 * address; it is the same in forked children. Pointers that are stored in the region point into the region itself, not
 * into the view; see memlith_snapshot_place. Null if there is no such number or the region was empty. Does not access
 * the store. Constant. */
MEMLITH_API const void* memlith_snapshot_address(const memlith_snapshot* snapshot, uint64_t index);

/* The size of the region as of that persist. 0 if there is no such number. Does not access the store. Constant. */
MEMLITH_API uint64_t memlith_snapshot_size(const memlith_snapshot* snapshot, uint64_t index);

/* The persist that the view shows: the view holds every ticket up to this number, and no later one. Constant. */
MEMLITH_API uint64_t memlith_snapshot_ticket(const memlith_snapshot* snapshot);

/* For a forked child: maps the views over the regions' own addresses in this process, so that pointers that are stored
 * in the regions point into the snapshot. The parent is not affected. memlith_snapshot_address is unchanged. If a
 * region has grown since the snapshot, the memory behind the snapshot's size stays the inherited one. A store to the
 * placed view ends the process or stays in memory of the child's own; it changes neither the store nor the snapshot. No
 * other thread of the child may use the regions during the call.
 * Allocates nothing and takes no lock, so a child of a program with threads may call this function directly after
 * fork(2).
 * Errors: INVALID (this process made the snapshot), ADDRESS_TAKEN (the parent closed the region before the fork, and
 *         the addresses are in use now), NO_MEMORY. After an error, some of the views may be placed. */
MEMLITH_API int32_t memlith_snapshot_place(memlith_snapshot* snapshot);

/* Frees the view's memory and descriptors in this process. Placed views (memlith_snapshot_place) stay. Null is
 * ignored. */
MEMLITH_API void memlith_snapshot_close(memlith_snapshot* snapshot);

#ifdef __cplusplus
}
#endif

#endif
