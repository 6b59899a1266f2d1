/* memlith: plain memory that survives crashes. The C interface.
 *
 * A store keeps regions: memory at fixed addresses that the program uses like any other. memlith_persist() makes
 * what was stored durable, all of it or none of it. After a crash, opening the store brings every region back to one
 * and the same persisted point, at or after the last one that was acknowledged.
 *
 * CONVENTIONS
 *  - Every function that can fail returns 0 (MEMLITH_OK) or a code: the low byte is the category (enum below), the
 *    next byte says what it concerns. Compare with memlith_category(code). memlith_last_error() gives the sentence.
 *  - Out-parameters come last and are left alone on error. Sizes and offsets are bytes, as uint64_t.
 *  - Option structs start with struct_size; set it to sizeof, zero the rest, and every field has a sensible default.
 *    A null pointer means all defaults.
 *  - Handles are opaque. Unless said otherwise a function may be called from any thread; opening, closing and growing
 *    a thing while another thread uses that same thing is the caller's mistake.
 *  - "Durable" means: survives kill -9, a kernel crash and power loss, provided that the disk keeps what it has
 *    acknowledged a flush for. docs/guarantees.md says exactly what is assumed and what is promised.
 */
#ifndef MEMLITH_MEMLITH_H
#define MEMLITH_MEMLITH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MEMLITH_API __attribute__((visibility("default")))
#else
#define MEMLITH_API
#endif

#define MEMLITH_VERSION_MAJOR 0
#define MEMLITH_VERSION_MINOR 1
#define MEMLITH_VERSION_PATCH 0

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* Categories. Numbers are only ever appended. */
enum {
  MEMLITH_OK = 0,
  MEMLITH_INVALID = 1,      /* an argument or a precondition of the call */
  MEMLITH_NOT_FOUND = 2,    /* no such store, file or region */
  MEMLITH_EXISTS = 3,       /* it is there already */
  MEMLITH_BUSY = 4,         /* another process, or this one, has it open; the message says who */
  MEMLITH_IO = 5,           /* a read, write or flush failed; after a write or flush the store is poisoned */
  MEMLITH_CORRUPT = 6,      /* bytes on the medium are not what was written; the message says where */
  MEMLITH_INCOMPATIBLE = 7, /* another format version, or not a memlith file */
  MEMLITH_FULL = 8,         /* the transaction is larger than the log may grow; nothing changed, split it */
  MEMLITH_NO_SPACE = 9,     /* the file system is full */
  MEMLITH_POISONED = 10,    /* an earlier write or flush failed; close and reopen */
  MEMLITH_PERMISSION = 11,
  MEMLITH_READ_ONLY = 12,
  MEMLITH_ADDRESS_TAKEN = 13, /* the region's addresses are in use in this process */
  MEMLITH_UNSUPPORTED = 14,   /* not on this kernel or file system */
  MEMLITH_NO_MEMORY = 15,
  MEMLITH_TOO_MANY_FILES =
      16 /* the process or the machine has no descriptor left; nothing changed, try again with more */
};

/* The category of a code: one of the numbers above. */
static inline int32_t memlith_category(int32_t code) { return code & 0xff; }

/* What a code concerns. With MEMLITH_INCOMPATIBLE, MEMLITH_DETAIL_VERSION says that the store was written in a format version
 * that this library does not read, which is no damage; the other numbers are for the sentence. */
enum { MEMLITH_DETAIL_VERSION = 15 };
static inline int32_t memlith_detail(int32_t code) { return code >> 8 & 0xff; }

/* Copies the sentence that goes with the last failure in this thread, cut to `bytes` and always ended with a zero.
 * Returns the length of the whole sentence. Effect on data: none. */
MEMLITH_API size_t memlith_last_error(char* buffer, size_t bytes);

/* A word or two for a code's category ("log full"). Constant for ever; never null. */
MEMLITH_API const char* memlith_category_name(int32_t code);

/* "0.1.0" */
MEMLITH_API const char* memlith_version(void);

/* ---- stores ---------------------------------------------------------------------------------------------------- */

typedef struct memlith_store memlith_store;
typedef struct memlith_region memlith_region;

enum {
  MEMLITH_OPEN_CREATE = 1,    /* create the store if there is none */
  MEMLITH_OPEN_READ_ONLY = 2, /* look at the last durable state without changing a byte of it; many may, at once */
  MEMLITH_OPEN_EXCLUSIVE = 4, /* with CREATE: fail with MEMLITH_EXISTS if there is one */
  MEMLITH_OPEN_BUFFERED =
      8 /* never use direct I/O (O_DIRECT), which the log uses where the file system takes it; for file systems
                                 that say they do and then fail. A little slower; as durable */
};

/* How the disk is read and written. Flushes are fdatasync(2) in each.
 * AUTO: system calls; io_uring for what has several transfers in flight (recovery, large commits, reading the log), where the
 * kernel has it. POSIX: system calls only. URING: io_uring for every read and write; UNSUPPORTED where the kernel or a sandbox
 * refuses it. */
enum { MEMLITH_IO_AUTO = 0, MEMLITH_IO_POSIX = 1, MEMLITH_IO_URING = 2 };

typedef struct memlith_store_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_OPEN_*; 0 opens an existing store for reading and writing */
  uint32_t io;    /* MEMLITH_IO_* */
  uint64_t
      log_bytes; /* size of a new store's log; 0 = 1 MiB. A checkpoint runs when half of the log is used. With 0 the log
                    grows while commits fill it within a minute: they are disturbed less, and a recovery has more to
                    read. It grows at once to 128 MiB, for one file to half its size, from 16 to 64 MiB; then, as checkpoints
                    cost more than its growth, to 1 GiB, as far as log_max_bytes allows. What it has grown a clean close
                    gives back */
  uint64_t
      log_max_bytes; /* what the log may grow to, be it for one large transaction; 0 = the larger of 1 GiB and log_bytes */
  uint32_t manual_checkpoint; /* 1: no checkpoints in the background; they run in persist when the log is full, in
                                  memlith_store_checkpoint and at close */
  uint32_t in_flight_max;     /* log writes under way at a time, 1 to 3; 0 = 2 */
  /* Called while opening replays a long log, at most some times a second, from the opening thread. May be null. */
  void (*progress)(void* context, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_context;
  uint64_t flush_interval_ms; /* how long an asynchronous persist may wait for its flush; 0 = until the one
                                 before it is done, or some 0.2 ms. See memlith_store_set_flush_window */
  uint64_t flush_bytes;       /* and with how much in the log waiting the flush comes at once; 0 = 16 MiB */
  uint64_t memory_max_bytes;  /* regions may keep about so much memory of what was stored to them; when persists have
                                 captured half of it, the one that notices gives the memory of clean pages back, after a
                                 checkpoint; how that went is memlith_store_info.memory_error. 0 = no limit. Not for
                                 explicit regions: see memlith_region_release. Threads that store to scan regions
                                 must not block SIGSEGV then: the same place says why */
  /* Called by an opening that made the store, from its thread, with a sentence that the caller should know and that is no
   * error: that the store lies where a power loss takes it (tmpfs). May be null. */
  void (*notice)(void* context, const char* sentence);
  void* notice_context;
  uint32_t
      physical_block_bytes; /* of a new store: how much a power cut may spoil around the bytes that are being written.
                                    0 or 512: nothing beside them (powersafe overwrite, which SQLite assumes as well).
                                    4096: all of the physical block. The log is then laid out in such blocks, and a
                                    checkpoint keeps whole blocks in the file "blocks" or FILE.memlith-blocks before it
                                    writes parts of them. An existing store keeps what it was created with; asking for
                                    4096 where that was not chosen is INVALID */
  uint32_t reserved;        /* 0 */
} memlith_store_options;

/* Opens the store in folder `path`, recovering it if its last user did not close it.
 * On return everything that was acknowledged before is there. Holds the store until memlith_store_close().
 * The path is looked up by this call alone: the program may change its current folder, the store may be renamed or moved, and the
 * rights to reach it may be given up while it is open.
 * Errors: NOT_FOUND (set MEMLITH_OPEN_CREATE), BUSY, CORRUPT, INCOMPATIBLE, NO_SPACE, PERMISSION, READ_ONLY,
 * UNSUPPORTED (io), IO. */
MEMLITH_API int32_t memlith_store_open(const char* path, const memlith_store_options* options, memlith_store** store);

/* Opens one ordinary file as a store with a single region, named "file" (failure-atomic msync: the EuroSys 2013 paper's
 * interface). Its log lies beside it as FILE.memlith. After a clean close the file alone holds everything; until then
 * only memlith may write it, and nobody may put another in its place: its bytes mean nothing to the store, so the log would be
 * replayed into that one (CORRUPT only where it is gone or too short). A file that says itself whether it needs its log is for
 * the caller to look at first: SQLite's with memlith/sqlite_file.h.
 * Its length changes only with a persist. With CREATE a missing file is made, empty.
 * A file with holes gets disk space for all of them when it is opened for writing, so that no commit lacks space later. Where the disk is
 * too full for that, opening fails with NO_SPACE, and the file's content is unchanged.
 * Errors: as memlith_store_open. */
MEMLITH_API int32_t memlith_file_open(const char* path, const memlith_store_options* options, memlith_store** store);

/* Makes all that was persisted complete at home, marks the store clean, and frees the handle in every case. Stores made
 * since the last persist are dropped. Regions still open are closed. Null is ignored.
 * Errors: IO or POISONED; what was acknowledged is safe all the same, and the next open recovers it. */
MEMLITH_API int32_t memlith_store_close(memlith_store* store);

/* Sets the window of weak durability: an asynchronous persist becomes durable at most `interval_ms` after it was captured, or
 * as soon as `bytes` of log wait, and always in order: a crash leaves a prefix of the order of persists. 0 ms is the default,
 * with no waiting at all; 0 bytes = 16 MiB. Synchronous persists are not affected, and take what waits before them along.
 * Source: AciKV, weak durability. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_store_set_flush_window(memlith_store* store, uint64_t interval_ms, uint64_t bytes);

/* How far the store is durable: every ticket up to this one is. Only rises. 0 for a null store. */
MEMLITH_API uint64_t memlith_store_durable(const memlith_store* store);

/* Adds 1 to the eventfd `fd` whenever more has become durable, or nothing can any more (see memlith_store_info.poisoned).
 * The caller keeps it open until this call has replaced it or the store is closed; -1 for none. */
MEMLITH_API int32_t memlith_store_set_eventfd(memlith_store* store, int fd);

/* Writes everything durable so far to its home now, so that the next open has nothing to replay. Never needed for
 * durability. Errors: IO, POISONED, READ_ONLY. */
MEMLITH_API int32_t memlith_store_checkpoint(memlith_store* store);

typedef struct memlith_store_info {
  uint64_t struct_size;    /* set by the caller */
  uint64_t region_count;   /* in the store, open or not */
  uint64_t log_bytes;      /* capacity now */
  uint64_t log_used_bytes; /* not yet checkpointed */
  uint64_t durable_lsn;
  uint64_t frames;         /* since opening: commits that reached the log, */
  uint64_t batches;        /* the writes + flushes they took, */
  uint64_t logged_bytes;   /* the bytes written to the log for them, */
  uint64_t captured_bytes; /* the bytes of memory captured in them, */
  uint64_t checkpoints;
  uint64_t home_bytes;      /* the bytes checkpoints wrote home */
  uint64_t replayed_frames; /* by opening */
  uint64_t replayed_bytes;
  uint32_t read_only;
  uint32_t poisoned;
  uint32_t one_file;    /* 1 for memlith_file_open */
  uint32_t direct_io;   /* 1: the log bypasses the page cache */
  uint32_t was_clean;   /* 1: opening found that the last user had closed it */
  int32_t memory_error; /* 0, or the code with which memory could not be given back when memory_max_bytes last
                           asked for it; the persist that noticed was durable all the same, and says so */
  uint64_t incarnation; /* how often it was opened for writing, this time included if it is */
  uint64_t log_id;      /* of its log, drawn when that was made: tells stores apart */
  uint32_t io;          /* MEMLITH_IO_*: POSIX where AUTO was asked for and the kernel has no io_uring */
  uint32_t forgets; /* 1: the store lies on a file system in memory (tmpfs, ramfs), which a power loss or a restart of
                           the machine empties, whatever was acknowledged; a crash of the program loses nothing */
} memlith_store_info;

MEMLITH_API int32_t memlith_store_get_info(memlith_store* store, memlith_store_info* info);

/* What a store is doing: counts since it was opened, and times. */
typedef struct memlith_stats {
  uint64_t struct_size; /* set by the caller */
  uint64_t process;     /* that has it open for writing */
  uint64_t opened_ns;   /* since 1970 */
  uint64_t persists;    /* synchronous; their times from the call until durable, to 6 %: */
  uint64_t persist_p50_ns;
  uint64_t persist_p99_ns;
  uint64_t persist_p999_ns;
  uint64_t persist_max_ns;
  uint64_t captures; /* asynchronous persists; their times from the call until it returned: */
  uint64_t capture_p50_ns;
  uint64_t capture_p99_ns;
  uint64_t capture_p999_ns;
  uint64_t capture_max_ns;
  uint64_t frames;              /* commits, */
  uint64_t batches;             /* the writes + flushes they took, */
  uint64_t captured_bytes;      /* the bytes of memory in them, */
  uint64_t captured_pages;      /* the pages those lie in, */
  uint64_t last_captured_pages; /* of the last commit alone, */
  uint64_t logged_bytes; /* the bytes written to the log for them: / captured_bytes = write amplification of the log */
  uint64_t log_bytes;
  uint64_t log_used_bytes;
  uint64_t durable_lsn;
  uint64_t checkpoints;
  uint64_t home_bytes;             /* what they wrote home */
  uint64_t checkpoint_done_bytes;  /* of the log, by the one that runs now */
  uint64_t checkpoint_total_bytes; /* 0: none runs */
  uint64_t poisoned;
  uint64_t alive; /* 0: whoever had it open is gone, and these are the last numbers */
} memlith_stats;

/* Of a store that this process has open. Errors: INVALID, READ_ONLY. */
MEMLITH_API int32_t memlith_store_get_stats(memlith_store* store, memlith_stats* stats);

/* Of a store that another process has open, from a page of memory that it keeps beside the store. Takes no lock and disturbs
 * nobody; numbers may be a moment old, and those of a process that was killed stay, with `alive` 0, until the next one opens
 * the store.
 * Errors: NOT_FOUND (nobody has it open for writing), INCOMPATIBLE. */
MEMLITH_API int32_t memlith_stat(const char* path, memlith_stats* stats);

/* ---- regions --------------------------------------------------------------------------------------------------- */

/* How memlith learns what was stored. */
enum {
  MEMLITH_TRACKER_AUTO = 0, /* scan where the region has up to 128 MiB when it is opened, else fault; info says which
                                   and why */
  MEMLITH_TRACKER_SCAN = 1, /* ask the kernel which pages were written: userfaultfd WP_ASYNC + PAGEMAP_SCAN
                                   (Linux 6.7), else as FAULT. Pages; bytes, of those captured lately, by comparing;
                                   does not tell threads apart. Sees every store, system calls that write into the
                                   region too; but no direct or asynchronous read (O_DIRECT, aio, io_uring) may be on
                                   its way into the region during a persist, a rollback or a release */
  MEMLITH_TRACKER_EXPLICIT = 2, /* memlith_touch() says so; what is not touched is not persisted. Bytes; by thread */
  MEMLITH_TRACKER_FAULT = 3 /* protect pages, catch SIGSEGV and SIGBUS, keep each page as it was: bytes, by comparing;
                                   by thread (of two that store to one page, the first). A system call that writes into the
                                   region can fail with EFAULT: see memlith_prepare. A thread that stores to the region must
                                   not block SIGSEGV or SIGBUS: the kernel ends the process at its store. A thread that
                                   reads signals from a signalfd blocks all but these two */
};

enum {
  MEMLITH_REGION_CREATE = 1,   /* create the region, zero-filled, if there is none */
  MEMLITH_REGION_EXCLUSIVE = 2 /* with CREATE: fail with MEMLITH_EXISTS if there is one */
};

typedef struct memlith_region_options {
  uint64_t struct_size;
  uint32_t flags;    /* MEMLITH_REGION_* */
  uint32_t tracker;  /* MEMLITH_TRACKER_* */
  uint64_t size;     /* of a new region; rounded up to 4096 (for memlith_file_open: of a new or empty file, exact) */
  uint64_t max_size; /* address space kept free behind it for growth; 0 = 4 times size, at least 1 GiB */
  uint64_t address;  /* where a new region lies, a multiple of 4096; 0 = memlith chooses */
} memlith_region_options;

/* Maps region `name` at the address it was created at, so that pointers into it stay valid.
 * A new region is durable, with zeros in it, on return. Memory is loaded lazily. Names are 1 to 199 bytes.
 * Errors: NOT_FOUND (set MEMLITH_REGION_CREATE), EXISTS, BUSY (open already), ADDRESS_TAKEN, NO_SPACE, UNSUPPORTED. */
MEMLITH_API int32_t memlith_region_open(memlith_store* store, const char* name, const memlith_region_options* options,
                                        memlith_region** region);

/* Unmaps it. Stores made since the last persist are dropped. Null is ignored. */
MEMLITH_API int32_t memlith_region_close(memlith_region* region);

/* The first byte of the region; the same in every process and every run. Constant. */
MEMLITH_API void* memlith_region_address(const memlith_region* region);

/* Bytes that may be used now. */
MEMLITH_API uint64_t memlith_region_size(const memlith_region* region);

/* Makes the region longer, in place; the new bytes are zeros. Disk space is reserved at once (NO_SPACE changes nothing);
 * the new size becomes durable with the region's next persist, in one with what is stored in it.
 * Errors: INVALID (smaller, or beyond max_size), NO_SPACE, POISONED. */
MEMLITH_API int32_t memlith_region_grow(memlith_region* region, uint64_t size);

/* Removes a region that is not open. Durable on return. Errors: NOT_FOUND, BUSY. */
MEMLITH_API int32_t memlith_region_remove(memlith_store* store, const char* name);

typedef struct memlith_region_info {
  uint64_t struct_size; /* set by the caller */
  char name[200];
  uint64_t address;
  uint64_t size;
  uint64_t max_size;
  uint32_t tracker; /* MEMLITH_TRACKER_*; 0 while not open */
  uint32_t reserved;
  char tracker_detail[512]; /* how it works here and, where that was not the first choice, why */
} memlith_region_info;

MEMLITH_API int32_t memlith_region_get_info(memlith_region* region, memlith_region_info* info);

/* Describes region number `index` (0, 1, ...) of the store, open or not. NOT_FOUND behind the last one. */
MEMLITH_API int32_t memlith_store_region_at(memlith_store* store, uint64_t index, memlith_region_info* info);

/* Says that [address, address + bytes) was stored to: it is captured by the next persist. Call it after the stores: a
 * persist of another thread between an early call and the store would capture the old bytes and forget the range. For
 * regions with MEMLITH_TRACKER_EXPLICIT; no effect on others. Takes nanoseconds. Durability: none. Errors: INVALID (outside). */
MEMLITH_API int32_t memlith_touch(memlith_region* region, const void* address, uint64_t bytes);

/* Says that a system call of this thread is about to write into [address, address + bytes) (read(2), recv(2)): it will not
 * meet a protected page, and what it writes is persisted with this thread's stores. Needed for FAULT regions; no effect on
 * others. Counts until the next persist that takes these pages. Durability: none. Errors: INVALID (outside), READ_ONLY. */
MEMLITH_API int32_t memlith_prepare(memlith_region* region, void* address, uint64_t bytes);

/* Gives back the memory of the region's clean pages, after writing home what was persisted; they are read again when used.
 * Other threads may go on storing, except to EXPLICIT regions: there no store may lack its touch meanwhile, or it is lost.
 * Scan regions are read-only for a moment; stores wait, but a system call that writes into the region can fail with EFAULT. Scan regions
 * whose memory the program has locked (mlock) keep it. A thread that stores to a scan region during a release waits in memlith's
 * SIGSEGV handler: if that thread blocks SIGSEGV, the kernel ends the process. FAULT regions demand this always.
 * Errors: IO, POISONED, NO_MEMORY. */
MEMLITH_API int32_t memlith_region_release(memlith_region* region);

/* Writes one line about how a tracker would work on this kernel into `buffer`, cut to `bytes`, ended with a zero. */
MEMLITH_API int32_t memlith_tracker_describe(uint32_t tracker, char* buffer, size_t bytes);

/* ---- persist --------------------------------------------------------------------------------------------------- */

/* Whose stores a persist or a rollback is about. */
enum {
  MEMLITH_SCOPE_PROCESS = 0, /* of every thread, threads that ended included. The default, whatever the tracker */
  MEMLITH_SCOPE_THREAD =
      1 /* of the calling thread alone. UNSUPPORTED for regions tracked by scan. FAULT knows threads by
                                page: threads must not share a page between two persists, or a thread's persist can leave out
                                a store of its own */
};

/* Makes the stores that were made, in that scope, to the regions since they were last persisted durable, all or nothing, in
 * all of them together. Returns when it is durable. Memory is left as it is in every case. With nothing stored it waits for
 * what is on its way already.
 * After a crash inside this call, reopening finds either all of it or none.
 * Errors: FULL      - larger than the log may grow; nothing was written and nothing is lost: split the work.
 *         NO_SPACE  - the log could not grow on this file system; as FULL.
 *         NO_MEMORY - as FULL: it can be tried again.
 *         IO        - a write or flush failed; whether this persist took is unknown until reopening.
 *         POISONED  - an earlier call returned IO; nothing was tried. Close and reopen.
 *         UNSUPPORTED - thread scope, and the tracker cannot tell whose stores they were; nothing changed.
 * Threads: a store that races with this call may land on either side, and if on the far side is in the next persist. What is
 * stored once the bytes were captured, while they are on their way to the disk, is not in it.
 * Where threads change shared data under a lock, do not unlock and then persist: another thread can be in the middle of its change by
 * then, and a crash brings that half back. Call memlith_persist_async with the lock held, unlock, and memlith_wait: docs/threads.md.
 * Source: MemSnap (ASPLOS 2024), uCheckpoints of a thread, across regions. */
MEMLITH_API int32_t memlith_persist(memlith_region* const* regions, uint64_t count, uint32_t scope);

/* The same for all open regions of the store. */
MEMLITH_API int32_t memlith_persist_all(memlith_store* store, uint32_t scope);

/* As memlith_persist, but returns once the bytes are captured. `ticket` is what memlith_wait waits for; tickets rise in the
 * order of the captures, and become durable in that order, within the window of memlith_store_set_flush_window. A persist of
 * more than 1 MiB waits for its write. A failed flush shows at memlith_wait and at every later persist.
 * Source: MemSnap, MS_ASYNC; failure-atomic msync (EuroSys 2013), MS_ASYNC with a meaning. */
MEMLITH_API int32_t memlith_persist_async(memlith_region* const* regions, uint64_t count, uint32_t scope,
                                          uint64_t* ticket);

/* Returns when everything up to `ticket` is durable; at once if it is. Errors: INVALID (no such ticket), IO, POISONED. */
MEMLITH_API int32_t memlith_wait(memlith_store* store, uint64_t ticket);

/* Undoes the stores made, in that scope, since the regions were last persisted (asynchronously counts): memory is as it was
 * captured then. EXPLICIT: of the ranges that were touched. A growth stays. From the pages kept by FAULT at once; else from
 * home, after a checkpoint, whose I/O it waits for. No other thread may store to the regions meanwhile with process scope, or to
 * the pages in question with thread scope. Durability: none, for what it undoes never was.
 * Errors: UNSUPPORTED as for memlith_persist; IO, POISONED (nothing was undone in that region; FAULT needs no I/O for the pages it
 *         kept). Where home itself cannot be read, IO, and part of the region may be undone.
 * Source: failure-atomic msync, MS_INVALIDATE with a meaning. */
MEMLITH_API int32_t memlith_rollback(memlith_region* const* regions, uint64_t count, uint32_t scope);

/* ---- snapshots ------------------------------------------------------------------------------------------------- */

typedef struct memlith_snapshot memlith_snapshot;

/* Makes a read-only view of `count` regions of one store, all of them as one and the same durable persist left them: the last one that
 * was acknowledged before the call, or a later one. The view never changes. Any thread may read the view, and so may every process that
 * is forked after this call returned. The view owns its memory, so the view outlives the regions and the store.
 * A forked child that needs a consistent state must read a snapshot: the child's inherited memory of a region changes while the parent
 * runs (docs/guarantees.md, "fork").
 * The call runs a checkpoint, then copies the data files into memory. The copy takes as much memory as the regions have pages that are
 * not all zeros, and one descriptor for each region until memlith_snapshot_close. Other threads may store and persist meanwhile; their
 * persists wait only where the log fills up before the copy is complete. A region may be named twice. Stores that were not persisted are
 * not in the snapshot. Durability: none.
 * Errors: INVALID (no region, regions of two stores, a forked child), NO_MEMORY, TOO_MANY_FILES, and IO where a data file cannot be
 *         read: no snapshot was made, and the store is as before. IO, POISONED and NO_SPACE of the checkpoint: as for
 *         memlith_store_checkpoint. */
MEMLITH_API int32_t memlith_region_snapshot(memlith_region* const* regions, uint64_t count,
                                            memlith_snapshot** snapshot);

/* Where the view of region number `index` lies, in the order of memlith_region_snapshot: an address that the kernel chose, the same in
 * forked children. Pointers that are stored in the region lead into the region itself, not into the view; see
 * memlith_snapshot_place. Null where there is no such number or the region had no bytes. Touches no store. Constant. */
MEMLITH_API const void* memlith_snapshot_address(const memlith_snapshot* snapshot, uint64_t index);

/* How many bytes the region had in that persist. 0 where there is no such number. Touches no store. Constant. */
MEMLITH_API uint64_t memlith_snapshot_size(const memlith_snapshot* snapshot, uint64_t index);

/* The persist that the view shows: every ticket up to this number is in the view, and no later one. Constant. */
MEMLITH_API uint64_t memlith_snapshot_lsn(const memlith_snapshot* snapshot);

/* For a forked child: lays the views over the regions' own addresses in this process, so that pointers that are stored in the regions
 * lead into the snapshot. The parent is not disturbed. memlith_snapshot_address stays as it was. A region that has grown since keeps
 * its inherited memory behind the size of the snapshot. A store to the placed view ends the process, or stays in memory of the
 * child's own; it reaches neither store nor snapshot. No other thread of the child may use the regions during the call.
 * Allocates nothing and takes no lock, so a child of a program with threads may call this function directly after fork(2).
 * Errors: INVALID (this process made the snapshot), ADDRESS_TAKEN (the parent closed the region before the fork, and something else
 *         lies there now), NO_MEMORY. After an error, some of the views may be placed. */
MEMLITH_API int32_t memlith_snapshot_place(memlith_snapshot* snapshot);

/* Gives the view's memory and descriptors back, in this process. What memlith_snapshot_place placed stays. Null is ignored. */
MEMLITH_API void memlith_snapshot_close(memlith_snapshot* snapshot);

/* ---- looking at a store from outside --------------------------------------------------------------------------- */

typedef struct memlith_report {
  uint64_t struct_size; /* set by the caller */
  uint64_t frames;      /* whole frames found in the log */
  uint64_t frame_bytes;
  uint64_t regions;
  uint64_t region_bytes;
  uint32_t clean; /* 1: its last user closed it */
  uint32_t one_file;
  uint64_t log_bytes;
  uint64_t incarnation;       /* how often it was opened for writing */
  uint32_t superblock_copies; /* whole ones, 1 or 2. A crash can leave 1; the next open for writing mends it */
  uint32_t heaps; /* regions that hold a heap (memlith/heap.h), whose structures were checked as well */
} memlith_report;

/* Checks every structure on disk: both superblocks, slots, every frame in the log, the directory, and that each object's
 * file is there and long enough; and of regions that hold a heap, the heap (memlith_heap_verify). Changes nothing. `path` is a store's folder or a file with its log beside it.
 * Errors: what is wrong, as for opening. */
MEMLITH_API int32_t memlith_verify(const char* path, memlith_report* report);

#ifdef __cplusplus
}
#endif

#endif
