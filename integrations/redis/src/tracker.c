/* Which keys have changed since the last cut, and what a cut has to say. plugin redis.
 *
 * Every change of the data is a command in the log, so the keys that commands of the log name are the keys that have
 * changed. A cut says what their values are now. A value of more than RECORD_WHOLE_MAX bytes is an object of parts:
 * commands that name no key but its own are added to the object as they are, until they are as long as the value.
 */
#include "redis.h"

sds catAppendOnlyGenericCommand(sds to, int argc, robj** argv); /* of Redis; no header has it */

typedef struct object {
  uint64_t id;
  uint64_t base_bytes;
  uint64_t tail_bytes; /* of commands, pending ones included */
  uint32_t tails;
  int stale;   /* has to be said anew */
  sds pending; /* commands since the last cut */
} object;

typedef struct track {
  dict* changed; /* keys */
  dict* objects; /* key -> object */
} track;

#define TAIL_BYTES_MIN (16 * 1024)
#define TAILS_MAX 4096

static track* tracks;
static size_t changed;
static size_t said; /* keys whose values were said since the last cut, and not only noted */
static int everything;
static int functions_changed;
static uint64_t functions_object;
static dict* alive; /* set of the ids of all objects, while the kv store is swept */

static void free_object(DICT_OF_VALUE void* value) {
  object* it = value;
  sdsfree(it->pending);
  zfree(it);
}

static dictType keys_type = {
    .hashFunction = dictSdsHash, .keyCompare = dictSdsKeyCompare, .keyDestructor = dictSdsDestructor};
static dictType objects_type = {.hashFunction = dictSdsHash,
                                .keyCompare = dictSdsKeyCompare,
                                .keyDestructor = dictSdsDestructor,
                                .valDestructor = free_object};

static uint64_t hash_of_id(const void* key) { return dictGenHashFunction(&key, sizeof key); }
static dictType ids_type = {.hashFunction = hash_of_id};

void tracker_init(void) {
  tracks = zcalloc(sizeof(track) * server.dbnum);
  for (int db = 0; db < server.dbnum; db++) {
    tracks[db].changed = dictCreate(&keys_type);
    tracks[db].objects = dictCreate(&objects_type);
  }
  alive = dictCreate(&ids_type);
}

void tracker_reset(void) {
  for (int db = 0; db < server.dbnum; db++) {
    dictEmpty(tracks[db].changed, NULL);
    dictEmpty(tracks[db].objects, NULL);
  }
  dictEmpty(alive, NULL);
  changed = said = 0;
  everything = functions_changed = 0;
  functions_object = 0;
}

size_t tracker_changed(void) { return changed + said + functions_changed; }
int tracker_wants_everything(void) { return everything; }

void tracker_found(int db, sds key, uint64_t id, uint64_t base_bytes, uint32_t tails, uint64_t tail_bytes) {
  dictAdd(alive, (void*)(uintptr_t)id, NULL);
  if (db == DATASTORE_STATE_DB) {
    functions_object = id;
    return;
  }
  object* it = zcalloc(sizeof *it);
  it->id = id;
  it->base_bytes = base_bytes;
  it->tails = tails;
  it->tail_bytes = tail_bytes;
  dictAdd(tracks[db].objects, sdsdup(key), it);
}

int tracker_alive(void* context, uint64_t id) {
  UNUSED(context);
  return dictFind(alive, (void*)(uintptr_t)id) != NULL;
}

/* ---- noting ------------------------------------------------------------------------------------------------------ */

static void note_key(int db, robj* key) {
  readers_changed(db, key->ptr);
  if (dictFind(tracks[db].changed, key->ptr)) return;
  dictAdd(tracks[db].changed, sdsdup(key->ptr), NULL);
  changed++;
}

static object* object_of(int db, robj* key) {
  return dictSize(tracks[db].objects) ? dictFetchValue(tracks[db].objects, key->ptr) : NULL;
}

/* The value of the key depends on more than itself and the command. */
static void note_stale(int db, robj* key) {
  object* it = object_of(db, key);
  if (it) it->stale = 1;
  note_key(db, key);
}

static void note_only_key(int db, robj* key, robj** argv, int argc) {
  object* it = object_of(db, key);
  if (it && !it->stale) {
    size_t before = it->pending ? sdslen(it->pending) : 0;
    it->pending = catAppendOnlyGenericCommand(it->pending ? it->pending : sdsempty(), argc, argv);
    it->tail_bytes += sdslen(it->pending) - before;
    if (it->tail_bytes > it->base_bytes && it->tail_bytes > TAIL_BYTES_MIN) it->stale = 1;
  }
  note_key(db, key);
}

static void empty(int db) {
  dictIterator* each = dictGetIterator(tracks[db].objects);
  dictEntry* entry;
  while ((entry = dictNext(each)) != NULL) datastore_drop_object(memlith_datastore, ((object*)dictGetVal(entry))->id);
  dictReleaseIterator(each);
  dictEmpty(tracks[db].objects, NULL);
  changed -= dictSize(tracks[db].changed);
  dictEmpty(tracks[db].changed, NULL);
  datastore_empty_db(memlith_datastore, db);
}

static int database_in(robj* argument) {
  long long db;
  if (getLongLongFromObject(argument, &db) != C_OK || db < 0 || db >= server.dbnum) return -1;
  return (int)db;
}

/* Commands that are about more than the keys that they name. 1: it was one, and is noted. */
static int note_special(redisCommandProc* proc, int db, robj** argv, int argc) {
  if (proc == multiCommand || proc == execCommand || proc == selectCommand || proc == pingCommand ||
      proc == publishCommand || proc == spublishCommand) {
    return 1;
  }
  if (proc == flushallCommand) {
    for (int each = 0; each < server.dbnum; each++) empty(each);
    return 1;
  }
  if (proc == flushdbCommand) {
    empty(db);
    return 1;
  }
  if (proc == swapdbCommand) {
    int one = database_in(argv[1]), other = database_in(argv[2]);
    if (one < 0 || other < 0) return 0;
    track held = tracks[one];
    tracks[one] = tracks[other];
    tracks[other] = held;
    datastore_swap_dbs(memlith_datastore, one, other);
    return 1;
  }
  if (proc == functionLoadCommand || proc == functionDeleteCommand || proc == functionFlushCommand ||
      proc == functionRestoreCommand) {
    functions_changed = 1;
    return 1;
  }
  if (proc == moveCommand) {
    int to = database_in(argv[2]);
    if (to < 0) return 0;
    note_stale(db, argv[1]);
    note_stale(to, argv[1]);
    return 1;
  }
  if (proc == copyCommand) {
    int to = db;
    for (int i = 3; i + 1 < argc; i++) {
      if (!strcasecmp(argv[i]->ptr, "db")) to = database_in(argv[i + 1]);
    }
    if (to < 0) return 0;
    note_stale(to, argv[2]);
    return 1;
  }
  return 0;
}

/* More than one key: those that the command only reads have not changed. */
static void note_keys(struct redisCommand* command, int db, robj** argv, int argc) {
  getKeysResult keys = GETKEYS_RESULT_INIT;
  int count = getKeysFromCommandWithSpecs(command, argv, argc, GET_KEYSPEC_DEFAULT, &keys);
  if (count <= 0) {
    everything = 1;
    readers_changed_all();
  }
  for (int i = 0; i < count; i++) {
    int access = keys.keys[i].flags & (CMD_KEY_RO | CMD_KEY_RW | CMD_KEY_OW | CMD_KEY_RM);
    if (access != CMD_KEY_RO) note_stale(db, argv[keys.keys[i].pos]);
  }
  getKeysFreeResult(&keys);
}

static void forget_object(int db, sds key, object* it) {
  datastore_drop_object(memlith_datastore, it->id);
  dictDelete(tracks[db].objects, key);
}

static void say_removed(int db, sds key) {
  record_key name;
  record_key_of(&name, key);
  datastore_remove(memlith_datastore, db, name.bytes, name.size);
}

/* SET, and DEL of one key, say all there is to say, so the key need not be looked up at the cut. 1: it was one, and has
 * been said. */
static int say_at_once(redisCommandProc* proc, int db, robj** argv, int argc) {
  if ((proc == delCommand || proc == unlinkCommand) && argc == 2) {
    object* it = object_of(db, argv[1]);
    if (it) forget_object(db, argv[1]->ptr, it);
    say_removed(db, argv[1]->ptr);
    said++;
    return 1;
  }
  if (proc != setCommand || sdslen(argv[2]->ptr) > RECORD_WHOLE_MAX / 2 || object_of(db, argv[1])) return 0;
  long long expire = -1;
  if (argc == 5 && !strcasecmp(argv[3]->ptr, "pxat")) {
    if (getLongLongFromObject(argv[4], &expire) != C_OK) return 0;
  } else if (argc != 3) {
    return 0;
  }
  uint64_t bytes;
  record_put(db, argv[1]->ptr, argv[2], expire, &bytes);
  said++;
  return 1;
}

static void note(int db, robj** argv, int argc) {
  struct redisCommand* command = lookupCommandOrOriginal(argv, argc);
  if (!command) {
    everything = 1;
    readers_changed_all();
    return;
  }
  if (say_at_once(command->proc, db, argv, argc)) {
    readers_changed(db, argv[1]->ptr);
    return;
  }
  if (note_special(command->proc, db, argv, argc)) {
    if (command->flags & CMD_WRITE) readers_changed_all();
    return;
  }
  getKeysResult keys = GETKEYS_RESULT_INIT;
  int count = getKeysFromCommand(command, argv, argc, &keys);
  if (count == 1 && !(command->flags & CMD_MODULE)) {
    note_only_key(db, argv[keys.keys[0].pos], argv, argc);
  } else {
    note_keys(command, db, argv, argc);
  }
  getKeysFreeResult(&keys);
}

/* Redis may have put numbers into a command that it rewrote; what finds the keys of a command expects texts. */
void tracker_note(int db, robj** argv, int argc) {
  int i = 0;
  while (i < argc && sdsEncodedObject(argv[i])) i++;
  if (i >= argc) {
    note(db, argv, argc);
    return;
  }
  robj** texts = zmalloc(sizeof(robj*) * (size_t)argc);
  for (i = 0; i < argc; i++) texts[i] = getDecodedObject(argv[i]);
  note(db, texts, argc);
  for (i = 0; i < argc; i++) decrRefCount(texts[i]);
  zfree(texts);
}

/* ---- saying ------------------------------------------------------------------------------------------------------ */

static void say_value(int db, sds key, robj* value) {
  robj key_object;
  uint64_t bytes;
  initStaticStringObject(key_object, key);
  uint64_t id = record_put(db, key, value, getExpire(&server.db[db], &key_object), &bytes);
  if (id == 0) return;
  object* made = zcalloc(sizeof *made);
  made->id = id;
  made->base_bytes = bytes;
  dictAdd(tracks[db].objects, sdsdup(key), made);
}

static void say_key(int db, sds key) {
  robj* value = value_in(db, key);
  object* it = dictSize(tracks[db].objects) ? dictFetchValue(tracks[db].objects, key) : NULL;
  if (value && it && !it->stale && it->tails < TAILS_MAX) {
    if (!it->pending) return;
    datastore_add_part(memlith_datastore, it->id, RECORD_TAIL + it->tails++, it->pending, sdslen(it->pending));
    sdsfree(it->pending);
    it->pending = NULL;
    return;
  }
  if (it) forget_object(db, key, it);
  if (value) {
    say_value(db, key, value);
    return;
  }
  say_removed(db, key);
}

static void say_functions(void) {
  if (functions_object) datastore_drop_object(memlith_datastore, functions_object);
  functions_object = record_put_functions();
  functions_changed = 0;
}

void tracker_cut(void) {
  for (int db = 0; changed > 0 && db < server.dbnum; db++) {
    dict* keys = tracks[db].changed;
    if (dictSize(keys) == 0) continue;
    dictIterator* each = dictGetIterator(keys);
    dictEntry* entry;
    while ((entry = dictNext(each)) != NULL) say_key(db, dictGetKey(entry));
    dictReleaseIterator(each);
    changed -= dictSize(keys);
    dictEmpty(keys, NULL);
  }
  if (functions_changed) say_functions();
  said = 0;
}

int tracker_cut_all(void) {
  datastore_void(memlith_datastore);
  for (int db = 0; db < server.dbnum; db++) empty(db);
  for (int db = 0; db < server.dbnum; db++) {
    keys_iterator each = begin_keys(db);
    sds key;
    robj* value;
    while (next_key(each, &key, &value)) {
      say_value(db, key, value);
      if (datastore_cut_bytes(memlith_datastore) < 8 * RECORD_PART_BYTES) continue;
      if (datastore_cut_piece(memlith_datastore) != 0) {
        end_keys(each);
        return C_ERR;
      }
    }
    end_keys(each);
  }
  say_functions();
  everything = 0;
  said = 0;
  return C_OK;
}
