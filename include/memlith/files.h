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
 * The program does not map the file itself but its working image: private pages over the file, which take memory for
 * what is changed. A file of any size opens at once. It lies at one place in the process, so each of its pages has one
 * address. While a file is mapped, only memlith may write it; another process that opens it by memlith hears EBUSY.
 * A mapping that cannot be kept coherent is refused.
 *
 * `memlith run` does the same for programs that also read and write by descriptors. docs/failure-atomic-files.md
 * explains both, and what a program has to heed before Linux 6.7.
 *
 * ERRORS: functions that return a pointer or an int set errno, like the calls they are named after;
 * memlith_last_error() has the sentence.
 * THREADS: any, for all functions. In a forked child every function fails with EINVAL.
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

/* For the flags of memlith_mmap. From the first commit to a clean close
 * the file on the disk begins with 16 bytes that are memlith's, in the place of its own, which the log keeps. A copy of
 * the file alone that lacks commits is refused by memlith, and by every program that looks at the first bytes of its
 * files. A file and a log that are copies of two moments are refused as well. Such a file cannot be opened as a region.
 * docs/failure-atomic-files.md, "Copies of a file", says more. */
#define MEMLITH_IMAGE_GUARD 0x40000000

/* ---- like mmap(2) ---------------------------------------------------------------------------------------------- */

/* Maps `bytes` of the file `fd` from `offset` on. The first mapping of a file opens it: replays its log if the last
 * program did not end cleanly, locks the file, and gives it a place in the process: around `address`, if addresses are
 * free there, or exactly there, with MAP_FIXED; with 64 GiB of addresses, or fewer where the process may not have them.
 * Later mappings of the file lie at this place, until the last one is unmapped: they return the address that their
 * first byte has. As with mmap, a mapping may reach beyond the end of the file; its pages there may be used once the
 * file is long enough (memlith_ftruncate), and raise SIGSEGV until it was so long once. `fd` may be closed afterwards.
 * `protection` is not looked at: the pages may be read and written. `flags`: MAP_SHARED, with MAP_FIXED or
 * MAP_FIXED_NOREPLACE as wished, others of mmap's flags have no effect; with MEMLITH_IMAGE_GUARD, the file is guarded
 * if this mapping is its first.
 * Returns MAP_FAILED on error: EINVAL (MAP_PRIVATE: such a mapping changes no file; use mmap. MAP_FIXED, and the file
 * lies elsewhere), EACCES (`fd` is not open for reading and writing), EBUSY (open by another process, or under another
 * name), ENOENT (the file has no name any more), ENOMEM (also if the file's place is too small for this mapping: map
 * the longest part first), ENOSPC, EIO. */
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
 * A store that races with the call is in this commit or in the next one, page by page. If the pages that were changed
 * take much of the memory that the process may have, the call also gives the memory of committed ones back: stores of
 * other threads wait meanwhile, and a system call of theirs that stores to the file's pages may fail with EFAULT.
 * Returns 0, or -1: EINVAL (flags), ENOMEM (not a mapping of memlith_mmap), EFBIG (more changes than the log may grow
 * to), ENOSPC: nothing was committed, everything stays due. EIO: whether this commit took effect is unknown until the
 * file is opened again; nothing more is committed until then. */
MEMLITH_API int memlith_msync(void* address, size_t bytes, int flags);

/* Commits what was stored to several mapped files since it was last committed, and their lengths: everything is durable
 * on return, or after a crash none of it, in any file. Each of the `count` addresses lies in a mapping of a file, which
 * is committed whole. The files lie in one folder. One flush, where memlith_msync takes one for each file; the first
 * call for a file takes about five more, and closing it two.
 * After a crash each file is recovered by itself, in any order, but needs the log of these commits, which lies beside
 * the files as common-NUMBER.memlith until the last of them is recovered or closed.
 * Returns 0, or -1: EINVAL (the files lie in different folders), ENOMEM (an address is in no mapping), EFBIG, ENOSPC:
 * nothing was committed, everything stays due. EIO: whether this commit took effect is unknown until the files are
 * opened again; nothing more is committed to any of them until then. */
MEMLITH_API int memlith_files_commit(void* const* addresses, size_t count);

/* Unmaps [address, address + bytes), any part of mappings of memlith_mmap; of a page that was mapped several times, the
 * newest mapping. The addresses are free with the last mapping of a file. Then what was not committed is dropped, and
 * the file is closed: it holds every commit, and its log may be deleted. Returns 0, or -1: EINVAL, EIO (closing failed;
 * every commit is safe, and the next opening brings them into the file). */
MEMLITH_API int memlith_munmap(void* address, size_t bytes);

/* Sets the length of a mapped file, as ftruncate(2). The length is committed by the next memlith_msync of the file. Do
 * not call ftruncate(2) or write(2) on a mapped file: its image would not show it. Returns 0 or -1. */
MEMLITH_API int memlith_ftruncate(int fd, off_t bytes);

#ifdef __cplusplus
}
#endif

#endif
