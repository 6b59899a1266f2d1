// For `./dev bench instrumented`: the calls that memlith-cc puts behind stores, in the place of the runtime's, without
// effect. Built with clang 19, for its calling convention.
#include <stdint.h>

#define EMPTY __attribute__((visibility("hidden"), preserve_most)) void

EMPTY __memlith_store(const void* address, uint64_t bytes) { (void)address, (void)bytes; }
EMPTY __memlith_atomic_begin(const void* address, uint64_t bytes) { (void)address, (void)bytes; }
EMPTY __memlith_atomic_end(const void* address, uint64_t bytes, uint64_t stored) {
  (void)address, (void)bytes, (void)stored;
}
EMPTY __memlith_masked(const char* address, uint64_t mask, uint64_t lane_bytes) {
  (void)address, (void)mask, (void)lane_bytes;
}
