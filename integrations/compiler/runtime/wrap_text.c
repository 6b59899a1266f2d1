/* Text, numbers and dates: functions that write into memory of their caller, and are used less often than wrap.c's. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <arpa/inet.h>
#include <iconv.h>
#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "stored.h"

#define CALL(type, name, parameters, arguments, ...) \
  WRAP(type, name) parameters {                      \
    type const result = name arguments;              \
    __VA_ARGS__;                                     \
    return result;                                   \
  }

/* ---- bytes */
WRAP(void, bcopy)(const void* from, void* to, size_t n) { bcopy(from, to, n), stored(to, n); }
WRAP(void, bzero)(void* to, size_t n) { bzero(to, n), stored(to, n); }
WRAP(void, swab)(const void* from, void* to, ssize_t n) {
  swab(from, to, n);
  if (n > 1) stored(to, (size_t)n / 2 * 2);
}
CALL(void*, memfrob, (void* to, size_t n), (to, n), stored(to, n))
CALL(size_t, strxfrm, (char* to, const char* from, size_t n), (to, from, n), stored(to, result < n ? result + 1 : n))
WRAP(void*, lsearch)(const void* key, void* base, size_t* count, size_t bytes,
                     int (*compare)(const void*, const void*)) {
  void* const found = lsearch(key, base, count, bytes, compare);
  stored(found, bytes), stored(count, sizeof *count);
  return found;
}

/* ---- wide characters */
static void stored_wide(const wchar_t* to, size_t n) { stored(to, n * sizeof *to); }
static void stored_wide_text(const wchar_t* to) {
  if (is_tracked(to)) stored_wide(to, wcslen(to) + 1);
}
CALL(wchar_t*, wmemcpy, (wchar_t * to, const wchar_t* from, size_t n), (to, from, n), stored_wide(to, n))
CALL(wchar_t*, wmemmove, (wchar_t * to, const wchar_t* from, size_t n), (to, from, n), stored_wide(to, n))
CALL(wchar_t*, wmemset, (wchar_t * to, wchar_t c, size_t n), (to, c, n), stored_wide(to, n))
CALL(wchar_t*, wcscpy, (wchar_t * to, const wchar_t* from), (to, from), stored_wide_text(to))
CALL(wchar_t*, wcsncpy, (wchar_t * to, const wchar_t* from, size_t n), (to, from, n), stored_wide(to, n))
WRAP(wchar_t*, wcscat)(wchar_t* to, const wchar_t* from) {
  wchar_t* const end = to + wcslen(to);
  return wcscpy(end, from), stored_wide_text(end), to;
}
WRAP(wchar_t*, wcsncat)(wchar_t* to, const wchar_t* from, size_t n) {
  wchar_t* const end = to + wcslen(to);
  return wcsncat(end, from, n), stored_wide_text(end), to;
}
static int printed(wchar_t* to, size_t room, int length) {
  if (room > 0) stored_wide(to, length >= 0 && (size_t)length < room ? (size_t)length + 1 : room);
  return length;
}
WRAP(int, vswprintf)(wchar_t* to, size_t room, const wchar_t* format, va_list arguments) {
  return printed(to, room, vswprintf(to, room, format, arguments));
}
WRAP(int, swprintf)(wchar_t* to, size_t room, const wchar_t* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vswprintf(to, room, format, arguments);
  va_end(arguments);
  return printed(to, room, length);
}
#define CONVERTED(type, result, n) ((result) == (size_t)-1 || (result) >= (n) ? (n) : (result) + 1)
CALL(size_t, mbstowcs, (wchar_t * to, const char* from, size_t n), (to, from, n),
     stored_wide(to, CONVERTED(wchar_t, result, n)))
CALL(size_t, wcstombs, (char* to, const wchar_t* from, size_t n), (to, from, n), stored(to, CONVERTED(char, result, n)))
CALL(size_t, mbsrtowcs, (wchar_t * to, const char** from, size_t n, mbstate_t* state), (to, from, n, state),
     (stored_wide(to, CONVERTED(wchar_t, result, n)), stored(from, sizeof *from), stored(state, sizeof *state)))
CALL(size_t, wcsrtombs, (char* to, const wchar_t** from, size_t n, mbstate_t* state), (to, from, n, state),
     (stored(to, CONVERTED(char, result, n)), stored(from, sizeof *from), stored(state, sizeof *state)))
CALL(size_t, mbrtowc, (wchar_t * to, const char* from, size_t n, mbstate_t* state), (to, from, n, state),
     (stored_wide(to, 1), stored(state, sizeof *state)))
CALL(size_t, wcrtomb, (char* to, wchar_t c, mbstate_t* state), (to, c, state),
     (stored(to, result == (size_t)-1 ? 0 : result), stored(state, sizeof *state)))
WRAP(size_t, iconv)(iconv_t how, char** from, size_t* from_bytes, char** to, size_t* to_bytes) {
  char* const begin = to != NULL ? *to : NULL;
  const size_t result = iconv(how, from, from_bytes, to, to_bytes);
  if (begin != NULL) stored(begin, (size_t)(*to - begin));
  stored(from, sizeof *from), stored(from_bytes, sizeof *from_bytes);
  stored(to, sizeof *to), stored(to_bytes, sizeof *to_bytes);
  return result;
}

/* ---- numbers */
#define REAL(type, name) CALL(type, name, (const char* text, char** end), (text, end), stored(end, sizeof *end))
REAL(float, strtof)
REAL(double, strtod)
REAL(long double, strtold)
CALL(intmax_t, strtoimax, (const char* text, char** end, int base), (text, end, base), stored(end, sizeof *end))
CALL(uintmax_t, strtoumax, (const char* text, char** end, int base), (text, end, base), stored(end, sizeof *end))
CALL(long, wcstol, (const wchar_t* text, wchar_t** end, int base), (text, end, base), stored(end, sizeof *end))
CALL(int, rand_r, (unsigned* seed), (seed), stored(seed, sizeof *seed))
CALL(double, erand48, (unsigned short* seed), (seed), stored(seed, 3 * sizeof *seed))
CALL(long, nrand48, (unsigned short* seed), (seed), stored(seed, 3 * sizeof *seed))
CALL(long, jrand48, (unsigned short* seed), (seed), stored(seed, 3 * sizeof *seed))

/* ---- dates, addresses, messages */
CALL(time_t, mktime, (struct tm * to), (to), stored(to, sizeof *to))
CALL(time_t, timegm, (struct tm * to), (to), stored(to, sizeof *to))
CALL(char*, strptime, (const char* text, const char* format, struct tm* to), (text, format, to), stored(to, sizeof *to))
CALL(char*, asctime_r, (const struct tm* at, char* to), (at, to), stored_text(to))
CALL(char*, ctime_r, (const time_t* at, char* to), (at, to), stored_text(to))
CALL(const char*, inet_ntop, (int family, const void* from, char* to, socklen_t room), (family, from, to, room),
     if (result != NULL) stored_text(to))
CALL(int, inet_pton, (int family, const char* from, void* to), (family, from, to),
     stored(to, family == AF_INET6 ? 16 : 4))
CALL(int, inet_aton, (const char* from, struct in_addr* to), (from, to), stored(to, sizeof *to))
CALL(char*, strerror_r, (int error, char* to, size_t n), (error, to, n), if (result == to) stored_text(to))
int strerror_posix(int error, char* to, size_t n) __asm__("__xpg_strerror_r");
WRAP(int, __xpg_strerror_r)(int error, char* to, size_t n) {
  const int result = strerror_posix(error, to, n);
  if (n > 0) stored_text(to);
  return result;
}

/* ---- streams */
CALL(size_t, fread_unlocked, (void* to, size_t bytes, size_t count, FILE* file), (to, bytes, count, file),
     stored(to, bytes* count))
CALL(char*, fgets_unlocked, (char* to, int room, FILE* file), (to, room, file), if (room > 0) stored(to, (size_t)room))
CALL(int, fgetpos, (FILE * file, fpos_t* to), (file, to), stored(to, sizeof *to))
static void got_line(char** line, size_t* room) {
  stored(line, sizeof *line);
  stored(room, sizeof *room);
  if (*line != NULL) stored(*line, *room);
}
CALL(ssize_t, getline, (char** line, size_t* room, FILE* file), (line, room, file), got_line(line, room))
CALL(ssize_t, getdelim, (char** line, size_t* room, int end, FILE* file), (line, room, end, file), got_line(line, room))
CALL(ssize_t, __getdelim, (char** line, size_t* room, int end, FILE* file), (line, room, end, file),
     got_line(line, room))
CALL(int, vasprintf, (char** to, const char* format, va_list arguments), (to, format, arguments),
     (stored(to, sizeof *to), result >= 0 ? stored(*to, (size_t)result + 1) : (void)0))
WRAP(int, asprintf)(char** to, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = __memlith_wrap_vasprintf(to, format, arguments);
  va_end(arguments);
  return result;
}
