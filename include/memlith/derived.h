/* memlith: what a program derives from a heap's bytes, such as an index, and keeps in its ordinary memory. The C
 * interface, for makers of containers; memlith/btree.hpp is one. Conventions: memlith.h.
 *
 * The heap knows each such object by the address in the heap that it was derived for, and drops the object as soon as
 * the bytes that it was derived from may be others: when the heap is closed, rolled back, or undone, and when a process
 * that follows the store goes on to another commit. So what is found is as new as the heap, but for stores that its
 * owner knows of. Nothing of it is persisted. After a fork the child has copies of its own.
 *
 *     struct index* found = (struct index*)memlith_derived_find(root);
 *     if (found == NULL) {
 *       struct index* made = make_index(root);  // its first member is a memlith_derived
 *       found = (struct index*)memlith_derived_set(root, NULL, &made->derived);
 *       if (found != made) free_index(made);    // another thread's is there; or none can be
 *     }
 *
 * THREADS: all calls by any thread, beside each other. No call takes a lock.
 */
#ifndef MEMLITH_DERIVED_H
#define MEMLITH_DERIVED_H

#include "memlith/memlith.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The beginning of such an object. Set by its owner. */
typedef struct memlith_derived {
  uint64_t struct_size;
  /* Frees the object. Called once, when no other thread uses the heap, and may not call memlith. */
  void (*drop)(struct memlith_derived* derived);
  /* For memlith_heap_verify: null if what the object was derived from is sound; else the place in the heap that is not,
   * and `sentence`, cut to `bytes` and terminated by a zero, says what is wrong there. Threads that change what is
   * looked at must wait for it by themselves. May be null: not checked. */
  const void* (*check)(const struct memlith_derived* derived, char* sentence, size_t bytes);
} memlith_derived;

/* The object that was derived for this address; null: none, or the address lies in no open heap. Takes nanoseconds. */
MEMLITH_API memlith_derived* memlith_derived_find(const void* address);

/* If `old` (null: none) is what memlith_derived_find returns, `made` takes its place, and the heap owns it; `made` may
 * be null. Returns what is there now: `made`, or what another thread has put there. `old` is the caller's again if
 * `made` is returned. Null, where `made` is not: the address lies in no open heap, or there is no memory; `made` stays
 * the caller's. */
MEMLITH_API memlith_derived* memlith_derived_set(const void* address, memlith_derived* old, memlith_derived* made);

#ifdef __cplusplus
}
#endif

#endif
