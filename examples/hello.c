/* The smallest memlith program in C: a counter in plain memory that outlives the process.
 *
 *   hello_c [FOLDER]      prints "run 1" the first time, "run 2" the next, and so on
 */
#include <stdio.h>
#include <string.h>

#include "memlith/memlith.h"

struct hello {
  uint64_t runs;
};

static int failed(const char* what) {
  char message[512];
  memlith_last_error(message, sizeof message);
  fprintf(stderr, "hello: %s: %s\n", what, message);
  return 1;
}

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    puts("usage: hello_c [FOLDER]");
    return strcmp(argv[1], "--help") != 0;
  }
  const char* folder = argc > 1 ? argv[1] : "hello-store";
  memlith_store_options store_options = {.struct_size = sizeof store_options, .flags = MEMLITH_OPEN_CREATE};
  memlith_store* store = NULL;
  if (memlith_store_open(folder, &store_options, &store) != MEMLITH_OK) return failed(folder);

  int status = 0;
  memlith_region_options region_options = {.struct_size = sizeof region_options, .flags = MEMLITH_CREATE, .size = 4096};
  memlith_region* region = NULL;
  if (memlith_region_open(store, "hello_c", &region_options, &region) != MEMLITH_OK) {
    status = failed("region hello_c");
  } else {
    struct hello* hello = memlith_region_address(region); /* all zeros when the region is new */
    hello->runs++;                                        /* a plain store into plain memory */
    if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != MEMLITH_OK) {
      status = failed("persist");
    } else {
      printf("run %llu\n", (unsigned long long)hello->runs); /* from here on no crash can take it back */
    }
  }
  /* Closing the store closes its regions too. */
  if (memlith_store_close(store) != MEMLITH_OK) status = failed("close");
  return status;
}
