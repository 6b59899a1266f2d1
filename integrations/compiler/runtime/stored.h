/* Shared by the functions __memlith_wrap_NAME: recording the bytes that a function of the C library wrote. */
#pragma once

#include <memlith/track.h>
#include <stdbool.h>
#include <string.h>

extern memlith_track_range __memlith_range __attribute__((visibility("hidden")));
#pragma weak memlith_track_store
#pragma weak memlith_track_begin
#pragma weak memlith_track_end

/* Weak: the program may have a function NAME of its own, which the pass gives this name, too. */
#define WRAP(type, name) __attribute__((weak, visibility("hidden"))) type __memlith_wrap_##name

static inline bool is_tracked(const void* address) {
  return (uintptr_t)address < __memlith_range.high && (uintptr_t)address >= __memlith_range.low;
}
static inline void stored(const void* address, size_t bytes) {
  if (is_tracked(address)) memlith_track_store(address, bytes);
}
static inline void stored_text(const char* text) {
  if (is_tracked(text)) memlith_track_store(text, strlen(text) + 1);
}
