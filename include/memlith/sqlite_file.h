/* memlith: whether a SQLite database is complete by itself or needs its log, by its first bytes. docs/format.md,
 * "SQLite".
 *
 * A database that is open through memlith's VFS is the home file of a one-file store. While commits may be in the log
 * only, the first 16 bytes of the file are a mark, and one bit after them is inverted. A clean close restores SQLite's
 * own bytes as its last step. This header is plain C11 and needs no library. It serves the VFS, the command `memlith`,
 * and other programs that must distinguish the two states, such as backup programs.
 *
 *     unsigned char first[MEMLITH_SQLITE_LOOK_BYTES];
 *     FILE* file = fopen("shop.db", "rb");
 *     if (file == NULL) return;
 *     size_t count = fread(first, 1, sizeof first, file);
 *     memlith_sqlite_head head = memlith_sqlite_look(first, count);  // of a longer file, its first bytes will do
 *     if (head.kind == MEMLITH_SQLITE_MARKED) puts("shop.db needs its log: use memlith copy");
 *     if (head.kind == MEMLITH_SQLITE_PLAIN) puts("shop.db is complete by itself");
 *     fclose(file);
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
#define MEMLITH_SQLITE_MARK "\x89MEMSQL\n"     /* 8 bytes, then 8 with the moment: which commits the file holds */
#define MEMLITH_SQLITE_MARK_BYTES 16           /* a marked empty database has these bytes and no others */
/* The offset of SQLite's change counter. Its highest bit is inverted while the file is marked. The change counter is
 * the only part of page 1 that a connection reads to find out whether its cached page 1 is still current. */
#define MEMLITH_SQLITE_TURNED_AT 24
#define MEMLITH_SQLITE_TURNED_BIT 0x80
#define MEMLITH_SQLITE_CHANGED_BYTES 32 /* the mark changes bytes among these only; they are written together */
#define MEMLITH_SQLITE_LOOK_BYTES 20    /* how many bytes memlith_sqlite_look() reads, if the file is that long */

enum {
  MEMLITH_SQLITE_EMPTY = 0,   /* no bytes: a database without tables */
  MEMLITH_SQLITE_ZEROS = 1,   /* zeros only: left by a crash while a new database grew, or no database */
  MEMLITH_SQLITE_PLAIN = 2,   /* complete by itself; a log beside the file does not count */
  MEMLITH_SQLITE_MARKED = 3,  /* the newest commits may be in the log */
  MEMLITH_SQLITE_FOREIGN = 4, /* not a database */
};

typedef struct memlith_sqlite_head {
  int32_t kind;     /* MEMLITH_SQLITE_* */
  int32_t wal_mode; /* PLAIN: 1 if plain SQLite would use a write-ahead log file */
  uint64_t moment;  /* MARKED: the file's moment, to compare with the log; 0: unknown, the mark is half written */
} memlith_sqlite_head;

/* Classifies a file of `file_bytes` bytes by its first min(file_bytes, MEMLITH_SQLITE_LOOK_BYTES) bytes. */
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
  /* If the mark or SQLite's bytes are half written, the log holds them complete. */
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

/* Replaces the mark by SQLite's own bytes in a copy of a file's beginning, if it begins with the mark. `first` holds at
 * least the first `count` bytes of the file. An empty database that is marked has none of SQLite's bytes. */
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
