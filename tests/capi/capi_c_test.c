/* docs/guarantees.md, per call: the C interface, from C11. Every function, its errors, and the numbers, which are for
 * ever. */
#include "capi/capi_c_test.h"

#include <stdio.h>
#include <string.h>

#include "memlith/memlith.h"
#include "private/inside.h"

char capi_c_found[1400];

/* The category that a call returned, told in full when it is another. */
#define EXPECT_CODE(expected, call)                                                                    \
  do {                                                                                                 \
    const int32_t code_ = (call);                                                                      \
    if (memlith_category(code_) != (expected)) {                                                       \
      char text_[1024];                                                                                \
      memlith_last_error(text_, sizeof text_);                                                         \
      snprintf(capi_c_found, sizeof capi_c_found, "%s: wanted category %d, got %d (%s) \"%s\"", #call, \
               (int)(expected), (int)code_, memlith_category_name(code_), text_);                      \
      return __LINE__;                                                                                 \
    }                                                                                                  \
  } while (0)
#define EXPECT_OK(call) EXPECT_CODE(MEMLITH_OK, call)
#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      snprintf(capi_c_found, sizeof capi_c_found, "%s does not hold", #condition); \
      return __LINE__;                                                             \
    }                                                                              \
  } while (0)

static char* const kUntouched = "untouched";

static memlith_store_options store_options(uint32_t flags) {
  memlith_store_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = flags;
  options.log_bytes = 256 * 1024;
  options.log_max_bytes = 512 * 1024;
  return options;
}

static memlith_region_options region_options(uint32_t flags, uint64_t size) {
  memlith_region_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = flags;
  options.size = size;
  return options;
}

static const char* path_in(const char* folder, const char* name) {
  static char path[2][512];
  static int turn;
  turn = 1 - turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

static int32_t open_store(const char* folder, memlith_store** store) {
  const memlith_store_options options = store_options(MEMLITH_OPEN_CREATE);
  return memlith_store_open(path_in(folder, "store"), &options, store);
}

static int32_t open_region(memlith_store* store, const char* name, memlith_region** region) {
  const memlith_region_options options = region_options(MEMLITH_CREATE, 64 * 1024);
  return memlith_region_open(store, name, &options, region);
}

/* Numbers are only ever appended: programs were compiled with these. */
int capi_c_numbers(const char* folder) {
  (void)folder;
  EXPECT(MEMLITH_OK == 0 && MEMLITH_INVALID == 1 && MEMLITH_NOT_FOUND == 2 && MEMLITH_EXISTS == 3);
  EXPECT(MEMLITH_BUSY == 4 && MEMLITH_IO == 5 && MEMLITH_CORRUPT == 6 && MEMLITH_INCOMPATIBLE == 7);
  EXPECT(MEMLITH_FULL == 8 && MEMLITH_NO_SPACE == 9 && MEMLITH_POISONED == 10 && MEMLITH_PERMISSION == 11);
  EXPECT(MEMLITH_READ_ONLY == 12 && MEMLITH_ADDRESS_TAKEN == 13 && MEMLITH_UNSUPPORTED == 14 &&
         MEMLITH_NO_MEMORY == 15 && MEMLITH_TOO_MANY_FILES == 16 && MEMLITH_CONFLICT == 17);
  EXPECT(MEMLITH_OPEN_CREATE == 1 && MEMLITH_OPEN_READ_ONLY == 2 && MEMLITH_OPEN_EXCLUSIVE == 4);
  EXPECT(MEMLITH_CREATE == 1 && MEMLITH_EXCLUSIVE == 2 && MEMLITH_REGION_PROCESS_SCOPE == 4);
  EXPECT(MEMLITH_REGION_ANYWHERE == 8 && MEMLITH_REGION_THREAD_SCOPE == 16);
  EXPECT(MEMLITH_IO_AUTO == 0 && MEMLITH_IO_POSIX == 1 && MEMLITH_IO_DAX == 3);
  EXPECT(MEMLITH_TRACKER_AUTO == 0 && MEMLITH_TRACKER_SCAN == 1 && MEMLITH_TRACKER_EXPLICIT == 2 &&
         MEMLITH_TRACKER_FAULT == 3 && MEMLITH_TRACKER_INSTRUMENTED == 4);
  EXPECT(MEMLITH_VERSION_MAJOR == 0 && MEMLITH_VERSION_MINOR == 1 && MEMLITH_VERSION_PATCH == 0);
  EXPECT(strcmp(memlith_version(), "0.1.0") == 0);
  EXPECT(memlith_category(0x0a08) == MEMLITH_FULL);
  EXPECT(strcmp(memlith_category_name(MEMLITH_FULL), "log full") == 0);
  EXPECT(strcmp(memlith_category_name(0x0a00 + MEMLITH_FULL), "log full") == 0);
  for (int32_t code = -3; code < 300; ++code) {
    EXPECT(memlith_category_name(code) != NULL && memlith_category_name(code)[0] != 0);
  }
  /* The layout of the option and info structs: fields are appended, never moved. */
  EXPECT(offsetof(memlith_store_options, flags) == 8 && offsetof(memlith_store_options, io) == 12 &&
         offsetof(memlith_store_options, log_bytes) == 16);
  EXPECT(offsetof(memlith_store_options, progress) == 40 && sizeof(memlith_store_options) == 104);
  EXPECT(MEMLITH_SCOPE_PROCESS == 0 && MEMLITH_SCOPE_THREAD == 1);
  EXPECT(offsetof(memlith_region_options, flags) == 8 && offsetof(memlith_region_options, address) == 32);
  EXPECT(sizeof(memlith_region_options) == 40);
  EXPECT(offsetof(memlith_store_info, replayed_bytes) == 96 && offsetof(memlith_store_info, was_clean) == 120 &&
         offsetof(memlith_store_info, log_id) == 136 && offsetof(memlith_store_info, io) == 144 &&
         offsetof(memlith_store_info, follows) == 152 && offsetof(memlith_store_info, view_bytes) == 160 &&
         offsetof(memlith_store_info, log_block_bytes) == 168 && offsetof(memlith_store_info, device_bytes) == 176 &&
         offsetof(memlith_store_info, marks_sqlite) == 192 && offsetof(memlith_store_info, disk_name) == 216 &&
         sizeof(memlith_store_info) == 280);
  EXPECT(offsetof(memlith_region_info, address) == 208 && sizeof(memlith_region_info) == 752);
  EXPECT(offsetof(memlith_report, superblock_copies) == 64 && sizeof(memlith_report) == 80);
  return 0;
}

/* The whole life: create, store, persist, close, find again. */
int capi_c_life(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(open_region(store, "main", &region));
  int* const numbers = memlith_region_address(region);
  EXPECT(memlith_region_size(region) == 64 * 1024);
  EXPECT(numbers[0] == 0);
  numbers[0] = 42;
  EXPECT_OK(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS));
  numbers[1] = 43; /* never persisted */
  EXPECT_OK(memlith_store_close(store));

  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(memlith_region_open(store, "main", NULL, &region));
  EXPECT(memlith_region_address(region) == numbers);
  EXPECT(numbers[0] == 42 && numbers[1] == 0);
  numbers[1] = 44;
  EXPECT_OK(memlith_persist_all(store, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_store_checkpoint(store));
  EXPECT_OK(memlith_region_close(region));
  EXPECT_OK(memlith_region_open(store, "main", NULL, &region));
  EXPECT(numbers[1] == 44);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* Null where a thing is needed is INVALID; null where nothing may be given is fine. */
int capi_c_null_arguments(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  memlith_region* none = NULL;
  memlith_region_info region_info;
  const memlith_store_options options = store_options(MEMLITH_OPEN_CREATE);
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(NULL, &options, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open("", &options, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_file_open(NULL, &options, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_file_open("", &options, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_file_open(path_in(folder, "file"), &options, NULL));
  EXPECT(store == NULL);
  EXPECT_OK(memlith_store_close(NULL));
  EXPECT_OK(memlith_region_close(NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_checkpoint(NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_all(NULL, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist(NULL, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist(&none, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_persist(NULL, 0, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(NULL, "a", NULL, &region));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_grow(NULL, 4096));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_remove(NULL, "a"));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_get_info(NULL, &region_info));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_get_info(NULL, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_region_at(NULL, 0, &region_info));
  EXPECT_CODE(MEMLITH_INVALID, memlith_touch(NULL, NULL, 0));
  EXPECT_CODE(MEMLITH_INVALID, memlith_verify(NULL, NULL));

  EXPECT_OK(open_store(folder, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, NULL, NULL, &region));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "a", NULL, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_remove(store, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_get_info(store, NULL));
  EXPECT_OK(open_region(store, "a", &region));
  {
    memlith_region* const second_null[2] = {region, NULL};
    EXPECT_CODE(MEMLITH_INVALID, memlith_persist(second_null, 2, MEMLITH_SCOPE_PROCESS));
  }
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_get_info(region, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_region_at(store, 0, NULL));
  EXPECT_OK(memlith_store_close(store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_verify(path_in(folder, "store"), NULL));
  return 0;
}

/* A caller compiled against an earlier or a later header: what it knows is used, what it adds must be zero. */
int capi_c_struct_sizes(const char* folder) {
  struct later_store_options {
    memlith_store_options known;
    uint64_t unknown[3];
  } later;
  struct later_region_options {
    memlith_region_options known;
    uint64_t unknown[3];
  } later_region;
  memlith_store* store = (memlith_store*)kUntouched;
  memlith_region* region = (memlith_region*)kUntouched;
  memset(&later, 0, sizeof later);
  later.known = store_options(MEMLITH_OPEN_CREATE);
  later.known.struct_size = sizeof later;
  later.unknown[2] = 1;
  EXPECT_CODE(MEMLITH_UNSUPPORTED, memlith_store_open(path_in(folder, "store"), &later.known, &store));
  EXPECT(store == (memlith_store*)kUntouched);
  later.unknown[2] = 0;
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &later.known, &store));

  memset(&later_region, 0, sizeof later_region);
  later_region.known = region_options(MEMLITH_CREATE, 8192);
  later_region.known.struct_size = sizeof later_region;
  later_region.unknown[0] = 1;
  EXPECT_CODE(MEMLITH_UNSUPPORTED, memlith_region_open(store, "a", &later_region.known, &region));
  EXPECT(region == (memlith_region*)kUntouched);
  later_region.unknown[0] = 0;
  EXPECT_OK(memlith_region_open(store, "a", &later_region.known, &region));
  EXPECT_OK(memlith_store_close(store));

  const uint64_t wrong[] = {0, 1, 7, 4097, ~(uint64_t)0};
  for (int i = 0; i < 5; ++i) {
    memlith_store_options options = store_options(0);
    options.struct_size = wrong[i];
    EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  }
  /* An earlier header's struct ends in the middle of ours: the rest is defaults, whatever lies behind. */
  memlith_store_options earlier = store_options(0);
  earlier.struct_size = offsetof(memlith_store_options, log_bytes);
  earlier.log_bytes = 1; /* would be refused */
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &earlier, &store));

  /* Info structs are filled as far as the caller knows them, and not beyond. */
  memlith_store_info info;
  memset(&info, 0x55, sizeof info);
  info.struct_size = 16;
  EXPECT_OK(memlith_store_get_info(store, &info));
  EXPECT(info.struct_size == 16 && info.region_count == 1 && info.log_bytes == 0x5555555555555555u);
  info.struct_size = 7;
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_get_info(store, &info));
  struct later_info {
    memlith_store_info known;
    uint64_t unknown;
  } later_info;
  memset(&later_info, 0, sizeof later_info);
  later_info.known.struct_size = sizeof later_info;
  later_info.unknown = 99;
  EXPECT_OK(memlith_store_get_info(store, &later_info.known));
  EXPECT(later_info.known.struct_size == sizeof later_info && later_info.known.region_count == 1);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* Unknown flags and numbers out of range are refused before anything happens. */
int capi_c_flags(const char* folder) {
  memlith_store* store = (memlith_store*)kUntouched;
  memlith_region* region = (memlith_region*)kUntouched;
  memlith_store_options options = store_options(MEMLITH_OPEN_CREATE | 16);
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  options = store_options(MEMLITH_OPEN_CREATE | MEMLITH_OPEN_READ_ONLY);
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  options = store_options(MEMLITH_OPEN_CREATE);
  options.log_bytes = 1000;
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  options = store_options(MEMLITH_OPEN_CREATE);
  options.log_max_bytes = options.log_bytes - 4096;
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  options = store_options(MEMLITH_OPEN_CREATE);
  options.log_bytes = options.log_max_bytes = ~(uint64_t)0;
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  options = store_options(MEMLITH_OPEN_CREATE);
  options.io = MEMLITH_IO_DAX + 1;
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_open(path_in(folder, "store"), &options, &store));
  EXPECT(store == (memlith_store*)kUntouched);

  EXPECT_OK(open_store(folder, &store));
  memlith_region_options wanted = region_options(MEMLITH_CREATE | 8, 8192);
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "a", &wanted, &region));
  wanted = region_options(MEMLITH_CREATE, 8192);
  wanted.tracker = MEMLITH_TRACKER_INSTRUMENTED + 1;
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "a", &wanted, &region));
  EXPECT(region == (memlith_region*)kUntouched);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* The sentence of the last failure, whole or cut, always ended. */
int capi_c_last_error(const char* folder) {
  memlith_store* store = NULL;
  char whole[1024];
  char cut[8] = "xxxxxxx";
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_open(path_in(folder, "nothing here"), NULL, &store));
  const size_t length = memlith_last_error(whole, sizeof whole);
  EXPECT(length == strlen(whole) && length > 20);
  EXPECT(strstr(whole, path_in(folder, "nothing here")) != NULL);
  EXPECT(memlith_last_error(cut, sizeof cut) == length);
  EXPECT(strlen(cut) == 7 && strncmp(cut, whole, 7) == 0);
  cut[0] = 'y';
  EXPECT(memlith_last_error(cut, 1) == length && cut[0] == 0);
  cut[0] = 'y';
  EXPECT(memlith_last_error(cut, 0) == length && cut[0] == 'y');
  EXPECT(memlith_last_error(NULL, 100) == length);
  /* A path longer than the sentence may be. */
  char endless[3000];
  memset(endless, 'p', sizeof endless);
  endless[sizeof endless - 1] = 0;
  EXPECT(memlith_store_open(endless, NULL, &store) != MEMLITH_OK);
  EXPECT(memlith_last_error(whole, sizeof whole) >= strlen(whole));
  EXPECT(strlen(whole) == sizeof whole - 1);
  return 0;
}

/* Regions: listed, described, grown, removed. */
int capi_c_regions(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* a = NULL;
  memlith_region* b = NULL;
  memlith_region_info info;
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(open_region(store, "first", &a));
  memlith_region_options options = region_options(MEMLITH_CREATE, 5000);
  options.max_size = 32 * 1024;
  options.tracker = MEMLITH_TRACKER_EXPLICIT;
  EXPECT_OK(memlith_region_open(store, "second", &options, &b));

  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT_OK(memlith_region_get_info(b, &info));
  EXPECT(strcmp(info.name, "second") == 0 && info.size == 8192 && info.max_size == 32 * 1024);
  EXPECT(info.address == (uint64_t)(uintptr_t)memlith_region_address(b));
  EXPECT(info.tracker == MEMLITH_TRACKER_EXPLICIT && info.tracker_detail[0] != 0);
  EXPECT_OK(memlith_store_region_at(store, 0, &info));
  EXPECT(strcmp(info.name, "first") == 0 && info.tracker != 0);
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_region_at(store, 2, &info));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_region_at(store, ~(uint64_t)0, &info));

  char* const bytes = memlith_region_address(b);
  EXPECT_OK(memlith_region_grow(b, 20000));
  EXPECT(memlith_region_size(b) == 20480);
  bytes[0] = 1;
  bytes[20479] = 2;
  EXPECT_OK(memlith_touch(b, bytes, 1));
  EXPECT_OK(memlith_touch(b, bytes + 20479, 1));
  memlith_region* const both[2] = {b, a};
  EXPECT_OK(memlith_persist(both, 2, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_region_close(b));
  EXPECT_OK(memlith_store_region_at(store, 1, &info));
  EXPECT(strcmp(info.name, "second") == 0 && info.size == 20480 && info.tracker == 0);
  EXPECT_OK(memlith_region_open(store, "second", NULL, &b));
  EXPECT(memlith_region_address(b) == bytes && bytes[0] == 1 && bytes[20479] == 2);
  EXPECT_OK(memlith_region_close(b));
  EXPECT_OK(memlith_region_remove(store, "second"));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_region_at(store, 1, &info));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_region_open(store, "second", NULL, &b));
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* The failures of a region, each by its code. */
int capi_c_region_errors(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* a = NULL;
  memlith_region* other = (memlith_region*)kUntouched;
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(open_region(store, "a", &a));
  EXPECT_CODE(MEMLITH_BUSY, open_region(store, "a", &other));
  EXPECT_CODE(MEMLITH_BUSY, memlith_region_remove(store, "a"));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_region_remove(store, "b"));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_region_open(store, "b", NULL, &other));
  EXPECT_CODE(MEMLITH_INVALID, open_region(store, "", &other));
  char name[201];
  memset(name, 'n', 200);
  name[200] = 0;
  EXPECT_CODE(MEMLITH_INVALID, open_region(store, name, &other));
  memlith_region_options options = region_options(MEMLITH_CREATE, 0);
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "b", &options, &other));
  options = region_options(MEMLITH_CREATE, 8192);
  options.address = (uint64_t)(uintptr_t)memlith_region_address(a);
  EXPECT_CODE(MEMLITH_ADDRESS_TAKEN, memlith_region_open(store, "b", &options, &other));
  options.address = 12345;
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "b", &options, &other));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_grow(a, 4096));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_grow(a, ~(uint64_t)0));
  const char* const bytes = memlith_region_address(a);
  EXPECT_CODE(MEMLITH_INVALID, memlith_touch(a, bytes + 64 * 1024, 1));
  EXPECT_CODE(MEMLITH_INVALID, memlith_touch(a, bytes - 1, 1));
  EXPECT_CODE(MEMLITH_INVALID, memlith_touch(a, bytes, ~(uint64_t)0));
  EXPECT_OK(memlith_touch(a, bytes, 64 * 1024));
  EXPECT_OK(memlith_region_close(a));
  options = region_options(MEMLITH_CREATE | MEMLITH_EXCLUSIVE, 8192);
  EXPECT_CODE(MEMLITH_EXISTS, memlith_region_open(store, "a", &options, &other));
  EXPECT(other == (memlith_region*)kUntouched);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* FULL leaves everything to be split; regions of two stores do not mix. */
int capi_c_persist_errors(const char* folder) {
  memlith_store* store = NULL;
  memlith_store* second = NULL;
  memlith_region* large = NULL;
  memlith_region* small = NULL;
  memlith_region* foreign = NULL;
  EXPECT_OK(open_store(folder, &store));
  const memlith_store_options other = store_options(MEMLITH_OPEN_CREATE);
  EXPECT_OK(memlith_store_open(path_in(folder, "second"), &other, &second));
  memlith_region_options options = region_options(MEMLITH_CREATE, 1024 * 1024);
  EXPECT_OK(memlith_region_open(store, "large", &options, &large));
  EXPECT_OK(open_region(store, "small", &small));
  EXPECT_OK(open_region(second, "foreign", &foreign));
  memset(memlith_region_address(large), 1, 1024 * 1024);
  memset(memlith_region_address(small), 1, 1024);
  EXPECT_CODE(MEMLITH_FULL, memlith_persist(&large, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_FULL, memlith_persist_all(store, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_persist(&small, 1, MEMLITH_SCOPE_PROCESS));
  memlith_region* const mixed[2] = {small, foreign};
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist(mixed, 2, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_store_close(second));
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* Creating, exclusively or not, reading only, and being second. */
int capi_c_store_modes(const char* folder) {
  memlith_store* store = NULL;
  memlith_store* second = (memlith_store*)kUntouched;
  memlith_region* region = NULL;
  memlith_store_options options = store_options(0);
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_open(path_in(folder, "store"), &options, &second));
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_store_open(path_in(folder, "store"), NULL, &second));
  options = store_options(MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE);
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &options, &store));
  EXPECT_OK(open_region(store, "a", &region));
  EXPECT_CODE(MEMLITH_BUSY, open_store(folder, &second));
  EXPECT_OK(memlith_store_close(store));
  EXPECT_CODE(MEMLITH_EXISTS, memlith_store_open(path_in(folder, "store"), &options, &second));
  EXPECT(second == (memlith_store*)kUntouched);

  options = store_options(MEMLITH_OPEN_READ_ONLY);
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &options, &store));
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &options, &second));
  EXPECT_OK(memlith_region_open(store, "a", NULL, &region));
  EXPECT(*(char*)memlith_region_address(region) == 0);
  EXPECT_CODE(MEMLITH_READ_ONLY, memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_READ_ONLY, memlith_persist_all(store, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_READ_ONLY, memlith_region_grow(region, 128 * 1024));
  EXPECT_CODE(MEMLITH_READ_ONLY, memlith_region_remove(store, "a"));
  EXPECT_CODE(MEMLITH_READ_ONLY, memlith_store_checkpoint(store));
  EXPECT_CODE(MEMLITH_READ_ONLY, open_region(store, "b", &region));
  memlith_store_info info;
  info.struct_size = sizeof info;
  EXPECT_OK(memlith_store_get_info(store, &info));
  EXPECT(info.read_only == 1);
  EXPECT_OK(memlith_store_close(store));
  EXPECT_OK(memlith_store_close(second));
  return 0;
}

/* One ordinary file. */
int capi_c_files(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  memlith_region_info info;
  char content[64];
  FILE* plain = fopen(path_in(folder, "notes.txt"), "w");
  EXPECT(plain != NULL && fputs("dear diary", plain) >= 0 && fclose(plain) == 0);
  const memlith_store_options options = store_options(MEMLITH_OPEN_CREATE);
  EXPECT_OK(memlith_file_open(path_in(folder, "notes.txt"), &options, &store));
  EXPECT_OK(memlith_region_open(store, "file", NULL, &region));
  EXPECT(memlith_region_size(region) == 10);
  EXPECT(memcmp(memlith_region_address(region), "dear diary", 10) == 0);
  EXPECT_OK(memlith_region_grow(region, 13));
  memcpy((char*)memlith_region_address(region) + 10, ", 1", 3);
  EXPECT_OK(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS));
  info.struct_size = sizeof info;
  EXPECT_OK(memlith_store_region_at(store, 0, &info));
  EXPECT(strcmp(info.name, "file") == 0 && info.size == 13);
  EXPECT_OK(memlith_region_close(region));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_remove(store, "file"));
  EXPECT_OK(memlith_store_close(store));
  plain = fopen(path_in(folder, "notes.txt"), "r");
  EXPECT(plain != NULL && fgets(content, sizeof content, plain) != NULL && fclose(plain) == 0);
  EXPECT(strcmp(content, "dear diary, 1") == 0);

  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_file_open(path_in(folder, "none"), NULL, &store));
  EXPECT_CODE(MEMLITH_INVALID, memlith_file_open(path_in(folder, "folder/"), &options, &store));
  EXPECT(memlith_file_open(path_in(folder, "."), &options, &store) != MEMLITH_OK);
  /* A store opened as what it is not. */
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(memlith_store_close(store));
  EXPECT(memlith_file_open(path_in(folder, "store"), &options, &store) != MEMLITH_OK);
  EXPECT(memlith_store_open(path_in(folder, "notes.txt"), &options, &store) != MEMLITH_OK);
  return 0;
}

/* Verification: what is there, whether it was closed, and that it changes nothing. */
int capi_c_verify(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  memlith_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  EXPECT_CODE(MEMLITH_NOT_FOUND, memlith_verify(path_in(folder, "store"), &report));
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(open_region(store, "a", &region));
  EXPECT_OK(memlith_verify(path_in(folder, "store"), &report));
  EXPECT(report.clean == 0 && report.regions == 1); /* beside the writer: what is durable */
  EXPECT_OK(memlith_store_close(store));
  EXPECT_OK(memlith_verify(path_in(folder, "store"), &report));
  EXPECT(report.clean == 1 && report.one_file == 0 && report.regions == 1 && report.region_bytes == 64 * 1024);
  EXPECT(report.frames == 0 && report.log_bytes > 0 && report.incarnation == 1);
  EXPECT_OK(memlith_verify(path_in(folder, "store"), &report));
  EXPECT(report.incarnation == 1);

  const memlith_store_options options = store_options(MEMLITH_OPEN_CREATE);
  EXPECT_OK(memlith_file_open(path_in(folder, "file"), &options, &store));
  EXPECT_OK(memlith_store_close(store));
  EXPECT_OK(memlith_verify(path_in(folder, "file"), &report));
  EXPECT(report.one_file == 1 && report.clean == 1);

  FILE* const log = fopen(path_in(folder, "store/log"), "r+");
  char zeros[8192];
  memset(zeros, 0, sizeof zeros);
  EXPECT(report.superblock_copies == 2);
  EXPECT(log != NULL && fwrite(zeros, 1, 512, log) == 512 && fflush(log) == 0);
  EXPECT_OK(memlith_verify(path_in(folder, "store"), &report));
  EXPECT(report.superblock_copies == 1);
  EXPECT(fseek(log, 0, SEEK_SET) == 0);
  EXPECT(fwrite(zeros, 1, sizeof zeros, log) == sizeof zeros && fclose(log) == 0);
  EXPECT_CODE(MEMLITH_INCOMPATIBLE, memlith_verify(path_in(folder, "store"), &report));
  return 0;
}

/* The counters count. */
int capi_c_info(const char* folder) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  memlith_store_info before;
  memlith_store_info after;
  before.struct_size = after.struct_size = sizeof before;
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(open_region(store, "a", &region));
  EXPECT_OK(memlith_store_get_info(store, &before));
  EXPECT(before.region_count == 1 && before.log_bytes >= 128 * 1024 && before.read_only == 0 && before.poisoned == 0);
  EXPECT(before.one_file == 0 && before.direct_io <= 1);
  *(char*)memlith_region_address(region) = 1;
  EXPECT_OK(memlith_persist_all(store, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_store_get_info(store, &after));
  EXPECT(after.frames == before.frames + 1 && after.batches == before.batches + 1);
  EXPECT(after.captured_bytes > before.captured_bytes && after.captured_bytes <= before.captured_bytes + 8);
  EXPECT(after.logged_bytes > before.logged_bytes && after.logged_bytes <= before.logged_bytes + 4096);
  EXPECT(after.durable_lsn > before.durable_lsn && after.log_used_bytes > before.log_used_bytes);
  EXPECT_OK(memlith_store_checkpoint(store));
  EXPECT_OK(memlith_store_get_info(store, &after));
  EXPECT(after.log_used_bytes == 0 && after.checkpoints == before.checkpoints + 1 && after.home_bytes >= 1);
  EXPECT(before.incarnation >= 1 && after.incarnation == before.incarnation);
  EXPECT_OK(memlith_store_close(store));

  /* Opening finds a store that was closed, for readers and for the next writer. */
  memlith_store_options options = store_options(MEMLITH_OPEN_READ_ONLY);
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &options, &store));
  EXPECT_OK(memlith_store_get_info(store, &after));
  EXPECT(after.was_clean == 1 && after.read_only == 1 && after.incarnation == before.incarnation);
  EXPECT_OK(memlith_store_close(store));
  EXPECT_OK(open_store(folder, &store));
  EXPECT_OK(memlith_store_get_info(store, &after));
  EXPECT(after.was_clean == 1 && after.incarnation == before.incarnation + 1);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* Every tracker opens, says how it works, and persists. */
int capi_c_trackers(const char* folder) {
  memlith_store* store = NULL;
  char text[200];
  char cut[4];
  EXPECT_OK(open_store(folder, &store));
  for (uint32_t tracker = MEMLITH_TRACKER_AUTO; tracker <= MEMLITH_TRACKER_INSTRUMENTED; ++tracker) {
    EXPECT_OK(memlith_tracker_describe(tracker, text, sizeof text));
    EXPECT(strlen(text) > 10 && strchr(text, '\n') == NULL);
    EXPECT_OK(memlith_tracker_describe(tracker, cut, sizeof cut));
    EXPECT(strlen(cut) == 3);
    memlith_region* region = NULL;
    memlith_region_options options = region_options(MEMLITH_CREATE, 8192);
    options.tracker = tracker;
    char name[2] = {(char)('a' + (char)tracker), 0};
    EXPECT_OK(memlith_region_open(store, name, &options, &region));
    char* const bytes = memlith_region_address(region);
    bytes[5] = 7;
    EXPECT_OK(memlith_touch(region, bytes + 5, 1));
    EXPECT_OK(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS));
    EXPECT_OK(memlith_region_close(region));
    EXPECT_OK(memlith_region_open(store, name, NULL, &region));
    EXPECT(bytes[5] == 7);
  }
  EXPECT_CODE(MEMLITH_INVALID, memlith_tracker_describe(5, text, sizeof text));
  EXPECT_CODE(MEMLITH_INVALID, memlith_tracker_describe(0, NULL, 10));
  EXPECT_CODE(MEMLITH_INVALID, memlith_tracker_describe(0, text, 0));
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

/* Asynchronous persists, tickets, windows, rollback, memory. */
int capi_c_asynchronous(const char* folder) {
  memlith_store* store = NULL;
  EXPECT_OK(open_store(folder, &store));
  memlith_region_options options = region_options(MEMLITH_CREATE, 65536);
  options.tracker = MEMLITH_TRACKER_FAULT;
  memlith_region* region = NULL;
  EXPECT_OK(memlith_region_open(store, "a", &options, &region));
  char* const bytes = memlith_region_address(region);
  uint64_t ticket = 0;
  uint64_t later = 0;
  EXPECT_OK(memlith_store_set_window(store, 60000, 0));
  bytes[1] = 1;
  EXPECT_OK(memlith_persist_async(&region, 1, MEMLITH_SCOPE_PROCESS, &ticket));
  bytes[2] = 2;
  EXPECT_OK(memlith_persist_async(&region, 1, MEMLITH_SCOPE_THREAD, &later));
  EXPECT(ticket > 0 && later > ticket);
  EXPECT(memlith_store_durable(store) < ticket);
  EXPECT_OK(memlith_wait(store, later));
  EXPECT(memlith_store_durable(store) >= later);
  EXPECT_OK(memlith_wait(store, ticket));
  EXPECT_OK(memlith_persist_async(NULL, 0, MEMLITH_SCOPE_PROCESS, &ticket));
  EXPECT_OK(memlith_wait(store, ticket));
  EXPECT_CODE(MEMLITH_INVALID, memlith_wait(store, later + (1u << 30)));
  EXPECT_CODE(MEMLITH_INVALID, memlith_wait(NULL, 0));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_async(&region, 1, MEMLITH_SCOPE_PROCESS, NULL));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_async(&region, 1, 2, &ticket));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist(&region, 1, 2));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_all(store, 2));
  EXPECT_CODE(MEMLITH_INVALID, memlith_rollback(&region, 1, 2));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_range(region, bytes, 1, 2));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_range(NULL, bytes, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_INVALID, memlith_persist_range(region, bytes + 65536, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT_OK(memlith_persist_range(region, bytes, 65536, MEMLITH_SCOPE_PROCESS));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_discard(NULL, bytes, 4096));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_discard(region, bytes + 1, 4096));
  bytes[40000] = 3;
  EXPECT_OK(memlith_region_discard(region, bytes + 36864, 4096));
  EXPECT(bytes[40000] == 0);
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_set_window(store, ~(uint64_t)0, 0));
  EXPECT_CODE(MEMLITH_INVALID, memlith_store_set_eventfd(NULL, -1));
  EXPECT_OK(memlith_store_set_eventfd(store, -1));
  EXPECT(memlith_store_durable(NULL) == 0);

  bytes[2] = 7;
  bytes[9000] = 7;
  EXPECT_OK(memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS));
  EXPECT(bytes[1] == 1 && bytes[2] == 2 && bytes[9000] == 0);
  EXPECT_OK(memlith_prepare(region, bytes + 100, 10));
  EXPECT_CODE(MEMLITH_INVALID, memlith_prepare(region, bytes + 65536, 1));
  EXPECT_CODE(MEMLITH_INVALID, memlith_prepare(NULL, bytes, 1));
  const memlith_bytes parts[] = {{bytes + 100, 10}, {bytes + 5000, 0}, {bytes + 60000, 5536}, {bytes + 65536, 1}};
  EXPECT_OK(memlith_announce(region, parts, 3));
  EXPECT_OK(memlith_announce(region, NULL, 0));
  EXPECT_CODE(MEMLITH_INVALID, memlith_announce(region, parts, 4));
  EXPECT_CODE(MEMLITH_INVALID, memlith_announce(region, NULL, 1));
  EXPECT_CODE(MEMLITH_INVALID, memlith_announce(NULL, parts, 1));
  EXPECT_OK(memlith_region_release(region));
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_release(NULL));
  EXPECT(bytes[1] == 1 && bytes[2] == 2);

  memlith_region* scanned = NULL;
  options.tracker = MEMLITH_TRACKER_SCAN;
  EXPECT_OK(memlith_region_open(store, "b", &options, &scanned));
  memlith_region_info info;
  info.struct_size = sizeof info;
  EXPECT_OK(memlith_region_get_info(scanned, &info));
  if (info.tracker == MEMLITH_TRACKER_SCAN) {
    EXPECT_CODE(MEMLITH_UNSUPPORTED, memlith_persist(&scanned, 1, MEMLITH_SCOPE_THREAD));
    memlith_region* const both[2] = {region, scanned};
    bytes[3] = 3;
    EXPECT_CODE(MEMLITH_UNSUPPORTED, memlith_persist(both, 2, MEMLITH_SCOPE_THREAD));
    EXPECT_OK(memlith_persist(both, 2, MEMLITH_SCOPE_PROCESS));
  }

  memlith_region* own = NULL;
  options.flags |= MEMLITH_REGION_THREAD_SCOPE;
  EXPECT_CODE(MEMLITH_UNSUPPORTED, memlith_region_open(store, "own", &options, &own));
  char sentence[300] = "";
  memlith_last_error(sentence, sizeof sentence);
  EXPECT(strstr(sentence, "scan tracker does not tell threads apart") != NULL);
  options.tracker = MEMLITH_TRACKER_AUTO;
  options.flags |= MEMLITH_REGION_PROCESS_SCOPE;
  EXPECT_CODE(MEMLITH_INVALID, memlith_region_open(store, "own", &options, &own));
  options.flags &= ~(uint32_t)MEMLITH_REGION_PROCESS_SCOPE;
  EXPECT_OK(memlith_region_open(store, "own", &options, &own));
  EXPECT_OK(memlith_region_get_info(own, &info));
  EXPECT(info.tracker == MEMLITH_TRACKER_FAULT && strstr(info.tracker_detail, "chosen: threads persist") != NULL);
  EXPECT_OK(memlith_persist(&own, 1, MEMLITH_SCOPE_THREAD));
  EXPECT(memlith_region_address(NULL) == NULL && memlith_region_size(NULL) == 0);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}

static void count_progress(void* context, uint64_t done, uint64_t total) {
  if (done > 0 && done <= total) ++*(int*)context;
}

/* Opening reports its progress through the caller's function. The store was left as it is by a crash: see
 * capi_test.cpp. */
int capi_c_progress(const char* folder) {
  memlith_store* store = NULL;
  int calls = 0;
  memlith_store_options options = store_options(0);
  options.progress = count_progress;
  options.progress_context = &calls;
  EXPECT_OK(memlith_store_open(path_in(folder, "store"), &options, &store));
  EXPECT(calls >= 1);
  memlith_store_info info;
  info.struct_size = sizeof info;
  EXPECT_OK(memlith_store_get_info(store, &info));
  EXPECT(info.replayed_frames >= 10 && info.replayed_bytes >= 10 * 512);
  EXPECT_OK(memlith_store_close(store));
  return 0;
}
