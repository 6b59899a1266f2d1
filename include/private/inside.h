/* Calls of libraries, commands and tests of this tree. Not installed, and no promise: the calls may change in any
 * version. */
#ifndef MEMLITH_PRIVATE_INSIDE_H
#define MEMLITH_PRIVATE_INSIDE_H

#include "memlith/heap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- allocators that stand in for malloc (integrations/malloc) --------------------------------------------------- */

/* The heap that the calling thread named with memlith_heap_use, else null; null also inside of a call of memlith, whose
 * own memory never comes from a heap. For allocators that stand in for malloc: see integrations/malloc. */
MEMLITH_API memlith_heap* memlith_heap_used(void);

/* 1: the address lies in a heap that this process has, or had, open. What was a block of a heap that is closed by now
 * is gone with the heap, and is not to be given back to anybody. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((access(none, 1))) /* what lies there is not looked at, and may be uninitialised */
#endif
MEMLITH_API int32_t
memlith_heap_owns(const void* address);

/* ---- the statistics of another process (`memlith stat`) ---------------------------------------------------------- */

/* Statistics of a store that another process has open for writing, from the statistics file beside the store. Takes no
 * lock and does not disturb the other process. The numbers may be slightly old. The numbers of a process that was
 * killed remain, with `alive` 0, until the store is opened again.
 * Errors: NOT_FOUND (no process has the store open for writing), INCOMPATIBLE. */
MEMLITH_API int32_t memlith_stat(const char* path, memlith_stats* stats);

/* ---- trackers (the commands) ------------------------------------------------------------------------------------- */

/* Writes one line into `buffer` that says how a tracker would work on this kernel, cut to `bytes` and terminated by a
 * zero. */
MEMLITH_API int32_t memlith_tracker_describe(uint32_t tracker, char* buffer, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
