/* Shared by the files of this folder that are compiled with Redis. Functions of Redis that are linked with
 * -Wl,--wrap=NAME are __real_NAME here, and calls of NAME in Redis come to __wrap_NAME. plugin redis.
 */
#ifndef MEMLITH_REDIS_REDIS_H
#define MEMLITH_REDIS_REDIS_H

#include "system.h" /* first: it says which system this is */

#include "datastore.h"

extern int ProcessingEventsWhileBlocked; /* of Redis; no header has it */

/* config.c: the directives. */
struct memlith_config {
  int on;
  int weak;
  unsigned long long log_bytes;
  unsigned long long window_ms;
  sds folder;
};
extern struct memlith_config memlith_config;
int memlith_users_appendonly(void); /* as the configuration has it: 1 yes, 0 no, -1 it says nothing */

/* persistence.c: the one store of this server; NULL if there is none. */
extern datastore* memlith_datastore;
/* Ends the server: nothing can be made durable any more. */
void memlith_die(const char* what) __attribute__((noreturn));
int memlith_full_cut(void);  /* C_ERR: failed */
void memlith_replaced(void); /* the data has changed, but not by commands: the next flush makes a full cut */

/* position.c: where in the stream of replication the data is. */
#define POSITION_MARK "#POSITION "                  /* begins the line in the log */
sds position_note(sds entry);                       /* appends the line */
int position_has_moved(void);                       /* and neither log nor kv store has the new one */
void position_say(void);                            /* in a cut, behind all else */
void position_forget(void);                         /* none was found, or what was found does not hold any more */
int position_found(const char* text, size_t bytes); /* C_ERR: it is none */
void position_in_kv(void);
void position_take(void); /* at a start, when all is loaded */
void position_void(void); /* the data is not what was loaded, and replicas are not told of that */

/* tracker.c: which keys have changed since the last cut. */
void tracker_init(void);
void tracker_reset(void); /* nothing has changed, no value has parts */
void tracker_note(int db, robj** argv, int argc);
size_t tracker_changed(void);
int tracker_wants_everything(void); /* a command was seen whose keys are not known */
void tracker_cut(void);             /* says what has changed to the datastore */
int tracker_cut_all(void);          /* says all that there is, in pieces */
/* A record that was found has parts: its object, the bytes of its value, and the commands behind it. */
void tracker_found(int db, sds key, uint64_t id, uint64_t base_bytes, uint32_t tails, uint64_t tail_bytes);
int tracker_alive(void* context, uint64_t id);

/* readers.c: who waits for a flush. */
/* At the flush of each turn. True: the entry may be appended ahead of its flush. `wait` is set if what was appended
 * before has to be durable now. */
int readers_turn(int* wait);
void readers_changed(int db, sds key);
void readers_changed_all(void);

/* record.c: records of the kv store. */
#define RECORD_PARTS 1          /* the value is in parts of an object */
#define RECORD_LONG_KEY 2       /* the key is in the value; the kv store's key is a checksum of it */
#define RECORD_TAIL 0x80000000U /* parts from here on are commands */
#define RECORD_PART_BYTES (1 << 20)
#define RECORD_WHOLE_MAX 2048 /* bytes of a value that is not in parts */
typedef struct record_key {
  unsigned char bytes[DATASTORE_KEY_BYTES_MAX];
  size_t size;
  int is_long;
} record_key;
void record_key_of(record_key* made, sds key);
/* Puts the value; returns its object if it is in parts, else 0, and how many bytes it has. */
uint64_t record_put(int db, sds key, robj* value, long long expire, uint64_t* bytes);
uint64_t record_put_functions(void);
#define RECORD_POSITION "position" /* its key; that of the functions is another one */
void record_put_position(sds text);
void record_remove_position(void);

/* load.c */
int memlith_load(int* imported); /* C_ERR: failed, and the log says why. Imported: the store was new */

#endif
