/* For gdb_test.py: stores to pages of a region that is tracked by `fault`; with a second argument, to address 8, too.
 * Usage: fault_main STORE [wild] */
#include <stdint.h>
#include <stdio.h>

#include "memlith/memlith.h"

static void store_wildly(void) { *(volatile int*)8 = 1; }

int main(int argc, char** argv) {
  memlith_store_options store_options = {.struct_size = sizeof store_options, .flags = MEMLITH_OPEN_CREATE};
  memlith_region_options options = {
      .struct_size = sizeof options, .flags = MEMLITH_CREATE, .tracker = MEMLITH_TRACKER_FAULT, .size = 16 * 4096};
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  if (memlith_store_open(argv[1], &store_options, &store) != 0) return 1;
  if (memlith_region_open(store, "main", &options, &region) != 0) return 1;
  for (int page = 0; page < 16; ++page) ((volatile char*)memlith_region_address(region))[page * 4096] = 1;
  if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != 0) return 1;
  printf("persisted\n");
  fflush(stdout);
  if (argc > 2) store_wildly();
  return memlith_store_close(store) == 0 ? 0 : 1;
}
