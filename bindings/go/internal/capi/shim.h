/* The calls of memlith's C interface that Go makes by way of C: with structs, with bytes of Go's memory, and those that
 * are frequent, whose results then take no memory of Go's heap. Go calls the other functions of the headers itself.
 * A result has the message of a failure, because the call that would ask for it later could run on another thread. No
 * pointer to Go's memory is kept beyond a call, and none lies in such memory. Handles are numbers, so that Go neither
 * checks nor follows them. */
#ifndef MEMLITH_GO_SHIM_H
#define MEMLITH_GO_SHIM_H

#include <memlith/applog.h>
#include <memlith/archive.h>
#include <memlith/copy.h>
#include <memlith/kv.h>
#include <memlith/memlith.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int32_t code;
  char* text; /* of a failure; from malloc */
  uintptr_t handle;
  uint64_t number;
} mgo_result;

typedef struct {
  int32_t code;
  char* text;
  memlith_bytes key;
  memlith_bytes value;
  uint64_t number;
} mgo_record;

static inline char* mgo_text(int32_t code) {
  if (code == 0 || memlith_category(code) == MEMLITH_NOT_FOUND) return NULL; /* NOT_FOUND is expected often */
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  return strdup(text);
}
static inline char* mgo_any_text(int32_t code) {
  if (code == 0) return NULL;
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  return strdup(text);
}
static inline mgo_result mgo_of(int32_t code) {
  mgo_result result = {code, mgo_any_text(code), 0, 0};
  return result;
}

/* ---- kv stores ---- */
static inline mgo_result mgo_kv_begin(uintptr_t kv, uint32_t flags, uint64_t wait_ms) {
  memlith_kv_txn* txn = NULL;
  mgo_result result = mgo_of(memlith_kv_begin((memlith_kv*)kv, flags, &txn));
  result.handle = (uintptr_t)txn;
  if (result.code == 0 && wait_ms > 0) {
    const int32_t code = memlith_kv_txn_set_wait(txn, wait_ms);
    if (code != 0) {
      result = mgo_of(code);
      memlith_kv_txn_free(txn);
    }
  }
  return result;
}
static inline mgo_result mgo_kv_commit(uintptr_t txn, uint32_t durability) {
  uint64_t ticket = 0;
  mgo_result result = mgo_of(memlith_kv_commit((memlith_kv_txn*)txn, durability, &ticket));
  result.number = ticket;
  return result;
}
static inline mgo_record mgo_kv_get(uintptr_t txn, uint32_t map, const char* key, uint64_t key_bytes) {
  mgo_record record;
  memset(&record, 0, sizeof record);
  record.code = memlith_kv_get((memlith_kv_txn*)txn, map, key, key_bytes, &record.value);
  record.text = mgo_text(record.code);
  return record;
}
static inline mgo_result mgo_kv_put(uintptr_t txn, uint32_t map, const char* key, uint64_t key_bytes, const char* value,
                                    uint64_t value_bytes) {
  return mgo_of(memlith_kv_put((memlith_kv_txn*)txn, map, key, key_bytes, value, value_bytes));
}
/* Records that lie in `flat` one behind the other: the sizes of key and value, 4 bytes each, and both. The number of
 * the result says how many were put. */
static inline mgo_result mgo_kv_put_many(uintptr_t txn, uint32_t map, const char* flat, uint64_t bytes) {
  const char* const end = flat + bytes;
  uint64_t count = 0;
  while (flat < end) {
    uint32_t key_bytes = 0;
    uint32_t value_bytes = 0;
    memcpy(&key_bytes, flat, 4);
    memcpy(&value_bytes, flat + 4, 4);
    flat += 8;
    const int32_t code = memlith_kv_put((memlith_kv_txn*)txn, map, flat, key_bytes, flat + key_bytes, value_bytes);
    if (code != 0) {
      mgo_result failed = mgo_of(code);
      failed.number = count;
      return failed;
    }
    flat += (uint64_t)key_bytes + value_bytes;
    ++count;
  }
  mgo_result done = {0, NULL, 0, count};
  return done;
}
static inline mgo_result mgo_kv_remove(uintptr_t txn, uint32_t map, const char* key, uint64_t key_bytes) {
  const int32_t code = memlith_kv_remove((memlith_kv_txn*)txn, map, key, key_bytes);
  mgo_result result = {code, mgo_text(code), 0, 0};
  return result;
}

/* Records of a range, copied one behind the other as mgo_kv_put_many has them. */
typedef struct {
  char* buffer;
  uint64_t room;
  uint64_t used;
  uint64_t count;
  uint64_t needed; /* by the record that did not fit */
} mgo_gathered;
static inline int mgo_gather(void* context, memlith_bytes key, memlith_bytes value) {
  mgo_gathered* const all = (mgo_gathered*)context;
  const uint64_t needed = 8 + key.size + value.size;
  if (needed > all->room - all->used) {
    all->needed = needed;
    return 1;
  }
  const uint32_t sizes[2] = {(uint32_t)key.size, (uint32_t)value.size};
  char* to = all->buffer + all->used;
  memcpy(to, sizes, sizeof sizes);
  memcpy(to + 8, key.data, key.size);
  if (value.size > 0) memcpy(to + 8 + key.size, value.data, value.size);
  all->used += needed;
  ++all->count;
  return 0;
}
/* `used`: bytes in the buffer; `needed`: 0, or the bytes of the next record, which did not fit. */
typedef struct {
  int32_t code;
  char* text;
  uint64_t used;
  uint64_t needed;
} mgo_range;
static inline mgo_range mgo_kv_range(uintptr_t txn, uint32_t map, const char* from, uint64_t from_bytes, int has_from,
                                     const char* to, uint64_t to_bytes, int has_to, char* buffer, uint64_t room) {
  const memlith_bytes begin = {from, from_bytes};
  const memlith_bytes end = {to, to_bytes};
  mgo_gathered all = {buffer, room, 0, 0, 0};
  mgo_range result;
  result.code =
      memlith_kv_get_range((memlith_kv_txn*)txn, map, has_from ? &begin : NULL, has_to ? &end : NULL, mgo_gather, &all);
  result.text = mgo_any_text(result.code);
  result.used = all.used;
  result.needed = all.needed;
  return result;
}

/* The same, from the last record of the range down to the first. */
static inline mgo_range mgo_kv_range_back(uintptr_t txn, uint32_t map, const char* from, uint64_t from_bytes,
                                          int has_from, const char* to, uint64_t to_bytes, int has_to, char* buffer,
                                          uint64_t room) {
  const memlith_bytes begin = {from, from_bytes};
  const memlith_bytes end = {to, to_bytes};
  mgo_gathered all = {buffer, room, 0, 0, 0};
  mgo_range result = {0, NULL, 0, 0};
  memlith_kv_cursor* cursor = NULL;
  result.code = memlith_kv_cursor_open((memlith_kv_txn*)txn, map, &cursor);
  if (result.code == 0) {
    result.code = memlith_kv_cursor_set_bounds(cursor, has_from ? &begin : NULL, has_to ? &end : NULL);
  }
  while (result.code == 0) {
    memlith_bytes key;
    memlith_bytes value;
    result.code = memlith_kv_cursor_prev(cursor);
    if (result.code == 0) result.code = memlith_kv_cursor_current(cursor, &key, &value);
    if (result.code != 0) break;
    if (mgo_gather(&all, key, value) != 0) break;
  }
  if (memlith_category(result.code) == MEMLITH_NOT_FOUND) result.code = 0; /* there is no record before */
  result.text = mgo_any_text(result.code);
  memlith_kv_cursor_close(cursor);
  result.used = all.used;
  result.needed = all.needed;
  return result;
}
/* Removes the records of a range; the number of the result says how many. */
static inline mgo_result mgo_kv_remove_range(uintptr_t txn, uint32_t map, const char* from, uint64_t from_bytes,
                                             const char* to, uint64_t to_bytes, int has_to) {
  const memlith_bytes begin = {from, from_bytes};
  const memlith_bytes end = {to, to_bytes};
  mgo_result result = {0, NULL, 0, 0};
  result.code = memlith_kv_remove_range((memlith_kv_txn*)txn, map, from_bytes > 0 ? &begin : NULL, has_to ? &end : NULL,
                                        &result.number);
  result.text = mgo_any_text(result.code);
  return result;
}

/* The number of the result: 1 if the record is `value` now, or gone. */
static inline mgo_result mgo_kv_put_if(uintptr_t txn, uint32_t map, const char* key, uint64_t key_bytes,
                                       const char* expected, uint64_t expected_bytes, int has_expected,
                                       const char* value, uint64_t value_bytes, int has_value) {
  const memlith_bytes before = {expected, expected_bytes};
  const memlith_bytes after = {value, value_bytes};
  int32_t done = 0;
  mgo_result result = mgo_of(memlith_kv_put_if((memlith_kv_txn*)txn, map, key, key_bytes, has_expected ? &before : NULL,
                                               has_value ? &after : NULL, &done));
  result.number = (uint64_t)done;
  return result;
}

typedef struct {
  int32_t code;
  char* text;
  uint64_t records;
  uint64_t bytes;
} mgo_estimate;
static inline mgo_estimate mgo_kv_estimate(uintptr_t txn, uint32_t map, const char* from, uint64_t from_bytes,
                                           int has_from, const char* to, uint64_t to_bytes, int has_to) {
  const memlith_bytes begin = {from, from_bytes};
  const memlith_bytes end = {to, to_bytes};
  mgo_estimate result = {0, NULL, 0, 0};
  result.code = memlith_kv_estimate((memlith_kv_txn*)txn, map, has_from ? &begin : NULL, has_to ? &end : NULL,
                                    &result.records, &result.bytes);
  result.text = mgo_any_text(result.code);
  return result;
}

/* Records that lie as mgo_kv_put_many has them. The number of the result says how many were put. */
typedef struct {
  const char* at;
  const char* end;
} mgo_laid;
static inline int mgo_take_laid(void* context, memlith_bytes* key, memlith_bytes* value) {
  mgo_laid* const laid = (mgo_laid*)context;
  uint32_t sizes[2];
  if (laid->at == laid->end) return 1;
  memcpy(sizes, laid->at, sizeof sizes);
  key->data = laid->at + sizeof sizes;
  key->size = sizes[0];
  value->data = laid->at + sizeof sizes + sizes[0];
  value->size = sizes[1];
  laid->at += sizeof sizes + sizes[0] + sizes[1];
  return 0;
}
static inline mgo_result mgo_kv_append_many(uintptr_t kv, uint32_t map, const char* flat, uint64_t bytes) {
  mgo_laid laid = {flat, flat + bytes};
  uint64_t count = 0;
  mgo_result result = mgo_of(memlith_kv_map_append((memlith_kv*)kv, map, mgo_take_laid, &laid, &count));
  result.number = count;
  return result;
}

static inline mgo_result mgo_cursor_set_bounds(uintptr_t cursor, const char* from, uint64_t from_bytes, int has_from,
                                               const char* to, uint64_t to_bytes, int has_to) {
  const memlith_bytes begin = {from, from_bytes};
  const memlith_bytes end = {to, to_bytes};
  return mgo_of(memlith_kv_cursor_set_bounds((memlith_kv_cursor*)cursor, has_from ? &begin : NULL,
                                             has_to ? &end : NULL));
}
static inline mgo_result mgo_cursor_set_prefix(uintptr_t cursor, const char* prefix, uint64_t prefix_bytes) {
  return mgo_of(memlith_kv_cursor_set_prefix((memlith_kv_cursor*)cursor, prefix, prefix_bytes));
}
static inline mgo_result mgo_cursor_open(uintptr_t txn, uint32_t map) {
  memlith_kv_cursor* cursor = NULL;
  mgo_result result = mgo_of(memlith_kv_cursor_open((memlith_kv_txn*)txn, map, &cursor));
  result.handle = (uintptr_t)cursor;
  return result;
}
enum { MGO_FIRST, MGO_LAST, MGO_NEXT, MGO_PREV, MGO_SEEK };
static inline mgo_record mgo_cursor_move(uintptr_t handle, int how, const char* key, uint64_t key_bytes) {
  memlith_kv_cursor* const cursor = (memlith_kv_cursor*)handle;
  mgo_record record;
  memset(&record, 0, sizeof record);
  switch (how) {
    case MGO_FIRST: record.code = memlith_kv_cursor_first(cursor); break;
    case MGO_LAST: record.code = memlith_kv_cursor_last(cursor); break;
    case MGO_NEXT: record.code = memlith_kv_cursor_next(cursor); break;
    case MGO_PREV: record.code = memlith_kv_cursor_prev(cursor); break;
    default: record.code = memlith_kv_cursor_seek(cursor, key, key_bytes); break;
  }
  if (record.code == 0) record.code = memlith_kv_cursor_current(cursor, &record.key, &record.value);
  record.text = mgo_text(record.code);
  return record;
}

/* ---- from outside ---- */

/* The pieces that a call has told, one behind the other; `bytes` is from malloc. */
typedef struct {
  char* bytes;
  uint64_t size;
  uint64_t count;
  int no_memory;
} mgo_told;
static inline void mgo_tell(mgo_told* told, const void* piece, uint64_t size) {
  char* const larger = (char*)realloc(told->bytes, told->size + size);
  if (larger == NULL) {
    told->no_memory = 1;
    return;
  }
  memcpy(larger + told->size, piece, size);
  told->bytes = larger;
  told->size += size;
  ++told->count;
}
/* Each sentence with its zero. */
static inline void mgo_tell_sentence(void* told, const char* sentence) {
  mgo_tell((mgo_told*)told, sentence, strlen(sentence) + 1);
}
static inline int32_t mgo_check_data(const char* path, mgo_told* damaged, memlith_data_report* report) {
  const int32_t code = memlith_check_data(path, mgo_tell_sentence, damaged, NULL, NULL, report);
  return code == 0 && damaged->no_memory ? MEMLITH_NO_MEMORY : code;
}
typedef struct {
  memlith_archive_run run;
  char why[16]; /* a word of the header */
} mgo_run;
static inline void mgo_tell_run(void* told, const memlith_archive_run* run) {
  mgo_run piece;
  memset(&piece, 0, sizeof piece);
  piece.run = *run;
  strncpy(piece.why, run->why, sizeof piece.why - 1);
  mgo_tell((mgo_told*)told, &piece, sizeof piece);
}
static inline int32_t mgo_archive_list(const memlith_archive_target* target, mgo_told* runs) {
  const int32_t code = memlith_archive_list(target, mgo_tell_run, runs);
  return code == 0 && runs->no_memory ? MEMLITH_NO_MEMORY : code;
}

/* ---- application logs ---- */

/* The entries lie in `flat` one behind the other. */
static inline memlith_bytes* mgo_entries(const char* flat, const uint64_t* sizes, uint64_t count, memlith_bytes* few,
                                         uint64_t few_count) {
  memlith_bytes* all = count <= few_count ? few : (memlith_bytes*)malloc(count * sizeof *all);
  for (uint64_t i = 0; all != NULL && i < count; ++i) {
    all[i].data = flat;
    all[i].size = sizes[i];
    flat += sizes[i];
  }
  return all;
}
enum { MGO_FEW = 64 };
static inline mgo_result mgo_no_memory(void) {
  mgo_result result = {MEMLITH_NO_MEMORY, strdup("no memory for the list of entries"), 0, 0};
  return result;
}
static inline mgo_result mgo_applog_append(uintptr_t log, const char* flat, const uint64_t* sizes, uint64_t count,
                                           int write) {
  memlith_bytes few[MGO_FEW];
  memlith_bytes* const all = mgo_entries(flat, sizes, count, few, MGO_FEW);
  if (all == NULL) return mgo_no_memory();
  uint64_t number = 0;
  int32_t code = memlith_applog_append((memlith_applog*)log, all, count, &number);
  if (all != few) free(all);
  if (code == 0 && write) code = memlith_applog_write((memlith_applog*)log, MEMLITH_COMMIT_SYNC, NULL);
  mgo_result result = mgo_of(code);
  result.number = number;
  return result;
}
static inline mgo_result mgo_tx_append(uintptr_t tx, uintptr_t log, const char* flat, const uint64_t* sizes,
                                       uint64_t count) {
  memlith_bytes few[MGO_FEW];
  memlith_bytes* const all = mgo_entries(flat, sizes, count, few, MGO_FEW);
  if (all == NULL) return mgo_no_memory();
  const mgo_result result = mgo_of(memlith_txn_append((memlith_txn*)tx, (memlith_applog*)log, all, count));
  if (all != few) free(all);
  return result;
}
static inline mgo_record mgo_applog_read(uintptr_t log, uint64_t wait_ms) {
  memlith_applog_entry entry;
  memset(&entry, 0, sizeof entry);
  mgo_record record;
  memset(&record, 0, sizeof record);
  record.code = memlith_applog_read((memlith_applog*)log, wait_ms, &entry);
  record.text = mgo_text(record.code);
  record.value = entry.content;
  record.number = entry.number;
  return record;
}
static inline mgo_result mgo_applog_get(uintptr_t log, uint64_t number, char* buffer, uint64_t bytes) {
  uint64_t size = 0;
  const int32_t code = memlith_applog_get((memlith_applog*)log, number, buffer, bytes, &size);
  mgo_result result = {code, mgo_text(code), 0, size};
  return result;
}

#endif
