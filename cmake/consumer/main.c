/* Stores a number through the installed C interface, and finds it again:   consumer_c FOLDER
 * FOLDER must exist; the store is made in it. */
#include <memlith/memlith.h>
#include <stdio.h>

#ifndef CONSUMER_TRACKER
#define CONSUMER_TRACKER MEMLITH_TRACKER_AUTO
#endif

static int failed(const char* what) {
  char message[512];
  memlith_last_error(message, sizeof message);
  fprintf(stderr, "consumer: %s: %s\n", what, message);
  return 1;
}

/* Opens the store, adds one to the number in it, persists, and says in *number what it is now. */
static int add_one(const char* path, uint64_t* number) {
  memlith_store_options store_options = {.struct_size = sizeof store_options, .flags = MEMLITH_OPEN_CREATE};
  memlith_region_options region_options = {
      .struct_size = sizeof region_options, .flags = MEMLITH_CREATE, .tracker = CONSUMER_TRACKER, .size = 4096};
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  if (memlith_store_open(path, &store_options, &store) != MEMLITH_OK) return failed("open");
  int status = 0;
  if (memlith_region_open(store, "number", &region_options, &region) != MEMLITH_OK) {
    status = failed("region");
  } else {
    uint64_t* stored = memlith_region_address(region);
    *number = ++*stored;
    if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) status = failed("persist");
  }
  if (memlith_store_close(store) != MEMLITH_OK) status = failed("close");
  return status;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: consumer_c FOLDER\n");
    return 2;
  }
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/store", argv[1]);
  if (length < 0 || (size_t)length >= sizeof path) return 2;
  uint64_t first = 0;
  uint64_t second = 0;
  if (add_one(path, &first) != 0 || add_one(path, &second) != 0) return 1;
  if (first != 1 || second != 2) {
    fprintf(stderr, "consumer: expected 1 and 2, found %llu and %llu\n", (unsigned long long)first,
            (unsigned long long)second);
    return 1;
  }
  printf("memlith %s: stored, persisted, reopened\n", memlith_version());
  return 0;
}
