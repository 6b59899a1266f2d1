/* memlith/copy.h: a copy of a whole store, also while a process uses it. docs/backup.md has the guide.
 *
 * The copy is the store as one durable commit left it: every commit that was acknowledged before the call began is in
 * it (if the writer runs, and can tell within ten seconds that the commit is durable), later ones may be, and of each
 * commit all or nothing is. The process that writes to the store, in this program or in another one, is neither stopped
 * nor slowed by a lock; nothing is asked of it.
 *
 *     memlith_copy_report report = {.struct_size = sizeof report};
 *     if (memlith_store_copy("shop", "shop-copy", NULL, &report) != 0) {
 *       char message[1024];
 *       memlith_last_error(message, sizeof message);
 *       fprintf(stderr, "no copy was made: %s\n", message);
 *       return;
 *     }
 *     printf("%llu bytes\n", (unsigned long long)report.bytes);  // "shop-copy" is whole and durable
 *
 * ERRORS and THREADS: as in memlith.h.
 */
#ifndef MEMLITH_COPY_H
#define MEMLITH_COPY_H

#include <memlith/memlith.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The copy is made of what is there, also where that is not what was written (memlith_check_data). */
#define MEMLITH_COPY_DAMAGED 1u

/* Zero-initialise and set struct_size. Null stands for all defaults. */
typedef struct memlith_copy_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_COPY_... */
  uint32_t reserved;
  /* Called now and then from the thread that copies, with what was read of the store's data, in bytes. `total` may
   * rise. Must not call memlith. */
  void (*progress)(void* context, uint64_t done, uint64_t total);
  void* progress_context;
} memlith_copy_options;

/* Set struct_size before the call. */
typedef struct memlith_copy_report {
  uint64_t struct_size;
  uint64_t ticket;       /* of the original: the copy has every commit before it and none behind it */
  uint64_t bytes;        /* of the data in the copy */
  uint64_t shared_bytes; /* of them, in files that share their blocks with the original's, as XFS and Btrfs can */
} memlith_copy_report;

/* Copies the store at `path` to `target`. `path`: a store's folder, a block device, or a file with its log beside it.
 * `target`: a name that does not exist yet; of a folder store also a block device that was formatted and holds no
 * store. A folder store becomes a folder or fills a device, whichever it lay on; a one-file store becomes a file with a
 * log beside it, both closed cleanly. Both options and report may be null.
 * The copy appears under its name when it is whole and durable, not before. If the call fails, or the process dies,
 * there is no copy; what it had written lies beside the name, as `target`.memlith-copy, and the next copy to the same
 * target removes it. The original is not changed.
 * Errors:
 *   EXISTS       `target` is there already, or there are commits for a file of that name
 *   NOT_FOUND    there is no store at `path`; or it was removed or replaced while it was copied
 *   BUSY         another copy to the same target is being made; or, again and again, the writer filled its log while
 *                4 MiB were read, or ended or began (give the log more room, log_bytes, or try again)
 *   NO_SPACE     nothing was left behind
 *   UNSUPPORTED  a SQLite database: use `memlith copy`, or SQLite's backup interface in a connection
 *   CORRUPT      the store is damaged, or, without MEMLITH_COPY_DAMAGED, the data of a region is not what was written
 *                (`memlith verify --data` says more)
 *   and those of opening and writing files. */
MEMLITH_API int32_t memlith_store_copy(const char* path, const char* target, const memlith_copy_options* options,
                                       memlith_copy_report* report);

/* Set struct_size before the call. */
typedef struct memlith_data_report {
  uint64_t struct_size;
  uint64_t ticket;         /* of the store; every commit before it was looked at */
  uint64_t blocks;         /* of 4096 bytes, that were read */
  uint64_t blocks_unknown; /* of them, those of which no checksum is known */
  uint64_t blocks_damaged; /* of them, those that are not as they were written */
} memlith_data_report;

/* Reads the data of every region of the folder store at `path`, on the disk, and compares it with the checksums that
 * are kept of it, also while a process uses the store. Calls `found` with a sentence for each run of blocks that are
 * not as they were written: the disk, or another program, has changed them. What to do then: docs/backup.md. Changes
 * nothing. `progress` as in memlith_copy_options, or null.
 * Errors: UNSUPPORTED - a one-file store, of whose file no checksums are kept; those of memlith_store_copy. */
MEMLITH_API int32_t memlith_check_data(const char* path, void (*found)(void* context, const char* sentence),
                                       void* found_context,
                                       void (*progress)(void* context, uint64_t done, uint64_t total),
                                       void* progress_context, memlith_data_report* report);

/* The same for one region of a store that this process has open for writing, such as before the region is opened:
 * runs a checkpoint, and compares the region on the disk before another one begins; commits go on as long as the log
 * has room. `ticket` of the report is 0.
 * Errors: NOT_FOUND - no such region; READ_ONLY; those of memlith_store_checkpoint. */
MEMLITH_API int32_t memlith_check_region(memlith_store* store, const char* region,
                                         void (*found)(void* context, const char* sentence), void* found_context,
                                         memlith_data_report* report);

/* Opens the folder store at `path` for writing, and keeps checksums from now on of those blocks of which none are
 * known, as they are now: of a store of an earlier version, or one that was copied without its checksums, or whose
 * checksums a power cut has torn. `blocks`, which may be null, gets their number. Blocks that are known to be damaged
 * stay known to be so.
 * Errors: UNSUPPORTED - a one-file store; those of memlith_store_open. */
MEMLITH_API int32_t memlith_complete_checksums(const char* path, uint64_t* blocks);

#ifdef __cplusplus
}
#endif

#endif
