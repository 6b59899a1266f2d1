// Shared by the test programs: a region in the store that the first argument names, in C and C++.
#pragma once

#include <memlith/memlith.h>
#include <memlith/track.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static memlith_store* store;
static memlith_region* region;
static int first_run;  // the region is new

static void must(int32_t code, const char* what) {
  char text[512];
  if (code == MEMLITH_OK) return;
  (void)memlith_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  exit(3);
}

static inline char* open_region(int argc, char** argv, uint64_t bytes) {
  if (argc < 2) exit(2);
  memlith_store_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  must(memlith_store_open(argv[1], &options, &store), "open the store");
  memlith_region_options wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.struct_size = sizeof wanted;
  wanted.flags = MEMLITH_CREATE;
  wanted.tracker = MEMLITH_TRACKER_INSTRUMENTED;
  wanted.size = bytes;
  must(memlith_region_open(store, "a", &wanted, &region), "open the region");
  char* const base = (char*)memlith_region_address(region);
  first_run = base[bytes - 1] == 0;
  base[bytes - 1] = 1;
  return base;
}
static inline void persist(void) { must(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), "persist"); }
static inline void persist_own(void) { must(memlith_persist(&region, 1, MEMLITH_SCOPE_THREAD), "persist"); }
static inline void close_region(void) {
  must(memlith_region_close(region), "close the region");
  must(memlith_store_close(store), "close the store");
}
