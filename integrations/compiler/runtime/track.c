/* The runtime of instrumented code (docs/compiler-pass.md): the calls that the pass puts behind stores. memlith-cc
 * links it into every program and every shared library. Compiled with clang, for its calling convention. */
#include <memlith/track.h>

#define HIDDEN __attribute__((visibility("hidden")))

#pragma weak memlith_track_store
#pragma weak memlith_track_begin
#pragma weak memlith_track_end

/* These keep the caller's general registers. They are called for addresses within the range only. */
HIDDEN __attribute__((preserve_most)) void __memlith_store(const void* address, uint64_t bytes) {
  memlith_track_store(address, bytes);
}
HIDDEN __attribute__((preserve_most)) void __memlith_atomic_begin(const void* address, uint64_t bytes) {
  memlith_track_begin(address, bytes);
}
HIDDEN __attribute__((preserve_most)) void __memlith_atomic_end(const void* address, uint64_t bytes, uint64_t stored) {
  memlith_track_end(address, bytes, stored != 0);
}
/* A vector of which the lanes in `mask` were stored. */
HIDDEN __attribute__((preserve_most)) void __memlith_masked(const char* address, uint64_t mask, uint64_t lane_bytes) {
  for (; mask != 0; mask >>= 1, address += lane_bytes) {
    if (mask & 1) memlith_track_store(address, lane_bytes);
  }
}
