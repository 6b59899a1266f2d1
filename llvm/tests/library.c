// Each function of the C library in runtime/wrapped.inc stores to a region, once. Without an argument, prints the names
// of the functions that have a case here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "region.h"

static char* p;     // in the region, filled anew for each case
static FILE* file;  // of some lines
static int sockets[2];
static volatile size_t seven = 7;  // what the compiler cannot know
static const char* volatile word = "word";

static int by_byte(const void* a, const void* b) { return *(const char*)a - *(const char*)b; }
static int by_byte_with(const void* a, const void* b, void* with) { return (void)with, by_byte(a, b); }
static int print(char* to, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsprintf(to, format, list);
  va_end(list);
  return n;
}
static int print_some(char* to, size_t room, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsnprintf(to, room, format, list);
  va_end(list);
  return n;
}
static void get_line(void) {
  *(char**)p = NULL;
  *(size_t*)(p + 8) = 0;
  (void)!getline((char**)p, (size_t*)(p + 8), file);
  free(*(char**)p);
}
static void text(const char* what) { strcpy(p + 64, what), persist(); }
static void part(char* to, size_t n) {
  const struct iovec parts[] = {{to, n}, {to + 32, n}};
  (void)!readv(fileno(file), parts, 2);
}
static void send_some(void) { (void)!write(sockets[0], "message", 7); }
struct large {
  char bytes[40];
};
static struct large values[2];
static void compare_large(struct large* at) {
  struct large expected = *at;
  __atomic_compare_exchange(at, &expected, &values[1], 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  __atomic_compare_exchange(at, (struct large*)(p + 64), &values[0], 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void* __memcpy_chk(void*, const void*, size_t, size_t);
void* __memmove_chk(void*, const void*, size_t, size_t);
void* __memset_chk(void*, int, size_t, size_t);
char* __strcpy_chk(char*, const char*, size_t);
char* __strncpy_chk(char*, const char*, size_t, size_t);
char* __strcat_chk(char*, const char*, size_t);
int __sprintf_chk(char*, int, size_t, const char*, ...);
int __snprintf_chk(char*, size_t, int, size_t, const char*, ...);

#define CASES                                                                                                     \
  CASE(memcpy, memcpy(p, word, seven - 3))                                                                        \
  CASE(memmove, memmove(p + 1, word, 3))                                                                          \
  CASE(memset, memset(p, 'x', seven))                                                                             \
  CASE(mempcpy, *(char*)mempcpy(p, word, seven - 3) = 'y')                                                        \
  CASE(memccpy, memccpy(p, word, 'r', seven))                                                                     \
  CASE(explicit_bzero, explicit_bzero(p, seven))                                                                  \
  CASE(strcpy, strcpy(p, word))                                                                                   \
  CASE(strncpy, strncpy(p, word, seven))                                                                          \
  CASE(stpcpy, *stpcpy(p, word) = 'z')                                                                            \
  CASE(stpncpy, stpncpy(p, word, seven))                                                                          \
  CASE(strcat, (strcpy(p, word), persist(), strcat(p, word)))                                                     \
  CASE(strncat, (strcpy(p, word), persist(), strncat(p, word, 2)))                                                \
  CASE(strtok, (text("one two"), strtok(p + 64, " "), strtok(NULL, " ")))                                         \
  CASE(strtok_r, (text("one two"), strtok_r(p + 64, " ", (char**)p), strtok_r(NULL, " ", (char**)p)))             \
  CASE(strsep, (text("one two"), *(char**)p = p + 64, persist(), strsep((char**)p, " "), strsep((char**)p, " "))) \
  CASE(sprintf, sprintf(p, "%s %d", word, (int)seven))                                                            \
  CASE(snprintf, snprintf(p, 6, "%s %d", word, (int)seven))                                                       \
  CASE(vsprintf, print(p, "%s-%d", word, 1))                                                                      \
  CASE(vsnprintf, print_some(p, seven, "%s-%d", word, 12345))                                                     \
  CASE(qsort, (text("zyxwvu"), qsort(p + 64, 6, 1, by_byte)))                                                     \
  CASE(qsort_r, (text("zyxwvu"), qsort_r(p + 64, 6, 1, by_byte_with, NULL)))                                      \
  CASE(read, read(fileno(file), p, seven))                                                                        \
  CASE(pread, pread(fileno(file), p, seven, 1))                                                                   \
  CASE(pread64, pread64(fileno(file), p, seven, 2))                                                               \
  CASE(readv, part(p, seven))                                                                                     \
  CASE(recv, (send_some(), recv(sockets[1], p, 40, 0)))                                                           \
  CASE(fread, fread(p, 2, seven, file))                                                                           \
  CASE(fgets, fgets(p, 20, file))                                                                                 \
  CASE(getline, get_line())                                                                                       \
  CASE(readlink, readlink("/proc/self/exe", p, 60))                                                               \
  CASE(getcwd, getcwd(p, 2048))                                                                                   \
  CASE(getrandom, getrandom(p, seven, 0))                                                                         \
  CASE(clock_gettime, clock_gettime(CLOCK_REALTIME, (struct timespec*)p))                                         \
  CASE(gettimeofday, gettimeofday((struct timeval*)p, NULL))                                                      \
  CASE(time, time((time_t*)p))                                                                                    \
  CASE(localtime_r, localtime_r(&(time_t){1234567890}, (struct tm*)p))                                            \
  CASE(gmtime_r, gmtime_r(&(time_t){1234567890}, (struct tm*)p))                                                  \
  CASE(strftime, strftime(p, 60, "%Y-%m-%d", &(struct tm){.tm_year = 126, .tm_mday = 1}))                         \
  CASE(strtol, strtol("12x", (char**)p, 10))                                                                      \
  CASE(strtoul, strtoul("12x", (char**)p, 10))                                                                    \
  CASE(strtoll, strtoll("12x", (char**)p, 10))                                                                    \
  CASE(strtoull, strtoull("12x", (char**)p, 10))                                                                  \
  CASE(strtod, strtod("1.5x", (char**)p))                                                                         \
  CASE(__memcpy_chk, __memcpy_chk(p, word, seven - 3, 100 + seven))                                               \
  CASE(__memmove_chk, __memmove_chk(p + 1, word, 3, 100 + seven))                                                 \
  CASE(__memset_chk, __memset_chk(p, 'x', seven, 100 + seven))                                                    \
  CASE(__strcpy_chk, __strcpy_chk(p, word, 100 + seven))                                                          \
  CASE(__strncpy_chk, __strncpy_chk(p, word, seven, 100 + seven))                                                 \
  CASE(__strcat_chk, (strcpy(p, word), persist(), __strcat_chk(p, word, 100 + seven)))                            \
  CASE(__sprintf_chk, __sprintf_chk(p, 1, 100 + seven, "%s %d", word, 5))                                         \
  CASE(__snprintf_chk, __snprintf_chk(p, 6, 1, 100 + seven, "%s %d", word, 5))                                    \
  CASE(__atomic_store, __atomic_store((struct large*)p, &values[1], __ATOMIC_SEQ_CST))                            \
  CASE(__atomic_exchange, __atomic_exchange((struct large*)p, &values[1], (struct large*)(p + 64), 5))            \
  CASE(__atomic_compare_exchange, compare_large((struct large*)p))

int main(int argc, char** argv) {
  if (argc < 2) {
#define CASE(name, act) puts(#name);
    CASES
#undef CASE
    return 0;
  }
  p = open_region(argc, argv, 1 << 16);
  memset(&values[1], 5, sizeof values[1]);
  file = tmpfile();
  for (int i = 0; i < 5000; ++i) fputs("a line of text that is some bytes long\n", file);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 4;
  int untouched = 0;
  static char before[4096];
#define CASE(name, act)                                            \
  memset(p, 'q', 4096);                                            \
  rewind(file);                                                    \
  persist();                                                       \
  memcpy(before, p, sizeof before);                                \
  fprintf(stdout, "%s\n", #name), fflush(stdout);                  \
  act;                                                             \
  if (memcmp(before, p, sizeof before) == 0) {                     \
    fprintf(stderr, "%s changed nothing\n", #name), untouched = 1; \
  }                                                                \
  persist();
  CASES
#undef CASE
  // By a pointer, as a program passes functions on.
  char* (*volatile copy)(char*, const char*) = strcpy;
  copy(p, "by a pointer");
  persist();
  close_region();
  return untouched;
}
