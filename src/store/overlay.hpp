// The changes of a part of the log, with the newest version of each byte. Floor: store.
//
// Checkpoint and recovery fill an overlay from frames and write it home, so that bytes that were committed a thousand
// times are written once. A read-only opening keeps its overlay and lays it over the mapped home files in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "store/objects.hpp"

namespace memlith::core {

class Overlay {
 public:
  // Copies the bytes, which replace earlier ones at the same place. Error: no_memory.
  Status apply(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes);

  // The same for whole pages of zeros, which take no memory for their bytes.
  void apply_zeros(ObjectId object, std::uint64_t offset, std::uint64_t bytes);
  // Forgets what it has of these bytes.
  void drop(const Extent& extent);
  // True if a visitor's bytes are a whole page that apply_zeros() put there.
  static bool is_page_of_zeros(std::span<const std::byte> bytes);
  static std::span<const std::byte> page_of_zeros();

  // The bytes of an object in order of their offset, none twice.
  using Visit = std::function<Status(std::uint64_t offset, std::span<const std::byte> bytes)>;
  Status for_each(ObjectId object, const Visit& visit) const;
  // Puts the bytes that it has of these over the others.
  Status copy_to(ObjectId object, std::uint64_t offset, std::span<std::byte> target) const;
  // True if it has bytes of that page.
  [[nodiscard]] bool has(ObjectId object, std::uint64_t page) const;
  [[nodiscard]] std::vector<ObjectId> objects() const;
  [[nodiscard]] std::uint64_t piece_count() const;  // of all objects: how often for_each() would call

  [[nodiscard]] std::uint64_t page_count() const { return pages_; }       // in which something has changed
  [[nodiscard]] std::uint64_t bytes_held() const { return bytes_held_; }  // memory in use, roughly
  void clear();

 private:
  struct Fragment {
    std::byte* data;      // in an arena
    std::uint16_t begin;  // in its page
    std::uint16_t bytes;  // up to a page
    [[nodiscard]] std::uint32_t end() const { return std::uint32_t{begin} + bytes; }
  };
  using Page = std::vector<Fragment>;  // in order of their begin, none overlapping
  static constexpr std::uint64_t kLeafPages = 64;
  using Leaf = std::array<Page, kLeafPages>;
  using Leaves = std::map<std::uint64_t, Leaf>;  // by the number of the first page, divided by kLeafPages

  Page& page_of(Leaves& leaves, std::uint64_t page);
  Result<std::byte*> allocate(std::uint64_t bytes);
  Status apply_to_page(Page& page, std::uint32_t begin, std::span<const std::byte> bytes);
  void make_room(Page& page);
  static bool is_in_order(const Page& page);  // for assertions
  static void cut_out(Page& page, std::uint32_t begin, std::uint32_t end);

  std::map<ObjectId, Leaves> objects_;
  std::vector<AlignedBuffer> arenas_;
  std::byte* arena_next_ = nullptr;
  std::uint64_t arena_left_ = 0;
  std::uint64_t pages_ = 0;
  std::uint64_t bytes_held_ = 0;
};

}  // namespace memlith::core
