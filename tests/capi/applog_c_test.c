/* include/memlith/applog.h from C: a log, and a kv store that agrees with it. */
#include "applog_c_test.h"

#include <stdio.h>
#include <string.h>

#include "memlith/applog.h"
#include "memlith/kv.h"

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) {                                               \
      char said[1024] = "";                                      \
      (void)memlith_last_error(said, sizeof said);               \
      snprintf(failure, sizeof failure, "%s (%s)", #what, said); \
      return failure;                                            \
    }                                                            \
  } while (0)

static char failure[2048];

static memlith_bytes bytes_of(const char* text) {
  const memlith_bytes bytes = {text, strlen(text)};
  return bytes;
}

static int is(memlith_bytes bytes, const char* text) {
  return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* Data committed with the position is there after a kill (the child leaves without closing), and so are the entries
 * behind it. */
const char* applog_c_first(const char* path) {
  memlith_store* store = NULL;
  memlith_applog* log = NULL;
  memlith_kv* kv = NULL;
  memlith_kv_map map = 0;
  memlith_kv_txn* txn = NULL;
  memlith_applog_entry entry;
  uint64_t number = 0;
  uint64_t ticket = 0;
  memlith_store_options store_options;
  memset(&store_options, 0, sizeof store_options);
  store_options.struct_size = sizeof store_options;
  store_options.flags = MEMLITH_OPEN_CREATE;
  memlith_applog_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.when_full = MEMLITH_APPLOG_FAIL;
  options.size = 8192;
  memlith_kv_options kv_options;
  memset(&kv_options, 0, sizeof kv_options);
  kv_options.struct_size = sizeof kv_options;
  kv_options.flags = MEMLITH_CREATE;

  CHECK(memlith_store_open(path, &store_options, &store) == 0);
  CHECK(memlith_category(memlith_applog_open(store, "log", NULL, &log)) == MEMLITH_NOT_FOUND);
  CHECK(memlith_applog_open(store, "log", &options, &log) == 0);
  CHECK(memlith_kv_open(store, "kv", &kv_options, &kv) == 0);
  CHECK(memlith_kv_map_open(kv, "map", MEMLITH_CREATE, &map) == 0);

  const memlith_bytes three[] = {bytes_of("one"), bytes_of("two"), bytes_of("three")};
  CHECK(memlith_category(memlith_applog_append(log, NULL, 1, NULL)) == MEMLITH_INVALID);
  CHECK(memlith_category(memlith_applog_append(log, three, 0, NULL)) == MEMLITH_INVALID);
  CHECK(memlith_applog_append(log, three, 3, &number) == 0 && number == 3);
  CHECK(memlith_applog_durable(log) == 0);
  CHECK(memlith_category(memlith_applog_read(log, 0, &entry)) == MEMLITH_NOT_FOUND);
  CHECK(memlith_applog_write(log, MEMLITH_COMMIT_SYNC, NULL) == 0);
  CHECK(memlith_applog_durable(log) == 3);
  CHECK(memlith_applog_read(log, 0, &entry) == 0 && entry.number == 1 && is(entry.content, "one"));
  CHECK(memlith_applog_read(log, 0, &entry) == 0 && entry.number == 2 && is(entry.content, "two"));

  CHECK(memlith_kv_begin(kv, 0, &txn) == 0);
  CHECK(memlith_kv_put(txn, map, "newest", 6, "two", 3) == 0);
  memlith_txn* tx = NULL;
  CHECK(memlith_begin(store, &tx) == 0);
  CHECK(memlith_category(memlith_txn_consume(tx, log, 3)) == MEMLITH_INVALID);
  CHECK(memlith_txn_consume(tx, log, 2) == 0);
  CHECK(memlith_txn_add_kv(tx, txn) == 0);
  CHECK(memlith_category(memlith_applog_close(log)) == MEMLITH_BUSY);
  CHECK(memlith_commit(tx, MEMLITH_COMMIT_WEAK, &ticket) == 0);
  CHECK(memlith_applog_consume(log, 2) == 0); /* it is consumed */
  CHECK(memlith_wait(store, ticket) == 0);

  memlith_applog_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(memlith_applog_get_info(log, &info) == 0);
  CHECK(info.size == 8192 && info.newest == 3 && info.durable == 3 && info.read == 2 && info.consumed == 2);
  CHECK(info.room == 8192 - 24 - 32);

  const memlith_bytes four = bytes_of("four");
  CHECK(memlith_applog_append(log, &four, 1, NULL) == 0);
  CHECK(memlith_applog_write(log, MEMLITH_COMMIT_WEAK, &ticket) == 0);
  CHECK(memlith_wait(store, ticket) == 0 && memlith_applog_durable(log) == 4);
  CHECK(memlith_category(memlith_applog_write(log, 2, NULL)) == MEMLITH_INVALID);
  CHECK(memlith_applog_append(log, &four, 1, NULL) == 0); /* and is lost */
  return NULL;
}

const char* applog_c_second(const char* path) {
  memlith_store* store = NULL;
  memlith_applog* log = NULL;
  memlith_applog* other = NULL;
  memlith_kv* kv = NULL;
  memlith_kv_map map = 0;
  memlith_kv_txn* txn = NULL;
  memlith_bytes value;
  memlith_applog_entry entry;
  CHECK(memlith_store_open(path, NULL, &store) == 0);
  CHECK(memlith_applog_open(store, "log", NULL, &log) == 0);
  CHECK(memlith_category(memlith_applog_open(store, "log", NULL, &other)) == MEMLITH_BUSY);
  CHECK(memlith_category(memlith_applog_open(store, "kv", NULL, &other)) == MEMLITH_INCOMPATIBLE);
  CHECK(memlith_kv_open(store, "kv", NULL, &kv) == 0);
  CHECK(memlith_kv_map_open(kv, "map", 0, &map) == 0);
  CHECK(memlith_kv_begin(kv, 0, &txn) == 0);
  CHECK(memlith_kv_get(txn, map, "newest", 6, &value) == 0 && is(value, "two"));
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(memlith_applog_rewind(log) == 0);
    CHECK(memlith_applog_read(log, 0, &entry) == 0 && entry.number == 3 && is(entry.content, "three"));
    CHECK(memlith_applog_read(log, 0, &entry) == 0 && entry.number == 4 && is(entry.content, "four"));
    CHECK(memlith_category(memlith_applog_read(log, 1, &entry)) == MEMLITH_NOT_FOUND);
  }
  /* A commit of nothing but the position. */
  memlith_txn* tx = NULL;
  CHECK(memlith_begin(store, &tx) == 0);
  CHECK(memlith_txn_add_kv(tx, txn) == 0);
  CHECK(memlith_txn_consume(tx, log, 4) == 0);
  CHECK(memlith_commit(tx, MEMLITH_COMMIT_SYNC, NULL) == 0);
  memlith_kv_txn_free(txn);
  CHECK(memlith_kv_close(kv) == 0);
  CHECK(memlith_applog_close(log) == 0);
  CHECK(memlith_applog_close(NULL) == 0);
  CHECK(memlith_store_close(store) == 0);

  memlith_store_options read_only;
  memset(&read_only, 0, sizeof read_only);
  read_only.struct_size = sizeof read_only;
  read_only.flags = MEMLITH_OPEN_READ_ONLY;
  CHECK(memlith_store_open(path, &read_only, &store) == 0);
  CHECK(memlith_applog_open(store, "log", NULL, &log) == 0);
  CHECK(memlith_category(memlith_applog_read(log, 0, &entry)) == MEMLITH_NOT_FOUND);
  CHECK(memlith_applog_durable(log) == 4);
  const memlith_bytes five = bytes_of("five");
  CHECK(memlith_category(memlith_applog_append(log, &five, 1, NULL)) == MEMLITH_READ_ONLY);
  CHECK(memlith_category(memlith_applog_write(log, MEMLITH_COMMIT_SYNC, NULL)) == MEMLITH_READ_ONLY);
  CHECK(memlith_category(memlith_applog_consume(log, 4)) == MEMLITH_READ_ONLY);
  CHECK(memlith_applog_close(log) == 0);
  CHECK(memlith_store_close(store) == 0);
  return NULL;
}
