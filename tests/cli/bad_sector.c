/* Preloaded: one page of each mapping of a file whose path ends with BAD_FILE is a bad sector; BAD_PAGE is its number.
 * The page of an empty file has no content to give: the kernel raises SIGBUS, as for a sector that cannot be read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int ends_with(int file, const char* end) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path);
  const size_t wanted = strlen(end);
  return length >= (ssize_t)wanted && memcmp(path + length - wanted, end, wanted) == 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  void* (*next)(void*, size_t, int, int, int, off_t) = NULL;
  void* const found = dlsym(RTLD_NEXT, "mmap");
  memcpy(&next, &found, sizeof next);
  const char* const end = getenv("BAD_FILE");
  void* const at = next(address, bytes, protection, flags, file, offset);
  if (at == MAP_FAILED || file < 0 || end == NULL || !ends_with(file, end)) return at;
  const off_t bad = 4096 * atol(getenv("BAD_PAGE"));
  if (bad < offset || bad >= offset + (off_t)bytes) return at;
  const char* const empty = getenv("BAD_EMPTY");
  FILE* const stream = fopen(empty, "r");
  if (stream == NULL) abort();
  if (next((char*)at + (bad - offset), 4096, protection, MAP_PRIVATE | MAP_FIXED, fileno(stream), bad) == MAP_FAILED) {
    abort();
  }
  fclose(stream);
  return at;
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}
