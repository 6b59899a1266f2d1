/* Functions at which a thread of a program that memlith-gcc compiled settles (memlith/track.h): its records of stores
 * count from there on as those of other compilers do. */
#define _GNU_SOURCE
#include <memlith/heap.h>
#include <pthread.h>

#include "stored.h"

#pragma weak memlith_track_settle
#pragma weak memlith_heap_allocate
#pragma weak memlith_heap_free

#define MEMLITH_SETTLING(type, name, parameters, arguments) \
  WRAP(type, name) parameters {                             \
    if (__memlith_range.high != 0) memlith_track_settle();  \
    return name arguments;                                  \
  }
#include "settling.inc"
