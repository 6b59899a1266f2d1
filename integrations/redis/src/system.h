/* Which system this is compiled with: Redis 7.0, or Valkey 8.1 (MEMLITH_VALKEY), and what differs between the two. The
 * other files use the names of Redis. plugin redis.
 */
#ifndef MEMLITH_REDIS_SYSTEM_H
#define MEMLITH_REDIS_SYSTEM_H

#include <server.h> /* first: it says what the libraries' headers declare */

#include <functions.h>

#ifdef MEMLITH_VALKEY

#define redisDb serverDb
#define redisCommand serverCommand
#define redisCommandProc serverCommandProc
#define master primary /* a member of `server`, as the next ones */
#define masterhost primary_host
#define cached_master cached_primary
#define slaves replicas
#define master_repl_offset primary_repl_offset
#define slaveseldb replicas_eldb
#define repl_no_slaves_since repl_no_replicas_since
#define iAmMaster iAmPrimary
#define replicationCacheMasterUsingMyself replicationCachePrimaryUsingMyself
#define DICT_OF_VALUE
#define GETKEYS_RESULT_INIT {.size = MAX_KEYS_BUFFER}
typedef hashtable keyspace_table; /* what a function that empties a database is given */

static inline int load_function(rio* from, int type, sds* error) {
  return type == RDB_OPCODE_FUNCTION2
             ? rdbFunctionLoad(from, RDB_VERSION, functionsLibCtxGetCurrent(), RDBFLAGS_NONE, error)
             : C_ERR;
}

static inline int is_too_old_for_positions(client* c) { return c->flag.pre_psync; }
static inline long long position_in_stream(client* c) { return c->repl_data->reploff; }
static inline const char* stream_of(client* c) { return c->repl_data->replid; }

static inline int is_blocked(client* c) { return c->flag.blocked; }
static inline int has_no_subscribers(void) {
  return kvstoreSize(server.pubsub_channels) == 0 && dictSize(server.pubsub_patterns) == 0 &&
         kvstoreSize(server.pubsubshard_channels) == 0;
}
static inline void move_node(list* from, listNode* node, list* to) {
  listUnlinkNode(from, node);
  listLinkNodeTail(to, node);
}

static inline robj* value_in(int db, sds key) { return dbFind(&server.db[db], key); }
typedef kvstoreIterator* keys_iterator;
static inline keys_iterator begin_keys(int db) { return kvstoreIteratorInit(server.db[db].keys, HASHTABLE_ITER_SAFE); }
static inline int next_key(keys_iterator each, sds* key, robj** value) {
  void* entry;
  if (!kvstoreIteratorNext(each, &entry)) return 0;
  *value = entry;
  *key = objectGetKey(*value);
  return 1;
}
static inline void end_keys(keys_iterator each) { kvstoreIteratorRelease(each); }
static inline void expect_keys(uint64_t count) {
  if (kvstoreSize(server.db[0].keys) == 0) dbExpand(&server.db[0], count, 0);
}
/* The value may move. */
static inline int add_loaded(int db, sds key, robj** value) { return dbAddRDBLoad(&server.db[db], key, value); }
static inline void free_key_of_loaded(sds key) { sdsfree(key); } /* the database has a copy */

#else

#define DICT_OF_VALUE __attribute__((unused)) dict *d,
typedef dict keyspace_table;

static inline int load_function(rio* from, int type, sds* error) {
  return type == RDB_OPCODE_FUNCTION2
             ? rdbFunctionLoad(from, RDB_VERSION, functionsLibCtxGetCurrent(), type, RDBFLAGS_NONE, error)
             : C_ERR;
}

static inline int is_too_old_for_positions(client* c) { return (c->flags & CLIENT_PRE_PSYNC) != 0; }
static inline long long position_in_stream(client* c) { return c->reploff; }
static inline const char* stream_of(client* c) { return c->replid; }

static inline int is_blocked(client* c) { return (c->flags & CLIENT_BLOCKED) != 0; }
static inline int has_no_subscribers(void) {
  return dictSize(server.pubsub_channels) == 0 && dictSize(server.pubsub_patterns) == 0 &&
         dictSize(server.pubsubshard_channels) == 0;
}
static inline void move_node(list* from, listNode* node, list* to) {
  listAddNodeTail(to, listNodeValue(node));
  listDelNode(from, node);
}

static inline robj* value_in(int db, sds key) { return dictFetchValue(server.db[db].dict, key); }
typedef dictIterator* keys_iterator;
static inline keys_iterator begin_keys(int db) { return dictGetSafeIterator(server.db[db].dict); }
static inline int next_key(keys_iterator each, sds* key, robj** value) {
  dictEntry* entry = dictNext(each);
  if (!entry) return 0;
  *key = dictGetKey(entry);
  *value = dictGetVal(entry);
  return 1;
}
static inline void end_keys(keys_iterator each) { dictReleaseIterator(each); }
static inline void expect_keys(uint64_t count) {
  if (server.db[0].dict && dictSize(server.db[0].dict) == 0) dictExpand(server.db[0].dict, count);
}
static inline int add_loaded(int db, sds key, robj** value) { return dbAddRDBLoad(&server.db[db], key, *value); }
static inline void free_key_of_loaded(sds key) { UNUSED(key); } /* the database has it */

#endif

#endif
