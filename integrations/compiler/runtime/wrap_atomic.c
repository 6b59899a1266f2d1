/* Atomic accesses that the processor does not have: functions of libatomic, which only programs that call them are
 * linked with. clang does not let a program declare these by name. */
#include "stored.h"

void atomic_store_original(size_t bytes, void* to, void* from, int order) __asm__("__atomic_store");
void atomic_exchange_original(size_t bytes, void* to, void* from, void* before, int order) __asm__("__atomic_exchange");
bool atomic_compare_original(size_t bytes, void* to, void* expected, void* from, int good,
                             int bad) __asm__("__atomic_compare_exchange");
static void atomic_begin(const void* to, size_t bytes) {
  if (is_tracked(to)) memlith_track_begin(to, bytes);
}
static void atomic_end(const void* to, size_t bytes, bool is_stored) {
  if (is_tracked(to)) memlith_track_end(to, bytes, is_stored);
}
WRAP(void, __atomic_store)(size_t bytes, void* to, void* from, int order) {
  atomic_begin(to, bytes);
  atomic_store_original(bytes, to, from, order);
  atomic_end(to, bytes, true);
}
WRAP(void, __atomic_exchange)(size_t bytes, void* to, void* from, void* before, int order) {
  atomic_begin(to, bytes);
  atomic_exchange_original(bytes, to, from, before, order);
  atomic_end(to, bytes, true);
  stored(before, bytes);
}
WRAP(bool, __atomic_compare_exchange)(size_t bytes, void* to, void* expected, void* from, int good, int bad) {
  atomic_begin(to, bytes);
  const bool is_stored = atomic_compare_original(bytes, to, expected, from, good, bad);
  atomic_end(to, bytes, is_stored);
  if (!is_stored) stored(expected, bytes);
  return is_stored;
}
