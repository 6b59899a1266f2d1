// docs/heap.md, "damage": bytes of the heap's structures are input. Whatever they are, every call answers, and what is
// wrong is named.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "heap/heap.hpp"
#include "support/heap_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class HeapDamage : public ::testing::Test {
 protected:
  HeapDamage() {
    Random random(5);
    for (int i = 0; i < 400; ++i) blocks_.push_back(must(heap().arenas().allocate(1 + random.below(600), 16)));
    for (int i = 0; i < 5; ++i) blocks_.push_back(must(heap().arenas().allocate(1 + random.below(100'000), 16)));
    blocks_.push_back(must(heap().arenas().allocate(2'300'000, 16)));
    for (int i = 0; i < 400; i += 5) must_free(i);
    for (int i = 1; i < 5; ++i)
      EXPECT_OK(heap().names().set(std::to_string(i), blocks_[std::size_t(i)], {"T", 1, 1, 0}));
    EXPECT_OK(persist(*region_));
  }
  Heap& heap() { return *heap_; }
  void must_free(int i) {
    EXPECT_OK(heap().arenas().free(blocks_[std::size_t(i)]));
    blocks_[std::size_t(i)] = nullptr;
  }
  // Changes one byte, opens the heap, and uses all of it. True where the damage was named; the region is as it was
  // afterwards.
  bool damage_is_named(std::uint64_t offset, std::byte change) {
    heap_ = nullptr;
    region_->address()[offset] ^= change;
    bool named = false;
    const auto look = [&](Status status) {
      if (status.ok()) return;
      const bool corrupt = status.category == Errc::corrupt || status.category == Errc::incompatible;
      EXPECT_TRUE(corrupt || status.category == Errc::invalid || status.category == Errc::not_found) << told(status);
      named = named || corrupt;
    };
    auto opened = Heap::open(*region_);
    look(opened.status());
    if (opened.ok()) {
      heap_ = std::move(*opened);
      look(heap_->verify().status());
      for (void* block : blocks_) {
        if (block != nullptr) look(heap_->arenas().free(block));
      }
      for (int i = 0; i < 50; ++i)
        look(heap_->arenas().allocate(static_cast<std::uint64_t>(100 + 1000 * i), 16).status());
      look(heap_->names().find("3").status());
      heap_ = nullptr;
    }
    Region* const one = region_;
    EXPECT_OK(Region::rollback({&one, 1}, Scope::process));
    heap_ = must(Heap::open(*region_));
    return named;
  }

  RegionWorld regions_{TrackerKind::fault};
  Region* region_ = &regions_.open("heap", 256 * kKiB, 64 * kMiB);
  std::unique_ptr<Heap> heap_ = must(Heap::open(*region_));
  std::vector<void*> blocks_;
};

// The heap's header and the segment table have checksums: each changed byte is named.
TEST_F(HeapDamage, OfTheHeaderIsNamed) {
  for (std::uint64_t offset = kHeapHeaderOffset; offset < kHeapHeaderEnd; ++offset) {
    EXPECT_TRUE(damage_is_named(offset, std::byte{0x10})) << offset;
  }
  const std::uint64_t segments = (region_->size() + kSegmentBytes - 1) / kSegmentBytes;
  for (std::uint64_t offset = 0; offset < segments * sizeof(SegmentEntry); ++offset) {
    EXPECT_TRUE(damage_is_named(kSegmentTableOffset + offset, std::byte{0x02})) << offset;
  }
}

// Each changed byte of a segment's header in use is named, too, but for bits of blocks: a bit more or less is a block
// more or less.
TEST_F(HeapDamage, OfASegmentIsNamedOrAnotherBlock) {
  constexpr std::uint64_t kHeader =
      2 * kPageBytes;  // of the first segment: one page each of header and table lie before
  const std::uint64_t blocks = must(heap_->verify()).blocks;
  for (std::uint64_t offset = 0; offset < 16; ++offset) {
    EXPECT_TRUE(damage_is_named(kHeader + offset, std::byte{0x40})) << offset;
  }
  for (std::uint64_t page = 0; page < 60; ++page) {
    const std::uint64_t offset = kHeader + offsetof(SegmentHeader, pages) + page * sizeof(PageWord);
    EXPECT_TRUE(damage_is_named(offset, std::byte{0xff})) << page;
    EXPECT_TRUE(damage_is_named(offset + 1, std::byte{0x21})) << page;
  }
  Random random(6);
  for (int i = 0; i < 100; ++i) {
    (void)damage_is_named(kHeader + offsetof(SegmentHeader, blocks) + random.below(2 * kPageBytes),
                          std::byte{1} << static_cast<int>(random.below(8)));
  }
  EXPECT_EQ(must(heap_->verify()).blocks, blocks);
}

// A free page's word is zero: one that gives it a length is named, also where only free pages follow.
TEST_F(HeapDamage, OfAFreePageIsNamed) {
  constexpr std::uint64_t kWords = 2 * kPageBytes + offsetof(SegmentHeader, pages);
  const auto* const words = reinterpret_cast<const PageWord*>(region_->address() + kWords);
  std::uint32_t free_page = 0;
  while (free_page + 4 < kSegmentPages &&
         std::any_of(words + free_page, words + free_page + 4, [](PageWord word) { return word != 0; })) {
    free_page += std::max(1, words[free_page] >> 8);
  }
  ASSERT_LT(free_page + 4, kSegmentPages);
  for (const int pages : {1, 2, 4}) {
    EXPECT_TRUE(damage_is_named(kWords + free_page * sizeof(PageWord) + 1, static_cast<std::byte>(pages))) << pages;
  }
}

// A program that stores over the length of a block of pages in a heap that it has open.
TEST_F(HeapDamage, OfALengthThatWasReadBeforeIsNamed) {
  void* const block = must(heap().arenas().allocate(100 * kPageBytes, 16));
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(block) - region_->address());
  const std::uint64_t segment = offset / kSegmentBytes;
  const std::uint64_t page = offset / kPageBytes % kSegmentPages;
  const auto* const table = reinterpret_cast<const SegmentEntry*>(region_->address() + kSegmentTableOffset);
  auto& header = *reinterpret_cast<SegmentHeader*>(region_->address() + segment * kSegmentBytes +
                                                   table[segment].header_page * kPageBytes);
  ASSERT_EQ(header.pages[page], page_word(kPageExtent, 100));
  for (const std::uint32_t pages : {0u, 255u}) {  // the latter leads out of the segment
    header.pages[page] = page_word(kPageExtent, pages);
    const Status freed = heap().arenas().free(block);
    EXPECT_EQ(freed.category, Errc::corrupt) << pages << ": " << told(freed);
    const std::string_view message = last_error_text();
    EXPECT_LT(message.find("close the store"), message.find("restore a backup")) << message;
  }
  header.pages[page] = page_word(kPageExtent, 100);
  EXPECT_OK(heap().arenas().free(block));
  EXPECT_OK(heap().verify().status());
}

// Any number of flipped bits anywhere in the structures of any segment, and in the blocks beside them: every call
// answers, and the region is a heap again when the bits are back.
TEST_F(HeapDamage, AnywhereIsNeverFollowed) {
  Random random(11);
  const std::uint64_t blocks = must(heap_->verify()).blocks;
  const std::uint64_t size = region_->size();
  int named = 0;
  for (int i = 0; i < 300; ++i) {
    std::uint64_t offset = random.below(12 * kPageBytes);  // the heap's header, the table, the first segment's header
    if (random.one_in(3))
      offset = random.below(size / kSegmentBytes + 1) * kSegmentBytes + random.below(6 * kPageBytes);
    if (offset < size && damage_is_named(offset, static_cast<std::byte>(1 + random.below(255)))) ++named;
  }
  EXPECT_GT(named, 20);
  EXPECT_EQ(must(heap_->verify()).blocks, blocks);
}

// A name record that was stored over is named, and not followed.
TEST_F(HeapDamage, OfANameIsNamed) {
  const auto* const header = reinterpret_cast<const HeapHeader*>(region_->address() + kHeapHeaderOffset);
  for (std::uint64_t offset = 0; offset < sizeof(NameRecord) + 2; ++offset) {
    EXPECT_TRUE(damage_is_named(header->names_first + offset, std::byte{0x20})) << offset;
  }
}

// A region of something else is no heap.
TEST(Heap, IsRefusedInARegionOfSomethingElse) {
  RegionWorld regions(TrackerKind::fault);
  Region& region = regions.open("a", 256 * kKiB);
  put(region, 8, 77);
  EXPECT_TRUE(is_error(Heap::open(region), Errc::incompatible));
  Region& small = regions.open("b", 4096, 4096);  // and may not grow
  EXPECT_TRUE(is_error(Heap::open(small), Errc::invalid));
  EXPECT_NE(std::string(last_error_text()).find("needs"), std::string::npos);
}

}  // namespace
}  // namespace memlith::test
