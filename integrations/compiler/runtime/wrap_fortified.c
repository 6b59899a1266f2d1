/* The functions that _FORTIFY_SOURCE calls instead: they also know the size of the memory, and end the program if that
 * is too small. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "stored.h"

#define CHECKED(type, name, parameters, arguments, ...) \
  type name parameters;                                 \
  WRAP(type, name) parameters {                         \
    type const result = name arguments;                 \
    __VA_ARGS__;                                        \
    return result;                                      \
  }
#define GOT \
  if (result > 0) stored(to, (size_t)result)

CHECKED(void*, __memcpy_chk, (void* to, const void* from, size_t n, size_t size), (to, from, n, size), stored(to, n))
CHECKED(void*, __memmove_chk, (void* to, const void* from, size_t n, size_t size), (to, from, n, size), stored(to, n))
CHECKED(void*, __memset_chk, (void* to, int c, size_t n, size_t size), (to, c, n, size), stored(to, n))
CHECKED(void*, __mempcpy_chk, (void* to, const void* from, size_t n, size_t size), (to, from, n, size), stored(to, n))
CHECKED(char*, __strcpy_chk, (char* to, const char* from, size_t size), (to, from, size), stored_text(to))
CHECKED(char*, __stpcpy_chk, (char* to, const char* from, size_t size), (to, from, size),
        stored(to, (size_t)(result - to) + 1))
CHECKED(char*, __strncpy_chk, (char* to, const char* from, size_t n, size_t size), (to, from, n, size), stored(to, n))
CHECKED(char*, __stpncpy_chk, (char* to, const char* from, size_t n, size_t size), (to, from, n, size), stored(to, n))
char* __strcat_chk(char* to, const char* from, size_t size);
char* __strncat_chk(char* to, const char* from, size_t n, size_t size);
WRAP(char*, __strcat_chk)(char* to, const char* from, size_t size) {
  char* const end = to + strlen(to);
  return __strcat_chk(to, from, size), stored_text(end), to;
}
WRAP(char*, __strncat_chk)(char* to, const char* from, size_t n, size_t size) {
  char* const end = to + strlen(to);
  return __strncat_chk(to, from, n, size), stored_text(end), to;
}
void __explicit_bzero_chk(void* to, size_t n, size_t size);
WRAP(void, __explicit_bzero_chk)(void* to, size_t n, size_t size) { __explicit_bzero_chk(to, n, size), stored(to, n); }

static void printed(char* to, size_t room, int length) {
  if (length >= 0 && room > 0) stored(to, (size_t)length < room ? (size_t)length + 1 : room);
}
CHECKED(int, __vsnprintf_chk, (char* to, size_t room, int flag, size_t size, const char* format, va_list arguments),
        (to, room, flag, size, format, arguments), printed(to, room, result))
CHECKED(int, __vsprintf_chk, (char* to, int flag, size_t size, const char* format, va_list arguments),
        (to, flag, size, format, arguments), printed(to, SIZE_MAX, result))
WRAP(int, __snprintf_chk)(char* to, size_t room, int flag, size_t size, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = __memlith_wrap___vsnprintf_chk(to, room, flag, size, format, arguments);
  va_end(arguments);
  return length;
}
WRAP(int, __sprintf_chk)(char* to, int flag, size_t size, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = __memlith_wrap___vsprintf_chk(to, flag, size, format, arguments);
  va_end(arguments);
  return length;
}

CHECKED(ssize_t, __read_chk, (int fd, void* to, size_t n, size_t size), (fd, to, n, size), GOT)
CHECKED(ssize_t, __pread_chk, (int fd, void* to, size_t n, off_t at, size_t size), (fd, to, n, at, size), GOT)
CHECKED(ssize_t, __pread64_chk, (int fd, void* to, size_t n, off64_t at, size_t size), (fd, to, n, at, size), GOT)
CHECKED(ssize_t, __recv_chk, (int fd, void* to, size_t n, size_t size, int flags), (fd, to, n, size, flags),
        if (result > 0) stored(to, (size_t)result < n ? (size_t)result : n))
CHECKED(ssize_t, __readlink_chk, (const char* path, char* to, size_t n, size_t size), (path, to, n, size), GOT)
CHECKED(char*, __getcwd_chk, (char* to, size_t n, size_t size), (to, n, size), if (result != NULL) stored_text(result))
CHECKED(char*, __realpath_chk, (const char* path, char* to, size_t size), (path, to, size),
        if (result != NULL) stored_text(result))
CHECKED(size_t, __fread_chk, (void* to, size_t size, size_t bytes, size_t count, FILE* file),
        (to, size, bytes, count, file), stored(to, bytes* count))
CHECKED(char*, __fgets_chk, (char* to, size_t size, int room, FILE* file), (to, size, room, file),
        if (room > 0) stored(to, (size_t)room))
