/* The working images of memlith/files.h for `memlith run`: files by descriptors and mappings. Not installed, and
 * no promise: the calls may change in any version. The library exports them for this tree's tests.
 *
 * Results are codes, as in memlith.h. THREADS: any, for all functions. In a forked child every function fails with
 * MEMLITH_INVALID. MEMLITH_IMAGE_GUARD is also for the flags of memlith_image_open and memlith_image_attach.
 */
#ifndef MEMLITH_PRIVATE_IMAGES_H
#define MEMLITH_PRIVATE_IMAGES_H

#include "memlith/files.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Commits all changes and the lengths of these images, each of which is there once, and are durable on return: all or
 * none of those whose files lie in one folder, folder after folder. Errors: as memlith_files_commit. */
MEMLITH_API int32_t memlith_images_commit(memlith_image* const* images, size_t count);

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
