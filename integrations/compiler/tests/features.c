// The stores that the pass has to see in C: each kind of store, threads, signal handlers, longjmp, fork.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "region.h"

struct bits {
  unsigned a : 3;
  unsigned b : 13;
  unsigned long c : 40;
};
union both {
  double number;
  char bytes[16];
};
struct node {
  int value;
  struct bits bits;
  union both both;
  char text[52];
  struct node* next;
};
typedef float vector __attribute__((vector_size(32)));

struct all {
  struct node nodes[40];
  _Atomic long counter;
  _Atomic int flags[8];
  __int128 wide;
  long double precise;
  vector vectors[8];
  float floats[1000];
  char buffer[5000];
  int lanes[64];
  int assembly[4];
  volatile int seen;
  long handled[4000];
  long threads[4][1000];
};
static struct all* all;
static volatile int n = 17;

__attribute__((noinline)) static void structs(int seed) {
  for (int i = 0; i < 40; ++i) {
    struct node* const node = &all->nodes[i];
    node->value = i + seed;
    node->bits.a = (unsigned)(i + seed);
    node->bits.c = (unsigned long)i * 12345;
    node->both.bytes[i % 16] = (char)seed;
    node->next = i + 1 < 40 ? node + 1 : NULL;
  }
  all->nodes[5] = all->nodes[seed % 40];
  all->nodes[6].both = (union both){.number = seed};
  memmove(&all->nodes[10], &all->nodes[9], sizeof(struct node) * 4);
  memset(all->nodes[30].text, seed, (size_t)n);
  memcpy(all->buffer, all->nodes, (size_t)n * 60);
}

__attribute__((noinline)) static void atomics(int seed) {
  atomic_fetch_add(&all->counter, seed);
  atomic_fetch_xor_explicit(&all->flags[1], seed, memory_order_relaxed);
  atomic_store_explicit(&all->flags[2], seed, memory_order_release);
  atomic_exchange(&all->flags[3], seed);
  int expected = seed;
  atomic_compare_exchange_strong(&all->flags[3], &expected, seed + 1);
  expected = -1;
  atomic_compare_exchange_weak(&all->flags[4], &expected, seed);
  atomic_compare_exchange_strong((_Atomic int*)&all->flags[6], (int*)&all->flags[7], 3);  // fails: stores what it saw
  atomic_flag_test_and_set((atomic_flag*)&all->buffer[4000]);
  all->seen = seed;
  all->wide = (__int128)seed << 70;
  all->precise = seed * 1.5L;
}

__attribute__((noinline)) static void vectors(int seed) {
  for (int i = 0; i < 1000; ++i) all->floats[i] = all->floats[i] * 2 + (float)(i + seed);
  for (int i = 0; i < 8; ++i) all->vectors[i] = (vector){(float)i, (float)seed} + 1;
  for (int i = 0; i < 64; ++i) {
    if ((i * seed) % 3 == 0) all->lanes[i] = i + seed;
  }
}

#if defined(__x86_64__)
__attribute__((noinline, target("avx2"))) static void masked(int seed) {
  const __m256i mask = _mm256_set_epi32(-1, 0, 0, -1, -1, 0, 0, -1);
  _mm256_maskstore_epi32(&all->lanes[3], mask, _mm256_set1_epi32(seed));
  _mm256_maskstore_ps(&all->floats[7], mask, _mm256_set1_ps((float)seed));
  _mm_stream_si128((__m128i*)&all->buffer[1024], _mm_set1_epi8((char)seed));
  _mm_maskmoveu_si128(_mm_set1_epi8((char)seed), _mm_set_epi32(-1, 0, -1, 0), &all->buffer[3001]);
}
#if defined(__clang__)  // GCC tells nothing of the following; memlith-gcc reports them
__attribute__((noinline, target("avx512f,avx512vl"))) static void scattered(int seed) {
  const __m512i places = _mm512_set_epi32(3, 9, 30, 1, 22, 50, 49, 2, 63, 0, 17, 18, 5, 6, 40, 41);
  _mm512_mask_i32scatter_epi32(all->lanes, 0x5a3c, places, _mm512_set1_epi32(seed), 4);
  _mm512_mask_compressstoreu_epi32(&all->lanes[20], 0x8421, _mm512_set1_epi32(seed));
  _mm512_mask_storeu_epi32(&all->lanes[40], 0x0ff3, _mm512_set1_epi32(seed + 1));
}
__attribute__((noinline)) static void assembly(int seed) {
  __asm__("movl %1, %0" : "=m"(all->assembly[0]) : "r"(seed));
  __asm__("addl $3, %0" : "+m"(all->assembly[2]) : : "cc");
  __asm__ volatile("" : : : "memory");
}
#endif
#endif

static jmp_buf back;
__attribute__((noinline)) static void jump(int seed) {
  all->buffer[2000] = (char)seed;
  if (n == 17) longjmp(back, 1);
  all->buffer[2001] = (char)seed;
}

static volatile int handled;
static void handle(int number) {
  (void)number;
  all->handled[handled % 4000] = handled + 1;
  ++handled;
}
__attribute__((noinline)) static void signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 400000 || handled < 3; ++i) all->buffer[(i * 7919L) % 2000] = (char)i;
  setitimer(ITIMER_REAL, &never, NULL);
}

static void* thread(void* argument) {
  long* const mine = argument;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 1000; ++i) mine[i] += i + round, atomic_fetch_add(&all->counter, 1);
    if (round % 2 == 1) persist_own();
  }
  return NULL;
}
static void threads(void) {
  pthread_t ids[4];
  for (int i = 0; i < 4; ++i) {
    if (pthread_create(&ids[i], NULL, thread, all->threads[i]) != 0) exit(5);
  }
  for (int i = 0; i < 20; ++i) persist();
  for (int i = 0; i < 4; ++i) pthread_join(ids[i], NULL);
}

// A child's stores reach neither the store nor the parent's lists.
static void child(void) {
  const pid_t id = fork();
  if (id == 0) {
    memset(all->buffer, 9, sizeof all->buffer);
    _exit(0);
  }
  int status = 0;
  waitpid(id, &status, 0);
}

static unsigned long sum(const struct all* bytes) {
  unsigned long value = 14695981039346656037ul;
  for (size_t i = 0; i < sizeof *bytes; ++i) value = (value ^ ((const unsigned char*)bytes)[i]) * 1099511628211ul;
  return value;
}

int main(int argc, char** argv) {
  char* const base = open_region(argc, argv, 1 << 20);
  all = (struct all*)(base + 4096);
  if (!first_run) {
    // The memory holds what the run before persisted.
    const int same = *(unsigned long*)base == sum(all);
    close_region();
    return same ? 0 : 6;
  }
  for (int seed = 3; seed < 6; ++seed) {
    structs(seed), persist();
    atomics(seed), persist();
    vectors(seed), persist();
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) masked(seed), persist();
#endif
#if defined(__x86_64__) && defined(__clang__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) scattered(seed), persist();
    assembly(seed), persist();
#endif
    if (setjmp(back) == 0) jump(seed);
    persist();
  }
  signals(), persist();
  threads(), persist();
  child(), persist();
  *(unsigned long*)base = sum(all);
  persist();
  close_region();
  return 0;
}
