/* memlith: how instrumented code says what it stored. For programs built with memlith-g++ and memlith-c++, which make
 * these calls by themselves (docs/compiler-pass.md), and for other compilers and languages that make them by hand.
 *
 * Programs use MEMLITH_NO_TRACK and MEMLITH_NO_TRACK_FILE of this header. Code that is compiled otherwise says what the
 * compiler does not:
 *
 *     MEMLITH_NO_TRACK void fill(uint64_t* words, size_t count) {  // one call instead of one for each word
 *       for (size_t i = 0; i < count; ++i) words[i] = i;
 *       memlith_track_store(words, count * sizeof *words);
 *     }
 */
#ifndef MEMLITH_TRACK_H
#define MEMLITH_TRACK_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function whose stores are not recorded, because it stores to no region or calls memlith_touch itself. Other
 * compilers than clang and GCC ignore the attribute. */
#if defined(__clang__)
#define MEMLITH_NO_TRACK __attribute__((annotate("memlith_no_track"), noinline))
#elif defined(__GNUC__)
#define MEMLITH_NO_TRACK __attribute__((no_sanitize("kernel-address"), noinline))
#else
#define MEMLITH_NO_TRACK
#endif
/* Once in a file, outside of functions: no function of this file records its stores. */
#if defined(__GNUC__)
#define MEMLITH_NO_TRACK_FILE static const char memlith_no_track_file __attribute__((used)) = 0
#else
#define MEMLITH_NO_TRACK_FILE struct memlith_no_track_file
#endif

/* The calling thread has stored to [address, address + bytes), after the store. Every region with
 * MEMLITH_TRACKER_INSTRUMENTED that lies there captures the range with the next persist. Other addresses have no
 * effect. May be called in a signal handler. Takes a few nanoseconds. Durability: none. */
MEMLITH_API void memlith_track_store(const void* address, size_t bytes);

/* The same around an atomic access, by which another thread may learn of this thread's stores before
 * memlith_track_store is called: the range counts as stored to from memlith_track_begin on. memlith_track_end records
 * the range, unless `stored` is 0 (a compare-and-swap that failed). */
MEMLITH_API void memlith_track_begin(const void* address, size_t bytes);
MEMLITH_API void memlith_track_end(const void* address, size_t bytes, int stored);

/* For compilers that tell of a store before it is made: the calling thread is about to store to [address, address +
 * bytes), once or several times. Each persist of another thread captures the range, until the thread settled: it
 * settles when it persists, when it ends, and with memlith_track_settle, which says that all stores were made of which
 * it told. memlith_track_before may be called in a signal handler, memlith_track_settle must not. Durability: none. */
MEMLITH_API void memlith_track_before(const void* address, size_t bytes);
MEMLITH_API void memlith_track_settle(void);

/* All instrumented regions lie in [low, high), and at least MEMLITH_TRACK_MARGIN from both ends; code has to make the
 * calls above for these addresses only. For a field of an object it may compare the object's address instead, which
 * lies within the range, too, if it is at most the margin away from the field. `low` is the largest number and `high`
 * is 0 while there is no region. Each end may change at any time; while there is a region, the range only widens. */
#define MEMLITH_TRACK_MARGIN 4096
typedef struct memlith_track_range {
  uintptr_t low;
  uintptr_t high;
} memlith_track_range;

/* Keeps the caller's range up to date until memlith_track_detach. */
MEMLITH_API void memlith_track_attach(memlith_track_range* range);
MEMLITH_API void memlith_track_detach(memlith_track_range* range);

#ifdef __cplusplus
}
#endif

#endif
