#include "kv/page_arena.hpp"

#include <sys/mman.h>

#include "base/assert.hpp"

namespace memlith::core::kv {

PageArena::~PageArena() {
  for (std::uint32_t i = 0; i < chunk_count_; ++i) ::munmap(chunks_[i].load(), kChunkPages * kPageBytes);
}

std::uint32_t PageArena::take() {
  const LockGuard lock(mutex_);
  if (free_.empty()) {
    if (chunk_count_ == kChunksMax) throw std::bad_alloc();
    free_.reserve((std::size_t{chunk_count_} + 1) * kChunkPages);
    void* const made =
        ::mmap(nullptr, kChunkPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    chunks_[chunk_count_].store(static_cast<std::byte*>(made), std::memory_order_release);
    const std::uint32_t first = chunk_count_++ * kChunkPages;
    for (std::uint32_t i = kChunkPages; i-- > (first == 0 ? 1 : 0);) free_.push_back(first + i);
  }
  const std::uint32_t place = free_.back();
  free_.pop_back();
  ++taken_;
  return place;
}

void PageArena::release(std::uint32_t place) {
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(place != 0 && taken_ > 0);
  free_.push_back(place);
  if (--taken_ > 0) return;
  for (std::uint32_t i = 1; i < chunk_count_; ++i)
    ::madvise(chunks_[i].load(), kChunkPages * kPageBytes, MADV_DONTNEED);
}

}  // namespace memlith::core::kv
