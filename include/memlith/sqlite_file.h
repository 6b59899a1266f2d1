/* memlith: what the first bytes of a SQLite database say about who may believe the rest. docs/format.md, "SQLite".
 *
 * A database that memlith's VFS works on is the home of a one-file store. While commits may be in its log only, the first 16
 * bytes of the file are a mark, and one bit behind them is turned; a clean close puts SQLite's own back as its last step. Plain
 * C11 without a library: for the VFS, the command `memlith`, and whatever else has to tell the two apart (a backup program, say).
 */
#ifndef MEMLITH_SQLITE_FILE_H
#define MEMLITH_SQLITE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMLITH_SQLITE_MAGIC "SQLite format 3" /* 16 bytes with the zero at its end */
#define MEMLITH_SQLITE_MARK "MEMLITH\n"        /* 8 bytes, then 8 that say which commits the file holds */
#define MEMLITH_SQLITE_MARK_BYTES 16           /* an empty database under the mark has these and nothing else */
/* SQLite's change counter, whose highest bit is turned under the mark: a connection that has page 1 cached looks at no other byte
 * of it to find out whether that is the file's still. */
#define MEMLITH_SQLITE_TURNED_AT 24
#define MEMLITH_SQLITE_TURNED_BIT 0x80
#define MEMLITH_SQLITE_CHANGED_BYTES 32 /* what the mark changes lies in these, which are written together */
#define MEMLITH_SQLITE_LOOK_BYTES 20    /* what memlith_sqlite_look() wants to see, where the file is that long */

enum {
  MEMLITH_SQLITE_EMPTY = 0,   /* no bytes at all: a database without tables */
  MEMLITH_SQLITE_ZEROS = 1,   /* grown for a new database, and then there was a crash; or no database */
  MEMLITH_SQLITE_PLAIN = 2,   /* complete by itself; a log beside it is of no account */
  MEMLITH_SQLITE_MARKED = 3,  /* the newest commits may be in the log */
  MEMLITH_SQLITE_FOREIGN = 4, /* no database */
};

typedef struct memlith_sqlite_head {
  int32_t kind;     /* MEMLITH_SQLITE_* */
  int32_t wal_mode; /* PLAIN: 1 where plain SQLite would use a write-ahead log file */
  uint64_t moment;  /* MARKED: of the file, for its log to judge; 0: cannot be told, the mark is half written */
} memlith_sqlite_head;

/* Judges a file of `file_bytes` by its first min(file_bytes, MEMLITH_SQLITE_LOOK_BYTES) bytes. */
static inline memlith_sqlite_head memlith_sqlite_look(const void* first, uint64_t file_bytes) {
  const unsigned char* const bytes = (const unsigned char*)first;
  const size_t half = MEMLITH_SQLITE_MARK_BYTES / 2;
  memlith_sqlite_head head = {MEMLITH_SQLITE_EMPTY, 0, 0};
  int half_mark, half_magic, rest_of_magic, zeros = 1;
  size_t i, count = file_bytes < MEMLITH_SQLITE_LOOK_BYTES ? (size_t)file_bytes : MEMLITH_SQLITE_LOOK_BYTES;
  if (count == 0) return head;
  for (i = 0; i < count; ++i) zeros = zeros && bytes[i] == 0;
  head.kind = zeros ? MEMLITH_SQLITE_ZEROS : MEMLITH_SQLITE_FOREIGN;
  if (count < MEMLITH_SQLITE_MARK_BYTES) return head;
  /* The mark or SQLite's bytes, half written: the log has them whole. */
  half_mark = memcmp(bytes, MEMLITH_SQLITE_MARK, half) == 0;
  half_magic = memcmp(bytes, MEMLITH_SQLITE_MAGIC, half) == 0;
  rest_of_magic = memcmp(bytes + half, &MEMLITH_SQLITE_MAGIC[half], half) == 0;
  if (half_mark || (half_magic && !rest_of_magic)) {
    head.kind = MEMLITH_SQLITE_MARKED;
    if (!half_mark || !rest_of_magic) {
      for (i = half; i-- > 0;) head.moment = head.moment << 8 | bytes[half + i];
    }
  } else if (half_magic && count == MEMLITH_SQLITE_LOOK_BYTES) {
    head.kind = MEMLITH_SQLITE_PLAIN;
    head.wal_mode = bytes[18] == 2 || bytes[19] == 2;
  }
  return head;
}

/* Puts SQLite's own bytes in the place of the mark, if `first`, the first `count` bytes of a file or more of it, begins with it.
 * An empty database under the mark has none. */
static inline void memlith_sqlite_unmark(void* first, size_t count) {
  unsigned char* const bytes = (unsigned char*)first;
  const size_t half = MEMLITH_SQLITE_MARK_BYTES / 2;
  if (count < MEMLITH_SQLITE_MARK_BYTES || memcmp(bytes, MEMLITH_SQLITE_MARK, half) != 0) return;
  memcpy(bytes, MEMLITH_SQLITE_MAGIC, MEMLITH_SQLITE_MARK_BYTES);
  if (count > MEMLITH_SQLITE_TURNED_AT) bytes[MEMLITH_SQLITE_TURNED_AT] ^= MEMLITH_SQLITE_TURNED_BIT;
}

#ifdef __cplusplus
}
#endif

#endif
