/* memlith/copy.h: a copy of a whole store, also while a process uses it. docs/backup.md has the guide.
 *
 * The copy is the store as one durable commit left it: every commit that was acknowledged before the call began is in
 * it (if the writer runs, and can tell within ten seconds that the commit is durable), later ones may be, and of each
 * commit all or nothing is. The process that writes to the store, in this program or
 * in another one, is neither stopped nor slowed by a lock; nothing is asked of it.
 *
 * ERRORS and THREADS: as in memlith.h.
 */
#ifndef MEMLITH_COPY_H
#define MEMLITH_COPY_H

#include <memlith/memlith.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise and set struct_size. Null stands for all defaults. */
typedef struct memlith_copy_options {
  uint32_t struct_size;
  uint32_t reserved; /* must be 0 */
  /* Called now and then from the thread that copies, with what was read of the store's data, in bytes. `total` may
   * rise. Must not call memlith. */
  void (*progress)(void* context, uint64_t done, uint64_t total);
  void* progress_context;
} memlith_copy_options;

/* Set struct_size before the call. */
typedef struct memlith_copy_report {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t lsn;          /* of the original: the copy has every commit before it and none behind it */
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
 *   CORRUPT      the store is damaged; `memlith verify` says more
 *   and those of opening and writing files. */
MEMLITH_API int32_t memlith_store_copy(const char* path, const char* target, const memlith_copy_options* options,
                                       memlith_copy_report* report);

#ifdef __cplusplus
}
#endif

#endif
