/* Functions of the C library that write into memory of their caller: __memlith_wrap_NAME calls NAME and records what
 * was written. The pass leads the calls of instrumented code here. wrapped.inc lists the functions. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "stored.h"

/* ---- memory and strings */
WRAP(void*, memcpy)(void* to, const void* from, size_t n) { return memcpy(to, from, n), stored(to, n), to; }
WRAP(void*, memmove)(void* to, const void* from, size_t n) { return memmove(to, from, n), stored(to, n), to; }
WRAP(void*, memset)(void* to, int c, size_t n) { return memset(to, c, n), stored(to, n), to; }
WRAP(void*, mempcpy)(void* to, const void* from, size_t n) { return memcpy(to, from, n), stored(to, n), (char*)to + n; }
WRAP(void*, memccpy)(void* to, const void* from, int c, size_t n) {
  char* const end = memccpy(to, from, c, n);
  stored(to, end != NULL ? (size_t)(end - (char*)to) : n);
  return end;
}
WRAP(void, explicit_bzero)(void* to, size_t n) { explicit_bzero(to, n), stored(to, n); }
WRAP(char*, strcpy)(char* to, const char* from) { return strcpy(to, from), stored_text(to), to; }
WRAP(char*, strncpy)(char* to, const char* from, size_t n) { return strncpy(to, from, n), stored(to, n), to; }
WRAP(char*, stpcpy)(char* to, const char* from) {
  char* const end = stpcpy(to, from);
  stored(to, (size_t)(end - to) + 1);
  return end;
}
WRAP(char*, stpncpy)(char* to, const char* from, size_t n) {
  char* const end = stpncpy(to, from, n);
  stored(to, n);
  return end;
}
WRAP(char*, strcat)(char* to, const char* from) {
  char* const end = to + strlen(to);
  return strcpy(end, from), stored_text(end), to;
}
WRAP(char*, strncat)(char* to, const char* from, size_t n) {
  char* const end = to + strlen(to);
  return strncat(to, from, n), stored_text(end), to;
}
/* The end of a token: a zero is there now, or was there before. */
static char* token(char* found) {
  if (found != NULL) stored(found + strlen(found), 1);
  return found;
}
WRAP(char*, strtok)(char* text, const char* ends) { return token(strtok(text, ends)); }
WRAP(char*, strtok_r)(char* text, const char* ends, char** rest) {
  char* const found = token(strtok_r(text, ends, rest));
  stored(rest, sizeof *rest);
  return found;
}
WRAP(char*, strsep)(char** rest, const char* ends) {
  char* const found = token(strsep(rest, ends));
  stored(rest, sizeof *rest);
  return found;
}

/* ---- text */
static int printed(char* to, size_t room, int length) {
  if (length >= 0 && room > 0) stored(to, (size_t)length < room ? (size_t)length + 1 : room);
  return length;
}
WRAP(int, vsnprintf)(char* to, size_t room, const char* format, va_list arguments) {
  return printed(to, room, vsnprintf(to, room, format, arguments));
}
WRAP(int, vsprintf)(char* to, const char* format, va_list arguments) {
  return printed(to, SIZE_MAX, vsprintf(to, format, arguments));
}
#define PRINT(call)            \
  va_list arguments;           \
  va_start(arguments, format); \
  const int length = call;     \
  va_end(arguments)
WRAP(int, snprintf)(char* to, size_t room, const char* format, ...) {
  PRINT(vsnprintf(to, room, format, arguments));
  return printed(to, room, length);
}
WRAP(int, sprintf)(char* to, const char* format, ...) {
  PRINT(vsprintf(to, format, arguments));
  return printed(to, SIZE_MAX, length);
}
WRAP(size_t, strftime)(char* to, size_t room, const char* format, const struct tm* at) {
  const size_t length = strftime(to, room, format, at);
  stored(to, length > 0 ? length + 1 : room);
  return length;
}
#define NUMBER(type, name)                                   \
  WRAP(type, name)(const char* text, char** end, int base) { \
    const type value = name(text, end, base);                \
    stored(end, sizeof *end);                                \
    return value;                                            \
  }
NUMBER(long, strtol)
NUMBER(unsigned long, strtoul)
NUMBER(long long, strtoll)
NUMBER(unsigned long long, strtoull)

/* ---- sorting: recorded before, too, because the program's comparison may leave by longjmp or an exception */
WRAP(void, qsort)(void* base, size_t count, size_t bytes, int (*compare)(const void*, const void*)) {
  stored(base, count * bytes);
  qsort(base, count, bytes, compare);
  stored(base, count * bytes);
}
WRAP(void, qsort_r)(void* base, size_t count, size_t bytes, int (*compare)(const void*, const void*, void*),
                    void* with) {
  stored(base, count * bytes);
  qsort_r(base, count, bytes, compare, with);
  stored(base, count * bytes);
}

/* ---- reading */
static ssize_t got(void* to, ssize_t bytes) {
  if (bytes > 0) stored(to, (size_t)bytes);
  return bytes;
}
WRAP(ssize_t, read)(int fd, void* to, size_t n) { return got(to, read(fd, to, n)); }
WRAP(ssize_t, pread)(int fd, void* to, size_t n, off_t at) { return got(to, pread(fd, to, n, at)); }
WRAP(ssize_t, pread64)(int fd, void* to, size_t n, off64_t at) { return got(to, pread64(fd, to, n, at)); }
WRAP(size_t, fread)(void* to, size_t bytes, size_t count, FILE* file) {
  const size_t read_count = fread(to, bytes, count, file);
  stored(to, bytes * count); /* a part of an element may be there, too */
  return read_count;
}
WRAP(char*, fgets)(char* to, int room, FILE* file) {
  char* const line = fgets(to, room, file);
  if (room > 0) stored(to, (size_t)room);
  return line;
}
WRAP(ssize_t, readlink)(const char* path, char* to, size_t n) { return got(to, readlink(path, to, n)); }
WRAP(char*, getcwd)(char* to, size_t n) {
  char* const path = getcwd(to, n);
  if (path != NULL) stored_text(path);
  return path;
}
WRAP(ssize_t, getrandom)(void* to, size_t n, unsigned flags) { return got(to, getrandom(to, n, flags)); }

/* ---- time */
WRAP(int, clock_gettime)(clockid_t clock, struct timespec* to) {
  const int error = clock_gettime(clock, to);
  stored(to, sizeof *to);
  return error;
}
WRAP(int, gettimeofday)(struct timeval* to, void* zone) {
  const int error = gettimeofday(to, zone);
  stored(to, sizeof *to);
  return error;
}
WRAP(time_t, time)(time_t* to) {
  const time_t now = time(to);
  stored(to, sizeof *to);
  return now;
}
WRAP(struct tm*, localtime_r)(const time_t* at, struct tm* to) {
  struct tm* const result = localtime_r(at, to);
  stored(to, sizeof *to);
  return result;
}
WRAP(struct tm*, gmtime_r)(const time_t* at, struct tm* to) {
  struct tm* const result = gmtime_r(at, to);
  stored(to, sizeof *to);
  return result;
}

/* ---- libstdc++: the policy of hash tables remembers when they grow next */
struct rehash {
  bool grows;
  size_t buckets;
};
struct rehash need_rehash(void* policy, size_t a, size_t b,
                          size_t c) __asm__("_ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm");
size_t next_buckets(void* policy, size_t n) __asm__("_ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm");
#pragma weak need_rehash
#pragma weak next_buckets
WRAP(struct rehash, _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm)(void* policy, size_t a, size_t b,
                                                                               size_t c) {
  const struct rehash result = need_rehash(policy, a, b, c);
  stored(policy, 16);
  return result;
}
WRAP(size_t, _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm)(void* policy, size_t n) {
  const size_t result = next_buckets(policy, n);
  stored(policy, 16);
  return result;
}
