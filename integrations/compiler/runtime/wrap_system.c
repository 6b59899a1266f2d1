/* System calls that write into memory of their caller. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
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

#include "stored.h"

/* The last argument says what was written when `result` is known. */
#define CALL(type, name, parameters, arguments, ...) \
  WRAP(type, name) parameters {                      \
    type const result = name arguments;              \
    __VA_ARGS__;                                     \
    return result;                                   \
  }
/* The object that `to` points to, whatever the result: a call that failed may have written a part. */
#define FILLS(type, name, parameters, arguments) CALL(type, name, parameters, arguments, stored(to, sizeof *to))

static void got(void* to, ssize_t bytes, size_t room) {
  if (bytes > 0) stored(to, (size_t)bytes < room ? (size_t)bytes : room); /* MSG_TRUNC: of the whole message */
}
static void got_parts(const struct iovec* parts, size_t count, ssize_t bytes) {
  size_t rest = bytes > 0 ? (size_t)bytes : 0;
  for (size_t i = 0; i < count && rest > 0; ++i) {
    const size_t n = parts[i].iov_len < rest ? parts[i].iov_len : rest;
    stored(parts[i].iov_base, n);
    rest -= n;
  }
}
/* An address or an option with its length, of which the caller said how much room there is. */
static void got_sized(void* to, socklen_t room, socklen_t* length) {
  if (length == NULL) return;
  stored(to, *length < room ? *length : room);
  stored(length, sizeof *length);
}
static socklen_t room_of(const socklen_t* length) { return length != NULL ? *length : 0; }

/* ---- files */
FILLS(int, stat, (const char* path, struct stat* to), (path, to))
FILLS(int, lstat, (const char* path, struct stat* to), (path, to))
FILLS(int, fstat, (int fd, struct stat* to), (fd, to))
FILLS(int, fstatat, (int fd, const char* path, struct stat* to, int flags), (fd, path, to, flags))
FILLS(int, stat64, (const char* path, struct stat64* to), (path, to))
FILLS(int, lstat64, (const char* path, struct stat64* to), (path, to))
FILLS(int, fstat64, (int fd, struct stat64* to), (fd, to))
FILLS(int, fstatat64, (int fd, const char* path, struct stat64* to, int flags), (fd, path, to, flags))
FILLS(int, statfs, (const char* path, struct statfs* to), (path, to))
FILLS(int, fstatfs, (int fd, struct statfs* to), (fd, to))
FILLS(int, statvfs, (const char* path, struct statvfs* to), (path, to))
FILLS(int, fstatvfs, (int fd, struct statvfs* to), (fd, to))
CALL(ssize_t, readlinkat, (int fd, const char* path, char* to, size_t n), (fd, path, to, n), got(to, result, n))
CALL(ssize_t, getdents64, (int fd, void* to, size_t n), (fd, to, n), got(to, result, n))
CALL(char*, realpath, (const char* path, char* to), (path, to), if (result != NULL) stored_text(result))
CALL(ssize_t, readv, (int fd, const struct iovec* parts, int count), (fd, parts, count),
     got_parts(parts, (size_t)count, result))
CALL(ssize_t, preadv, (int fd, const struct iovec* parts, int count, off_t at), (fd, parts, count, at),
     got_parts(parts, (size_t)count, result))
CALL(ssize_t, preadv64, (int fd, const struct iovec* parts, int count, off64_t at), (fd, parts, count, at),
     got_parts(parts, (size_t)count, result))
CALL(int, pipe, (int* to), (to), stored(to, 2 * sizeof *to))
CALL(int, pipe2, (int* to, int flags), (to, flags), stored(to, 2 * sizeof *to))

/* ---- sockets and waiting */
CALL(ssize_t, recv, (int fd, void* to, size_t n, int flags), (fd, to, n, flags), got(to, result, n))
WRAP(ssize_t, recvfrom)(int fd, void* to, size_t n, int flags, struct sockaddr* from, socklen_t* length) {
  const socklen_t room = room_of(length);
  const ssize_t bytes = recvfrom(fd, to, n, flags, from, length);
  got(to, bytes, n);
  got_sized(from, room, length);
  return bytes;
}
WRAP(ssize_t, recvmsg)(int fd, struct msghdr* to, int flags) {
  const struct msghdr asked = *to;
  const ssize_t bytes = recvmsg(fd, to, flags);
  stored(to, sizeof *to);
  if (bytes < 0) return bytes;
  stored(asked.msg_name, asked.msg_namelen);
  stored(asked.msg_control, asked.msg_controllen);
  got_parts(asked.msg_iov, asked.msg_iovlen, bytes);
  return bytes;
}
#define ADDRESS(type, name, parameters, arguments) \
  WRAP(type, name) parameters {                    \
    const socklen_t room = room_of(length);        \
    type const result = name arguments;            \
    got_sized(to, room, length);                   \
    return result;                                 \
  }
ADDRESS(int, accept, (int fd, struct sockaddr* to, socklen_t* length), (fd, to, length))
ADDRESS(int, accept4, (int fd, struct sockaddr* to, socklen_t* length, int flags), (fd, to, length, flags))
ADDRESS(int, getsockname, (int fd, struct sockaddr* to, socklen_t* length), (fd, to, length))
ADDRESS(int, getpeername, (int fd, struct sockaddr* to, socklen_t* length), (fd, to, length))
ADDRESS(int, getsockopt, (int fd, int level, int name, void* to, socklen_t* length), (fd, level, name, to, length))
CALL(int, socketpair, (int domain, int type, int protocol, int* to), (domain, type, protocol, to),
     stored(to, 2 * sizeof *to))
CALL(int, poll, (struct pollfd * to, nfds_t count, int timeout), (to, count, timeout), stored(to, count * sizeof *to))
CALL(int, ppoll, (struct pollfd * to, nfds_t count, const struct timespec* timeout, const sigset_t* mask),
     (to, count, timeout, mask), stored(to, count * sizeof *to))
WRAP(int, select)(int count, fd_set* in, fd_set* out, fd_set* errors, struct timeval* timeout) {
  const int ready = select(count, in, out, errors, timeout);
  stored(in, sizeof *in), stored(out, sizeof *out), stored(errors, sizeof *errors), stored(timeout, sizeof *timeout);
  return ready;
}
WRAP(int, pselect)(int count, fd_set* in, fd_set* out, fd_set* errors, const struct timespec* timeout,
                   const sigset_t* mask) {
  const int ready = pselect(count, in, out, errors, timeout, mask);
  stored(in, sizeof *in), stored(out, sizeof *out), stored(errors, sizeof *errors);
  return ready;
}
CALL(int, epoll_wait, (int fd, struct epoll_event* to, int count, int timeout), (fd, to, count, timeout),
     if (result > 0) stored(to, (size_t)result * sizeof *to))
CALL(int, epoll_pwait, (int fd, struct epoll_event* to, int count, int timeout, const sigset_t* mask),
     (fd, to, count, timeout, mask), if (result > 0) stored(to, (size_t)result * sizeof *to))

/* ---- processes, threads and signals */
FILLS(pid_t, wait, (int* to), (to))
FILLS(pid_t, waitpid, (pid_t child, int* to, int flags), (child, to, flags))
CALL(pid_t, wait4, (pid_t child, int* to, int flags, struct rusage* used), (child, to, flags, used),
     (stored(to, sizeof *to), stored(used, sizeof *used)))
CALL(int, pthread_create, (pthread_t * to, const pthread_attr_t* attributes, void* (*act)(void*), void* with),
     (to, attributes, act, with), stored(to, sizeof *to))
FILLS(int, pthread_join, (pthread_t thread, void** to), (thread, to))
FILLS(int, sigaction, (int signal, const struct sigaction* action, struct sigaction* to), (signal, action, to))
FILLS(int, sigprocmask, (int how, const sigset_t* set, sigset_t* to), (how, set, to))
FILLS(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* to), (how, set, to))
FILLS(int, sigpending, (sigset_t * to), (to))
FILLS(int, sigemptyset, (sigset_t * to), (to))
FILLS(int, sigfillset, (sigset_t * to), (to))
FILLS(int, sigaddset, (sigset_t * to, int signal), (to, signal))
FILLS(int, sigdelset, (sigset_t * to, int signal), (to, signal))
CALL(int, sched_getaffinity, (pid_t process, size_t n, cpu_set_t* to), (process, n, to), stored(to, n))
CALL(int, getgroups, (int count, gid_t* to), (count, to),
     if (result > 0 && count > 0) stored(to, (size_t)result * sizeof *to))

/* Only how a lock begins is recorded, not that a thread has it: after a crash it is free. */
FILLS(int, pthread_mutex_init, (pthread_mutex_t * to, const pthread_mutexattr_t* attributes), (to, attributes))
FILLS(int, pthread_rwlock_init, (pthread_rwlock_t * to, const pthread_rwlockattr_t* attributes), (to, attributes))
FILLS(int, pthread_cond_init, (pthread_cond_t * to, const pthread_condattr_t* attributes), (to, attributes))
FILLS(int, sem_init, (sem_t * to, int shared, unsigned value), (to, shared, value))

/* ---- what the system is */
FILLS(int, getrusage, (__rusage_who_t who, struct rusage* to), (who, to))
FILLS(int, getrlimit, (__rlimit_resource_t what, struct rlimit* to), (what, to))
FILLS(clock_t, times, (struct tms * to), (to))
FILLS(int, uname, (struct utsname * to), (to))
FILLS(int, sysinfo, (struct sysinfo * to), (to))
CALL(int, gethostname, (char* to, size_t n), (to, n), stored(to, n))
CALL(int, getentropy, (void* to, size_t n), (to, n), stored(to, n))

/* ---- time */
FILLS(int, clock_getres, (clockid_t clock, struct timespec* to), (clock, to))
FILLS(int, nanosleep, (const struct timespec* time, struct timespec* to), (time, to))
FILLS(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec* time, struct timespec* to),
      (clock, flags, time, to))
FILLS(int, getitimer, (__itimer_which_t which, struct itimerval* to), (which, to))
FILLS(int, setitimer, (__itimer_which_t which, const struct itimerval* value, struct itimerval* to), (which, value, to))
FILLS(int, timerfd_gettime, (int fd, struct itimerspec* to), (fd, to))
FILLS(int, timerfd_settime, (int fd, int flags, const struct itimerspec* value, struct itimerspec* to),
      (fd, flags, value, to))
