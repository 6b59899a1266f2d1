#include "heap/reach.hpp"

#include <algorithm>
#include <cstring>

#include "base/units.hpp"

namespace memlith::core {

void Reach::start() {
  last_before_page_.assign(memory_.size() / kPageBytes + 1, kNone);
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) last_before_page_[blocks_[i].offset / kPageBytes] = i;
  for (std::size_t page = 1; page < last_before_page_.size(); ++page) {
    if (last_before_page_[page] == kNone) last_before_page_[page] = last_before_page_[page - 1];
  }
  reached_.assign(blocks_.size(), false);
}

std::uint32_t Reach::block_of(std::uint64_t offset) const {
  std::uint32_t block = last_before_page_[offset / kPageBytes];
  // Those of one page are few.
  while (block != kNone && blocks_[block].offset > offset) block = block == 0 ? kNone : block - 1;
  if (block == kNone || offset - blocks_[block].offset >= blocks_[block].bytes) return kNone;
  return block;
}

void Reach::reach(std::uint64_t offset) {
  const std::uint32_t block = block_of(offset);
  if (block == kNone || reached_[block]) return;
  reached_[block] = true;
  to_follow_.push_back(block);
}

void Reach::look_through(std::span<const std::byte> bytes, std::uint64_t address) {
  for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); ++at) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    const std::uint64_t offset = word - address_;
    if (offset <= memory_.size()) {
      reach(offset);
      if (offset > 0) reach(offset - 1);  // the end of a block
      continue;
    }
    if (at % alignof(std::uint64_t) != 0) continue;
    const std::uint64_t beside = address + at + word - address_;
    if (beside >= memory_.size()) continue;
    if (const std::uint32_t block = block_of(beside); block != kNone && blocks_[block].offset == beside) reach(beside);
  }
}

void Reach::follow() {
  while (!to_follow_.empty()) {
    const Block block = blocks_[to_follow_.back()];
    to_follow_.pop_back();
    look_through(memory_.subspan(block.offset, block.bytes), address_ + block.offset);
  }
}

void Reach::for_each_unreached(const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& use) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!reached_[i]) use(blocks_[i].offset, blocks_[i].bytes);
  }
}

}  // namespace memlith::core
