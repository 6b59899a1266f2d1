/* The range that instrumented code compares addresses with. The linker makes one for each program and each shared
 * library, so that reading it takes no detour.
 *
 * libmemlith is referred to weakly: a program that never opens a region need not be linked with libmemlith. */
#include <memlith/track.h>

#pragma weak memlith_track_attach
#pragma weak memlith_track_detach

__attribute__((visibility("hidden"))) memlith_track_range __memlith_range = {UINTPTR_MAX, 0};

__attribute__((constructor(101))) static void attach(void) {
  if (memlith_track_attach) memlith_track_attach(&__memlith_range);
}
__attribute__((destructor(101))) static void detach(void) {
  if (memlith_track_detach) memlith_track_detach(&__memlith_range);
}
