/* The durable side of Redis on memlith: an application log, and a kv store that catches up with it. plugin redis.
 *
 * The bytes of Redis's append-only file go to the log. From time to time Redis makes a cut: it says what the
 * records are as of the newest entry (datastore_put and the calls below it, then datastore_cut). A thread puts each cut
 * into the kv store and commits it together with the log's read position, so the kv store always is what some cut
 * said, and the log has every entry behind that cut.
 *
 * Calls return 0, or -1, and then datastore_error() says why. A failure of the disk is final: reopen.
 * THREADS. One thread calls, except for what the comments say.
 */
#ifndef MEMLITH_REDIS_DATASTORE_H
#define MEMLITH_REDIS_DATASTORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct datastore datastore;

enum { DATASTORE_STRONG = 0, DATASTORE_WEAK = 1 };
enum { DATASTORE_STATE_DB = -1 }; /* records that belong to no database */
enum { DATASTORE_KEY_BYTES_MAX = 1024 };

/* Opens the store in folder `path`, or makes one. 0 on error, and `why` has the reason. */
datastore* datastore_open(const char* path, uint64_t log_bytes, char* why, size_t why_bytes);
/* Puts the cuts that were made into the kv store, makes everything durable and closes. */
int datastore_close(datastore* datastore);
const char* datastore_error(datastore* datastore);
/* Nothing was ever cut and the log is empty. */
int datastore_is_new(datastore* datastore);

/* ---- what was kept: while the thread does not run --------------------------------------------------------------- */

typedef int (*datastore_record)(void* context, int db, const char* key, size_t key_bytes, const char* value,
                                size_t value_bytes); /* not 0: stop */
int datastore_load(datastore* datastore, datastore_record record, void* context);
/* How many records database `db` has, about. */
uint64_t datastore_records(datastore* datastore);
/* The parts of object `id`, in the order of their numbers. */
typedef int (*datastore_part_found)(void* context, uint32_t number, const char* bytes, size_t byte_count);
int datastore_load_parts(datastore* datastore, uint64_t id, datastore_part_found found, void* context);
/* Removes the parts of objects that `alive` says no record has. */
int datastore_sweep(datastore* datastore, int (*alive)(void* context, uint64_t id), void* context);
/* The entries behind the newest cut, in order. */
int datastore_replay(datastore* datastore, int (*entry)(void* context, const char* bytes, size_t byte_count),
                     void* context);

/* Drops all calls since the newest cut: the databases have the records that they have in the kv store. */
int datastore_forget(datastore* datastore);

/* Starts the thread. */
int datastore_start(datastore* datastore, int durability, uint64_t window_ms);
/* Puts the cuts that were made into the kv store, and ends the thread. */
int datastore_stop(datastore* datastore);
void datastore_set_durability(datastore* datastore, int durability, uint64_t window_ms);

/* ---- the log ---------------------------------------------------------------------------------------------------- */

/* Appends an entry. Strong: durable on return. Weak: durable within the window. Waits for the thread if the log is
 * full; an entry for which the whole log is too small makes the log grow. */
int datastore_append(datastore* datastore, const char* bytes, size_t byte_count);
/* Appends an entry, and a thread flushes it at once: durable when datastore_durable() has reached its number. */
int datastore_append_ahead(datastore* datastore, const char* bytes, size_t byte_count);
uint64_t datastore_newest(datastore* datastore);
uint64_t datastore_durable(datastore* datastore);
/* `fd` is an eventfd, to which is added when more may be durable, or a flush has failed. */
void datastore_tell_progress(datastore* datastore, int fd);
/* How long a flush takes, smoothed. Any thread. */
uint64_t datastore_flush_us(datastore* datastore);
/* The result of a weak append, or of one ahead: nothing was appended, because the disk has no room. Try again with the
 * same bytes. */
enum { DATASTORE_NO_ROOM = 1 };
/* 0 while the disk has no room for what the threads behind have to write. They try again; until then, nothing more
 * should be appended than has to be. */
int datastore_has_room(datastore* datastore);
/* Everything that was appended is durable. */
int datastore_write(datastore* datastore);
/* True if a flush in the background has failed. */
int datastore_failed(datastore* datastore);

/* ---- a cut ------------------------------------------------------------------------------------------------------ */

int datastore_put(datastore* datastore, int db, const void* key, size_t key_bytes, const void* value,
                  size_t value_bytes);
int datastore_remove(datastore* datastore, int db, const void* key, size_t key_bytes);
/* The number of an object that was never used. */
uint64_t datastore_new_object(datastore* datastore);
/* Part `number` of a new object, to which no record points before this cut. At most 8 MiB. */
int datastore_put_part(datastore* datastore, uint64_t id, uint32_t number, const void* bytes, size_t byte_count);
/* The same of an object that records point to. */
int datastore_add_part(datastore* datastore, uint64_t id, uint32_t number, const void* bytes, size_t byte_count);
/* No record points to the object any more. */
int datastore_drop_object(datastore* datastore, uint64_t id);
/* Drops the puts, removals and additions since the last cut: every database will be emptied and said anew. */
void datastore_void(datastore* datastore);
/* Database `db` has no records; what this cut put into it before is void, too. */
int datastore_empty_db(datastore* datastore, int db);
void datastore_swap_dbs(datastore* datastore, int one, int other);
/* Bytes that were said since the last cut. */
size_t datastore_cut_bytes(datastore* datastore);
/* Hands over what was said, as of the newest entry. Does not wait. */
int datastore_cut(datastore* datastore);
/* Hands over a piece of what was said, before a cut that is too large for the memory: only records of databases that
 * were emptied since the last cut may have been put. Waits for the thread if much waits already. */
int datastore_cut_piece(datastore* datastore);
/* Waits until every cut is in the kv store, durably. */
int datastore_checkpoint(datastore* datastore);

typedef struct datastore_facts {
  uint64_t log_bytes, log_used, entries, durable, cut; /* numbers of entries: newest, newest durable, newest cut */
  uint64_t cuts, waiting_bytes, region_bytes, records, waits;
} datastore_facts;
int datastore_get_facts(datastore* datastore, datastore_facts* facts);

#ifdef __cplusplus
}
#endif

#endif
