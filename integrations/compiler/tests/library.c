// Each function of the C library in runtime/wrapped.inc stores to a region, once. Without an argument, prints the names
// of the functions that have a case here.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

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
static int print_wide(wchar_t* to, size_t room, const wchar_t* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vswprintf(to, room, format, list);
  va_end(list);
  return n;
}
static int print_new(char** to, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vasprintf(to, format, list);
  va_end(list);
  return n;
}
int __vsprintf_chk(char*, int, size_t, const char*, va_list);
int __vsnprintf_chk(char*, size_t, int, size_t, const char*, va_list);
static int print_checked(char* to, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = __vsprintf_chk(to, 1, 100 + seven, format, list);
  va_end(list);
  return n;
}
static int print_some_checked(char* to, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int n = __vsnprintf_chk(to, seven, 1, 100 + seven, format, list);
  va_end(list);
  return n;
}
/* The scanf family, by the names of each standard. */
int sscanf_89(const char* from, const char* format, ...) __asm__("sscanf");
int fscanf_89(FILE* from, const char* format, ...) __asm__("fscanf");
int scanf_89(const char* format, ...) __asm__("scanf");
int vsscanf_89(const char* from, const char* format, va_list list) __asm__("vsscanf");
int vfscanf_89(FILE* from, const char* format, va_list list) __asm__("vfscanf");
int vscanf_89(const char* format, va_list list) __asm__("vscanf");
static void scan_list(int which, const char* format, ...) {
  va_list list;
  va_start(list, format);
  switch (which) {
    case 0: vsscanf("a line 12", format, list); break;
    case 1: vfscanf(file, format, list); break;
    case 2: vscanf(format, list); break;
    case 3: vsscanf_89("a line 12", format, list); break;
    case 4: vfscanf_89(file, format, list); break;
    default: vscanf_89(format, list); break;
  }
  va_end(list);
}
/* Every kind of conversion, one persist each, so that none hides behind another. */
static void scan_everything(void) {
#define SCANNED(...) sscanf(__VA_ARGS__), persist(), memset(p, 'q', 512), persist()
  SCANNED("-12 13 14 15 16", "%hhd %hd %d %ld %lld", p, (short*)(p + 16), (int*)(p + 32), (long*)(p + 48),
          (long long*)(p + 64));
  SCANNED("1 2 3 0x12", "%jd %zu %td %p", (intmax_t*)p, (size_t*)(p + 16), (ptrdiff_t*)(p + 32), (void**)(p + 48));
  SCANNED("1.5 2.5 3.5", "%f %lf %Lf", (float*)p, (double*)(p + 16), (long double*)(p + 32));
  SCANNED("some words here", "%s %*s %4s%n", p, p + 32, (int*)(p + 64));
  SCANNED("letters", "%c%3c%*c%c", p, p + 8, p + 16);
  SCANNED("abc]def 5", "%[]abc]%[^ ] %u", p, p + 16, (unsigned*)(p + 32));
  SCANNED("wide text", "%ls %l[a-z]", (wchar_t*)p, (wchar_t*)(p + 64));
  SCANNED("one two", "%2$s %1$s", p, p + 32);
  SCANNED("100% of 7", "%d%% of %i", (int*)p, (int*)(p + 16));
  SCANNED("7 x", "%d %d", (int*)p, (int*)(p + 16));
  SCANNED("", "%d", (int*)p);
  sscanf("allocated", "%ms", (char**)p), persist(), free(*(char**)p);
#undef SCANNED
}
static void receive(int how) {
  (void)!write(sockets[0], "message", 7);
  struct iovec parts[] = {{p, 4}, {p + 32, 4}};
  struct msghdr* const message = (struct msghdr*)(p + 256);
  memset(message, 0, sizeof *message);
  message->msg_iov = parts;
  message->msg_iovlen = 2;
  persist();
  if (how == 0) {
    *(socklen_t*)(p + 64) = 20;
    persist();
    recvfrom(sockets[1], p, 40, 0, (struct sockaddr*)(p + 128), (socklen_t*)(p + 64));
  } else {
    recvmsg(sockets[1], message, 0);
  }
}
static int listening(void) {
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at;
  socklen_t length = sizeof at;
  if (bind(fd, (const struct sockaddr*)&any, sizeof any) != 0 || listen(fd, 1) != 0) exit(7);
  getsockname(fd, (struct sockaddr*)&at, &length);
  const int other = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(other, (struct sockaddr*)&at, sizeof at) != 0) exit(7);
  return fd;
}
#define SIZED(n) (*(socklen_t*)(p + 64) = (n), persist(), (socklen_t*)(p + 64))
#define AT(type) ((type*)p)
static int ready_epoll(void) {
  const int fd = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLOUT};
  epoll_ctl(fd, EPOLL_CTL_ADD, sockets[0], &wanted);
  return fd;
}
static void ready_sets(void) {
  memset(p, 0, 512);
  FD_SET(sockets[0], AT(fd_set));
  FD_SET(sockets[1], (fd_set*)(p + 128));
  *(struct timeval*)(p + 384) = (struct timeval){0, 1000};
  persist();
}
static pid_t child(void) {
  const pid_t id = fork();
  if (id == 0) _exit(3);
  return id;
}
static void* nothing(void* with) { return with; }
static pthread_t a_thread(void) {
  pthread_t id;
  if (pthread_create(&id, NULL, nothing, NULL) != 0) exit(7);
  return id;
}
static void nothing_on(int number) { (void)number; }
static void interrupted_sleep(int how) {
  struct sigaction action = {.sa_handler = nothing_on};
  sigaction(SIGALRM, &action, NULL);
  // Again and again: on a busy machine the first signal may come before the sleep.
  const struct itimerval soon = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &soon, NULL);
  const struct timespec long_time = {100, 0};
  if (how == 0)
    nanosleep(&long_time, AT(struct timespec));
  else
    clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, AT(struct timespec));
  setitimer(ITIMER_REAL, &never, NULL);
}
static void convert(void) {
  iconv_t how = iconv_open("UTF-16LE", "UTF-8");
  *AT(char*) = (char*)word;
  *(size_t*)(p + 8) = 4;
  *(char**)(p + 16) = p + 128;
  *(size_t*)(p + 24) = 64;
  persist();
  iconv(how, (char**)p, (size_t*)(p + 8), (char**)(p + 16), (size_t*)(p + 24));
  iconv_close(how);
}
static void search(void) {
  *(size_t*)(p + 64) = 2;
  persist();
  lsearch("z", p, (size_t*)(p + 64), 1, by_byte);
}
static void wide(const wchar_t* what) { wcscpy((wchar_t*)p, what), persist(); }
static const char* const multibyte = "many";
static const wchar_t* const wide_word = L"wide";
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
void* __mempcpy_chk(void*, const void*, size_t, size_t);
char* __stpcpy_chk(char*, const char*, size_t);
char* __stpncpy_chk(char*, const char*, size_t, size_t);
char* __strncat_chk(char*, const char*, size_t, size_t);
void __explicit_bzero_chk(void*, size_t, size_t);
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __readlink_chk(const char*, char*, size_t, size_t);
char* __getcwd_chk(char*, size_t, size_t);
char* __realpath_chk(const char*, char*, size_t);
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
char* __fgets_chk(char*, size_t, int, FILE*);
int strerror_posix(int, char*, size_t) __asm__("__xpg_strerror_r");
int __sprintf_chk(char*, int, size_t, const char*, ...);
int __snprintf_chk(char*, size_t, int, size_t, const char*, ...);

#define CASES                                                                                                          \
  CASE(bcopy, bcopy(word, p, seven - 3))                                                                               \
  CASE(bzero, bzero(p, seven))                                                                                         \
  CASE(swab, swab("ab1", p, 3))                                                                                        \
  CASE(memfrob, memfrob(p, seven))                                                                                     \
  CASE(strxfrm, strxfrm(p, word, 40))                                                                                  \
  CASE(lsearch, search())                                                                                              \
  CASE(wmemcpy, wmemcpy(AT(wchar_t), wide_word, seven - 3))                                                            \
  CASE(wmemmove, wmemmove(AT(wchar_t), wide_word, 3))                                                                  \
  CASE(wmemset, wmemset(AT(wchar_t), L'x', seven))                                                                     \
  CASE(wcscpy, wcscpy(AT(wchar_t), wide_word))                                                                         \
  CASE(wcsncpy, wcsncpy(AT(wchar_t), wide_word, seven))                                                                \
  CASE(wcscat, (wide(L"a"), wcscat(AT(wchar_t), wide_word)))                                                           \
  CASE(wcsncat, (wide(L"a"), wcsncat(AT(wchar_t), wide_word, 2)))                                                      \
  CASE(swprintf, swprintf(AT(wchar_t), 20, L"%d", 12))                                                                 \
  CASE(vswprintf, print_wide(AT(wchar_t), 20, L"%d", 12))                                                              \
  CASE(mbstowcs, mbstowcs(AT(wchar_t), multibyte, seven))                                                              \
  CASE(wcstombs, wcstombs(p, wide_word, seven))                                                                        \
  CASE(mbsrtowcs, (*(const char**)(p + 512) = multibyte, memset(p + 256, 0, 64), persist(),                            \
                   mbsrtowcs(AT(wchar_t), (const char**)(p + 512), seven, (mbstate_t*)(p + 256))))                     \
  CASE(wcsrtombs, (*(const wchar_t**)(p + 512) = wide_word, memset(p + 256, 0, 64), persist(),                         \
                   wcsrtombs(p, (const wchar_t**)(p + 512), seven, (mbstate_t*)(p + 256))))                            \
  CASE(mbrtowc, (memset(p + 256, 0, 64), persist(), mbrtowc(AT(wchar_t), multibyte, 2, (mbstate_t*)(p + 256))))        \
  CASE(wcrtomb, (memset(p + 256, 0, 64), persist(), wcrtomb(p, L'x', (mbstate_t*)(p + 256))))                          \
  CASE(iconv, convert())                                                                                               \
  CASE(strtof, strtof("1.5x", AT(char*)))                                                                              \
  CASE(strtold, strtold("1.5x", AT(char*)))                                                                            \
  CASE(strtoimax, strtoimax("12x", AT(char*), 10))                                                                     \
  CASE(strtoumax, strtoumax("12x", AT(char*), 10))                                                                     \
  CASE(wcstol, wcstol(L"12x", AT(wchar_t*), 10))                                                                       \
  CASE(rand_r, rand_r(AT(unsigned)))                                                                                   \
  CASE(erand48, erand48(AT(unsigned short)))                                                                           \
  CASE(nrand48, nrand48(AT(unsigned short)))                                                                           \
  CASE(jrand48, jrand48(AT(unsigned short)))                                                                           \
  CASE(mktime, (*AT(struct tm) = (struct tm){.tm_mon = 20}, persist(), mktime(AT(struct tm))))                         \
  CASE(timegm, (*AT(struct tm) = (struct tm){.tm_mon = 20}, persist(), timegm(AT(struct tm))))                         \
  CASE(strptime, strptime("2026-01-02", "%Y-%m-%d", AT(struct tm)))                                                    \
  CASE(asctime_r, asctime_r(&(struct tm){.tm_mday = 1}, p))                                                            \
  CASE(ctime_r, ctime_r(&(time_t){1234567890}, p))                                                                     \
  CASE(inet_ntop, inet_ntop(AF_INET, "abcd", p, 40))                                                                   \
  CASE(inet_pton, (inet_pton(AF_INET, "1.2.3.4", p), persist(), inet_pton(AF_INET6, "1::2", p + 64)))                  \
  CASE(inet_aton, inet_aton("1.2.3.4", AT(struct in_addr)))                                                            \
  CASE(strerror_r, strerror_r(99999, p, 60))                                                                           \
  CASE(__xpg_strerror_r, strerror_posix(ENOENT, p, 60))                                                                \
  CASE(fread_unlocked, fread_unlocked(p, 2, seven, file))                                                              \
  CASE(fgets_unlocked, fgets_unlocked(p, 20, file))                                                                    \
  CASE(fgetpos, fgetpos(file, AT(fpos_t)))                                                                             \
  CASE(getdelim, (*AT(char*) = NULL, *(size_t*)(p + 8) = 0, persist(),                                                 \
                  (void)!getdelim(AT(char*), (size_t*)(p + 8), 'x', file), free(*AT(char*))))                          \
  CASE(__getdelim, (*AT(char*) = NULL, *(size_t*)(p + 8) = 0, persist(),                                               \
                    (void)!__getdelim(AT(char*), (size_t*)(p + 8), 'x', file), free(*AT(char*))))                      \
  CASE(asprintf, ((void)!asprintf(AT(char*), "%d", 12), free(*AT(char*))))                                             \
  CASE(vasprintf, (print_new(AT(char*), "%d", 12), free(*AT(char*))))                                                  \
  CASE(scanf, scanf_89("%s", p))                                                                                       \
  CASE(fscanf, fscanf_89(file, "%*s %s", p))                                                                           \
  CASE(sscanf, sscanf_89("12 x", "%d %s", AT(int), p + 16))                                                            \
  CASE(vscanf, scan_list(5, "%s", p))                                                                                  \
  CASE(vfscanf, scan_list(4, "%s", p))                                                                                 \
  CASE(vsscanf, scan_list(3, "%*s %s %d", p, (int*)(p + 16)))                                                          \
  CASE(__isoc99_scanf, scanf("%s", p))                                                                                 \
  CASE(__isoc99_fscanf, fscanf(file, "%*s %s", p))                                                                     \
  CASE(__isoc99_sscanf, scan_everything())                                                                             \
  CASE(__isoc99_vscanf, scan_list(2, "%s", p))                                                                         \
  CASE(__isoc99_vfscanf, scan_list(1, "%s", p))                                                                        \
  CASE(__isoc99_vsscanf, scan_list(0, "%*s %s %d", p, (int*)(p + 16)))                                                 \
  CASE(stat, stat("/", AT(struct stat)))                                                                               \
  CASE(lstat, lstat("/", AT(struct stat)))                                                                             \
  CASE(fstat, fstat(0, AT(struct stat)))                                                                               \
  CASE(fstatat, fstatat(AT_FDCWD, "/", AT(struct stat), 0))                                                            \
  CASE(stat64, stat64("/", AT(struct stat64)))                                                                         \
  CASE(lstat64, lstat64("/", AT(struct stat64)))                                                                       \
  CASE(fstat64, fstat64(0, AT(struct stat64)))                                                                         \
  CASE(fstatat64, fstatat64(AT_FDCWD, "/", AT(struct stat64), 0))                                                      \
  CASE(statfs, statfs("/", AT(struct statfs)))                                                                         \
  CASE(fstatfs, fstatfs(fileno(file), AT(struct statfs)))                                                              \
  CASE(statvfs, statvfs("/", AT(struct statvfs)))                                                                      \
  CASE(fstatvfs, fstatvfs(fileno(file), AT(struct statvfs)))                                                           \
  CASE(readlinkat, readlinkat(AT_FDCWD, "/proc/self/exe", p, 60))                                                      \
  CASE(getdents64, getdents64(open("/", O_RDONLY | O_DIRECTORY), p, 400))                                              \
  CASE(realpath, realpath("/proc/self", p))                                                                            \
  CASE(preadv, preadv(fileno(file), (struct iovec[]){{p, 5}, {p + 32, 5}}, 2, 1))                                      \
  CASE(preadv64, preadv64(fileno(file), (struct iovec[]){{p, 5}, {p + 32, 5}}, 2, 1))                                  \
  CASE(pipe, (void)!pipe(AT(int)))                                                                                     \
  CASE(pipe2, (void)!pipe2(AT(int), O_CLOEXEC))                                                                        \
  CASE(recvfrom, receive(0))                                                                                           \
  CASE(recvmsg, receive(1))                                                                                            \
  CASE(accept, accept(listening(), AT(struct sockaddr), SIZED(64)))                                                    \
  CASE(accept4, accept4(listening(), AT(struct sockaddr), SIZED(64), 0))                                               \
  CASE(getsockname, getsockname(listening(), AT(struct sockaddr), SIZED(64)))                                          \
  CASE(getpeername, getpeername(sockets[0], AT(struct sockaddr), SIZED(64)))                                           \
  CASE(getsockopt, getsockopt(sockets[0], SOL_SOCKET, SO_TYPE, p, SIZED(4)))                                           \
  CASE(socketpair, socketpair(AF_UNIX, SOCK_STREAM, 0, AT(int)))                                                       \
  CASE(poll, (*AT(struct pollfd) = (struct pollfd){sockets[0], POLLOUT, 0}, persist(), poll(AT(struct pollfd), 1, 0))) \
  CASE(ppoll, (*AT(struct pollfd) = (struct pollfd){sockets[0], POLLOUT, 0}, persist(),                                \
               ppoll(AT(struct pollfd), 1, &(struct timespec){0, 0}, NULL)))                                           \
  CASE(select, (ready_sets(), select(100, (fd_set*)(p + 128), AT(fd_set), NULL, (struct timeval*)(p + 384))))          \
  CASE(pselect, (ready_sets(), pselect(100, (fd_set*)(p + 128), AT(fd_set), NULL, &(struct timespec){0, 0}, NULL)))    \
  CASE(epoll_wait, epoll_wait(ready_epoll(), AT(struct epoll_event), 3, 0))                                            \
  CASE(epoll_pwait, epoll_pwait(ready_epoll(), AT(struct epoll_event), 3, 0, NULL))                                    \
  CASE(wait, (child(), wait(AT(int))))                                                                                 \
  CASE(waitpid, waitpid(child(), AT(int), 0))                                                                          \
  CASE(wait4, wait4(child(), AT(int), 0, (struct rusage*)(p + 64)))                                                    \
  CASE(pthread_create, (pthread_create(AT(pthread_t), NULL, nothing, NULL), pthread_join(*AT(pthread_t), NULL)))       \
  CASE(pthread_join, pthread_join(a_thread(), AT(void*)))                                                              \
  CASE(sigaction, sigaction(SIGUSR1, NULL, AT(struct sigaction)))                                                      \
  CASE(sigprocmask, sigprocmask(SIG_BLOCK, NULL, AT(sigset_t)))                                                        \
  CASE(pthread_sigmask, pthread_sigmask(SIG_BLOCK, NULL, AT(sigset_t)))                                                \
  CASE(sigpending, sigpending(AT(sigset_t)))                                                                           \
  CASE(sigemptyset, sigemptyset(AT(sigset_t)))                                                                         \
  CASE(sigfillset, sigfillset(AT(sigset_t)))                                                                           \
  CASE(sigaddset, (sigemptyset(AT(sigset_t)), persist(), sigaddset(AT(sigset_t), SIGUSR1)))                            \
  CASE(sigdelset, (sigfillset(AT(sigset_t)), persist(), sigdelset(AT(sigset_t), SIGUSR1)))                             \
  CASE(sched_getaffinity, sched_getaffinity(0, sizeof(cpu_set_t), AT(cpu_set_t)))                                      \
  CASE(getgroups, (memset(p, 'q', 64), persist(), getgroups(1000, AT(gid_t)) > 0 ? 0 : memset(p, 1, 1) == NULL))       \
  CASE(pthread_mutex_init, pthread_mutex_init(AT(pthread_mutex_t), NULL))                                              \
  CASE(pthread_rwlock_init, pthread_rwlock_init(AT(pthread_rwlock_t), NULL))                                           \
  CASE(pthread_cond_init, pthread_cond_init(AT(pthread_cond_t), NULL))                                                 \
  CASE(sem_init, sem_init(AT(sem_t), 0, 3))                                                                            \
  CASE(getrusage, getrusage(RUSAGE_SELF, AT(struct rusage)))                                                           \
  CASE(getrlimit, getrlimit(RLIMIT_NOFILE, AT(struct rlimit)))                                                         \
  CASE(times, times(AT(struct tms)))                                                                                   \
  CASE(uname, uname(AT(struct utsname)))                                                                               \
  CASE(sysinfo, sysinfo(AT(struct sysinfo)))                                                                           \
  CASE(gethostname, gethostname(p, 100))                                                                               \
  CASE(getentropy, getentropy(p, seven))                                                                               \
  CASE(clock_getres, clock_getres(CLOCK_REALTIME, AT(struct timespec)))                                                \
  CASE(nanosleep, interrupted_sleep(0))                                                                                \
  CASE(clock_nanosleep, interrupted_sleep(1))                                                                          \
  CASE(getitimer, getitimer(ITIMER_REAL, AT(struct itimerval)))                                                        \
  CASE(setitimer, setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, AT(struct itimerval)))                   \
  CASE(timerfd_gettime, timerfd_gettime(timerfd_create(CLOCK_MONOTONIC, 0), AT(struct itimerspec)))                    \
  CASE(timerfd_settime, timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, &(struct itimerspec){{0, 0}, {1, 0}},   \
                                        AT(struct itimerspec)))                                                        \
  CASE(__mempcpy_chk, __mempcpy_chk(p, word, seven - 3, 100 + seven))                                                  \
  CASE(__stpcpy_chk, __stpcpy_chk(p, word, 100 + seven))                                                               \
  CASE(__stpncpy_chk, __stpncpy_chk(p, word, seven, 100 + seven))                                                      \
  CASE(__strncat_chk, (strcpy(p, word), persist(), __strncat_chk(p, word, 2, 100 + seven)))                            \
  CASE(__explicit_bzero_chk, __explicit_bzero_chk(p, seven, 100 + seven))                                              \
  CASE(__vsnprintf_chk, print_some_checked(p, "%s-%d", word, 12345))                                                   \
  CASE(__vsprintf_chk, print_checked(p, "%s-%d", word, 12345))                                                         \
  CASE(__read_chk, __read_chk(fileno(file), p, seven, 100 + seven))                                                    \
  CASE(__pread_chk, __pread_chk(fileno(file), p, seven, 1, 100 + seven))                                               \
  CASE(__pread64_chk, __pread64_chk(fileno(file), p, seven, 1, 100 + seven))                                           \
  CASE(__recv_chk, (send_some(), __recv_chk(sockets[1], p, 40, 100 + seven, 0)))                                       \
  CASE(__readlink_chk, __readlink_chk("/proc/self/exe", p, 60, 100 + seven))                                           \
  CASE(__getcwd_chk, __getcwd_chk(p, 2048, 4000 + seven))                                                              \
  CASE(__realpath_chk, __realpath_chk("/proc/self", p, 4096 + seven))                                                  \
  CASE(__fread_chk, __fread_chk(p, 100 + seven, 2, seven, file))                                                       \
  CASE(__fgets_chk, __fgets_chk(p, 100 + seven, 20, file))                                                             \
  CASE(frexp, frexp((double)seven, AT(int)))                                                                           \
  CASE(modf, modf((double)seven, AT(double)))                                                                          \
  CASE(remquo, remquo((double)seven, 2, AT(int)))                                                                      \
  CASE(lgamma_r, lgamma_r((double)seven, AT(int)))                                                                     \
  CASE(sincos, sincos((double)seven, AT(double), (double*)(p + 64)))                                                   \
  CASE(frexpf, frexpf((float)seven, AT(int)))                                                                          \
  CASE(modff, modff((float)seven, AT(float)))                                                                          \
  CASE(remquof, remquof((float)seven, 2, AT(int)))                                                                     \
  CASE(lgammaf_r, lgammaf_r((float)seven, AT(int)))                                                                    \
  CASE(sincosf, sincosf((float)seven, AT(float), (float*)(p + 64)))                                                    \
  CASE(frexpl, frexpl((long double)seven, AT(int)))                                                                    \
  CASE(modfl, modfl((long double)seven, AT(long double)))                                                              \
  CASE(remquol, remquol((long double)seven, 2, AT(int)))                                                               \
  CASE(lgammal_r, lgammal_r((long double)seven, AT(int)))                                                              \
  CASE(sincosl, sincosl((long double)seven, AT(long double), (long double*)(p + 64)))                                  \
  CASE(memcpy, memcpy(p, word, seven - 3))                                                                             \
  CASE(memmove, memmove(p + 1, word, 3))                                                                               \
  CASE(memset, memset(p, 'x', seven))                                                                                  \
  CASE(mempcpy, *(char*)mempcpy(p, word, seven - 3) = 'y')                                                             \
  CASE(memccpy, memccpy(p, word, 'r', seven))                                                                          \
  CASE(explicit_bzero, explicit_bzero(p, seven))                                                                       \
  CASE(strcpy, strcpy(p, word))                                                                                        \
  CASE(strncpy, strncpy(p, word, seven))                                                                               \
  CASE(stpcpy, *stpcpy(p, word) = 'z')                                                                                 \
  CASE(stpncpy, stpncpy(p, word, seven))                                                                               \
  CASE(strcat, (strcpy(p, word), persist(), strcat(p, word)))                                                          \
  CASE(strncat, (strcpy(p, word), persist(), strncat(p, word, 2)))                                                     \
  CASE(strtok, (text("one two"), strtok(p + 64, " "), strtok(NULL, " ")))                                              \
  CASE(strtok_r, (text("one two"), strtok_r(p + 64, " ", (char**)p), strtok_r(NULL, " ", (char**)p)))                  \
  CASE(strsep, (text("one two"), *(char**)p = p + 64, persist(), strsep((char**)p, " "), strsep((char**)p, " ")))      \
  CASE(sprintf, sprintf(p, "%s %d", word, (int)seven))                                                                 \
  CASE(snprintf, snprintf(p, 6, "%s %d", word, (int)seven))                                                            \
  CASE(vsprintf, print(p, "%s-%d", word, 1))                                                                           \
  CASE(vsnprintf, print_some(p, seven, "%s-%d", word, 12345))                                                          \
  CASE(qsort, (text("zyxwvu"), qsort(p + 64, 6, 1, by_byte)))                                                          \
  CASE(qsort_r, (text("zyxwvu"), qsort_r(p + 64, 6, 1, by_byte_with, NULL)))                                           \
  CASE(read, read(fileno(file), p, seven))                                                                             \
  CASE(pread, pread(fileno(file), p, seven, 1))                                                                        \
  CASE(pread64, pread64(fileno(file), p, seven, 2))                                                                    \
  CASE(readv, part(p, seven))                                                                                          \
  CASE(recv, (send_some(), recv(sockets[1], p, 40, 0)))                                                                \
  CASE(fread, fread(p, 2, seven, file))                                                                                \
  CASE(fgets, fgets(p, 20, file))                                                                                      \
  CASE(getline, get_line())                                                                                            \
  CASE(readlink, readlink("/proc/self/exe", p, 60))                                                                    \
  CASE(getcwd, getcwd(p, 2048))                                                                                        \
  CASE(getrandom, getrandom(p, seven, 0))                                                                              \
  CASE(clock_gettime, clock_gettime(CLOCK_REALTIME, (struct timespec*)p))                                              \
  CASE(gettimeofday, gettimeofday((struct timeval*)p, NULL))                                                           \
  CASE(time, time((time_t*)p))                                                                                         \
  CASE(localtime_r, localtime_r(&(time_t){1234567890}, (struct tm*)p))                                                 \
  CASE(gmtime_r, gmtime_r(&(time_t){1234567890}, (struct tm*)p))                                                       \
  CASE(strftime, strftime(p, 60, "%Y-%m-%d", &(struct tm){.tm_year = 126, .tm_mday = 1}))                              \
  CASE(strtol, strtol("12x", (char**)p, 10))                                                                           \
  CASE(strtoul, strtoul("12x", (char**)p, 10))                                                                         \
  CASE(strtoll, strtoll("12x", (char**)p, 10))                                                                         \
  CASE(strtoull, strtoull("12x", (char**)p, 10))                                                                       \
  CASE(strtod, strtod("1.5x", (char**)p))                                                                              \
  CASE(__memcpy_chk, __memcpy_chk(p, word, seven - 3, 100 + seven))                                                    \
  CASE(__memmove_chk, __memmove_chk(p + 1, word, 3, 100 + seven))                                                      \
  CASE(__memset_chk, __memset_chk(p, 'x', seven, 100 + seven))                                                         \
  CASE(__strcpy_chk, __strcpy_chk(p, word, 100 + seven))                                                               \
  CASE(__strncpy_chk, __strncpy_chk(p, word, seven, 100 + seven))                                                      \
  CASE(__strcat_chk, (strcpy(p, word), persist(), __strcat_chk(p, word, 100 + seven)))                                 \
  CASE(__sprintf_chk, __sprintf_chk(p, 1, 100 + seven, "%s %d", word, 5))                                              \
  CASE(__snprintf_chk, __snprintf_chk(p, 6, 1, 100 + seven, "%s %d", word, 5))                                         \
  CASE(__atomic_store, __atomic_store((struct large*)p, &values[1], __ATOMIC_SEQ_CST))                                 \
  CASE(__atomic_exchange, __atomic_exchange((struct large*)p, &values[1], (struct large*)(p + 64), 5))                 \
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
  if (!freopen("/proc/cpuinfo", "r", stdin)) return 4;
  for (int i = 0; i < 5000; ++i) fputs("a line of text that is some bytes long\n", file);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 4;
  int untouched = 0;
  static char before[4096];
#define CASE(name, act)                                            \
  memset(p, 'q', 4096);                                            \
  rewind(file), rewind(stdin);                                     \
  persist();                                                       \
  memcpy(before, p, sizeof before);                                \
  fprintf(stdout, "%s\n", #name), fflush(stdout);                  \
  (void)(act);                                                     \
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
