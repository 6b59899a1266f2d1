/* Starting: the records of the kv store, then the commands of the log behind them. plugin redis. */
#include "redis.h" /* first: it says which system this is */

client* createAOFClient(void); /* of Redis; no header has it */

#define RECORDS_PER_PAUSE 4096

static client* runner; /* the client that runs the commands of the log */
static uint64_t loaded;

/* Lets the server answer that it is loading. */
static void pause_sometimes(void) {
  if (++loaded % RECORDS_PER_PAUSE) return;
  loadingIncrProgress(RECORDS_PER_PAUSE);
  processEventsWhileBlocked();
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* The number behind `mark`, and its line's end; -1: it is not there. */
static long long read_count(const char** at, const char* end, char mark) {
  const char* line_end = memchr(*at, '\r', (size_t)(end - *at));
  long long count;
  if (!line_end || line_end + 1 >= end || **at != mark) return -1;
  if (!string2ll(*at + 1, (size_t)(line_end - *at - 1), &count) || count < 0) return -1;
  *at = line_end + 2;
  return count;
}

static int read_argument(const char** at, const char* end, robj** argument) {
  long long bytes = read_count(at, end, '$');
  if (bytes < 0 || end - *at < bytes + 2) return C_ERR;
  *argument = createObject(OBJ_STRING, sdsnewlen(*at, (size_t)bytes));
  *at += bytes + 2;
  return C_OK;
}

static int read_command(const char** at, const char* end) {
  long long count = read_count(at, end, '*');
  if (count < 1 || count > end - *at) return C_ERR;
  runner->argv = zcalloc(sizeof(robj*) * (size_t)count);
  runner->argv_len = (int)count;
  runner->argc = 0;
  while (runner->argc < count) {
    if (read_argument(at, end, &runner->argv[runner->argc]) != C_OK) return C_ERR;
    runner->argc++;
  }
  return C_OK;
}

static int has_database(long long db, const char* where) {
  if (server.cluster_enabled && db != 0) {
    serverLog(LL_WARNING,
              "memlith: the %s has keys of database %lld, and a server of a cluster has database 0 only; start the "
              "server without \"cluster-enabled\", remove or move these keys, and shut it down with SHUTDOWN",
              where, db);
    return 0;
  }
  if (db < server.dbnum) return 1;
  serverLog(LL_WARNING, "memlith: the %s has keys of database %lld; raise the directive \"databases\"", where, db);
  return 0;
}

static int select_database(void) {
  long long db;
  if (runner->argc != 2 || getLongLongFromObject(runner->argv[1], &db) != C_OK || db < 0) return C_ERR;
  return has_database(db, "log") ? selectDb(runner, (int)db) : C_ERR;
}

static int run_command(int note) {
  struct redisCommand* command = lookupCommandOrOriginal(runner->argv, runner->argc);
  if (!command) {
    serverLog(LL_WARNING, "memlith: the log has the unknown command '%s'; load the module that it is of",
              (char*)runner->argv[0]->ptr);
    return C_ERR;
  }
  /* The entry as a whole is a transaction already. */
  if (command->proc == multiCommand || command->proc == execCommand) return C_OK;
  if (command->proc == selectCommand) return select_database(); /* which Redis refuses in a cluster */
  if (note) tracker_note(runner->db->id, runner->argv, runner->argc);
  runner->cmd = runner->lastcmd = command;
  command->proc(runner);
  return C_OK;
}

static int run_commands(const char* bytes, size_t byte_count, int note) {
  const char *at = bytes, *end = bytes + byte_count;
  while (at < end) {
    if (*at == '#') { /* the position, or a timestamp */
      const char* line_end = memchr(at, '\n', (size_t)(end - at));
      const size_t mark = sizeof POSITION_MARK - 1;
      if (!line_end) return C_ERR;
      if ((size_t)(line_end - at) > mark && !strncmp(at, POSITION_MARK, mark) &&
          position_found(at + mark, (size_t)(line_end - at) - mark) != C_OK) {
        return C_ERR;
      }
      at = line_end + 1;
      continue;
    }
    int status = read_command(&at, end);
    if (status == C_OK) status = run_command(note);
    freeClientArgv(runner);
    if (status != C_OK) return C_ERR;
    pause_sometimes();
  }
  return C_OK;
}

static int replay_entry(void* context, const char* bytes, size_t byte_count) {
  UNUSED(context);
  position_forget();
  return run_commands(bytes, byte_count, 1) == C_OK ? 0 : -1;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static sds payload; /* what an rio reads from has to be an sds; kept from record to record */

static int add_functions(rio* from) {
  while ((size_t)from->io.buffer.pos < sdslen(from->io.buffer.ptr)) {
    sds error = NULL;
    int type = rdbLoadType(from);
    if (load_function(from, type, &error) != C_OK) {
      serverLog(LL_WARNING, "memlith: functions cannot be loaded: %s", error ? error : "not a library");
      sdsfree(error);
      return C_ERR;
    }
  }
  return C_OK;
}

static int add_value(int db, sds key, long long expire) {
  rio from;
  int error;
  rioInitWithBuffer(&from, payload);
  if (db == DATASTORE_STATE_DB) {
    int is_position = !strcmp(key, RECORD_POSITION);
    sdsfree(key);
    if (!is_position) return add_functions(&from);
    position_in_kv();
    return position_found(payload, sdslen(payload));
  }
  int type = rdbLoadType(&from);
  robj* value = rdbLoadObject(type, &from, key, db, &error);
  if (!value || !add_loaded(db, key, &value)) {
    serverLog(LL_WARNING, "memlith: the value of key '%s' in database %d cannot be loaded", key, db);
    return C_ERR;
  }
  robj key_object;
  initStaticStringObject(key_object, key);
  if (expire != -1) setExpire(NULL, &server.db[db], &key_object, expire);
  free_key_of_loaded(key);
  return C_OK;
}

struct parts {
  sds tail;
  uint32_t tails;
};

static int collect_part(void* context, uint32_t number, const char* bytes, size_t byte_count) {
  struct parts* parts = context;
  if (number < RECORD_TAIL) {
    payload = sdscatlen(payload, bytes, byte_count);
  } else {
    parts->tail = sdscatlen(parts->tail, bytes, byte_count);
    parts->tails = number - RECORD_TAIL + 1;
  }
  return 0;
}

static int add_parts(int db, sds key, long long expire, uint64_t id) {
  struct parts parts = {sdsempty(), 0};
  int status = datastore_load_parts(memlith_datastore, id, collect_part, &parts) == 0 ? C_OK : C_ERR;
  if (status == C_OK) tracker_found(db, key, id, sdslen(payload), parts.tails, sdslen(parts.tail));
  if (status == C_OK) status = add_value(db, key, expire);
  if (status == C_OK && parts.tails) {
    selectDb(runner, db);
    status = run_commands(parts.tail, sdslen(parts.tail), 0);
  }
  sdsfree(parts.tail);
  if (sdsalloc(payload) > RECORD_PART_BYTES) {
    sdsfree(payload);
    payload = sdsempty();
  }
  return status;
}

static int load_record(void* context, int db, const char* name, size_t name_bytes, const char* record, size_t bytes) {
  UNUSED(context);
  if (db != DATASTORE_STATE_DB && !has_database(db, "kv store")) return -1;
  int64_t expire;
  if (bytes < 9) return -1;
  int flags = record[0];
  memcpy(&expire, record + 1, sizeof expire);
  size_t at = 1 + sizeof expire;
  sds key;
  if (flags & RECORD_LONG_KEY) {
    uint32_t key_bytes;
    if (bytes < at + sizeof key_bytes) return -1;
    memcpy(&key_bytes, record + at, sizeof key_bytes);
    at += sizeof key_bytes;
    if (bytes < at + key_bytes) return -1;
    key = sdsnewlen(record + at, key_bytes);
    at += key_bytes;
  } else {
    key = sdsnewlen(name + 1, name_bytes - 1);
  }
  sdsclear(payload);
  int status;
  if (flags & RECORD_PARTS) {
    uint64_t id;
    if (bytes != at + sizeof id) return -1;
    memcpy(&id, record + at, sizeof id);
    status = add_parts(db, key, expire, id);
  } else {
    payload = sdscatlen(payload, record + at, bytes - at);
    status = add_value(db, key, expire);
  }
  pause_sometimes();
  return status == C_OK ? 0 : -1;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* A store that was just made: what a plain server would load is what the server had before. */

void __real_aofLoadManifestFromDisk(void);
int __real_loadAppendOnlyFiles(aofManifest* manifest);

static int has_append_only_file(void) {
  return server.aof_manifest->base_aof_info || listLength(server.aof_manifest->incr_aof_list) > 0 ||
         access(server.aof_filename, F_OK) == 0;
}

/* AOF_NOT_EXIST: there is none, or the user does not want it. */
static int import_aof(int* imported) {
  int wanted = memlith_users_appendonly();
  __real_aofLoadManifestFromDisk(); /* ends the server where the manifest is damaged */
  int done = AOF_NOT_EXIST;
  if (has_append_only_file() && wanted == 1) {
    done = __real_loadAppendOnlyFiles(server.aof_manifest);
  } else if (has_append_only_file() && wanted == -1) {
    serverLog(
        LL_WARNING,
        "memlith: the store is new, and there is an append-only file (\"%s\"), but the configuration does not say "
        "whether it is what the server had: 'appendonly yes' loads it into the store, 'appendonly no' loads \"%s\"",
        server.aof_dirname, server.rdb_filename);
    done = AOF_FAILED;
  }
  aofManifestFree(server.aof_manifest);
  server.aof_manifest = NULL;
  /* Or Redis would find one day that it has grown enough to be rewritten. */
  server.aof_current_size = server.aof_rewrite_base_size = 0;
  if (done == AOF_OK || done == AOF_TRUNCATED || done == AOF_EMPTY) {
    serverLog(LL_NOTICE,
              "memlith: the store is new; its first data comes from the append-only file, which is not read any more");
    *imported = 1;
  }
  return done;
}

static int import_rdb(int* imported) {
  rdbSaveInfo info = RDB_SAVE_INFO_INIT;
  errno = 0;
  if (rdbLoad(server.rdb_filename, &info, RDBFLAGS_NONE) != C_OK) {
    if (errno == ENOENT) return C_OK;
    serverLog(LL_WARNING, "memlith: cannot load \"%s\": %s", server.rdb_filename, strerror(errno));
    return C_ERR;
  }
  serverLog(LL_NOTICE, "memlith: the store is new; its first data comes from \"%s\"", server.rdb_filename);
  *imported = 1;
  return C_OK;
}

static int load_all(void) {
  monotime began = getMonotonicUs();
  if (datastore_load(memlith_datastore, load_record, NULL) != 0) return C_ERR;
  if (datastore_sweep(memlith_datastore, tracker_alive, NULL) != 0) return C_ERR;
  monotime records = getMonotonicUs();
  if (datastore_replay(memlith_datastore, replay_entry, NULL) != 0) return C_ERR;
  serverLog(LL_NOTICE, "memlith: kv store loaded in %.3f seconds, log in %.3f seconds", (double)(records - began) / 1e6,
            (double)(getMonotonicUs() - records) / 1e6);
  return C_OK;
}

int memlith_load(int* imported) {
  if (datastore_is_new(memlith_datastore)) {
    int done = import_aof(imported);
    if (done == AOF_NOT_EXIST) return import_rdb(imported);
    return *imported ? C_OK : C_ERR;
  }
  /* At DEBUG LOADAOF a thread runs, and there is more than at a start. */
  if (datastore_stop(memlith_datastore) != 0 || datastore_forget(memlith_datastore) != 0) {
    serverLog(LL_WARNING, "memlith: %s", datastore_error(memlith_datastore));
    return C_ERR;
  }
  tracker_reset();
  position_forget();
  int state = server.aof_state;
  client* before = server.current_client;
  server.aof_state = AOF_OFF;
  startLoading(datastore_records(memlith_datastore), RDBFLAGS_AOF_PREAMBLE, 0);
  expect_keys(datastore_records(memlith_datastore));
  runner = server.current_client = createAOFClient();
  payload = sdsempty();
  int status = load_all();
  if (status != C_OK) serverLog(LL_WARNING, "memlith: cannot load the data: %s", datastore_error(memlith_datastore));
  sdsfree(payload);
  freeClient(runner);
  server.current_client = before;
  server.aof_state = state;
  stopLoading(status == C_OK);
  return status;
}
