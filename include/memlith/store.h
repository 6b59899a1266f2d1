/* memlith/store.h: opening, closing, watching and checking stores. Conventions: memlith.h.
 *
 *     memlith_store_options options = {.struct_size = sizeof options, .flags = MEMLITH_OPEN_CREATE};
 *     memlith_store_info info = {.struct_size = sizeof info};
 *     memlith_store* store = NULL;
 *     if (memlith_store_open("notes", &options, &store) != 0) return;
 *     if (memlith_store_get_info(store, &info) == 0 && !info.was_clean) {
 *       printf("recovered %llu commits\n", (unsigned long long)info.replayed_frames);
 *     }
 *     ...
 *     if (memlith_store_close(store) != 0) return;
 */
#ifndef MEMLITH_STORE_H
#define MEMLITH_STORE_H

#include "memlith/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlith_store memlith_store;

/* ---- stores ---------------------------------------------------------------------------------------------------- */

enum {
  MEMLITH_OPEN_CREATE = 1, /* create the store if it does not exist */
  /* Show the last durable state and change no byte of the store. Any number of processes may do so at a time. */
  MEMLITH_OPEN_READ_ONLY = 2,
  MEMLITH_OPEN_EXCLUSIVE = 4, /* with CREATE: fail with MEMLITH_EXISTS if the store exists */
  /* READ_ONLY, also while another process has the store open for writing: the regions are as one durable commit left
   * them, and move on to a later one when memlith_store_refresh says so. The call takes no lock: no writer waits for
   * it, or is kept from opening the store. A region that is opened is copied to this process's memory. */
  MEMLITH_OPEN_FOLLOW = 16,
  MEMLITH_OPEN_TELL_DROPPED = 32, /* say on standard error that a close drops changes, which no persist made durable */
  MEMLITH_OPEN_ACCEPT_COPY = 64   /* also copied files of a store that was not closed: docs/backup.md, other means */
};

/* How memlith reads and writes the disk. Each choice flushes with fdatasync(2).
 * AUTO:  system calls, and io_uring where several transfers are in flight (recovery, large commits, reading the log),
 *        if the kernel has io_uring.
 * POSIX: system calls only.
 * DAX: for byte-addressable memory (docs/dax.md): commits and checkpoints store to mappings of the files, line by line,
 *        without system calls. Either a file system that maps persistent memory (fsdax, MAP_SYNC), or tmpfs, which
 *        emulates such memory and forgets everything with the power; UNSUPPORTED elsewhere. The log of a new store is
 *        padded to lines of 64 bytes; such a store can be opened for writing with DAX only. */
enum { MEMLITH_IO_AUTO = 0, MEMLITH_IO_POSIX = 1, MEMLITH_IO_DAX = 3 };

typedef struct memlith_store_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_OPEN_*; 0 opens an existing store for reading and writing */
  uint32_t io;    /* MEMLITH_IO_* */
  /* Size of a new store's log. A checkpoint runs when half of the log is used.
   * 0 = 4 MiB at first (1 MiB for memlith_file_open); while commits fill the log within a minute, it grows. A larger
   * log disturbs commits less often, but recovery has more to read. The log grows at once to the size that lasts a
   * minute, up to 128 MiB (for memlith_file_open: half the file's size, at least 16 MiB, at most 64 MiB). It grows
   * further, to 1 GiB, only as checkpoints cost more than growing. log_max_bytes limits both. A clean close leaves
   * the log as large as what was logged since the opening, at most 128 MiB and at least its original size, so that the
   * next opening need not grow it again; with a size given here, and for memlith_file_open, it shrinks to its original
   * size. */
  uint64_t log_bytes;
  /* The largest size that the log may grow to, also for one large transaction; 0 = 1 GiB or log_bytes, whichever is
   * larger. */
  uint64_t log_max_bytes;
  /* 1: no checkpoints in the background. They run in memlith_store_checkpoint, in memlith_store_close, and in a persist
   * that finds the log full. For a program that knows when the disk is idle, or that must not have its disk disturbed
   * for a while. */
  uint32_t manual_checkpoint;
  /* For a new store: how much a power cut may damage around the bytes that are being written.
   * 0 or 512: nothing outside of these bytes (powersafe overwrite, which SQLite assumes as well). 4096: the whole
   * physical block, for a disk without protection against power loss that changes 512 bytes of a block by writing all
   * 4096 of it. The log is then laid out in such blocks, and a checkpoint keeps whole blocks in the file "blocks" or
   * FILE.memlith-blocks before it writes parts of them. A store keeps the choice that it was created with; asking for
   * 4096 when opening a store that was created without it is INVALID. */
  uint32_t physical_block_bytes;
  /* Called a few times per second, by the opening thread, while opening replays a long log. May be null. */
  void (*progress)(void* context, uint64_t bytes_done, uint64_t bytes_total);
  void* progress_context;
  /* The flush window, as memlith_store_set_window sets it. */
  uint64_t window_ms;    /* how long an asynchronous persist may wait for its flush; 0 = only while the flush before it
                            is under way, or about 0.2 ms */
  uint64_t window_bytes; /* how many bytes may wait in the log before the flush starts at once; 0 = 16 MiB */
  /* Approximate limit of the memory for changed pages of regions. 0 = none for regions and heaps; the key-value stores
   * and application logs of the process share what it may have, which is the limit of its control groups or else the
   * machine's memory: changed pages take at most half of that. When persists and transactions have
   * captured half of the limit, the call that finds this runs a checkpoint and releases the memory of clean pages; of
   * EXPLICIT and INSTRUMENTED regions, pages that equal their home file, so changes that were not touched stay. Nothing
   * of a region is released while a transaction is open in it. Applies to key-value stores and application logs as
   * well: commits of a key-value store, and writers and readers of a log, wait while a mebibyte at a time is released.
   * memlith_store_info.memory_error holds the result. With this option, threads that store to
   * regions of any tracker must not block SIGSEGV, and system calls that write into a SCAN, EXPLICIT or INSTRUMENTED
   * region can fail with EFAULT during a release; see memlith_region_release. */
  uint64_t memory_max_bytes; /* with FOLLOW: the largest sum of the sizes of open regions; READ_ONLY: twice what the
                                log may have over them; NO_MEMORY beyond it; 0: what the process may have */
  /* Called by the opening thread with a message that is no error: the store's place weakens what commits promise. At
   * each opening on MEDIUM_PROGRAM and MEDIUM_NETWORK; on MEDIUM_MEMORY if the opening created the store. Null: on
   * standard error, but for MEDIUM_MEMORY. */
  void (*notice)(void* context, const char* sentence);
  void* notice_context;
  /* How long opening waits while another process (or this one) has the store locked, before it is BUSY; 0 = not at all.
   * For a program that takes over from one that is about to end: the opening follows within 10 ms of a clean close, or
   * of a kill, and recovers. At most a day. */
  uint64_t open_wait_ms;
} memlith_store_options;

/* Opens the store in folder `path`, or on the device at `path` (memlith_device_format). Recovers the store first if the
 * last program that used it did not close it.
 * On return, everything that was acknowledged before is in place. The store stays locked until memlith_store_close().
 * Only this call looks up the path. While the store is open, the program may change its working directory or give up
 * the rights to reach the store, and the store may be renamed or moved.
 * Errors: NOT_FOUND (set MEMLITH_OPEN_CREATE), EXISTS (EXCLUSIVE), BUSY, CORRUPT, INCOMPATIBLE, NO_SPACE, PERMISSION,
 *         READ_ONLY, UNSUPPORTED (io; pages of the kernel above 64 KiB), IO. */
MEMLITH_API int32_t memlith_store_open(const char* path, const memlith_store_options* options, memlith_store** store);

enum { MEMLITH_FORMAT_FORCE = 1 }; /* format a device that holds something, which is lost */

/* Prepares the block device or the NVMe namespace (/dev/ng0n1) at `path`, without a file system, for one store:
 * memlith_store_open() creates the store there, by the same path. While a store is open for writing, its process has
 * claimed the device, which can then not be mounted. An empty device is one whose first and last MiB are zeros. Needs
 * the right to write the device; durable on return. Only one thread or process may format a device at a time, and none
 * may have it open.
 * Errors: INVALID (no such device, or too small for a store), EXISTS (the device holds something: a store, or any
 *         bytes; set MEMLITH_FORMAT_FORCE), BUSY (mounted, in use, or a store is open on it), NOT_FOUND, PERMISSION,
 *         IO: the device may be unusable until it is formatted again. */
MEMLITH_API int32_t memlith_device_format(const char* path, uint32_t flags);

/* Opens one ordinary file as a store with a single region, named "file". (The interface follows failure-atomic msync,
 * EuroSys 2013.) The log lies beside the file, as FILE.memlith. After a clean close the file alone holds everything.
 * Until then only memlith may write the file, and the file must not be replaced by another one: memlith does not know
 * what the bytes mean and would replay the log into the other file (CORRUPT only if the file is missing or too short).
 * If the file's own bytes say whether the log belongs to it, the caller has to check that first; for SQLite databases
 * use memlith/sqlite_file.h.
 * A copy of the file alone that is taken while the file is in use is incomplete, and the bytes of a plain region cannot
 * say so. A heap, a kv store or an application log in the file can: without its log such a copy is refused (CORRUPT).
 * For other content use memlith_mmap with MEMLITH_IMAGE_GUARD (memlith/files.h).
 * A persist is the only call that changes the file's length. With CREATE a missing file is created, empty.
 * Opening a file with holes for writing reserves disk space for all of them, so that no later commit lacks space. If
 * the disk has too little space for that, the call fails with NO_SPACE and the file's content is unchanged.
 * Errors: as memlith_store_open. */
MEMLITH_API int32_t memlith_file_open(const char* path, const memlith_store_options* options, memlith_store** store);

/* Writes everything that was persisted to the home files, marks the store clean, and frees the handle, also on error.
 * Changes since the last persist are dropped. Regions that are still open are closed. Null is ignored.
 * Errors: IO, POISONED. Everything acknowledged is safe nevertheless: the next opening recovers it.
 *         NO_SPACE, FULL, NO_MEMORY - a kv store or an application log was open, and there was no room for what it
 *         had acknowledged as weak: the message says what is lost. memlith_kv_close and memlith_applog_close, called
 *         before, keep it and can be tried again. */
MEMLITH_API int32_t memlith_store_close(memlith_store* store);

/* Sets the flush window (weak durability): an asynchronous persist becomes durable at most `window_ms` after its
 * capture, or as soon as `window_bytes` of log wait, and always in order: a crash leaves a prefix of the order of
 * persists. 0 ms, the default, means no waiting; 0 bytes = 16 MiB. A synchronous persist does not wait for the window,
 * and makes everything captured before it durable, too.
 * Source: AciKV, weak durability. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_store_set_window(memlith_store* store, uint64_t window_ms, uint64_t window_bytes);

/* Lets the log grow to `bytes` from now on: log_max_bytes for a store that is open. After a persist or a commit that
 * was FULL, raise the limit and call it again; nothing that was stored is lost meanwhile. Any thread, at any time.
 * Errors: INVALID (the log is larger already). */
MEMLITH_API int32_t memlith_store_set_log_max(memlith_store* store, uint64_t bytes);

/* The newest durable ticket: every commit whose ticket is not larger is durable, in whatever structure. The number only
 * rises. What waits in memory, beside a commit of another thread, holds it back until both are durable; a call that
 * finds that has the first brought to the disk within 100 ms. 0 for a null store, and in a forked child. */
MEMLITH_API uint64_t memlith_store_durable(const memlith_store* store);

/* A ticket of everything that was committed, captured or appended before the call, in whatever structure: one
 * memlith_wait for all of it. 0 for a null store, and in a forked child. */
MEMLITH_API uint64_t memlith_store_newest(const memlith_store* store);

/* Returns when everything up to `ticket` is durable; at once if it is durable already. Tickets of all commits are of
 * one kind: of persists, transactions, changes and kv stores. What waits in memory for its window goes to the log now.
 * Errors: INVALID (no such ticket yet), IO, POISONED; NO_SPACE, FULL, NO_MEMORY - there is no room in the log for what
 *         waits in memory: nothing is lost, try again. */
MEMLITH_API int32_t memlith_wait(memlith_store* store, uint64_t ticket);

/* Moves a store that was opened with MEMLITH_OPEN_FOLLOW on to the newest durable commit, and stores its ticket at
 * `ticket`, which may be null. All open regions change together, in place, and none of them changes between two calls.
 * Regions that were grown have their new size; a region that was removed stays as it was until it is closed. Regions,
 * heaps and kv stores stay open.
 * The call reads only what was committed since the last one, if the log still has that, and else copies the open
 * regions anew. What was acknowledged before the call is in the view, unless the writer has no time to tell that it is
 * durable: the call waits up to 0.2 s for that, and then shows what is known to be durable.
 * No other thread may use the store or its regions during the call, nor while a further region is opened, which moves
 * the view, too.
 * Durability: what is shown survives a power loss.
 * Errors, after which everything is as before: INVALID (the store was not opened with FOLLOW), BUSY (the writer
 * filled its log several times while the regions were copied; or a kv transaction is active), NOT_FOUND (the store
 * was removed, or another has taken its place), NO_MEMORY, CORRUPT, IO. */
MEMLITH_API int32_t memlith_store_refresh(memlith_store* store, uint64_t* ticket);

/* Adds 1 to the eventfd `fd` whenever more has become durable, and when the store is poisoned
 * (memlith_store_info.poisoned). -1 ends that. The caller must keep `fd` open until another call has replaced it or the
 * store is closed. */
MEMLITH_API int32_t memlith_store_set_eventfd(memlith_store* store, int fd);

/* Writes everything that is durable by now to the home files, so that the next opening has nothing to replay. Never
 * needed for durability. Errors: IO, POISONED, READ_ONLY. */
MEMLITH_API int32_t memlith_store_checkpoint(memlith_store* store);

/* The file system below a store, and how it weakens what a commit promises (docs/guarantees.md, "What is assumed of the
 * medium"). MEMORY: tmpfs, ramfs; a power loss or a restart of the machine erases the store. PROGRAM: FUSE, virtiofs,
 * 9P; the program or the host behind it decides what a flush does. NETWORK: NFS, SMB and others; opened only if the
 * environment has MEMLITH_ALLOW_NETWORK=1. */
enum { MEMLITH_MEDIUM_DISK = 0, MEMLITH_MEDIUM_MEMORY = 1, MEMLITH_MEDIUM_PROGRAM = 2, MEMLITH_MEDIUM_NETWORK = 3 };

typedef struct memlith_store_info {
  uint64_t struct_size;    /* set by the caller */
  uint64_t region_count;   /* regions of the store, open or not */
  uint64_t log_bytes;      /* size of the log now */
  uint64_t log_used_bytes; /* bytes of log that no checkpoint has written home yet */
  uint64_t durable_lsn;    /* the log is durable up to here */
  /* Since opening: */
  uint64_t frames;         /* commits that reached the log */
  uint64_t batches;        /* writes + flushes of these commits */
  uint64_t logged_bytes;   /* bytes written to the log for these commits */
  uint64_t captured_bytes; /* bytes of memory captured in these commits */
  uint64_t checkpoints;
  uint64_t home_bytes;      /* bytes that were written to home files */
  uint64_t replayed_frames; /* commits that opening replayed */
  uint64_t replayed_bytes;  /* and their bytes */
  uint32_t read_only;
  uint32_t poisoned;
  uint32_t one_file;    /* 1: opened by memlith_file_open */
  uint32_t direct_io;   /* 1: the log bypasses the page cache */
  uint32_t was_clean;   /* 1: the last program that used the store had closed it */
  int32_t memory_error; /* 0, or the code of the failure when memory_max_bytes last demanded a release of memory. The
                           persist that demanded it was durable nevertheless, and returned ok */
  uint64_t incarnation; /* how often the store was opened for writing, this opening included if it is for writing */
  uint64_t log_id;      /* random number of the log, drawn at its creation; distinguishes stores */
  uint32_t io;          /* MEMLITH_IO_*; POSIX if AUTO was requested and the kernel has no io_uring */
  uint32_t medium;      /* MEMLITH_MEDIUM_* */
  uint32_t follows;     /* 1: opened with MEMLITH_OPEN_FOLLOW; durable_lsn is the commit that is shown */
  uint32_t writer;      /* with FOLLOW: number of the process that had the store open for writing at the last
                           refresh; 0: none */
  uint64_t view_bytes;  /* with FOLLOW: sizes of the regions that are copied to this process's memory. Nothing of the
                           store is kept for a reader */
  uint64_t log_block_bytes;   /* what frames of the log are padded to: 512 or 4096, or 64 in a store for DAX */
  uint64_t device_bytes;      /* size of the device that the store lies on; 0: it lies in a file system */
  uint64_t device_used_bytes; /* of these, what the store and its map take */
  uint32_t marks_sqlite; /* 1: the log of memlith's SQLite VFS, in use: as long as commits in it count, the file begins
                            with a mark (memlith/sqlite_file.h) */
  uint32_t disk;         /* MEMLITH_DISK_*: the disk under the log; 0: the kernel tells nothing of one */
  uint32_t disk_sector_bytes;          /* what the disk addresses */
  uint32_t disk_physical_sector_bytes; /* what it writes as a whole */
  uint64_t disk_atomic_write_bytes; /* a write of at most this size is whole or absent after a power cut; 0: unknown */
  char disk_name[32];               /* such as "nvme0n1"; cut if longer, and always with a 0 at the end */
  char file_system[32];             /* such as "ext4", "fuse.sshfs"; empty where only the kernel's number is known */
} memlith_store_info;

/* Bits of memlith_store_info.disk. */
enum {
  MEMLITH_DISK_KNOWN = 1,
  MEMLITH_DISK_VOLATILE_CACHE = 2, /* a write is durable only after a flush */
  MEMLITH_DISK_FORCED_UNIT_ACCESS =
      4, /* a commit is one command, not a write and a flush, where the log's I/O is direct and goes to a file or, with
            MEMLITH_DISK_PASSTHROUGH, to the device; the kernel flushes behind each such write to a block device */
  MEMLITH_DISK_PASSTHROUGH = 8 /* an NVMe namespace, used by its own commands */
};

MEMLITH_API int32_t memlith_store_get_info(memlith_store* store, memlith_store_info* info);

/* Counters and latencies of a store since it was opened. */
typedef struct memlith_stats {
  uint64_t struct_size; /* set by the caller */
  uint64_t process;     /* number of the process that has the store open for writing */
  uint64_t opened_ns;   /* time of opening, since 1970 */
  /* Synchronous persists, and their latencies from the call until durable, within 6 %: */
  uint64_t persists;
  uint64_t persist_p50_ns;
  uint64_t persist_p99_ns;
  uint64_t persist_p999_ns;
  uint64_t persist_max_ns;
  /* Asynchronous persists, and their latencies from the call until it returned: */
  uint64_t captures;
  uint64_t capture_p50_ns;
  uint64_t capture_p99_ns;
  uint64_t capture_p999_ns;
  uint64_t capture_max_ns;
  /* Sync commits of kv stores, and their latencies from the call until durable; weak commits: */
  uint64_t kv_commits;
  uint64_t kv_commit_p50_ns;
  uint64_t kv_commit_p99_ns;
  uint64_t kv_commit_p999_ns;
  uint64_t kv_commit_max_ns;
  uint64_t kv_weak_commits;
  /* Entries appended to application logs; writes of them, and their latencies from the call until durable: */
  uint64_t applog_entries;
  uint64_t applog_writes;
  uint64_t applog_write_p50_ns;
  uint64_t applog_write_p99_ns;
  uint64_t applog_write_p999_ns;
  uint64_t applog_write_max_ns;
  uint64_t frames;              /* commits of any kind in the log */
  uint64_t batches;             /* writes + flushes of these commits */
  uint64_t captured_bytes;      /* bytes of memory in these commits */
  uint64_t captured_pages;      /* pages in which these bytes lie */
  uint64_t last_captured_pages; /* the same of the last commit alone */
  uint64_t logged_bytes;   /* bytes written to the log; divided by captured_bytes: write amplification of the log */
  uint64_t log_bytes;      /* size of the log now */
  uint64_t log_used_bytes; /* bytes of log that no checkpoint has written home yet */
  uint64_t durable_lsn;    /* the log is durable up to here */
  uint64_t checkpoints;
  uint64_t home_bytes;             /* bytes that were written to home files */
  uint64_t checkpoint_done_bytes;  /* bytes of log that the running checkpoint has processed */
  uint64_t checkpoint_total_bytes; /* bytes of log that the running checkpoint processes; 0: no checkpoint runs */
  uint64_t poisoned;
  uint64_t alive; /* 0: the process that had the store open has ended, and these are its last numbers */
  /* How long weak commits of kv stores were not durable: of each frame with such commits, from the first of them until
   * the frame was durable, within 6 %; and the age of the oldest that is not durable, 0: all are. */
  uint64_t kv_weak_waits;
  uint64_t kv_weak_wait_p50_ns;
  uint64_t kv_weak_wait_p99_ns;
  uint64_t kv_weak_wait_p999_ns;
  uint64_t kv_weak_wait_max_ns;
  uint64_t kv_oldest_waiting_ns;
} memlith_stats;

/* Statistics of a store that this process has open. Errors: INVALID, READ_ONLY (the store was opened read-only). */
MEMLITH_API int32_t memlith_store_get_stats(memlith_store* store, memlith_stats* stats);

/* ---- looking at a store from outside --------------------------------------------------------------------------- */

typedef struct memlith_report {
  uint64_t struct_size; /* set by the caller */
  uint64_t frames;      /* complete frames found in the log */
  uint64_t frame_bytes;
  uint64_t regions;
  uint64_t region_bytes;
  uint32_t clean; /* 1: the last program that used the store closed it */
  uint32_t one_file;
  uint64_t log_bytes;
  uint64_t incarnation;       /* how often the store was opened for writing */
  uint32_t superblock_copies; /* intact copies, 1 or 2. A crash can leave 1; the next opening for writing repairs the
                            other */
  uint32_t heaps;             /* regions that hold a heap (memlith/heap.h), whose structures were checked, too */
  uint32_t kvs;               /* regions that hold a kv store (memlith/kv.h), likewise */
  uint32_t reserved;
} memlith_report;

/* Checks every structure on the disk: both superblocks, the slots, every frame in the log, the directory, and that each
 * object's file exists and is long enough. Also checks each heap in a region, as memlith_heap_verify, and each kv
 * store, as memlith_kv_verify. Changes nothing. If a process writes to the store, what is durable is checked.
 * `path` is a store's folder, or a file with its log beside it.
 * Errors: the first fault found, with the codes of memlith_store_open. */
MEMLITH_API int32_t memlith_verify(const char* path, memlith_report* report);

/* Calls `found` with a sentence for each word of a region whose value looks like an address in a program, a library,
 * memory of malloc or a stack: pointers that lead nowhere in the next run. Of a heap, only blocks in use are looked at.
 * A number may look like an address by chance. A process that stores them says more: set MEMLITH_CHECK_POINTERS=1 in
 * its environment, and every persist prints on standard error which of the words that it captures hold an address of
 * the process outside of the open regions, and what lies there. Changes nothing. Errors: as memlith_verify. */
MEMLITH_API int32_t memlith_verify_pointers(const char* path, void (*found)(void* context, const char* sentence),
                                            void* context);

#ifdef __cplusplus
}
#endif

#endif
