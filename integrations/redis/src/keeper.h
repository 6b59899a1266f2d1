/* The durable side of Redis on memlith: an application log, and a kv store that catches up with it. plugin redis.
 *
 * The bytes of Redis's append-only file go to the log. From time to time Redis makes a cut: it says what the
 * records are as of the newest entry (keeper_put and the calls below it, then keeper_cut). A thread puts each cut into
 * the kv store and commits it together with the log's read position, so the kv store always is what some cut said, and
 * the log has every entry behind that cut.
 *
 * Calls return 0, or -1, and then keeper_error() says why. A failure of the disk is final: reopen.
 * THREADS. One thread calls, except for what the comments say.
 */
#ifndef MEMLITH_REDIS_KEEPER_H
#define MEMLITH_REDIS_KEEPER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct keeper keeper;

enum { KEEPER_STRONG = 0, KEEPER_WEAK = 1 };
enum { KEEPER_STATE_DB = -1 }; /* records that belong to no database */
enum { KEEPER_KEY_BYTES_MAX = 1024 };

/* Opens the store in folder `path`, or makes one. 0 on error, and `why` has the reason. */
keeper* keeper_open(const char* path, uint64_t log_bytes, char* why, size_t why_bytes);
/* Puts the cuts that were made into the kv store, makes everything durable and closes. */
int keeper_close(keeper* keeper);
const char* keeper_error(keeper* keeper);
/* Nothing was ever cut and the log is empty. */
int keeper_is_new(keeper* keeper);

/* ---- what was kept: while the thread does not run --------------------------------------------------------------- */

typedef int (*keeper_record)(void* context, int db, const char* key, size_t key_bytes, const char* value,
                             size_t value_bytes); /* not 0: stop */
int keeper_load(keeper* keeper, keeper_record record, void* context);
/* How many records database `db` has, about. */
uint64_t keeper_records(keeper* keeper);
/* The parts of object `id`, in the order of their numbers. */
typedef int (*keeper_part_found)(void* context, uint32_t number, const char* bytes, size_t byte_count);
int keeper_load_parts(keeper* keeper, uint64_t id, keeper_part_found found, void* context);
/* Removes the parts of objects that `alive` says no record has. */
int keeper_sweep(keeper* keeper, int (*alive)(void* context, uint64_t id), void* context);
/* The entries behind the newest cut, in order. */
int keeper_replay(keeper* keeper, int (*entry)(void* context, const char* bytes, size_t byte_count), void* context);

/* Drops all calls since the newest cut: the databases have the records that they have in the kv store. */
int keeper_forget(keeper* keeper);

/* Starts the thread. */
int keeper_start(keeper* keeper, int durability, uint64_t window_ms);
/* Puts the cuts that were made into the kv store, and ends the thread. */
int keeper_stop(keeper* keeper);
void keeper_set_durability(keeper* keeper, int durability, uint64_t window_ms);

/* ---- the log ---------------------------------------------------------------------------------------------------- */

/* Appends an entry. Strong: durable on return. Weak: durable within the window. Waits for the thread if the log is
 * full; an entry for which the whole log is too small makes the log grow. */
int keeper_append(keeper* keeper, const char* bytes, size_t byte_count);
/* A weak append's result: nothing was appended, because the disk has no room. Try again with the same bytes. */
enum { KEEPER_NO_ROOM = 1 };
/* 0 while the disk has no room for what the threads behind have to write. They try again; until then, nothing more
 * should be appended than has to be. */
int keeper_has_room(keeper* keeper);
/* Everything that was appended is durable. */
int keeper_write(keeper* keeper);
/* True if a flush in the background has failed. */
int keeper_failed(keeper* keeper);

/* ---- a cut ------------------------------------------------------------------------------------------------------ */

int keeper_put(keeper* keeper, int db, const void* key, size_t key_bytes, const void* value, size_t value_bytes);
int keeper_remove(keeper* keeper, int db, const void* key, size_t key_bytes);
/* The number of an object that was never used. */
uint64_t keeper_new_object(keeper* keeper);
/* Part `number` of a new object, to which no record points before this cut. At most 8 MiB. */
int keeper_put_part(keeper* keeper, uint64_t id, uint32_t number, const void* bytes, size_t byte_count);
/* The same of an object that records point to. */
int keeper_add_part(keeper* keeper, uint64_t id, uint32_t number, const void* bytes, size_t byte_count);
/* No record points to the object any more. */
int keeper_drop_object(keeper* keeper, uint64_t id);
/* Drops the puts, removals and additions since the last cut: every database will be emptied and said anew. */
void keeper_void(keeper* keeper);
/* Database `db` has no records; what this cut put into it before is void, too. */
int keeper_empty_db(keeper* keeper, int db);
void keeper_swap_dbs(keeper* keeper, int one, int other);
/* Bytes that were said since the last cut. */
size_t keeper_cut_bytes(keeper* keeper);
/* Hands over what was said, as of the newest entry. Does not wait. */
int keeper_cut(keeper* keeper);
/* Hands over a piece of what was said, before a cut that is too large for the memory: only records of databases that
 * were emptied since the last cut may have been put. Waits for the thread if much waits already. */
int keeper_cut_piece(keeper* keeper);
/* Waits until every cut is in the kv store, durably. */
int keeper_settle(keeper* keeper);

typedef struct keeper_facts {
  uint64_t log_bytes, log_used, entries, durable, cut; /* numbers of entries: newest, newest durable, newest cut */
  uint64_t cuts, waiting_bytes, region_bytes, records, waits;
} keeper_facts;
int keeper_get_facts(keeper* keeper, keeper_facts* facts);

#ifdef __cplusplus
}
#endif

#endif
