// The numbers of maps that a program holds. Floor: kv.
//
// A number stands for one map from when it was opened or created until it is removed, and is never given again while
// the kv store is open: the page of a removed map's root may become that of another map, and a thread that still has
// the old number must not reach that one.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "kv/page.hpp"
#include "kv/page_state.hpp"

namespace memlith::core::kv {

using MapNumber = std::uint32_t;

// The map that a number stands for.
struct MapEntry {
  PageNumber root = 0;
  // The commit that made the map, since opening; 0: it was there. In an older snapshot the page is none of it.
  Stamp created = 0;
  // The commit that removed the map; kNewest: it is there.
  std::atomic<Stamp> removed{kNewest};
  // The map is being removed. Dekker: a transaction takes its lock first and looks here then; the removal stores here
  // first and looks for locks then. One of them sees the other.
  std::atomic<bool> going{false};
};

// Threads: any number look numbers up, while one adds.
class MapNumbers {
 public:
  // Null: the number was never given.
  [[nodiscard]] MapEntry* find(MapNumber number) const {
    if (number < kFirst || number - kFirst >= count_->load(std::memory_order_acquire)) return nullptr;
    return &entry(number - kFirst);
  }
  // True if there is a number left.
  [[nodiscard]] bool has_room() const { return count_->load(std::memory_order_relaxed) < capacity_; }
  MapNumber add(PageNumber root, Stamp created) {
    const std::uint32_t count = count_->load(std::memory_order_relaxed);
    MEMLITH_ASSERT(root != 0 && count < capacity_);
    if (shared_ == nullptr) {
      const ChunkIndex at = chunk_index(count);
      if (chunks_[at.chunk] == nullptr) {
        chunks_[at.chunk] = std::make_unique<MapEntry[]>(std::size_t{kFirstChunk} << at.chunk);
      }
    }
    MapEntry& made = entry(count);
    made.root = root;
    made.created = created;
    made.removed.store(kNewest, std::memory_order_relaxed);
    count_->store(count + 1, std::memory_order_release);
    return kFirst + count;
  }
  // The numbers lie in memory that other processes look at: so many entries, and how many there are.
  void share(MapEntry* entries, std::uint32_t capacity, std::atomic<std::uint32_t>& count) {
    shared_ = entries;
    capacity_ = capacity;
    count_ = &count;
  }

 private:
  struct ChunkIndex {
    std::uint32_t chunk = 0;
    std::uint32_t index = 0;
  };
  // Chunks double, so that entries never move.
  static ChunkIndex chunk_index(std::uint32_t index) {
    const std::uint64_t shifted = std::uint64_t{index} + kFirstChunk;
    const auto chunk = static_cast<std::uint32_t>(std::bit_width(shifted) - 1 - kFirstChunkBits);
    return {chunk, static_cast<std::uint32_t>(shifted - (std::uint64_t{kFirstChunk} << chunk))};
  }
  [[nodiscard]] MapEntry& entry(std::uint32_t index) const {
    if (shared_ != nullptr) return shared_[index];
    const ChunkIndex at = chunk_index(index);
    return chunks_[at.chunk][at.index];
  }
  static constexpr MapNumber kFirst = 2;  // 0 is none, and 1 the catalogue
  static constexpr std::uint32_t kFirstChunkBits = 6;
  static constexpr std::uint32_t kFirstChunk = 1u << kFirstChunkBits;
  std::unique_ptr<MapEntry[]> chunks_[32 - kFirstChunkBits + 1];
  std::atomic<std::uint32_t> own_count_{0};
  std::atomic<std::uint32_t>* count_ = &own_count_;
  MapEntry* shared_ = nullptr;
  std::uint32_t capacity_ = ~std::uint32_t{0} - kFirst;
};

}  // namespace memlith::core::kv
