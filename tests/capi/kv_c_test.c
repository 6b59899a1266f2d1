/* memlith/kv.h from C: every call, on a kv store that is opened four times. Called by kv_test.cpp. */
#include "memlith/kv.h"

#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHECK(condition) \
  if (!(condition)) return __LINE__
#define CHECK_CATEGORY(category, call) CHECK(memlith_category(call) == (category))

static int is(memlith_bytes bytes, const char* text) {
  return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

static int put(memlith_kv_txn* txn, memlith_kv_map map, const char* key, const char* value) {
  return memlith_kv_put(txn, map, key, strlen(key), value, strlen(value));
}

static int get(memlith_kv_txn* txn, memlith_kv_map map, const char* key, memlith_bytes* value) {
  return memlith_kv_get(txn, map, key, strlen(key), value);
}

struct seen {
  char keys[64];
  int stop_after;
};

static int see(void* context, memlith_bytes key, memlith_bytes value) {
  struct seen* seen = context;
  strncat(seen->keys, key.data, key.size);
  strncat(seen->keys, "=", 2);
  strncat(seen->keys, value.data, value.size);
  return --seen->stop_after == 0;
}

static int ranges(memlith_kv_txn* txn, memlith_kv_map map) {
  const memlith_bytes from = {"b", 1};
  const memlith_bytes to = {"d", 1};
  struct seen all = {"", 0};
  struct seen some = {"", 0};
  struct seen first = {"", 1};
  CHECK(memlith_kv_get_range(txn, map, NULL, NULL, see, &all) == MEMLITH_OK);
  CHECK(strcmp(all.keys, "a=1b=2c=3d=4") == 0);
  CHECK(memlith_kv_get_range(txn, map, &from, &to, see, &some) == MEMLITH_OK);
  CHECK(strcmp(some.keys, "b=2c=3") == 0);
  CHECK(memlith_kv_get_range(txn, map, &from, NULL, see, &first) == MEMLITH_OK);
  CHECK(strcmp(first.keys, "b=2") == 0);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_get_range(txn, map, NULL, NULL, NULL, NULL));
  return 0;
}

static int count_record(void* context, memlith_bytes key, memlith_bytes value) {
  *(uint64_t*)context += key.size + value.size;
  return 0;
}
static void count_lost(void* context, const memlith_bytes* from, const memlith_bytes* to, const char* sentence) {
  (void)from;
  (void)to;
  (void)sentence;
  *(uint64_t*)context += 1000;
}

static int swaps(memlith_kv_txn* txn, memlith_kv_map map) {
  const memlith_bytes one = {"1", 1};
  const memlith_bytes two = {"2", 1};
  const memlith_bytes from = {"e", 1};
  const memlith_bytes to = {"g", 1};
  memlith_bytes value;
  int32_t done = -1;
  uint64_t count = 77;
  CHECK(memlith_kv_put_if(txn, map, "e", 1, &one, &two, &done) == MEMLITH_OK && done == 0);
  CHECK(memlith_kv_put_if(txn, map, "e", 1, NULL, &one, &done) == MEMLITH_OK && done == 1);
  CHECK(memlith_kv_put_if(txn, map, "e", 1, &one, &two, &done) == MEMLITH_OK && done == 1);
  CHECK(get(txn, map, "e", &value) == MEMLITH_OK && is(value, "2"));
  CHECK(memlith_kv_put_if(txn, map, "e", 1, &two, NULL, &done) == MEMLITH_OK && done == 1);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, get(txn, map, "e", &value));
  CHECK(memlith_kv_put_if(txn, map, "e", 1, NULL, NULL, &done) == MEMLITH_OK && done == 1);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_put_if(txn, map, "e", 1, NULL, &one, NULL));

  CHECK(put(txn, map, "e", "5") == MEMLITH_OK && put(txn, map, "f", "6") == MEMLITH_OK);
  CHECK(memlith_kv_remove_range(txn, map, &from, &to, &count) == MEMLITH_OK && count == 2);
  CHECK(memlith_kv_remove_range(txn, map, &to, &from, &count) == MEMLITH_OK && count == 0);
  CHECK(put(txn, map, "e", "5") == MEMLITH_OK);
  CHECK(memlith_kv_remove_range(txn, map, &from, NULL, NULL) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, get(txn, map, "e", &value));
  count = 77;
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_remove_range(NULL, map, NULL, NULL, &count));
  CHECK(count == 0);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_salvage(txn, map, count_record, count_lost, &count)); /* it may write */
  CHECK(count == 0);
  return 0;
}

static int give(void* context, memlith_bytes* key, memlith_bytes* value) {
  static const char letters[] = "abcdefgh";
  size_t* next = context;
  if (letters[*next] == 0) return 1;
  key->data = value->data = &letters[(*next)++];
  key->size = value->size = 1;
  return 0;
}

/* With nothing left behind. */
static int appends(memlith_kv* kv) {
  memlith_kv_map map = 0;
  memlith_kv_txn* txn = NULL;
  memlith_kv_cursor* cursor = NULL;
  const memlith_bytes from = {"e", 1};
  const memlith_bytes to = {"g", 1};
  uint64_t count = 77;
  uint64_t records = 77;
  uint64_t bytes = 77;
  size_t next = 0;
  CHECK(memlith_kv_map_open(kv, "appended", MEMLITH_CREATE, &map) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_append(kv, map, NULL, NULL, &count));
  CHECK(memlith_kv_map_append(kv, map, give, &next, &count) == MEMLITH_OK && count == 8);
  next = 1;
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_append(kv, map, give, &next, NULL));
  CHECK(memlith_kv_begin(kv, MEMLITH_KV_READ_ONLY, &txn) == MEMLITH_OK);
  CHECK(memlith_kv_estimate(txn, map, &from, &to, &records, &bytes) == MEMLITH_OK && records == 2 && bytes == 4);
  CHECK(memlith_kv_estimate(txn, map, &from, NULL, &records, NULL) == MEMLITH_OK && records == 4);
  count = 0;
  CHECK(memlith_kv_salvage(txn, map, count_record, count_lost, &count) == MEMLITH_OK && count == 16);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_salvage(txn, map, count_record, NULL, &count));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_salvage(txn, map, NULL, count_lost, &count));
  CHECK(memlith_kv_cursor_open(txn, map, &cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_set_bounds(cursor, &from, &to) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_next(cursor) == MEMLITH_OK && memlith_kv_cursor_next(cursor) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_cursor_next(cursor));
  CHECK(memlith_kv_cursor_set_prefix(cursor, "h", 1) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_last(cursor) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_cursor_prev(cursor));
  memlith_kv_txn_free(txn);
  CHECK(memlith_kv_map_remove(kv, "appended") == MEMLITH_OK);
  return 0;
}

static int cursors(memlith_kv_txn* txn, memlith_kv_map map) {
  memlith_kv_cursor* cursor = NULL;
  memlith_kv_cursor* left_open = NULL;
  memlith_bytes key;
  memlith_bytes value;
  CHECK(memlith_kv_cursor_open(txn, map, &left_open) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_open(txn, map, &cursor) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_cursor_current(cursor, &key, &value));
  CHECK(memlith_kv_cursor_first(cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, &key, &value) == MEMLITH_OK && is(key, "a") && is(value, "1"));
  CHECK(memlith_kv_cursor_last(cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, &key, NULL) == MEMLITH_OK && is(key, "d"));
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_cursor_next(cursor));
  CHECK(memlith_kv_cursor_prev(cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, NULL, &value) == MEMLITH_OK && is(value, "4"));
  CHECK(memlith_kv_cursor_seek(cursor, "bb", 2) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, &key, &value) == MEMLITH_OK && is(key, "c"));
  CHECK(memlith_kv_cursor_remove(cursor) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_cursor_current(cursor, &key, &value));
  CHECK(memlith_kv_cursor_prev(cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, &key, NULL) == MEMLITH_OK && is(key, "b"));
  CHECK(memlith_kv_cursor_next(cursor) == MEMLITH_OK);
  CHECK(memlith_kv_cursor_current(cursor, &key, NULL) == MEMLITH_OK && is(key, "d"));
  memlith_kv_cursor_close(cursor);
  memlith_kv_cursor_close(NULL);
  return 0;
}

/* One transaction through each of its calls; it ends with records a to d. */
static int transactions(memlith_kv* kv, memlith_kv_map map) {
  memlith_kv_txn* txn = NULL;
  memlith_kv_txn* other = NULL;
  memlith_bytes value;
  uint64_t point = 0;
  uint64_t ticket = 0;
  uint64_t later = 0;
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_begin(kv, 8, &txn));
  CHECK(memlith_kv_begin(kv, 0, &txn) == MEMLITH_OK && memlith_kv_txn_active(txn) == 1);
  CHECK(put(txn, map, "a", "1") == MEMLITH_OK && put(txn, map, "b", "2") == MEMLITH_OK);
  CHECK(memlith_kv_savepoint(txn, &point) == MEMLITH_OK);
  CHECK(memlith_kv_remove(txn, map, "a", 1) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_remove(txn, map, "a", 1));
  CHECK(memlith_kv_undo_to(txn, point) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_undo_to(txn, point + 1));
  CHECK(put(txn, map, "c", "3") == MEMLITH_OK && put(txn, map, "d", "4") == MEMLITH_OK);
  CHECK(get(txn, map, "a", &value) == MEMLITH_OK && is(value, "1"));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_renew(txn));

  /* A conflict ends the transaction that meets it, and a renewed one goes on. */
  CHECK(memlith_kv_begin(kv, 0, &other) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_txn_set_wait(other, UINT64_MAX));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_set_txn_timeout(kv, UINT64_MAX));
  CHECK(memlith_kv_set_txn_timeout(kv, 60000) == MEMLITH_OK);
  CHECK(memlith_kv_txn_set_wait(other, 1) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_CONFLICT, get(other, map, "a", &value));
  CHECK(memlith_kv_txn_active(other) == 0);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_commit(txn, 7, &ticket));
  CHECK(memlith_kv_commit(txn, MEMLITH_COMMIT_WEAK, &ticket) == MEMLITH_OK && memlith_kv_txn_active(txn) == 0);
  CHECK(memlith_kv_renew(other) == MEMLITH_OK);
  CHECK(get(other, map, "a", &value) == MEMLITH_OK && is(value, "1"));
  CHECK(ranges(other, map) == 0);
  {
    int line = cursors(other, map);
    if (line == 0) line = swaps(other, map);
    if (line != 0) return line;
  }
  CHECK(memlith_kv_abort(other) == MEMLITH_OK && memlith_kv_abort(other) == MEMLITH_OK);
  CHECK(memlith_kv_renew(other) == MEMLITH_OK);
  CHECK(get(other, map, "c", &value) == MEMLITH_OK && is(value, "3"));
  CHECK(memlith_kv_commit(other, MEMLITH_COMMIT_SYNC, &later) == MEMLITH_OK && later == ticket);
  CHECK(memlith_kv_durable(kv) >= ticket);
  memlith_kv_txn_free(other);
  memlith_kv_txn_free(txn);
  memlith_kv_txn_free(NULL);

  /* A reader keeps its state while others commit. */
  CHECK(memlith_kv_begin(kv, MEMLITH_KV_READ_ONLY, &other) == MEMLITH_OK);
  CHECK(memlith_kv_begin(kv, 0, &txn) == MEMLITH_OK && put(txn, map, "a", "newer") == MEMLITH_OK);
  CHECK(memlith_kv_commit(txn, MEMLITH_COMMIT_WEAK, NULL) == MEMLITH_OK);
  CHECK(get(other, map, "a", &value) == MEMLITH_OK && is(value, "1"));
  CHECK_CATEGORY(MEMLITH_READ_ONLY, put(other, map, "a", "x"));
  CHECK_CATEGORY(MEMLITH_READ_ONLY, memlith_kv_remove(other, map, "a", 1));
  CHECK_CATEGORY(MEMLITH_BUSY, memlith_kv_close(kv));
  memlith_kv_txn_free(other);
  CHECK(memlith_kv_renew(txn) == MEMLITH_OK && put(txn, map, "a", "1") == MEMLITH_OK);
  CHECK(memlith_kv_commit(txn, MEMLITH_COMMIT_WEAK, NULL) == MEMLITH_OK);
  memlith_kv_txn_free(txn);
  return 0;
}

static int calls = 0;
static int32_t called_code = 1;
static void called(void* context, uint64_t ticket, int32_t code) {
  (void)ticket;
  called_code = code;
  __atomic_add_fetch((int*)context, 1, __ATOMIC_SEQ_CST);
}

static int durabilities(memlith_store* store, memlith_kv* kv, memlith_kv_map map) {
  memlith_kv_txn* txn = NULL;
  uint64_t ticket = 0;
  uint64_t count = 0;
  const int fd = eventfd(0, 0);
  CHECK(fd >= 0);
  CHECK(memlith_kv_set_eventfd(kv, fd) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_set_window(kv, (uint64_t)25 * 3600 * 1000, 0));
  CHECK(memlith_kv_set_window(kv, 3600 * 1000, 0) == MEMLITH_OK);
  CHECK(memlith_kv_begin(kv, 0, &txn) == MEMLITH_OK && put(txn, map, "a", "1") == MEMLITH_OK);
  CHECK(memlith_kv_commit(txn, MEMLITH_COMMIT_WEAK, &ticket) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_wait(store, UINT64_MAX));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_on_durable(kv, UINT64_MAX, called, &calls));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_on_durable(kv, ticket, NULL, NULL));
  __atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
  CHECK(memlith_kv_on_durable(kv, ticket, called, &calls) == MEMLITH_OK);
  CHECK(memlith_wait(store, ticket) == MEMLITH_OK && memlith_kv_durable(kv) >= ticket);
  CHECK(read(fd, &count, sizeof count) == sizeof count && count > 0);
  while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == 0) sched_yield();
  CHECK(called_code == MEMLITH_OK);
  CHECK(memlith_kv_renew(txn) == MEMLITH_OK && put(txn, map, "a", "1") == MEMLITH_OK);
  CHECK(memlith_kv_commit(txn, MEMLITH_COMMIT_WEAK, &ticket) == MEMLITH_OK);
  CHECK(memlith_kv_persist(kv) == MEMLITH_OK && memlith_kv_durable(kv) >= ticket);
  CHECK(memlith_kv_set_eventfd(kv, -1) == MEMLITH_OK);
  CHECK(memlith_kv_set_window(kv, 0, 0) == MEMLITH_OK);
  memlith_kv_txn_free(txn);
  close(fd);
  return 0;
}

static int inside(memlith_kv* kv) {
  memlith_kv_info info;
  memlith_kv_report report;
  char name[8];
  memset(&info, 0, sizeof info);
  memset(&report, 0, sizeof report);
  info.struct_size = sizeof info;
  report.struct_size = sizeof report;
  CHECK(memlith_kv_map_at(kv, 0, name, sizeof name) == MEMLITH_OK && strcmp(name, "a long ") == 0);
  CHECK(memlith_kv_map_at(kv, 1, name, sizeof name) == MEMLITH_OK && strcmp(name, "map") == 0);
  CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_map_at(kv, 2, name, sizeof name));
  CHECK(memlith_kv_get_info(kv, &info) == MEMLITH_OK);
  CHECK(info.maps == 2 && info.records == 4 && info.transactions == 0 && info.page_bytes == 4096);
  CHECK(info.commits >= info.durable && info.conflicts == 1 && info.snapshot_bytes == 0 && info.logged_bytes > 0);
  CHECK(memlith_kv_verify(kv, &report) == MEMLITH_OK && memlith_kv_verify(kv, NULL) == MEMLITH_OK);
  CHECK(report.maps == 2 && report.records == 4 && report.leaf_pages == 3 && report.depth_max == 1);
  CHECK(info.pages == 1 + report.leaf_pages + report.inner_pages + report.overflow_pages + report.free_pages);
  CHECK(report.free_pages > 0); /* of the map that was removed */
  return 0;
}

static int nulls(memlith_store* store, memlith_kv* kv, memlith_kv_map map) {
  memlith_kv_txn* txn = NULL;
  memlith_bytes value;
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_open(NULL, "kv", NULL, &kv));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_open(store, NULL, NULL, &kv));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_open(store, "kv", NULL, NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_open(kv, NULL, 0, &map));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_open(kv, "map", 0, NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_remove(NULL, "map"));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_begin(NULL, 0, &txn));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_begin(kv, 0, NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_txn_set_wait(NULL, 1));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_commit(NULL, 0, NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_abort(NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_renew(NULL));
  CHECK(memlith_kv_txn_active(NULL) == 0 && memlith_kv_durable(NULL) == 0);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_persist(NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_cursor_first(NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_get_info(kv, NULL));
  CHECK(memlith_kv_begin(kv, 0, &txn) == MEMLITH_OK);
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_get(txn, map, NULL, 1, &value));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_get(txn, map, "a", 1, NULL));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_put(txn, map, "a", 1, NULL, 1));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_cursor_open(txn, map, NULL));
  CHECK(memlith_kv_put(txn, map, "empty", 5, NULL, 0) == MEMLITH_OK);
  CHECK(get(txn, map, "empty", &value) == MEMLITH_OK && value.size == 0);
  memlith_kv_txn_free(txn); /* aborts */
  return 0;
}

static int integers(void) {
  const int64_t numbers[] = {INT64_MIN, -256, -1, 0, 1, 255, 256, INT64_MAX};
  unsigned char before[8];
  unsigned char key[8];
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    memlith_kv_key_of_i64(numbers[i], key);
    CHECK(memlith_kv_i64_of_key(key) == numbers[i]);
    CHECK(i == 0 || memcmp(before, key, sizeof key) < 0);
    memcpy(before, key, sizeof key);
    memlith_kv_key_of_u64((uint64_t)numbers[i], key);
    CHECK(memlith_kv_u64_of_key(key) == (uint64_t)numbers[i]);
  }
  return 0;
}

static int one_run(const char* path, int run) {
  memlith_store* store = NULL;
  memlith_kv* kv = NULL;
  memlith_store_options options;
  memlith_kv_options create;
  memlith_kv_map map = 0;
  memlith_kv_map again = 0;
  int line = 0;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  memset(&create, 0, sizeof create);
  create.struct_size = sizeof create;
  create.flags = MEMLITH_CREATE;

  CHECK(memlith_store_open(path, &options, &store) == MEMLITH_OK);
  CHECK_CATEGORY(run == 0 ? MEMLITH_NOT_FOUND : MEMLITH_OK, memlith_kv_open(store, "kv", NULL, &kv));
  if (run == 0) CHECK(memlith_kv_open(store, "kv", &create, &kv) == MEMLITH_OK);
  CHECK_CATEGORY(run == 0 ? MEMLITH_NOT_FOUND : MEMLITH_OK, memlith_kv_map_open(kv, "map", 0, &map));
  if (run == 0) CHECK(memlith_kv_map_open(kv, "map", MEMLITH_CREATE, &map) == MEMLITH_OK);
  CHECK(memlith_kv_map_open(kv, "map", MEMLITH_CREATE, &again) == MEMLITH_OK && again == map && map != 0);
  CHECK_CATEGORY(MEMLITH_EXISTS, memlith_kv_map_open(kv, "map", MEMLITH_CREATE | MEMLITH_EXCLUSIVE, &again));
  CHECK_CATEGORY(MEMLITH_INVALID, memlith_kv_map_open(kv, "map", 1u << 20, &again));
  if (run > 0) {
    CHECK(memlith_kv_map_remove(kv, "a long name") == MEMLITH_OK);
    CHECK_CATEGORY(MEMLITH_NOT_FOUND, memlith_kv_map_remove(kv, "a long name"));
    CHECK(memlith_kv_map_open(kv, "filler", MEMLITH_CREATE, &again) == MEMLITH_OK);
    CHECK(memlith_kv_map_open(kv, "a long name", MEMLITH_CREATE, &again) == MEMLITH_OK);
    CHECK(memlith_kv_map_remove(kv, "filler") == MEMLITH_OK);
  } else {
    CHECK(memlith_kv_map_open(kv, "a long name", MEMLITH_CREATE, &again) == MEMLITH_OK);
  }
  if ((line = appends(kv)) != 0) return line;
  if ((line = transactions(kv, map)) != 0) return line;
  if ((line = durabilities(store, kv, map)) != 0) return line;
  if ((line = nulls(store, kv, map)) != 0) return line;
  if ((line = inside(kv)) != 0) return line;
  if (run % 2 == 0) CHECK(memlith_kv_close(kv) == MEMLITH_OK); /* else the store closes it */
  CHECK(memlith_kv_close(NULL) == MEMLITH_OK);
  CHECK(memlith_store_close(store) == MEMLITH_OK);
  return integers();
}

int kv_in_c(const char* path) {
  for (int run = 0; run < 4; ++run) {
    const int line = one_run(path, run);
    if (line != 0) return line;
  }
  return 0;
}
