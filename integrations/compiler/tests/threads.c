// Thread scope: what each thread stored, and nothing else, is in the store after the process ended in the middle. The
// second argument names the part; `check` looks at what the run before left.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region.h"

enum { kThreads = 4, kWords = 256, kRounds = 60, kTurns = 20000000 };

// Words of the threads lie beside each other, so that all threads store to the same lines and pages.
struct all {
  unsigned words[kWords][kThreads];
  unsigned ended[kThreads][kWords];
  unsigned handled[8];
  unsigned jumped;
  volatile unsigned turns;
};
static struct all* all;

// Beside the store, and not in it: what was begun and what was acknowledged when the process ended.
struct notes {
  _Atomic unsigned begun[kThreads];
  _Atomic unsigned done[kThreads];
};
static struct notes* notes;

static void open_notes(const char* path) {
  char name[4096];
  snprintf(name, sizeof name, "%s.notes", path);
  const int fd = open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, 4096) != 0) exit(7);
  notes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
}

static void expect(int good, const char* what, unsigned number) {
  if (good) return;
  fprintf(stderr, "%s: %u\n", what, number);
  exit(8);
}

// ---- threads that persist what is theirs, side by side; the first to end its rounds ends the process

static void* store_rounds(void* argument) {
  const unsigned me = (unsigned)(size_t)argument;
  for (unsigned round = 1; round <= kRounds; ++round) {
    notes->begun[me] = round;
    for (unsigned i = 0; i < kWords; ++i) all->words[i][me] = round;
    persist_own();
    notes->done[me] = round;
  }
  _exit(0);
}
static void contend(void) {
  for (unsigned i = 0; i < kThreads; ++i) {
    pthread_t id;
    if (pthread_create(&id, NULL, store_rounds, (void*)(size_t)i) != 0) exit(7);
  }
  for (;;) pause();
}
static void check_contended(void) {
  for (unsigned t = 0; t < kThreads; ++t) {
    const unsigned found = all->words[0][t];
    for (unsigned i = 0; i < kWords; ++i) expect(all->words[i][t] == found, "half of a round is there", i);
    expect(found >= notes->done[t] && found <= notes->begun[t], "another round is there than was persisted", found);
  }
}

// ---- threads that end: their stores wait for a persist of process scope, which may never come

static void* store_and_end(void* argument) {
  const unsigned me = (unsigned)(size_t)argument;
  for (unsigned i = 0; i < kWords; ++i) all->ended[me][i] = me + 1;
  if (me % 2 == 1) persist_own();
  return NULL;
}
static void end_threads(int everything) {
  for (unsigned i = 0; i < kThreads; ++i) {
    pthread_t id;
    if (pthread_create(&id, NULL, store_and_end, (void*)(size_t)i) != 0) exit(7);
    pthread_join(id, NULL);
  }
  persist_own();  // of this thread, which stored nothing
  if (everything) persist();
  _exit(0);
}
static void check_ended(int everything) {
  for (unsigned t = 0; t < kThreads; ++t) {
    const unsigned wanted = everything || t % 2 == 1 ? t + 1 : 0;
    for (unsigned i = 0; i < kWords; ++i) expect(all->ended[t][i] == wanted, "of the ended threads", t);
  }
}

// ---- a signal handler that stores and jumps out, and one that stores while its thread persists

static sigjmp_buf back;
static void store_and_jump(int number) {
  (void)number;
  all->handled[0] = 1;
  siglongjmp(back, 1);
}
static void store_in_handler(int number) {
  (void)number;
  all->handled[1] += 1;
  all->handled[2 + all->handled[1] % 2] = all->handled[1];
}
static void* interrupt(void* to) {
  for (int i = 0; i < 300; ++i) pthread_kill(*(pthread_t*)to, SIGUSR2), usleep(50);
  return NULL;
}
static void handle_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = store_and_jump;
  sigaction(SIGUSR1, &action, NULL);
  action.sa_handler = store_in_handler;
  sigaction(SIGUSR2, &action, NULL);
  if (sigsetjmp(back, 1) == 0) raise(SIGUSR1);
  all->jumped = 1;
  pthread_t self = pthread_self(), id;
  if (pthread_create(&id, NULL, interrupt, &self) != 0) exit(7);
  for (unsigned i = 0; i < 40; ++i) all->words[i][0] = i, persist_own();
  pthread_join(id, NULL);
  persist_own();  // the handler ran in this thread
  notes->done[0] = all->handled[1];
  _exit(0);
}
static void check_signals(void) {
  expect(all->handled[0] == 1 && all->jumped == 1, "the handler that jumped", all->handled[0]);
  expect(all->handled[1] == notes->done[0], "the handler's count", all->handled[1]);
  expect(all->handled[2] + 1 == all->handled[3] || all->handled[3] + 1 == all->handled[2], "its words",
         all->handled[2]);
}

// ---- children that are forked while another thread stores

static atomic_int stop;
static void* store_on(void* argument) {
  (void)argument;
  for (unsigned round = 1; !stop; ++round) {
    for (unsigned i = 0; i < kWords; ++i) all->words[i][1] = round;
    notes->begun[1] = round;
    persist_own();
    notes->done[1] = round;
  }
  return NULL;
}
static void fork_children(void) {
  pthread_t id;
  if (pthread_create(&id, NULL, store_on, NULL) != 0) exit(7);
  for (unsigned i = 0; i < 20; ++i) {
    all->words[i][0] = i + 1;
    const pid_t child = fork();
    if (child == 0) {
      // Its own copy of the memory: no persist records it, whatever lists were in use at the fork.
      for (unsigned k = 0; k < kWords; ++k) all->words[k][2] = 77;
      _exit(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) == MEMLITH_OK ? 1 : 0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) exit(9);
    persist_own();
  }
  stop = 1;
  pthread_join(id, NULL);
  _exit(0);
}
static void check_forked(void) {
  for (unsigned i = 0; i < kWords; ++i) {
    expect(all->words[i][0] == (i < 20 ? i + 1 : 0), "the parent's word", i);
    expect(all->words[i][1] == notes->done[1], "the other thread's word", i);
    expect(all->words[i][2] == 0, "the child's word", i);
  }
}

// ---- a thread that stores to the same word again and again, and calls nothing meanwhile, while another one persists

static void* turn(void* argument) {
  unsigned* const words = argument;
  all->turns = 0;
  for (unsigned i = 0; i < kTurns; ++i) {
    words[i * 7 % (kThreads * kWords)] = i;
    all->turns += 1;
  }
  notes->done[0] = 1;
  return NULL;
}
static void persist_meanwhile(void) {
  pthread_t id;
  if (pthread_create(&id, NULL, turn, all->words) != 0) exit(7);
  while (notes->done[0] == 0) persist();
  pthread_join(id, NULL);
  persist();
  _exit(0);
}
static void check_turns(void) { expect(all->turns == kTurns, "the word that was stored to last", all->turns); }

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  open_notes(argv[1]);
  all = (struct all*)(open_region(argc, argv, 1 << 20) + 4096);
  const char* const part = argv[2];
  const int check = argc > 3;
  if (!check) persist();
  if (strcmp(part, "contend") == 0) check ? check_contended() : contend();
  if (strcmp(part, "end") == 0) check ? check_ended(0) : end_threads(0);
  if (strcmp(part, "end-all") == 0) check ? check_ended(1) : end_threads(1);
  if (strcmp(part, "signals") == 0) check ? check_signals() : handle_signals();
  if (strcmp(part, "meanwhile") == 0) check ? check_turns() : persist_meanwhile();
  if (strcmp(part, "fork") == 0) check ? check_forked() : fork_children();
  close_region();
  return 0;
}
