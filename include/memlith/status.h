/* memlith/status.h: the results of calls. The conventions of all calls: memlith.h.
 *
 * A call that can fail returns 0 or a code, whose category says what a program can do about the failure:
 *
 *     static int32_t tell(int32_t code) {
 *       char message[1024];
 *       if (code == MEMLITH_OK) return 0;
 *       memlith_last_error(message, sizeof message);
 *       fprintf(stderr, "%s: %s\n", memlith_category_name(code), message);
 *       if (memlith_category(code) == MEMLITH_POISONED) abort();  // only opening the store again helps
 *       return code;
 *     }
 */
#ifndef MEMLITH_STATUS_H
#define MEMLITH_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MEMLITH_API __attribute__((visibility("default")))
#else
#define MEMLITH_API
#endif

#define MEMLITH_VERSION_MAJOR 0
#define MEMLITH_VERSION_MINOR 1
#define MEMLITH_VERSION_PATCH 0

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* Categories. The numbers never change; new ones are appended. */
enum {
  MEMLITH_OK = 0,
  MEMLITH_INVALID = 1,      /* an argument is wrong, or a precondition of the call does not hold */
  MEMLITH_NOT_FOUND = 2,    /* the store, file or region does not exist */
  MEMLITH_EXISTS = 3,       /* the store or region exists already */
  MEMLITH_BUSY = 4,         /* the store or region is open, here or in another process, which the message names */
  MEMLITH_IO = 5,           /* a read, write or flush failed; after a failed write or flush the store is poisoned */
  MEMLITH_CORRUPT = 6,      /* the disk, or a structure in memory, holds other bytes than were written; see message */
  MEMLITH_INCOMPATIBLE = 7, /* another format version, or not a memlith file */
  MEMLITH_FULL = 8,         /* the transaction is larger than the log may grow; nothing changed; raise the limit with
                            memlith_store_set_log_max and try again, or split the transaction */
  MEMLITH_NO_SPACE = 9,     /* the file system is full */
  MEMLITH_POISONED = 10,    /* an earlier write or flush failed; close and reopen the store */
  MEMLITH_PERMISSION = 11,
  MEMLITH_READ_ONLY = 12,
  MEMLITH_ADDRESS_TAKEN = 13, /* the region's addresses are in use in this process */
  MEMLITH_UNSUPPORTED = 14,   /* not available on this kernel or file system */
  MEMLITH_NO_MEMORY = 15,
  /* the process or the machine has no free descriptor; nothing changed; raise the limit and try again */
  MEMLITH_TOO_MANY_FILES = 16,
  MEMLITH_CONFLICT = 17 /* another transaction has locked the record (memlith/kv.h); begin the transaction again */
};

/* The category of a code: one of the numbers above. */
static inline int32_t memlith_category(int32_t code) { return code & 0xff; }

/* The object of an error. MEMLITH_DETAIL_VERSION, which comes with MEMLITH_INCOMPATIBLE, means that the store has a
 * format version that this library does not read; the store is not damaged. The other numbers only serve to make the
 * message. */
enum { MEMLITH_DETAIL_VERSION = 15 };
static inline int32_t memlith_detail(int32_t code) { return code >> 8 & 0xff; }

/* Copies the message of this thread's last failure into `buffer`, cut to `bytes` and always terminated by a zero.
 * Returns the length of the complete message. No effect on data. */
MEMLITH_API size_t memlith_last_error(char* buffer, size_t bytes);

/* A short name of a code's category, such as "log full". The string is constant and never null. */
MEMLITH_API const char* memlith_category_name(int32_t code);

/* "0.1.0" */
MEMLITH_API const char* memlith_version(void);

/* Bytes of the program. */
typedef struct memlith_bytes {
  const void* data;
  uint64_t size;
} memlith_bytes;

#ifdef __cplusplus
}
#endif

#endif
