/* Where in the stream of replication the data of this server is, so that a restart needs no full resynchronisation.
 * plugin redis.
 *
 * A position is a replication ID and an offset: the data is what the first `offset` bytes of the stream with that ID
 * have made of it. Each entry of the log ends with a line that has the position behind the entry, and each cut puts it
 * into the kv store. An entry without such a line means that the position is not known from there on. So after any
 * crash the position is the one that belongs to the data.
 *
 * A replica that starts asks its master for what follows its position. A master that starts never continues the stream
 * with the ID that it had: replicas, or their disks, may have bytes that its own disk does not have. It takes a new ID,
 * and the old one is its second ID, up to its offset: a replica that has more bytes is refused, and loads all data.
 */
#include "redis.h" /* first: it says which system this is */

typedef struct position {
  int known;
  int db; /* which the stream has selected */
  long long offset;
  char id[CONFIG_RUN_ID_SIZE + 1];
} position;

static position found;    /* in the kv store and the log, while they are loaded */
static position noted;    /* the newest one in the log or the kv store */
static int is_in_kv;      /* the kv store has a position, or may have one */
static position restored; /* from which this server has started as a master */

/* The server has no master, and its data is what it was when it started as one: no byte was added to the stream, and no
 * replica was told of the new ID. (In a cluster it may be marked as a replica already: not iAmMaster.) */
static int is_as_restored(void) {
  return restored.known && !server.masterhost && server.repl_backlog && listLength(server.slaves) == 0 &&
         server.master_repl_offset == restored.offset && server.second_replid_offset == restored.offset + 1 &&
         !strcmp(server.replid2, restored.id);
}

static position make(const char* id, long long offset, int db) {
  position made;
  memset(&made, 0, sizeof made); /* positions are compared as bytes */
  made.known = 1;
  made.db = db;
  made.offset = offset;
  memcpy(made.id, id, CONFIG_RUN_ID_SIZE);
  return made;
}

/* The position of the databases as they are, between two commands. */
static position current(void) {
  position none;
  memset(&none, 0, sizeof none);
  client* master = server.master ? server.master : server.cached_master;
  if (master && (server.masterhost || !iAmMaster())) {
    if (is_too_old_for_positions(master) || position_in_stream(master) < 0) return none;
    return make(stream_of(master), position_in_stream(master), master->db->id);
  }
  /* Without a backlog Redis does not count what is written. */
  if (master || server.masterhost || !iAmMaster() || !server.repl_backlog) return none;
  if (is_as_restored()) return restored;
  return make(server.replid, server.master_repl_offset, server.slaveseldb == -1 ? 0 : server.slaveseldb);
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

sds position_note(sds entry) {
  noted = current();
  return noted.known ? sdscatprintf(entry, "%s%s %lld %d\r\n", POSITION_MARK, noted.id, noted.offset, noted.db) : entry;
}

int position_has_moved(void) {
  position now = current();
  return now.known && memcmp(&now, &noted, sizeof now) != 0;
}

void position_say(void) {
  noted = current();
  if (noted.known) {
    sds text = sdscatprintf(sdsempty(), "%s %lld %d", noted.id, noted.offset, noted.db);
    record_put_position(text);
    sdsfree(text);
  } else if (is_in_kv) {
    record_remove_position();
  }
  is_in_kv = noted.known;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

void position_forget(void) { found.known = 0; }

int position_found(const char* text, size_t bytes) {
  char copy[128], id[CONFIG_RUN_ID_SIZE + 1];
  long long offset;
  int db;
  if (bytes >= sizeof copy) return C_ERR;
  memcpy(copy, text, bytes);
  copy[bytes] = 0;
  if (sscanf(copy, "%40s %lld %d", id, &offset, &db) != 3 || strlen(id) != CONFIG_RUN_ID_SIZE || offset < 0 || db < 0 ||
      db >= server.dbnum) {
    return C_ERR;
  }
  found = make(id, offset, db);
  return C_OK;
}

void position_in_kv(void) { is_in_kv = 1; }

/* As Redis does with what an RDB file says. */
void position_take(void) {
  noted = found;
  if (!found.known) return;
  if (!iAmMaster()) {
    if (server.master || server.cached_master) return;
    memcpy(server.replid, found.id, sizeof server.replid);
    server.master_repl_offset = found.offset;
    replicationCacheMasterUsingMyself();
    selectDb(server.cached_master, found.db);
    return;
  }
  memcpy(server.replid2, found.id, sizeof server.replid2);
  server.second_replid_offset = found.offset + 1;
  server.master_repl_offset = found.offset;
  if (!server.repl_backlog) createReplicationBacklog();
  server.repl_no_slaves_since = time(NULL);
  restored = found;
}

void position_void(void) { restored.known = 0; }

/* ---- a master that becomes a replica ----------------------------------------------------------------------------- */

/* One that has started, and has written nothing since: its data is a beginning of the stream that it had, so it asks
 * its new master with that ID. If the new master was its replica, and has all that it has, nothing else is needed. */
static void show_restored_id(void) {
  if (is_as_restored()) memcpy(server.replid, restored.id, sizeof server.replid);
}

#ifdef MEMLITH_VALKEY
void __real_replicationSetPrimary(char* ip, int port, int full_sync);
void __wrap_replicationSetPrimary(char* ip, int port, int full_sync) {
  if (memlith_datastore && !full_sync) show_restored_id();
  __real_replicationSetPrimary(ip, port, full_sync);
}
#else
void __real_replicationSetMaster(char* ip, int port);
void __wrap_replicationSetMaster(char* ip, int port) {
  if (memlith_datastore) show_restored_id();
  __real_replicationSetMaster(ip, port);
}
#endif

void __real_replicaofCommand(client* c);
void __wrap_replicaofCommand(client* c) {
  if (!memlith_datastore || server.masterhost || server.cluster_enabled) {
    __real_replicaofCommand(c);
    return;
  }
  char own[CONFIG_RUN_ID_SIZE + 1];
  memcpy(own, server.replid, sizeof own);
  show_restored_id();
  __real_replicaofCommand(c);
  if (!server.masterhost) memcpy(server.replid, own, sizeof own); /* it was refused */
}
