// A small vocabulary over core::Heap in a region of a real folder.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "heap/heap.hpp"
#include "support/region_words.hpp"

namespace memlith::test {

// Blocks with the bytes that they have to hold.
using Blocks = std::map<std::byte*, std::string>;

class HeapWorld {
 public:
  explicit HeapWorld(core::TrackerKind tracker, std::uint64_t size = 256 * core::kKiB,
                     std::uint64_t reserve = 64 * core::kMiB, core::StoreOptions options = {},
                     core::HeapOptions heap_options = {})
      : regions_(tracker, std::move(options)), heap_options_(heap_options) {
    region_ = &regions_.open("heap", size, reserve);
    heap_ = must(core::Heap::open(*region_, heap_options_));
  }
  ~HeapWorld() { heap_ = nullptr; }

  core::Heap& heap() { return *heap_; }
  core::Region& region() { return *region_; }
  RegionWorld& regions() { return regions_; }
  core::Status persist() { return test::persist(*region_); }
  core::Status rollback() { return core::Region::rollback({&region_, 1}, core::Scope::process); }
  // As after a kill: what was not persisted is gone.
  void crash() {
    heap_ = nullptr;
    regions_.crash();
    region_ = &regions_.open("heap");
    heap_ = must(core::Heap::open(*region_, heap_options_));
  }

  // A block filled with bytes of its own; null where the heap has no room.
  std::byte* try_allocate(std::uint64_t bytes, std::uint64_t alignment = 16) {
    const auto given = heap_->arenas().allocate(bytes, alignment);
    if (!given.ok()) {
      EXPECT_EQ(given.error().category, core::Errc::no_space) << core::last_error_text();
      return nullptr;
    }
    auto* const block = static_cast<std::byte*>(*given);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u);
    std::string content(bytes, static_cast<char>('a' + next_++ % 26));
    EXPECT_OK(region_->prepare(block, bytes));
    std::memcpy(block, content.data(), bytes);
    EXPECT_OK(region_->touch(block, bytes));
    EXPECT_TRUE(blocks.emplace(block, std::move(content)).second) << "handed out twice";
    return block;
  }
  std::byte* allocate(std::uint64_t bytes, std::uint64_t alignment = 16) {
    std::byte* const block = try_allocate(bytes, alignment);
    EXPECT_NE(block, nullptr) << core::last_error_text();
    return block;
  }
  void free(std::byte* block) {
    EXPECT_EQ(blocks.erase(block), 1u);
    EXPECT_OK(heap_->arenas().free(block));
  }
  // The heap has these blocks, with their content, and no other; and is sound.
  void expect(const Blocks& wanted) {
    const auto report = heap_->verify();
    ASSERT_OK(report.status());
    std::map<std::byte*, std::uint64_t> found;
    ASSERT_OK(heap_->for_each_block([&](std::byte* block, std::uint64_t bytes) {
      EXPECT_TRUE(found.empty() || found.rbegin()->first + found.rbegin()->second <= block ||
                  found.begin()->first > block);
      found[block] = bytes;
    }));
    EXPECT_EQ(found.size(), wanted.size());
    EXPECT_EQ(report->blocks, wanted.size());
    for (const auto& [block, content] : wanted) {
      ASSERT_TRUE(found.contains(block));
      ASSERT_GE(found[block], content.size());
      EXPECT_EQ(std::memcmp(block, content.data(), content.size()), 0);
    }
  }
  void expect() { expect(blocks); }

  Blocks blocks;  // allocated with allocate() and not freed

 private:
  RegionWorld regions_;
  const core::HeapOptions heap_options_;
  core::Region* region_ = nullptr;
  std::unique_ptr<core::Heap> heap_;
  std::uint64_t next_ = 0;
};

}  // namespace memlith::test
