/* Records of the kv store: a key of Redis with its value, in the form of Redis's own dumps. plugin redis.
 *
 * The kv store's key is 'k' and the key, or if that is too long, 'h' and its SHA-256. The value is:
 *   1 byte   RECORD_* flags
 *   8 bytes  when it expires (Unix time in ms), -1: never
 *   4 bytes, and the key   with RECORD_LONG_KEY only
 *   with RECORD_PARTS, the number of the object (8 bytes); else the type and the value as RDB files have them
 * The parts of an object, one after the other, are what a record without RECORD_PARTS would end with.
 */
#include "redis.h" /* first: it says which system this is */

#include <sha256.h>

#define HEAD_BYTES 9
#define BUFFER_KEPT_BYTES 16384

void record_key_of(record_key* made, sds key) {
  size_t bytes = sdslen(key);
  made->is_long = bytes >= DATASTORE_KEY_BYTES_MAX;
  if (!made->is_long) {
    made->bytes[0] = 'k';
    memcpy(made->bytes + 1, key, bytes);
    made->size = bytes + 1;
    return;
  }
  SHA256_CTX sum;
  sha256_init(&sum);
  sha256_update(&sum, (const BYTE*)key, bytes);
  made->bytes[0] = 'h';
  sha256_final(&sum, made->bytes + 1);
  made->size = 1 + SHA256_BLOCK_SIZE;
}

static sds append_head(sds to, int flags, long long expire, sds key) {
  char head[HEAD_BYTES];
  int64_t when = expire;
  head[0] = (char)flags;
  memcpy(head + 1, &when, sizeof when);
  to = sdscatlen(to, head, sizeof head);
  if (flags & RECORD_LONG_KEY) {
    uint32_t bytes = (uint32_t)sdslen(key);
    to = sdscatlen(to, &bytes, sizeof bytes);
    to = sdscatsds(to, key);
  }
  return to;
}

/* Puts what stands in `record` behind `head` bytes, in parts if it is long. */
static uint64_t put(int db, const record_key* name, int flags, long long expire, sds key, sds record, size_t head,
                    uint64_t* bytes) {
  size_t value = sdslen(record) - head;
  *bytes = value;
  if (value <= RECORD_WHOLE_MAX) {
    datastore_put(memlith_datastore, db, name->bytes, name->size, record, sdslen(record));
    return 0;
  }
  uint64_t id = datastore_new_object(memlith_datastore);
  uint32_t number = 0;
  for (size_t at = 0; at < value; at += RECORD_PART_BYTES) {
    size_t part = value - at < RECORD_PART_BYTES ? value - at : RECORD_PART_BYTES;
    datastore_put_part(memlith_datastore, id, number++, record + head + at, part);
  }
  sds pointer = append_head(sdsempty(), flags | RECORD_PARTS, expire, key);
  pointer = sdscatlen(pointer, &id, sizeof id);
  datastore_put(memlith_datastore, db, name->bytes, name->size, pointer, sdslen(pointer));
  sdsfree(pointer);
  return id;
}

/* The buffer is kept, unless a large value made it large. */
static sds buffer;
static void begin_buffer(void) {
  if (buffer && sdsalloc(buffer) > BUFFER_KEPT_BYTES) {
    sdsfree(buffer);
    buffer = NULL;
  }
  if (!buffer) buffer = sdsempty();
  sdsclear(buffer);
}

uint64_t record_put(int db, sds key, robj* value, long long expire, uint64_t* bytes) {
  record_key name;
  rio to;
  robj key_object;
  record_key_of(&name, key);
  int flags = name.is_long ? RECORD_LONG_KEY : 0;
  begin_buffer();
  buffer = append_head(buffer, flags, expire, key);
  size_t head = sdslen(buffer);
  initStaticStringObject(key_object, key);
  int compression = server.rdb_compression;
  server.rdb_compression = 0; /* it costs more than it saves here */
  rioInitWithBuffer(&to, buffer);
  int saved = rdbSaveObjectType(&to, value) != -1 && rdbSaveObject(&to, value, &key_object, db) != -1;
  server.rdb_compression = compression;
  buffer = to.io.buffer.ptr;
  if (!saved) memlith_die("a value cannot be serialised");
  return put(db, &name, flags, expire, key, buffer, head, bytes);
}

uint64_t record_put_functions(void) {
  rio to;
  uint64_t bytes;
  sds key = sdsnew("functions");
  record_key name;
  record_key_of(&name, key);
  begin_buffer();
  buffer = append_head(buffer, 0, -1, key);
  size_t head = sdslen(buffer);
  rioInitWithBuffer(&to, buffer);
  int saved = rdbSaveFunctions(&to) != -1;
  buffer = to.io.buffer.ptr;
  if (!saved) memlith_die("functions cannot be serialised");
  uint64_t id = put(DATASTORE_STATE_DB, &name, 0, -1, key, buffer, head, &bytes);
  sdsfree(key);
  return id;
}

void record_put_position(sds text) {
  record_key name;
  sds key = sdsnew(RECORD_POSITION);
  record_key_of(&name, key);
  begin_buffer();
  buffer = append_head(buffer, 0, -1, key);
  buffer = sdscatsds(buffer, text);
  datastore_put(memlith_datastore, DATASTORE_STATE_DB, name.bytes, name.size, buffer, sdslen(buffer));
  sdsfree(key);
}

void record_remove_position(void) {
  record_key name;
  sds key = sdsnew(RECORD_POSITION);
  record_key_of(&name, key);
  datastore_remove(memlith_datastore, DATASTORE_STATE_DB, name.bytes, name.size);
  sdsfree(key);
}
