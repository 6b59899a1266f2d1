/* memlith: archives of a store, restoring from them, and warm standbys. The C interface; the commands `memlith
 * archive`, `memlith restore` and `memlith promote` are over it. Conventions: memlith.h. Guide: docs/backup.md.
 *
 * An archive is a folder, or whatever a command reaches, with full copies of a store and the frames of its log in
 * between. Archiving runs beside the process that writes to the store, which does not know of it and never waits for
 * it; at most its log grows (keep_log_bytes). Only what is durable in the store is archived.
 *
 *     memlith_archive_target target = {.struct_size = sizeof target, .folder = "shop-archive"};
 *     memlith_archive_progress progress = {.struct_size = sizeof progress};
 *     memlith_archive* archive = NULL;
 *     if (memlith_archive_open("shop", &target, NULL, &archive) != 0) return;
 *     while (running) {
 *       if (memlith_archive_step(archive, &progress) != 0) break;  // memlith_last_error() says why
 *       sleep_ms(200);
 *     }
 *     if (memlith_archive_close(archive) != 0) return;
 *     if (memlith_restore(&target, "shop-again", NULL, NULL) != 0) return;
 *
 * THREADS. One thread at a time uses a handle.
 */
#ifndef MEMLITH_ARCHIVE_H
#define MEMLITH_ARCHIVE_H

#include "memlith/memlith.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an archive lies. Either `folder`, which is made if it is missing, or commands of the shell, in which %n stands
 * for the name of an object: `put_command` gets the object as its input, `get_command` writes the object to its output,
 * `remove_command`, which may be null, removes the object. A command fails by its exit code. */
typedef struct memlith_archive_target {
  uint64_t struct_size;
  const char* folder;
  const char* put_command;
  const char* get_command;
  const char* remove_command;
} memlith_archive_target;

/* ---- archiving -------------------------------------------------------------------------------------------------- */

enum {
  /* There is no archive at the target yet, although a command that failed does not say so: begin one. */
  MEMLITH_ARCHIVE_NEW = 1,
  /* Full copies are made of what is there, also where that is not what was written (memlith_check_data). */
  MEMLITH_ARCHIVE_DAMAGED = 2
};
#define MEMLITH_ARCHIVE_NEVER UINT64_MAX

typedef struct memlith_archive_options {
  uint64_t struct_size;
  uint32_t flags; /* MEMLITH_ARCHIVE_* */
  uint32_t reserved;
  uint64_t wait_ms;      /* how long frames wait for others to share their segment; 0: 500 */
  uint64_t full_every_s; /* seconds between full copies; 0: a day; MEMLITH_ARCHIVE_NEVER: only where they are needed */
  uint64_t keep_s;       /* how many seconds back states stay restorable; 0: a week; MEMLITH_ARCHIVE_NEVER: all */
  /* While the handle is open, the store's log is not reused before it is archived; the log grows instead, up to this
   * size and to the log's own limit. 0: the log does not wait. What the program asks for frees the log nevertheless:
   * memlith_store_checkpoint, the removal of a region, closing the store. */
  uint64_t keep_log_bytes;
} memlith_archive_options;

typedef struct memlith_archive_progress {
  uint64_t struct_size;
  uint64_t archived_lsn; /* everything before it is in the archive */
  uint64_t durable_lsn;  /* of the store */
  uint64_t segments;     /* since opening, as the next two */
  uint64_t full_copies;
  uint64_t gaps; /* how often frames were missing, and a new run began with a full copy */
  /* Full copies that were due and not made, because the store is damaged; memlith_last_error() says where when it has
   * risen. What is archived is sound, and archiving goes on. */
  uint64_t refused_copies;
  uint64_t log_is_full; /* 1: what is not archived fills keep_log_bytes; the writer goes on, and a gap may come */
} memlith_archive_progress;

typedef struct memlith_archive memlith_archive;

/* Goes on with the archive of the store at `store`, or begins one with a full copy. `options` may be null.
 *
 * A file may be closed and opened again meanwhile, with another log: the archive goes on with a full copy of it. It is
 * the same file if it has the same path, or was restored from this archive. A file that has no log, because no program
 * has it open, is waited for by memlith_archive_step.
 *
 * Errors: those of memlith_store_open for reading; INVALID - the archive is that of another store; BUSY - another
 * process archives to the target; CORRUPT, INCOMPATIBLE - the manifest; IO, NO_SPACE - the target; UNSUPPORTED -
 * keep_log_bytes of a store on a raw device, or in a folder that this process may not write to; a SQLite database in
 * mode shared. */
MEMLITH_API int32_t memlith_archive_open(const char* store, const memlith_archive_target* target,
                                         const memlith_archive_options* options, memlith_archive** archive);

/* Looks at the store once, and archives what is due. To be called several times a second. `progress` may be null.
 * Errors: NOT_FOUND - the store was removed, or a folder store replaced: close the handle, and open the archive of what
 * is there now.
 * BUSY - another archiver has taken over. Others: nothing is lost, and the next call tries again; what the store's log
 * no longer has by then is a gap, after which a new full copy is made. */
MEMLITH_API int32_t memlith_archive_step(memlith_archive* archive, memlith_archive_progress* progress);

/* Makes a full copy now. */
MEMLITH_API int32_t memlith_archive_copy(memlith_archive* archive);

/* Archives what was durable when the call began. NOT_FOUND: the file has had no log since memlith_archive_open, and
 * nothing was archived. A program that writes shows up to 50 ms later what it has made
 * durable: the call waits for it, for at most a second. `progress` may be null. Errors: as memlith_archive_step. */
MEMLITH_API int32_t memlith_archive_flush(memlith_archive* archive, memlith_archive_progress* progress);

/* As memlith_archive_flush, and closes the handle, whatever the result. Null is ignored. */
MEMLITH_API int32_t memlith_archive_close(memlith_archive* archive);

/* ---- what an archive holds -------------------------------------------------------------------------------------- */

/* A run is a stretch of one history of the store, without a gap. It begins with a full copy. LSNs of a run that began
 * for history or log may stand for other states than the same LSNs of earlier runs. */
typedef struct memlith_archive_run {
  uint64_t number;
  /* first, gap (frames before it are missing), history (the store had gone back), log (the file has a new log), changed
   * (the file was changed while the store was closed) */
  const char* why;
  uint64_t begin_lsn; /* the earliest state that can be restored; 0 with end_lsn 0: none can */
  uint64_t end_lsn;   /* the latest one */
  uint64_t begin_ns;  /* since 1970, by the archiver's clock: when the first copy was complete */
  uint64_t end_ns;    /* when the last segment was archived */
  uint64_t segments;
  uint64_t segment_bytes; /* stored */
  uint64_t full_copies;
  uint64_t full_bytes; /* stored */
} memlith_archive_run;

/* Calls `found` with each run, in order. */
MEMLITH_API int32_t memlith_archive_list(const memlith_archive_target* target,
                                         void (*found)(void* context, const memlith_archive_run* run), void* context);

/* ---- restoring -------------------------------------------------------------------------------------------------- */

enum { MEMLITH_AT_LATEST = 0, MEMLITH_AT_LSN = 1, MEMLITH_AT_TIME = 2 };
enum {
  MEMLITH_RESTORE_DRY = 1,          /* read and check everything that is needed, and make nothing */
  MEMLITH_RESTORE_AS_FAR_AS_CAN = 2 /* where a segment is missing or damaged: the last complete state before it */
};

typedef struct memlith_restore_options {
  uint64_t struct_size;
  uint32_t at;    /* MEMLITH_AT_* */
  uint32_t flags; /* MEMLITH_RESTORE_* */
  /* LSN: every commit whose frame begins before it, so a ticket stands for the state with its commit; TIME:
   * nanoseconds since 1970: what the store had by then */
  uint64_t value;
  uint64_t run; /* of the archive (memlith_archive_list), in which LSN or TIME is looked for; 0: in all */
} memlith_restore_options;

typedef struct memlith_restored {
  uint64_t struct_size;
  uint64_t lsn; /* what was restored: every commit before it */
  uint64_t segments;
  uint32_t clock_went_back; /* 1: several states are of that time, because a clock was set; this is the last of them */
  uint32_t cut_short;       /* 1: as far as it could be; memlith_last_error() says what stopped it */
  uint64_t short_ns;        /* the archive ends so long before the wanted time; 0: it does not */
} memlith_restored;

/* Restores a store to `dest`, which must not exist: a folder for a folder store, a file for a one-file store, which is
 * complete by itself. It appears whole, as the last step, or not at all. `options` and `restored` may be null.
 * Errors: EXISTS; NOT_FOUND - there is no archive, or no such state, or the time lies in a gap; INVALID - the LSN
 * stands for states of several histories, and no run is named; CORRUPT - the message names the part of the archive that
 * is missing or damaged; NO_SPACE. */
MEMLITH_API int32_t memlith_restore(const memlith_archive_target* target, const char* dest,
                                    const memlith_restore_options* options, memlith_restored* restored);

/* ---- a warm standby --------------------------------------------------------------------------------------------- */

typedef struct memlith_standby memlith_standby;

/* Makes a store in the folder `dest` that follows an archive, or goes on with the one that this call made there before.
 * (Of a one-file store, `dest` holds the file and its log.) It can be opened read-only and followed
 * (MEMLITH_OPEN_FOLLOW), and not for writing, until memlith_promote.
 * Errors: as memlith_restore; INVALID - the store at `dest` is not a standby, or that of another store. */
MEMLITH_API int32_t memlith_standby_open(const memlith_archive_target* target, const char* dest,
                                         memlith_standby** standby);

/* Adds what the archive has by now. `lsn`, which may be null, gets how far the standby is. To be called about once a
 * second. Errors: NOT_FOUND - the archive does not go on from the standby (a gap, or retention): make a new standby.
 * Others: the next call tries again. */
MEMLITH_API int32_t memlith_standby_step(memlith_standby* standby, uint64_t* lsn);

/* Leaves the standby as it is. Null is ignored. */
MEMLITH_API int32_t memlith_standby_close(memlith_standby* standby);

/* Makes a standby that nothing keeps up to date any more a store that can be written. `path` is the store's: of a
 * one-file store the file. What was not archived, or not added, is not in it. */
MEMLITH_API int32_t memlith_promote(const char* path);

#ifdef __cplusplus
}
#endif

#endif
