/* memlith: memory that survives crashes. The C interface.
 *
 * A store keeps regions. A region is memory at a fixed address that the program uses like any other memory.
 * memlith_persist() makes the changes to regions durable, all of them or none. After a crash, opening the store brings
 * every region back to the state of one and the same persist, which is the last acknowledged one or a later one.
 *
 * CONVENTIONS
 *  - Every function that can fail returns 0 (MEMLITH_OK) or a code. The low byte of the code is the category (enum
 *    below); the next byte says what the failure concerns. Compare codes with memlith_category(code).
 *    memlith_last_error() returns the message.
 *  - Out-parameters come last and stay unchanged on error. Sizes and offsets are in bytes, as uint64_t.
 *  - Option structs start with struct_size. Set struct_size to sizeof the struct and zero the rest: each field that is
 *    0 has a sensible default. A null pointer selects all defaults.
 *  - Handles are opaque. Any thread may call any function, unless the function says otherwise. Opening or closing
 *    an object while another thread uses the same object is an error of the program.
 *  - "Durable" means: survives kill -9, a kernel crash and power loss, provided that the disk keeps what was written
 *    before a flush that it acknowledged. docs/guarantees.md states exactly what is assumed and what is promised.
 *  - docs/glossary.md explains the terms.
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

/* Categories. The numbers never change; new ones are appended. */
enum {
  MEMLITH_OK = 0,
  MEMLITH_INVALID = 1,      /* an argument is wrong, or a precondition of the call does not hold */
  MEMLITH_NOT_FOUND = 2,    /* the store, file or region does not exist */
  MEMLITH_EXISTS = 3,       /* the store or region exists already */
  MEMLITH_BUSY = 4,         /* the store or region is open, here or in another process, which the message names */
  MEMLITH_IO = 5,           /* a read, write or flush failed; after a failed write or flush the store is poisoned */
  MEMLITH_CORRUPT = 6,      /* the disk, or a structure in memory, holds other bytes than were written; see message */
  MEMLITH_INCOMPATIBLE = 7, /* another format version, or not a memlith file */
  MEMLITH_FULL = 8,         /* the transaction is larger than the log may grow; nothing changed; raise the limit with
                            memlith_store_set_log_max and try again, or split the transaction */
  MEMLITH_NO_SPACE = 9,     /* the file system is full */
  MEMLITH_POISONED = 10,    /* an earlier write or flush failed; close and reopen the store */
  MEMLITH_PERMISSION = 11,
  MEMLITH_READ_ONLY = 12,
  MEMLITH_ADDRESS_TAKEN = 13, /* the region's addresses are in use in this process */
  MEMLITH_UNSUPPORTED = 14,   /* not available on this kernel or file system */
  MEMLITH_NO_MEMORY = 15,
  /* the process or the machine has no free descriptor; nothing changed; raise the limit and try again */
  MEMLITH_TOO_MANY_FILES = 16,
  MEMLITH_CONFLICT = 17 /* another transaction has locked the record (memlith/kv.h); begin the transaction again */
};

/* The category of a code: one of the numbers above. */
static inline int32_t memlith_category(int32_t code) { return code & 0xff; }

/* The object of an error. MEMLITH_DETAIL_VERSION, which comes with MEMLITH_INCOMPATIBLE, means that the store has a
 * format version that this library does not read; the store is not damaged. The other numbers only serve to make the
 * message. */
enum { MEMLITH_DETAIL_VERSION = 15 };
static inline int32_t memlith_detail(int32_t code) { return code >> 8 & 0xff; }

/* Copies the message of this thread's last failure into `buffer`, cut to `bytes` and always terminated by a zero.
 * Returns the length of the complete message. No effect on data. */
MEMLITH_API size_t memlith_last_error(char* buffer, size_t bytes);

/* A short name of a code's category, such as "log full". The string is constant and never null. */
MEMLITH_API const char* memlith_category_name(int32_t code);

/* "0.1.0" */
MEMLITH_API const char* memlith_version(void);

/* ---- stores ---------------------------------------------------------------------------------------------------- */

typedef struct memlith_store memlith_store;
typedef struct memlith_region memlith_region;

enum {
  MEMLITH_OPEN_CREATE = 1, /* create the store if it does not exist */
  /* Show the last durable state and change no byte of the store. Any number of processes may do so at a time. */
  MEMLITH_OPEN_READ_ONLY = 2,
  MEMLITH_OPEN_EXCLUSIVE = 4, /* with CREATE: fail with MEMLITH_EXISTS if the store exists */
  /* Never use direct I/O (O_DIRECT), which the log uses where the file system accepts it. For file systems that accept
   * direct I/O and fail later. Slightly slower; as durable. */
  MEMLITH_OPEN_BUFFERED = 8,
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
 * URING: io_uring for every read and write; UNSUPPORTED if the kernel or a sandbox refuses io_uring.
 * DAX: for byte-addressable memory (docs/dax.md): commits and checkpoints store to mappings of the files, line by line,
 *        without system calls. Either a file system that maps persistent memory (fsdax, MAP_SYNC), or tmpfs, which
 *        emulates such memory and forgets everything with the power; UNSUPPORTED elsewhere. The log of a new store is
 *        padded to lines of 64 bytes; such a store can be opened for writing with DAX only. */
enum { MEMLITH_IO_AUTO = 0, MEMLITH_IO_POSIX = 1, MEMLITH_IO_URING = 2, MEMLITH_IO_DAX = 3 };

typedef struct memlith_store_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_OPEN_*; 0 opens an existing store for reading and writing */
  uint32_t io;    /* MEMLITH_IO_* */
  /* Size of a new store's log. A checkpoint runs when half of the log is used.
   * 0 = 4 MiB at first (1 MiB for memlith_file_open); while commits fill the log within a minute, it grows. A larger
   * log disturbs commits less often, but recovery has more to read. The log grows at once to the size that lasts a
   * minute, up to 128 MiB (for memlith_file_open: half the file's size, at least 16 MiB, at most 64 MiB). It grows
   * further, to 1 GiB, only as checkpoints cost more than growing. log_max_bytes limits both. A clean close shrinks the
   * log to its original size. */
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
  /* The flush window, as memlith_store_set_flush_window sets it. */
  uint64_t flush_interval_ms; /* how long an asynchronous persist may wait for its flush; 0 = only while the flush
                                 before it is under way, or about 0.2 ms */
  uint64_t flush_bytes;       /* how many bytes may wait in the log before the flush starts at once; 0 = 16 MiB */
  /* Approximate limit of the memory for changed pages of regions; 0 = no limit. When persists and transactions have
   * captured half of the limit, the call that finds this runs a checkpoint and releases the memory of clean pages; of
   * EXPLICIT and INSTRUMENTED regions, pages that equal their home file, so changes that were not touched stay. Nothing
   * of a region is released while a transaction is open in it. Applies to key-value stores and application logs as
   * well: commits of a key-value store wait while a mebibyte at a time is released, and a log's writers and readers
   * while all of it is. memlith_store_info.memory_error holds the result. With this option, threads that store to
   * regions of any tracker must not block SIGSEGV, and system calls that write into a SCAN, EXPLICIT or INSTRUMENTED
   * region can fail with EFAULT during a release; see memlith_region_release. */
  uint64_t memory_max_bytes; /* with FOLLOW: the largest sum of the sizes of open regions; NO_MEMORY beyond it */
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

/* Sets the flush window (weak durability): an asynchronous persist becomes durable at most `interval_ms` after its
 * capture, or as soon as `bytes` of log wait, and always in order: a crash leaves a prefix of the order of persists.
 * 0 ms, the default, means no waiting; 0 bytes = 16 MiB. A synchronous persist does not wait for the window, and makes
 * everything captured before it durable, too.
 * Source: AciKV, weak durability. Errors: INVALID (more than a day). */
MEMLITH_API int32_t memlith_store_set_flush_window(memlith_store* store, uint64_t interval_ms, uint64_t bytes);

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

/* Moves a store that was opened with MEMLITH_OPEN_FOLLOW on to the newest durable commit, and stores its ticket at
 * `lsn`, which may be null. All open regions change together, in place, and none of them changes between two calls.
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
MEMLITH_API int32_t memlith_store_refresh(memlith_store* store, uint64_t* lsn);

/* Adds 1 to the eventfd `fd` whenever more has become durable, and when the store is poisoned
 * (memlith_store_info.poisoned). -1 ends that. The caller must keep `fd` open until another call has replaced it or the
 * store is closed. */
MEMLITH_API int32_t memlith_store_set_eventfd(memlith_store* store, int fd);

/* Writes everything that is durable by now to the home files, so that the next opening has nothing to replay. Never
 * needed for durability. Errors: IO, POISONED, READ_ONLY. */
MEMLITH_API int32_t memlith_store_checkpoint(memlith_store* store);

/* The file system below a store, and how it weakens what a commit promises (docs/guarantees.md, "The disk").
 * MEMORY: tmpfs, ramfs; a power loss or a restart of the machine erases the store. PROGRAM: FUSE, virtiofs, 9P; the
 * program or the host behind it decides what a flush does. NETWORK: NFS, SMB and others; opened only if the environment
 * has MEMLITH_ALLOW_NETWORK=1. */
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
  uint64_t home_bytes;      /* bytes that checkpoints wrote to home files */
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
  uint64_t home_bytes;             /* bytes that checkpoints wrote to home files */
  uint64_t checkpoint_done_bytes;  /* bytes of log that the running checkpoint has processed */
  uint64_t checkpoint_total_bytes; /* bytes of log that the running checkpoint processes; 0: no checkpoint runs */
  uint64_t poisoned;
  uint64_t alive; /* 0: the process that had the store open has ended, and these are its last numbers */
} memlith_stats;

/* Statistics of a store that this process has open. Errors: INVALID, READ_ONLY (the store was opened read-only). */
MEMLITH_API int32_t memlith_store_get_stats(memlith_store* store, memlith_stats* stats);

/* Statistics of a store that another process has open for writing, from the statistics file beside the store. Takes no
 * lock and does not disturb the other process. The numbers may be slightly old. The numbers of a process that was
 * killed remain, with `alive` 0, until the store is opened again.
 * Errors: NOT_FOUND (no process has the store open for writing), INCOMPATIBLE. */
MEMLITH_API int32_t memlith_stat(const char* path, memlith_stats* stats);

/* ---- regions --------------------------------------------------------------------------------------------------- */

/* How memlith finds what was stored to a region. docs/guarantees.md, "Trackers", compares them. */
enum {
  /* SCAN if the region has up to 128 MiB when it is opened, else FAULT. memlith_region_info says which one and why. */
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
  /* Relies on the compiler: programs built with memlith-cc or memlith-c++ record each store (docs/compiler-pass.md says
   * which stores are not recorded). memlith_touch() records a store that the compiler did not see. Finds bytes;
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
  MEMLITH_REGION_ANYWHERE = 8
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

/* Writes one line into `buffer` that says how a tracker would work on this kernel, cut to `bytes` and terminated by a
 * zero. */
MEMLITH_API int32_t memlith_tracker_describe(uint32_t tracker, char* buffer, size_t bytes);

/* ---- persist --------------------------------------------------------------------------------------------------- */

/* Whose stores a persist or a rollback covers. */
enum {
  MEMLITH_SCOPE_PROCESS =
      0,                   /* those of every thread, also of threads that have ended. The default with every tracker */
  MEMLITH_SCOPE_THREAD = 1 /* those of the calling thread alone. UNSUPPORTED for SCAN regions. FAULT distinguishes
                                threads by page: two threads must not store to the same page between two persists, or
                                a thread's persist can leave out a store of that thread */
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
 *         UNSUPPORTED - thread scope, and the tracker cannot tell which thread made the stores. Nothing changed.
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
 * memlith_store_set_flush_window. A persist of more than 1 MiB also waits for its own write. A failed flush is reported
 * by memlith_wait and by every later persist. Small persists that wait for one flush are packed in the log: each takes
 * its bytes, 16 bytes for each range and 8.
 * Source: MemSnap, MS_ASYNC; failure-atomic msync (EuroSys 2013), MS_ASYNC with a meaning. */
MEMLITH_API int32_t memlith_persist_async(memlith_region* const* regions, uint64_t count, uint32_t scope,
                                          uint64_t* ticket);

/* Returns when everything up to `ticket` is durable; at once if it is durable already. Tickets of all commits are of
 * one kind: of persists, transactions, changes and kv stores. What waits in memory for its window goes to the log now.
 * Errors: INVALID (no such ticket yet), IO, POISONED; NO_SPACE, FULL, NO_MEMORY - there is no room in the log for what
 *         waits in memory: nothing is lost, try again. */
MEMLITH_API int32_t memlith_wait(memlith_store* store, uint64_t ticket);

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

/* Bytes of the program. */
typedef struct memlith_bytes {
  const void* data;
  uint64_t size;
} memlith_bytes;

/* ---- transactions ---------------------------------------------------------------------------------------------- */

typedef struct memlith_txn memlith_txn;

/* When a commit of any kind returns (memlith_commit, memlith_commit_buffers, memlith_change_commit,
 * memlith_kv_commit): */
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
 *
 *     memlith_txn* tx = NULL;
 *     memlith_begin(store, &tx);
 *     memlith_touch_before(tx, &from->balance, sizeof from->balance);
 *     memlith_touch_before(tx, &to->balance, sizeof to->balance);
 *     from->balance -= 10;
 *     to->balance += 10;
 *     if (from->balance < 0) memlith_abort(tx);
 *     else if (memlith_commit(tx, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_abort(tx);
 *
 * The handle is freed by memlith_abort, by a memlith_commit that returned 0, and with the store.
 * Durability: none. Errors: READ_ONLY, NO_MEMORY. */
MEMLITH_API int32_t memlith_begin(memlith_store* store, memlith_txn** tx);

/* Announces that the program is about to change [address, address + bytes), and keeps an image of these bytes. Call it
 * before the change. Ranges may overlap. memlith_touch is not needed. A region cannot be closed or release its memory
 * while a transaction has ranges in it (BUSY).
 * Errors: INVALID (in no open region of the store), UNSUPPORTED (not an EXPLICIT region, or it holds a heap),
 *         NO_MEMORY. Nothing was announced. */
MEMLITH_API int32_t memlith_touch_before(memlith_txn* tx, const void* address, uint64_t bytes);

/* Makes the announced ranges, as they are now, durable: all of them or none, in all regions together. `mode` is
 * MEMLITH_COMMIT_*. `ticket` may be null; memlith_wait waits for it, as after memlith_persist_async. A growth of these
 * regions that was not persisted becomes durable before. On 0, the transaction has ended. On an error it is still open,
 * and memlith_abort ends it.
 * After a crash during this call, reopening finds all of the changes or none.
 * Errors: FULL, NO_SPACE, NO_MEMORY - nothing was written.
 *         IO - whether the commit took effect is unknown until the store is reopened. POISONED - as memlith_persist.
 * Source: undo images as in NV-Heaps and libpmemobj; the log is memlith's. */
MEMLITH_API int32_t memlith_commit(memlith_txn* tx, uint32_t mode, uint64_t* ticket);

/* Gives every announced range its old bytes back and ends the transaction. Takes as long as copying the bytes: no I/O,
 * and other threads are not disturbed. Null is ignored. Durability: none; what is undone was never durable.
 * Errors: INVALID (a forked child). */
MEMLITH_API int32_t memlith_abort(memlith_txn* tx);

/* Has memlith_commit commit, in the same frame, what memlith_persist with process scope would make durable of the
 * region: the stores of all threads to a region with any tracker, or to the region of a heap. Other structures of the
 * store take part in the same way: a transaction of a kv store (memlith_txn_add_kv), the entries and the read position
 * of an application log (memlith_txn_append, memlith_txn_consume). After a crash all of it has happened or none,
 * whichever program opens the store next.
 *
 *     memlith_txn* tx = NULL;
 *     memlith_begin(store, &tx);
 *     memlith_txn_add_region(tx, counters);        // what was stored there
 *     memlith_txn_add_kv(tx, txn);                 // the records that it puts and removes
 *     memlith_txn_consume(tx, log, entry.number);  // the entry that was the cause
 *     if (memlith_commit(tx, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_abort(tx);
 *
 * With parts, memlith_commit holds the locks of all of them until the frame is in memory of the log. Its errors leave
 * everything as it was, with the transaction open, except for IO, after which the store is poisoned. memlith_abort
 * aborts a kv transaction, forgets entries and positions, and leaves the memory of this region as it is: its stores
 * stay due for the next persist; memlith_rollback undoes them.
 * Until the transaction has ended, the region is not closed and releases no memory (BUSY). A region may be named twice.
 * Errors: INVALID - the region is of another store; READ_ONLY. */
MEMLITH_API int32_t memlith_txn_add_region(memlith_txn* tx, memlith_region* region);

/* Bytes that memlith_commit_buffers copies to their place. */
typedef struct memlith_write {
  void* target;      /* in an EXPLICIT region of the store */
  const void* bytes; /* not in a region that the call writes to */
  uint64_t count;
} memlith_write;

/* Logs the bytes of `count` buffers and copies them to their targets, in one step: after a crash, all of them are there
 * or none. For programs that build a change aside. If targets overlap, the later write counts. On an error other than
 * IO nothing has changed, in memory neither. No other thread may store to the targets during the call. `mode` and
 * `ticket` as in memlith_commit. Errors: those of memlith_touch_before and memlith_commit. After IO the memory has the
 * new bytes. */
MEMLITH_API int32_t memlith_commit_buffers(memlith_store* store, const memlith_write* writes, uint64_t count,
                                           uint32_t mode, uint64_t* ticket);

/* ---- changes that are undone ------------------------------------------------------------------------------------- */

typedef struct memlith_change memlith_change;

/* Begins a change of these regions of the store (count 0: of all its open regions): whatever is stored to them from now
 * on becomes durable as a whole, with memlith_change_commit, or is undone, with memlith_change_undo. Works with every
 * tracker and with heaps, and needs no announcements; with EXPLICIT and INSTRUMENTED regions, what is not touched or
 * recorded is neither captured nor undone. Of a heap, blocks and names are undone, too: what was allocated is free,
 * what was freed is there again.
 *
 *     memlith_change* change = NULL;
 *     if (memlith_change_begin(store, &region, 1, &change) != 0) return;
 *     if (!rename_everything(region)) memlith_change_undo(change);
 *     else if (memlith_change_commit(change, MEMLITH_COMMIT_SYNC, NULL) != 0) memlith_change_undo(change);
 *
 * Earlier stores that were not persisted are persisted first, by itself: it becomes durable, as after
 * memlith_persist_async, and is not undone.
 * Until the change has ended, persists, rollbacks and discards of these regions that any thread asks for, this one
 * included, return BUSY and do nothing, as they would make half of the change durable; so does closing a region, and
 * beginning a change in it: changes do not nest. Transactions (memlith_begin), kv stores and application logs have
 * commits of their own, which are not part of the change. End a change before its store is closed.
 * Threads: a change covers the stores of all threads. No other thread stores to these regions, or allocates in these
 * heaps, until the change has ended: threads that share data hold one lock from the beginning to the end.
 * Cost: what memlith_persist_async costs if nothing was stored since the last persist, which is a look at what changed,
 * without I/O.
 * Errors: BUSY (a change is under way in one of the regions), INVALID (a region of another store), READ_ONLY, and
 * those of memlith_persist_async. Nothing has begun then. */
MEMLITH_API int32_t memlith_change_begin(memlith_store* store, memlith_region* const* regions, uint64_t count,
                                         memlith_change** change);

/* Makes what was stored since the beginning durable, all or nothing, and ends the change, whose handle is freed. `mode`
 * and `ticket` as in memlith_commit. After an error memlith_change_undo has to end the change.
 * Errors: FULL, NO_SPACE, NO_MEMORY - nothing was written. IO - whether the change became durable is unknown until the
 * store is reopened. POISONED - as memlith_persist. */
MEMLITH_API int32_t memlith_change_commit(memlith_change* change, uint32_t mode, uint64_t* ticket);

/* Undoes what was stored since the beginning, and ends the change: memory is as it was then, and so are the blocks and
 * names of heaps. A growth stays. Pointers to what was allocated since lead nowhere. The handle is freed, whatever is
 * returned. Null is ignored.
 * Cost: as memlith_rollback. FAULT regions have copies of the pages in memory; the others run a checkpoint and read.
 * Errors: those of memlith_rollback. A region in which that failed holds half of the change in memory; memlith never
 * persists it: every later persist of it returns BUSY, until it is opened again. After a commit that failed with IO:
 * POISONED, and memory stays as it is. */
MEMLITH_API int32_t memlith_change_undo(memlith_change* change);

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
MEMLITH_API uint64_t memlith_snapshot_lsn(const memlith_snapshot* snapshot);

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
