// The changes of a part of the log, with the newest version of each byte. Floor: store.
//
// Checkpoint and recovery fill an overlay from frames and write it home, so that bytes that were committed a thousand
// times are written once. A read-only opening keeps its overlay and lays it over the mapped home files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "base/units.hpp"

namespace memlith::core {

class Overlay {
 public:
  // Copies the bytes, which replace earlier ones at the same place. Error: no_memory.
  Status apply(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes);

  // The extents of an object in order of their offset, none overlapping.
  using Visit = std::function<Status(std::uint64_t offset, std::span<const std::byte> bytes)>;
  Status for_each(ObjectId object, const Visit& visit) const;
  [[nodiscard]] std::vector<ObjectId> objects() const;
  [[nodiscard]] std::uint64_t extent_count() const;  // of all objects

  [[nodiscard]] std::uint64_t bytes_held() const { return bytes_held_; }  // memory in use, roughly
  void clear();

 private:
  struct Extent {
    std::uint64_t bytes;
    std::byte* data;  // in an arena
  };
  using Extents = std::map<std::uint64_t, Extent>;

  Result<std::byte*> allocate(std::uint64_t bytes);
  static void cut_out(Extents& extents, std::uint64_t begin, std::uint64_t end);

  std::map<ObjectId, Extents> extents_;
  std::vector<AlignedBuffer> arenas_;
  std::byte* arena_next_ = nullptr;
  std::uint64_t arena_left_ = 0;
  std::uint64_t bytes_held_ = 0;
};

}  // namespace memlith::core
