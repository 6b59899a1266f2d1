/* memlith/files.h: failure-atomic files. An ordinary file that a crash always leaves as the last msync left it.
 *
 *     int fd = open("counters", O_RDWR | O_CREAT, 0644);
 *     if (fd < 0 || ftruncate(fd, 4096) != 0) return;
 *     uint64_t* counters = memlith_mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
 *     if (counters == MAP_FAILED) return;
 *     ++counters[0];
 *     ++counters[1];
 *     if (memlith_msync(counters, 4096, MS_SYNC) != 0) return;  // both are durable, or neither
 *     memlith_munmap(counters, 4096);                           // the file holds everything
 *     close(fd);
 *
 * memlith_mmap, memlith_msync and memlith_munmap are called like mmap(2), msync(2) and munmap(2). The file keeps its
 * own format. Its log lies beside it, as FILE.memlith, while it is mapped and after a crash; after a clean end the file
 * holds everything. (The interface follows failure-atomic msync, EuroSys 2013, section 3.1.)
 *
 * The program does not map the file itself but its working image, a copy in memory that all mappings of the file in the
 * process share. The image takes as much memory as the file has data. While a file is mapped, only memlith may write
 * it; another process that opens it by memlith hears EBUSY. What cannot be kept coherent is refused.
 *
 * memlith_image_* below is the same for programs that want to read and write by descriptors as well; `memlith run` is
 * built on it. docs/failure-atomic-files.md explains both. Needs Linux 6.7.
 *
 * ERRORS: functions that return a pointer or an int set errno, like the calls they are named after;
 * memlith_last_error() has the sentence. The others return codes, as in memlith.h.
 * THREADS: any, for all functions. In a forked child every function fails with EINVAL or MEMLITH_INVALID.
 */
#ifndef MEMLITH_FILES_H
#define MEMLITH_FILES_H

#include <memlith/memlith.h>
#include <sys/mman.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the guard -------------------------------------------------------------------------------------------------- */

/* For the flags of memlith_image_open, memlith_image_attach and memlith_mmap. From the first commit to a clean close
 * the file on the disk begins with 16 bytes that are memlith's, in the place of its own, which the log keeps. A copy of
 * the file alone that lacks commits is refused by memlith, and by every program that looks at the first bytes of its
 * files. A file and a log that are copies of two moments are refused as well. Such a file cannot be opened as a region.
 * docs/failure-atomic-files.md, "Copies of a file", says more. */
#define MEMLITH_IMAGE_GUARD 0x40000000

/* ---- like mmap(2) ---------------------------------------------------------------------------------------------- */

/* Maps `bytes` of the file `fd` from `offset` on. The first mapping of a file opens it: replays its log if the last
 * program did not end cleanly, locks the file, and reads it into memory. All mappings of a file show the same bytes. As
 * with mmap, a mapping may reach beyond the end of the file; its pages there may be used once the file is long enough
 * (memlith_ftruncate), and raise SIGBUS until then. `fd` may be closed afterwards.
 * `protection`: as for mmap. `flags`: MAP_SHARED, with MAP_FIXED or others of mmap's flags as wished; with
 * MEMLITH_IMAGE_GUARD, the file is guarded if this mapping is its first.
 * Returns MAP_FAILED on error: EINVAL (MAP_PRIVATE: such a mapping changes no file; use mmap), EACCES (`fd` is not
 * open for reading and writing), EBUSY (open by another process, or under another name), ENOENT (the file has no name
 * any more), EOPNOTSUPP (kernel), ENOMEM, ENOSPC, EIO. */
MEMLITH_API void* memlith_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);

/* Commits or undoes what was stored to the pages [address, address + bytes) of mapped files, through whichever mapping,
 * since it was last committed. A file's length is committed with them: if the file was cut since, what was cut off is
 * gone, and is zeros where the file has grown again. Stores to other pages are not committed. The range may cover
 * mappings of several files: each file is committed by itself.
 *  - MS_SYNC:       the changes are durable on return, all of them or, after a crash in the middle, none.
 *  - MS_ASYNC:      the changes are captured on return. They become durable soon, all or none, in the order of the
 *                   calls: a crash keeps no call without those before it. A later MS_SYNC of the file makes them
 *                   durable, too.
 *  - MS_INVALIDATE: the pages are put back to the last commit. Nothing is written. With MS_SYNC or MS_ASYNC, which
 *                   leave nothing to put back, it has no effect.
 * A store that races with the call is in this commit or in the next one, page by page.
 * Returns 0, or -1: EINVAL (flags), ENOMEM (not a mapping of memlith_mmap), EFBIG (more changes than the log may grow
 * to), ENOSPC: nothing was committed, everything stays due. EIO: whether this commit took effect is unknown until the
 * file is opened again; nothing more is committed until then. */
MEMLITH_API int memlith_msync(void* address, size_t bytes, int flags);

/* Unmaps [address, address + bytes), any part of mappings of memlith_mmap. With the last mapping of a file, what was
 * not committed is dropped, and the file is closed: it holds every commit, and its log may be deleted. Returns 0, or
 * -1: EINVAL, EIO (closing failed; every commit is safe, and the next opening brings them into the file). */
MEMLITH_API int memlith_munmap(void* address, size_t bytes);

/* Sets the length of a mapped file, as ftruncate(2). The length is committed by the next memlith_msync of the file. Do
 * not call ftruncate(2) or write(2) on a mapped file: its image would not show it. Returns 0 or -1. */
MEMLITH_API int memlith_ftruncate(int fd, off_t bytes);

/* ---- images: descriptors and mappings together ------------------------------------------------------------------- */

typedef struct memlith_image memlith_image;

/* Opens an ordinary file, as memlith_file_open, and reads it into its working image.
 * Errors: those of memlith_file_open; NO_MEMORY (the file does not fit into memory), UNSUPPORTED (kernel). */
MEMLITH_API int32_t memlith_image_open(const char* path, const memlith_store_options* options, memlith_image** image);

/* Reads the file into a working image that is detached (below), and locks the file, so that no other process opens it
 * by memlith. Nothing is written: a program that does not change the file costs no flush. Before a change, call
 * memlith_image_attach with the same path. Errors: EXISTS (there is a log beside the file: use memlith_image_open),
 * BUSY, NOT_FOUND, PERMISSION, NO_MEMORY. */
MEMLITH_API int32_t memlith_image_look(const char* path, memlith_image** image);

/* Drops what was not committed, closes the file cleanly and frees the handle, also on error. Mappings and descriptors
 * of the image stay usable, and lead nowhere any more. Null is ignored. Errors: as memlith_store_close. */
MEMLITH_API int32_t memlith_image_close(memlith_image* image);

/* A descriptor of the working image, which is a file in memory. Map it shared, read and write it, open it again by
 * /proc/self/fd for an offset and a mode of its own. It is closed by memlith_image_close. Constant. */
MEMLITH_API int memlith_image_descriptor(const memlith_image* image);

/* The store that keeps the file: for memlith_store_get_stats and the like. Do not close it. Null while detached. */
MEMLITH_API memlith_store* memlith_image_store(const memlith_image* image);

/* [address, address + bytes) is a new shared mapping of the image from `offset` on, through which nothing was stored
 * yet. Commits find what is stored through it from now on. Errors: UNSUPPORTED, NO_MEMORY, INVALID. */
MEMLITH_API int32_t memlith_image_watch(memlith_image* image, void* address, uint64_t bytes, uint64_t offset);

/* Call this before [address, address + bytes) is unmapped, moved or replaced: takes over what was stored there. */
MEMLITH_API int32_t memlith_image_unwatch(memlith_image* image, const void* address, uint64_t bytes);

/* The bytes were written through a descriptor. A commit that begins after this call has them. */
MEMLITH_API int32_t memlith_image_written(memlith_image* image, uint64_t offset, uint64_t bytes);

/* Sets the length of the image, as ftruncate(2). Do not call ftruncate(2) on the image to shorten it: a commit in
 * another thread may be reading it. */
MEMLITH_API int32_t memlith_image_cut(memlith_image* image, uint64_t bytes);

/* The caller may have written to the file without telling memlith: the next commit compares the whole image with the
 * file. */
MEMLITH_API int32_t memlith_image_suspect(memlith_image* image);

enum {
  MEMLITH_IMAGE_ASYNC = 1, /* return when the changes are captured, as memlith_persist_async */
  MEMLITH_IMAGE_LAST = 2   /* the file is closed next: it does not grow ahead of its content, which saves a flush */
};

/* Commits all changes and the length of the image; durable on return unless ASYNC. Errors: as memlith_persist. */
MEMLITH_API int32_t memlith_image_commit(memlith_image* image, uint32_t flags);

/* For a caller that closes the file next, and has just committed: brings all commits into the file, as closing would,
 * and compares the image with it. *as_told is 0 if the image was changed without memlith_image_written, a watch or
 * memlith_image_suspect; the next commit has these changes. Errors: as memlith_store_close. */
MEMLITH_API int32_t memlith_image_check(memlith_image* image, uint32_t* as_told);

/* How many bytes may have changed since the last commit, in whole pages, as memlith_image_written, watches and
 * memlith_image_suspect tell it; 0: nothing has changed. Captures nothing. Errors: IO, NO_MEMORY. */
MEMLITH_API int32_t memlith_image_changed(memlith_image* image, uint64_t* bytes);

/* Puts the image and its length back to the last commit. Errors: as memlith_rollback. */
MEMLITH_API int32_t memlith_image_rollback(memlith_image* image);

/* Closes the file cleanly, without what was not committed, and keeps the image: its mappings and descriptors go on, and
 * nothing is watched any more. The file may now be renamed, replaced or removed. Until memlith_image_attach, commits
 * fail with INVALID. Errors: as memlith_store_close; the image is detached all the same. */
MEMLITH_API int32_t memlith_image_detach(memlith_image* image);

/* Makes a detached image that of the file `path`, which the next commit makes equal to the image. Its mappings have to
 * be watched again. Errors: as memlith_image_open; the image stays detached. */
MEMLITH_API int32_t memlith_image_attach(memlith_image* image, const char* path, const memlith_store_options* options);

/* The errno that says most nearly what a code says; 0 for MEMLITH_OK. */
MEMLITH_API int memlith_errno(int32_t code);

#ifdef __cplusplus
}
#endif

#endif
