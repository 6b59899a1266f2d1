// Memory for pages of a kv store that lie elsewhere than in the region, for snapshots. Floor: kv.
//
// The memory stays mapped as long as the kv store is open: a reader that finds only afterwards that what it read was
// not whole reads it without harm.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "base/sync.hpp"
#include "base/units.hpp"

namespace memlith::core::kv {

// Places are numbered from 1 on. Threads: any.
class PageArena {
 public:
  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // No memory, as an exception.
  std::uint32_t take();
  void release(std::uint32_t place);
  [[nodiscard]] std::byte* at(std::uint32_t place) const {
    return chunks_[place / kChunkPages].load(std::memory_order_acquire) + place % kChunkPages * kPageBytes;
  }

 private:
  static constexpr std::uint32_t kChunkPages = 1024;
  static constexpr std::uint32_t kChunksMax = 1u << 13;

  std::array<std::atomic<std::byte*>, kChunksMax> chunks_{};
  Mutex mutex_;
  std::uint32_t chunk_count_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::uint32_t taken_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint32_t> free_ MEMLITH_GUARDED_BY(mutex_);  // has room for all places
};

}  // namespace memlith::core::kv
