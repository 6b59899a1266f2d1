/* The runtime of code that memlith-gcc compiled (docs/compiler-pass.md): the functions that GCC calls before stores
 * with -fsanitize=kernel-address. They take an address of any memory. */
#include "stored.h"

#pragma weak memlith_track_before

#define HIDDEN __attribute__((visibility("hidden")))

static inline void before(const void* address, size_t bytes) {
  if (is_tracked(address)) memlith_track_before(address, bytes);
}

/* The second name is that of -fno-sanitize-recover. */
#define BEFORE(bytes)                                                                        \
  HIDDEN void __asan_store##bytes##_noabort(const void* address) { before(address, bytes); } \
  HIDDEN void __asan_store##bytes(const void* address) { before(address, bytes); }
BEFORE(1)
BEFORE(2)
BEFORE(4)
BEFORE(8)
BEFORE(16)
/* Calls of memlith/track_gcc.hpp. */
HIDDEN void __memlith_before(const void* address, size_t bytes) { before(address, bytes); }
HIDDEN void __asan_storeN_noabort(const void* address, size_t bytes) { before(address, bytes); }
HIDDEN void __asan_storeN(const void* address, size_t bytes) { before(address, bytes); }

/* GCC also tells of reads by memcmp(), of functions that end without a return, and of constructors of globals. */
HIDDEN void __asan_loadN_noabort(const void* address, size_t bytes) { (void)address, (void)bytes; }
HIDDEN void __asan_loadN(const void* address, size_t bytes) { (void)address, (void)bytes; }
HIDDEN void __asan_handle_no_return(void) {}
HIDDEN void __asan_before_dynamic_init(const void* module) { (void)module; }
HIDDEN void __asan_after_dynamic_init(void) {}
