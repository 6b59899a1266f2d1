#include "divert.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace memlith::diverted {

void* allocate(memlith_heap* heap, std::size_t bytes, std::size_t alignment) noexcept {
  void* block = nullptr;
  return memlith_heap_allocate(heap, bytes, alignment, &block) == MEMLITH_OK ? block : nullptr;
}

void free(void* block) noexcept {
  memlith_heap* const heap = memlith_heap_of(block);
  if (heap == nullptr || memlith_category(memlith_heap_free(heap, block)) != MEMLITH_INVALID) return;
  // Without stdio, which may be what is freeing.
  char text[512];
  memlith_last_error(text, sizeof text);
  for (const std::string_view part : {std::string_view("memlith: "), std::string_view(text), std::string_view("\n")}) {
    (void)!::write(STDERR_FILENO, part.data(), part.size());
  }
  std::abort();
}

}  // namespace memlith::diverted
