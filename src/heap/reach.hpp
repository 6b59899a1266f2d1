// Which blocks of a heap something leads to, as far as words of memory tell. Floor: heap.
//
// Types are not known here, so any eight bytes at any place count as a pointer if their value is an address in a block:
// its beginning, its inside, or its end. A word that leads to a block's beginning as a distance from the word's own
// address (boost::interprocess::offset_ptr) counts, too. So a number may keep a block that nothing owns, and a pointer
// keeps whatever it leads to, but for pointers that are kept as something else: compressed, combined with each other
// (XOR lists), with bits in their upper bytes, or in memory that is not looked through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace memlith::core {

class Reach {
 public:
  // For a heap of that size, which programs see at `address`. `memory` is where it lies now.
  Reach(std::span<const std::byte> memory, std::uint64_t address) : memory_(memory), address_(address) {}

  // Every block in use, in the order of their offsets, and then start().
  void add_block(std::uint64_t offset, std::uint64_t bytes) { blocks_.push_back({offset, bytes}); }
  void start();

  // The block at the offset is in use for itself: an object with a name.
  void keep(std::uint64_t offset) { reach(offset); }
  // Memory outside of blocks, which programs see at `address`, and in which pointers may lie.
  void look_through(std::span<const std::byte> bytes, std::uint64_t address);
  // Looks through all blocks that are reached, until nothing more is.
  void follow();

  void for_each_unreached(const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& use) const;

 private:
  struct Block {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  static constexpr std::uint32_t kNone = ~0u;

  // The number of the block in which the offset lies.
  [[nodiscard]] std::uint32_t block_of(std::uint64_t offset) const;
  void reach(std::uint64_t offset);

  std::span<const std::byte> memory_;
  std::uint64_t address_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> last_before_page_;  // of each page: the last block that begins before its end
  std::vector<bool> reached_;
  std::vector<std::uint32_t> to_follow_;
};

}  // namespace memlith::core
