/* Changes that Redis Cluster makes outside of commands, so that the log has no command for them. plugin redis. */
#include "redis.h" /* first: it says which system this is */

#include <cluster.h>
#ifdef MEMLITH_VALKEY
#include <cluster_legacy.h>
#endif

/* Slots went to another master, which says so; Redis removes their keys without a word. Without a DEL in the log a
 * restart would have the keys again, and if the slot comes back, new commands would be added to old values. */
static int is_removed_with_its_slot(redisDb* db, robj* key) {
  int in_command = server.current_client && !ProcessingEventsWhileBlocked;
  return memlith_datastore && server.cluster_enabled && !in_command && !server.loading && db->id == 0 && iAmMaster() &&
         server.cluster->slots[keyHashSlot(key->ptr, (int)sdslen(key->ptr))] != server.cluster->myself;
}

int __real_dbDelete(redisDb* db, robj* key);
int __wrap_dbDelete(redisDb* db, robj* key) {
  int with_slot = is_removed_with_its_slot(db, key);
  int deleted = __real_dbDelete(db, key);
  if (deleted && with_slot && server.aof_state != AOF_OFF) {
    robj* command[2] = {shared.del, key};
    feedAppendOnlyFile(db->id, command, 2);
    position_void();
  }
  return deleted;
}

/* CLUSTER RESET of a replica. (A replica that loads its master's data has stopped the log, and says all data anew when
 * it has loaded it.) */
long long __real_emptyData(int db, int flags, void(callback)(keyspace_table*));
long long __wrap_emptyData(int db, int flags, void(callback)(keyspace_table*)) {
  if (memlith_datastore && server.cluster_enabled && server.aof_state != AOF_OFF && !server.loading) memlith_replaced();
  return __real_emptyData(db, flags, callback);
}

/* Redis flushes nodes.conf when epochs change, and leaves other changes to the kernel. Here they are durable before the
 * replies are sent, like the data: which slots are moving, whose replica this server is. */
void __real_clusterBeforeSleep(void);
void __wrap_clusterBeforeSleep(void) {
  if (memlith_datastore && server.cluster->todo_before_sleep & CLUSTER_TODO_SAVE_CONFIG) {
    server.cluster->todo_before_sleep |= CLUSTER_TODO_FSYNC_CONFIG;
  }
  __real_clusterBeforeSleep();
}
