/* Clients that only read do not wait for the flush of others' writes, where flushes are slow. plugin redis.
 *
 * The entry of a turn is appended, and a thread flushes it (AHEAD of durability). Redis sends what clients are to be
 * sent at the end of each turn; meanwhile these replies are held back, each until an entry is durable:
 *   a command that only reads keys, and all keys are known   the newest entry that has changed one of these keys
 *   any other command                                        the newest entry, as of the command
 *   what came into a client's buffer in another way           the newest entry, as of the end of the turn
 * No client is shown what a crash could take back. The replies of one client stay in their order.
 *
 * A server with replicas, subscribers, clients that are tracked or monitor, one of a cluster, or one that has a single
 * client, is never ahead: its replies wait as with Redis's `appendfsync always`.
 */
#include "redis.h" /* first: it says which system this is */

#include <sys/eventfd.h>

#define SLOW_US 500
#define SWEPT_AT 4096

typedef struct held {
  uint64_t entry; /* that has to be durable first */
  size_t bytes;   /* in the buffers of the client, all of which are known to wait for no more than that */
} held;

static int ahead;
static int must_wait;  /* a reply of this turn cannot be held back: the client's buffer is being sent already */
static int may_be_fed; /* a client is blocked whose buffer is being sent, and what it waits for will come into that */
static int progress = -1;
static dict** unsafe;         /* of each database: key -> the newest entry that has changed it, durable or not */
static size_t* keys_left;     /* in each of these, at the last sweep */
static uint64_t unsafe_whole; /* the newest entry that may have changed any key */
static dict* clients;         /* id -> held */

static void free_held(DICT_OF_VALUE void* value) { zfree(value); }
static uint64_t hash_of_id(const void* id) { return dictGenHashFunction(&id, sizeof id); }
static dictType unsafe_type = {
    .hashFunction = dictSdsHash, .keyCompare = dictSdsKeyCompare, .keyDestructor = dictSdsDestructor};
static dictType clients_type = {.hashFunction = hash_of_id, .valDestructor = free_held};

/* The entry that has what was fed so far. */
static uint64_t entry_of_now(void) { return datastore_newest(memlith_datastore) + (sdslen(server.aof_buf) > 0); }

static size_t bytes_for(client* c) { return (size_t)c->bufpos + (size_t)c->reply_bytes; }

static held* held_of(client* c) { return dictFetchValue(clients, (void*)(uintptr_t)c->id); }

static held* hold(client* c) {
  held* it = held_of(c);
  if (!it) {
    it = zcalloc(sizeof *it);
    dictAdd(clients, (void*)(uintptr_t)c->id, it);
  }
  return it;
}

/* ---- what has changed -------------------------------------------------------------------------------------------- */

void readers_changed(int db, sds key) {
  if (!ahead) return;
  dictEntry* entry = dictFind(unsafe[db], key);
  if (!entry) {
    dictAdd(unsafe[db], sdsdup(key), NULL);
    entry = dictFind(unsafe[db], key);
  }
  dictSetUnsignedIntegerVal(entry, datastore_newest(memlith_datastore) + 1);
}

void readers_changed_all(void) {
  if (ahead) unsafe_whole = datastore_newest(memlith_datastore) + 1;
}

static void forget(void) {
  for (int db = 0; db < server.dbnum; db++) dictEmpty(unsafe[db], NULL);
  dictEmpty(clients, NULL);
}

static uint64_t entry_of_key(dictEntry* entry) { return dictGetUnsignedIntegerVal(entry); }
static uint64_t entry_of_client(dictEntry* entry) { return ((held*)dictGetVal(entry))->entry; }

/* Removes what is durable, once there is twice as much as the last time has left. */
static void sweep(dict* from, size_t* left, uint64_t (*entry_of)(dictEntry*), uint64_t durable) {
  if (dictSize(from) < SWEPT_AT || dictSize(from) < 2 * *left) return;
  dictIterator* each = dictGetSafeIterator(from);
  dictEntry* entry;
  while ((entry = dictNext(each)) != NULL) {
    if (entry_of(entry) <= durable) dictDelete(from, dictGetKey(entry));
  }
  dictReleaseIterator(each);
  *left = dictSize(from);
}

static void sweep_all(uint64_t durable) {
  static size_t clients_left;
  sweep(clients, &clients_left, entry_of_client, durable);
  for (int db = 0; db < server.dbnum; db++) sweep(unsafe[db], &keys_left[db], entry_of_key, durable);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* It may read keys that are none of its arguments. */
static int is_script(redisCommandProc* proc) {
  return proc == evalRoCommand || proc == evalShaRoCommand || proc == fcallroCommand || proc == sortroCommand;
}

/* The newest entry whose effects the reply may show. */
static uint64_t shown_by(client* c) {
  struct redisCommand* command = c->cmd;
  if (!command || c->argc < abs(command->arity)) return entry_of_now(); /* it was refused */
  redisCommandProc* proc = command->proc;
  if (proc == pingCommand || proc == echoCommand || proc == selectCommand) return 0;
  if (!(command->flags & CMD_READONLY) || command->flags & CMD_MODULE || is_script(proc) || is_blocked(c)) {
    return entry_of_now() + is_blocked(c); /* what it waits for comes with a later entry */
  }
  getKeysResult keys = GETKEYS_RESULT_INIT;
  int count = getKeysFromCommand(command, c->argv, c->argc, &keys);
  uint64_t newest = count > 0 ? unsafe_whole : entry_of_now();
  for (int i = 0; i < count; i++) {
    dictEntry* entry = dictFind(unsafe[c->db->id], c->argv[keys.keys[i].pos]->ptr);
    if (entry && dictGetUnsignedIntegerVal(entry) > newest) newest = dictGetUnsignedIntegerVal(entry);
  }
  getKeysFreeResult(&keys);
  return newest;
}

static int is_being_sent(client* c) { return c->conn && connHasWriteHandler(c->conn); }

int __real_processCommand(client* c);
int __wrap_processCommand(client* c) {
  if (!ahead || !memlith_datastore) return __real_processCommand(c);
  size_t before = bytes_for(c);
  held* it = held_of(c);
  int others = before > (it ? it->bytes : 0); /* something came in another way */
  uint64_t entry = others ? entry_of_now() : 0;
  if (__real_processCommand(c) != C_OK) return C_ERR; /* there is no client any more */
  uint64_t shown = shown_by(c);
  it = hold(c);
  if (entry > it->entry) it->entry = entry;
  if (shown > it->entry) it->entry = shown;
  it->bytes = bytes_for(c);
  if (is_being_sent(c)) {
    if (it->entry > datastore_durable(memlith_datastore)) must_wait = 1;
    if (is_blocked(c)) may_be_fed = 1;
  }
  return C_OK;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static int may_send(client* c, uint64_t durable) {
  held* it = held_of(c);
  if (!it || it->bytes != bytes_for(c)) {
    it = hold(c);
    it->entry = datastore_newest(memlith_datastore);
    it->bytes = bytes_for(c);
  }
  if (it->entry > durable) return 0;
  dictDelete(clients, (void*)(uintptr_t)c->id);
  return 1;
}

static int send_some(int (*send)(void)) {
  uint64_t durable = memlith_datastore && clients ? datastore_durable(memlith_datastore) : 0;
  if (!memlith_datastore || !clients || durable >= datastore_newest(memlith_datastore)) {
    if (clients) forget();
    return send();
  }
  list* waiting = listCreate();
  listIter each;
  listNode* node;
  listRewind(server.clients_pending_write, &each);
  while ((node = listNext(&each)) != NULL) {
    if (!may_send(listNodeValue(node), durable)) move_node(server.clients_pending_write, node, waiting);
  }
  int sent = send();
  listRewind(waiting, &each);
  while ((node = listNext(&each)) != NULL) move_node(waiting, node, server.clients_pending_write);
  listRelease(waiting);
  sweep_all(durable);
  return sent;
}

int __real_handleClientsWithPendingWrites(void);
int __wrap_handleClientsWithPendingWrites(void) { return send_some(__real_handleClientsWithPendingWrites); }

#ifndef MEMLITH_VALKEY
int __real_handleClientsWithPendingWritesUsingThreads(void);
int __wrap_handleClientsWithPendingWritesUsingThreads(void) {
  return send_some(__real_handleClientsWithPendingWritesUsingThreads);
}
#endif

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void on_progress(aeEventLoop* loop, int fd, void* data, int mask) {
  uint64_t count;
  UNUSED(loop);
  UNUSED(data);
  UNUSED(mask);
  if (read(fd, &count, sizeof count) < 0) return; /* the end of this turn looks at what is durable */
}

static int prepare(void) {
  if (progress != -1) return 1;
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd == -1) return 0;
  if (aeCreateFileEvent(server.el, fd, AE_READABLE, on_progress, NULL) == AE_ERR) {
    close(fd);
    return 0;
  }
  unsafe = zcalloc(sizeof(dict*) * (size_t)server.dbnum);
  keys_left = zcalloc(sizeof(size_t) * (size_t)server.dbnum);
  for (int db = 0; db < server.dbnum; db++) unsafe[db] = dictCreate(&unsafe_type);
  clients = dictCreate(&clients_type);
  progress = fd;
  datastore_tell_progress(memlith_datastore, fd);
  return 1;
}

static int has_client_that_may_be_fed(void) {
  listIter each;
  listNode* node;
  listRewind(server.clients, &each);
  while ((node = listNext(&each)) != NULL) {
    client* c = listNodeValue(node);
    if (is_blocked(c) && is_being_sent(c)) return 1;
  }
  return 0;
}

static int may_be_ahead(void) {
  if (server.blocked_clients == 0) may_be_fed = 0;
  return !may_be_fed && !memlith_config.weak && datastore_flush_us(memlith_datastore) > SLOW_US && !server.masterhost &&
         !server.cluster_enabled && listLength(server.slaves) == 0 && listLength(server.monitors) == 0 &&
         has_no_subscribers() && server.tracking_clients == 0 && listLength(server.clients) > 1 && !server.loading;
}

/* Keys are known from the turn on that follows the first one. */
int readers_turn(int* wait) {
  int was = ahead;
  if (must_wait) *wait = 1;
  must_wait = 0;
  ahead = may_be_ahead() && (was || (prepare() && !has_client_that_may_be_fed()));
  return was && ahead && !*wait;
}
