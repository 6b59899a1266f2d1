// A key-value store in memory under YCSB's mixes A (half updates) and C (reads only), for `./dev bench instrumented`:
// what recording stores costs a program. Built with clang 19 alone and with memlith-cc. Prints the nanoseconds of an
// operation in each block of 1,000, one a line.
//
// ycsb heap|region STORE OPERATIONS UPDATE-PERCENT: the table lies in ordinary memory, or in a region, which nothing
// persists.
#include <memlith/memlith.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRecords = 100000, kBuckets = 1 << 17, kValueBytes = 100, kBlock = 1000 };
static const uint64_t kRegionBytes = 64u << 20;

struct record {
  struct record* next;
  uint64_t key;
  uint64_t version;
  char value[kValueBytes];
};
struct table {
  struct record* buckets[kBuckets];
  uint64_t count;
  struct record records[kRecords];
};

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
static uint64_t hash(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 47; }

__attribute__((noinline)) static void insert(struct table* table, uint64_t key, const char* value) {
  struct record* const record = &table->records[table->count++];
  record->key = key;
  record->version = 0;
  memcpy(record->value, value, kValueBytes);
  struct record** const bucket = &table->buckets[hash(key)];
  record->next = *bucket;
  *bucket = record;
}
__attribute__((noinline)) static struct record* find(struct table* table, uint64_t key) {
  for (struct record* each = table->buckets[hash(key)]; each != NULL; each = each->next) {
    if (each->key == key) return each;
  }
  return NULL;
}
__attribute__((noinline)) static void update(struct table* table, uint64_t key, const char* value) {
  struct record* const record = find(table, key);
  record->version++;
  memcpy(record->value, value, kValueBytes);
}
__attribute__((noinline)) static uint64_t get(struct table* table, uint64_t key, char* value) {
  const struct record* const record = find(table, key);
  memcpy(value, record->value, kValueBytes);
  return record->version;
}

static void* region_memory(const char* path, int is_instrumented) {
  memlith_store* store = NULL;
  memlith_region* region = NULL;
  memlith_store_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  memlith_region_options wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.struct_size = sizeof wanted;
  wanted.flags = MEMLITH_CREATE;
  wanted.tracker = is_instrumented ? MEMLITH_TRACKER_INSTRUMENTED : MEMLITH_TRACKER_EXPLICIT;
  wanted.size = kRegionBytes;
  if (memlith_store_open(path, &options, &store) != 0 || memlith_region_open(store, "a", &wanted, &region) != 0) {
    char text[512];
    (void)memlith_last_error(text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
  }
  return memlith_region_address(region);
}

static double now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  struct table* const table =
      strcmp(argv[1], "heap") == 0 ? calloc(1, sizeof *table) : region_memory(argv[2], strcmp(argv[5], "records") == 0);
  const uint64_t operations = strtoull(argv[3], NULL, 10), percent = strtoull(argv[4], NULL, 10);
  char value[2 * kValueBytes], seen[kValueBytes];
  uint64_t sum = 0;
  memset(value, 'v', sizeof value);
  memset(table, 0, sizeof *table);
  for (uint64_t key = 0; key < kRecords; ++key) insert(table, key, value);
  for (uint64_t done = 0; done < operations; done += kBlock) {
    const double start = now_ns();
    for (int i = 0; i < kBlock; ++i) {
      // The smaller of two keys is drawn more often, as in YCSB's skewed mixes.
      const uint64_t a = next_random() % kRecords, b = next_random() % kRecords, key = a < b ? a : b;
      if (next_random() % 100 < percent) {
        update(table, key, value + key % kValueBytes);
      } else {
        sum += get(table, key, seen) + (uint64_t)seen[key % kValueBytes];
      }
    }
    printf("%.2f\n", (now_ns() - start) / kBlock);
  }
  return sum == 1;  // so that nothing is left out
}
