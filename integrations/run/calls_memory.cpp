// Mapping and syncing memory, as programs call it.
#include <stdarg.h>

#include "calls.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

MEMLITH_INTERPOSE(void*, mmap, void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (!images().any()) return real().mmap(address, bytes, protection, flags, fd, offset);
  return images().map(address, bytes, protection, flags, fd, offset);
}
MEMLITH_INTERPOSE_ALSO(mmap64, mmap);
MEMLITH_INTERPOSE(int, munmap, void* address, size_t bytes) {
  return images().any() ? images().unmap(address, bytes) : real().munmap(address, bytes);
}
MEMLITH_INTERPOSE(void*, mremap, void* address, size_t old_bytes, size_t bytes, int flags, ...) {
  void* wanted = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list more;
    va_start(more, flags);
    wanted = va_arg(more, void*);
    va_end(more);
  }
  return images().any() ? images().remap(address, old_bytes, bytes, flags, wanted)
                        : real().mremap(address, old_bytes, bytes, flags, wanted);
}
MEMLITH_INTERPOSE(int, msync, void* address, size_t bytes, int flags) {
  return images().any() ? images().sync(address, bytes, flags) : real().msync(address, bytes, flags);
}
MEMLITH_INTERPOSE(int, madvise, void* address, size_t bytes, int advice) {
  if (advice != MADV_REMOVE || !images().any()) return real().madvise(address, bytes, advice);
  return images().punch(address, bytes);
}

}  // namespace memlith::preload
