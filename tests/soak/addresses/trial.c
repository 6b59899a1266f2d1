/* A start of addresses.py, from any language: opens a store with a kv store, a log and a region with pointers, as a
 * server would that comes back after a crash. trial_start() returns 0, or the number of the failed step:
 * 1 the store, 2 the kv store, 3 the log, 4 the region. */
#include <memlith/applog.h>
#include <memlith/kv.h>
#include <memlith/memlith.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(int what) {
  char text[1024];
  memlith_last_error(text, sizeof text);
  fprintf(stderr, "%s\n", text);
  return what;
}

int trial_start(void) {
  memlith_store* store = NULL;
  memlith_kv* kv = NULL;
  memlith_applog* log = NULL;
  memlith_region* region = NULL;
  memlith_store_options store_options;
  memlith_kv_options kv_options;
  memlith_applog_options log_options;
  memlith_region_options region_options;
  memset(&store_options, 0, sizeof store_options);
  memset(&kv_options, 0, sizeof kv_options);
  memset(&log_options, 0, sizeof log_options);
  memset(&region_options, 0, sizeof region_options);
  store_options.struct_size = sizeof store_options;
  store_options.flags = MEMLITH_OPEN_CREATE;
  kv_options.struct_size = sizeof kv_options;
  kv_options.flags = MEMLITH_CREATE;
  log_options.struct_size = sizeof log_options;
  log_options.flags = MEMLITH_CREATE;
  log_options.when_full = MEMLITH_APPLOG_GROW;
  log_options.size = 1 << 20;
  region_options.struct_size = sizeof region_options;
  region_options.flags = MEMLITH_CREATE;
  region_options.size = 1 << 20; /* 1 GiB of addresses */
  if (memlith_store_open(getenv("MEMLITH_TRIAL_STORE"), &store_options, &store) != MEMLITH_OK) return failed(1);
  if (memlith_kv_open(store, "kv", &kv_options, &kv) != MEMLITH_OK) return failed(2);
  if (memlith_applog_open(store, "log", &log_options, &log) != MEMLITH_OK) return failed(3);
  if (memlith_region_open(store, "pointers", &region_options, &region) != MEMLITH_OK) return failed(4);
  return 0; /* without closing: the next start finds what a kill leaves */
}

/* Java and Node.js call these by name when they load the library; neither needs a header for it. */
int32_t JNI_OnLoad(void* machine, void* reserved) {
  (void)machine;
  (void)reserved;
  _Exit(trial_start());
}
void* napi_register_module_v1(void* environment, void* exports) {
  (void)environment;
  (void)exports;
  _Exit(trial_start());
}

#ifdef TRIAL_MAIN
int main(void) {
  volatile char* const block = malloc(256u << 20); /* as the other languages have */
  if (block != NULL) block[0] = 1;
  return trial_start();
}
#endif
