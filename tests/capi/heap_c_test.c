/* memlith/heap.h from C: every call, on a heap that is opened twice. Called by heap_in_c_test.cpp. */
#include "memlith/heap.h"

#include <string.h>

#define CHECK(condition) \
  if (!(condition)) return __LINE__

struct root {
  int runs;
  char* text;
};

struct listed {
  int count;
  void* root;
  void* text;
};

static void list_object(void* context, const char* name, const memlith_type* type, void* object) {
  struct listed* listed = context;
  if (strcmp(type->name, "struct root") != 0) return;
  listed->count++;
  if (strcmp(name, "") == 0 && type->size == sizeof(struct root)) listed->root = object;
  if (strcmp(name, "text") == 0 && type->size == 4) listed->text = object;
}

static int one_run(const char* path, int run) {
  memlith_store* store = NULL;
  memlith_heap* heap = NULL;
  memlith_heap* own = NULL;
  memlith_store_options options;
  memlith_region_options region_options;
  memlith_heap_report report;
  memlith_type type = {sizeof type, "struct root", sizeof(struct root), _Alignof(struct root), 1};
  memlith_type other = type;
  struct listed listed;
  struct root* root = NULL;
  void* found = NULL;
  uint64_t bytes = 0;
  uint64_t ticket = 0;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  memset(&region_options, 0, sizeof region_options);
  region_options.struct_size = sizeof region_options;
  region_options.flags = MEMLITH_CREATE;
  memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  other.size = 4;

  CHECK(memlith_store_open(path, &options, &store) == MEMLITH_OK);
  CHECK(memlith_category(memlith_heap_open(store, "heap", NULL, &heap)) == (run == 0 ? MEMLITH_NOT_FOUND : MEMLITH_OK));
  if (run == 0) CHECK(memlith_heap_open(store, "heap", &region_options, &heap) == MEMLITH_OK);
  CHECK(memlith_heap_current() == heap);
  CHECK(memlith_heap_use(heap) == NULL && memlith_heap_use(NULL) == heap);
  CHECK(memlith_heap_root(heap, &type, (void**)&root) == MEMLITH_OK);
  CHECK(root->runs == run);
  if (run == 0) {
    CHECK(memlith_heap_allocate(heap, 1000, 0, (void**)&root->text) == MEMLITH_OK);
    CHECK(memlith_heap_of(root->text) == heap && memlith_heap_of(&heap) == NULL);
    CHECK(memlith_heap_block_bytes(heap, root->text, &bytes) == MEMLITH_OK && bytes >= 1000);
    strcpy(root->text, "written by the first run");
    CHECK(memlith_heap_set_name(heap, "text", root->text, &other) == MEMLITH_OK);
  }
  CHECK(strcmp(root->text, "written by the first run") == 0);
  CHECK(memlith_heap_find(heap, "text", &other, &found) == MEMLITH_OK && found == root->text);
  CHECK(memlith_heap_find(heap, "text", NULL, &found) == MEMLITH_OK && found == root->text);
  CHECK(memlith_category(memlith_heap_find(heap, "text", &type, &found)) == MEMLITH_INCOMPATIBLE);
  CHECK(memlith_category(memlith_heap_root(heap, &other, &found)) == MEMLITH_INCOMPATIBLE);
  memset(&listed, 0, sizeof listed);
  CHECK(memlith_heap_for_each(heap, list_object, &listed) == MEMLITH_OK);
  CHECK(listed.count == 2 && listed.root == root && listed.text == root->text);
  CHECK(memlith_category(memlith_heap_for_each(heap, NULL, NULL)) == MEMLITH_INVALID);
  root->runs++;
  CHECK(memlith_heap_persist(heap) == MEMLITH_OK);

  CHECK(memlith_heap_allocate(heap, 100, 0, &found) == MEMLITH_OK);
  CHECK(memlith_heap_free(heap, found) == MEMLITH_OK);
  CHECK(memlith_category(memlith_heap_free(heap, found)) == MEMLITH_INVALID);
  CHECK(memlith_heap_free(heap, NULL) == MEMLITH_OK);
  CHECK(memlith_category(memlith_heap_allocate(heap, 100, 3, &found)) == MEMLITH_INVALID);
  CHECK(memlith_category(memlith_heap_allocate(NULL, 100, 0, &found)) == MEMLITH_INVALID);
  CHECK(memlith_category(memlith_heap_allocate(heap, 100, 0, NULL)) == MEMLITH_INVALID);
  CHECK(memlith_heap_remove_name(heap, "text") == MEMLITH_OK);
  {
    memlith_region* region = memlith_heap_region(heap);
    CHECK(memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS) == MEMLITH_OK);
    CHECK(memlith_persist_async(&region, 1, MEMLITH_SCOPE_PROCESS, &ticket) == MEMLITH_OK);
    CHECK(memlith_category(memlith_persist(&region, 1, MEMLITH_SCOPE_THREAD)) == MEMLITH_UNSUPPORTED);
  }
  region_options.flags = MEMLITH_CREATE | MEMLITH_REGION_THREAD_SCOPE;
  CHECK(memlith_heap_open(store, "own", &region_options, &own) == MEMLITH_OK);
  {
    memlith_region* region = memlith_heap_region(own);
    CHECK(memlith_heap_allocate(own, 100, 0, &found) == MEMLITH_OK);
    CHECK(memlith_persist(&region, 1, MEMLITH_SCOPE_THREAD) == MEMLITH_OK);
    CHECK(memlith_heap_free(own, found) == MEMLITH_OK);
    CHECK(memlith_category(memlith_rollback(&region, 1, MEMLITH_SCOPE_THREAD)) == MEMLITH_UNSUPPORTED);
  }
  CHECK(memlith_heap_close(own) == MEMLITH_OK);
  CHECK(memlith_heap_find(heap, "text", &other, &found) == MEMLITH_OK);
  CHECK(memlith_heap_verify(heap, &report) == MEMLITH_OK && report.blocks == 4 && report.names == 2);
  CHECK(report.header_bytes + report.block_bytes + report.slab_bytes + report.free_bytes == report.region_bytes);
  CHECK(memlith_heap_verify(heap, NULL) == MEMLITH_OK);
  if (run % 2 == 0) CHECK(memlith_heap_close(heap) == MEMLITH_OK); /* else the store closes it */
  CHECK(memlith_heap_close(NULL) == MEMLITH_OK);
  CHECK(memlith_store_close(store) == MEMLITH_OK);
  CHECK(memlith_heap_current() == NULL);
  return 0;
}

int heap_in_c(const char* path) {
  for (int run = 0; run < 4; ++run) {
    const int line = one_run(path, run);
    if (line != 0) return line;
  }
  return 0;
}
