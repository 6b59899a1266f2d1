// docs/format.md, pages of a kv store: whatever comes and goes, a page holds its cells in order, and its bytes add up.
#include "kv/page.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "base/random.hpp"

namespace memlith::test::page_test {
namespace {

using namespace core;

// A cell goes into the tightest hole; where none is large enough, the page is laid out anew.
TEST(KvPage, HolesAreUsedAgain) {
  alignas(8) std::byte page[kPageBytes];
  kv::format_page(page, 5, kv::PageKind::leaf, 0, 2);
  const std::string value(300, 'v');
  std::uint32_t count = 0;
  const auto key = [](std::uint32_t i) { return "key" + std::to_string(100 + i); };
  for (; kv::fits_at_once(page, kv::Cell{key(count), value, false}.bytes()); ++count) {
    kv::insert_cell(page, count, {key(count), value, false});
  }
  const std::uint64_t bytes = kv::Cell{key(0), value, false}.bytes();
  EXPECT_EQ(kv::hole_for(page, bytes), 0u) << "the page is full";
  kv::remove_cell(page, 4);
  kv::remove_cell(page, 6);
  kv::remove_cell(page, 6);  // beside the one before
  EXPECT_EQ(kv::hole_for(page, 2 * bytes + 1), 0u);
  const std::uint64_t large = kv::hole_for(page, 2 * bytes);
  const std::uint64_t small = kv::hole_for(page, bytes);
  EXPECT_NE(large, 0u);
  EXPECT_NE(small, 0u);
  EXPECT_NE(small, large);
  kv::insert_cell_at(page, 4, {key(4), value, false}, small);
  EXPECT_EQ(kv::fault_of_page(page, 5, 100), "");
  EXPECT_EQ(kv::hole_for(page, bytes), large);
  kv::insert_cell_at(page, 7, {key(7), std::string(200, 'w'), false}, large);
  EXPECT_EQ(kv::fault_of_page(page, 5, 100), "");
  for (std::uint32_t i = 0; i < count - 1; ++i) {
    const std::string expected = key(i < 8 ? i : i + 1);
    EXPECT_EQ(kv::cell_of(page, i).key, expected);
    EXPECT_EQ(kv::cell_of(page, i).value, i == 7 ? std::string(200, 'w') : value);
  }
}

// A leaf with a cell whose value holds another cell; what the header says adds up.
void make_overlap(std::byte* page, kv::PageNumber self, kv::PageNumber map) {
  kv::format_page(page, self, kv::PageKind::leaf, 0, map);
  const std::string inner = std::string("\1\0\4\0b", 5) + "1234";  // the key "b", and 4 bytes
  kv::insert_cell(page, 0, {"a", std::string(20, 'v') + inner + std::string(20, 'v'), false});
  kv::PageHeader header = kv::header_of(page);
  const auto slot = static_cast<std::uint16_t>(header.cells_begin + sizeof(kv::CellHeader) + 1 + 20);
  std::memcpy(page + sizeof header + kv::kSlotBytes, &slot, sizeof slot);
  header.count = 2;
  header.cells_begin = static_cast<std::uint16_t>(header.cells_begin - inner.size());
  std::memcpy(page, &header, sizeof header);
}

TEST(KvPage, CellsThatLieOverEachOtherAreDamage) {
  alignas(8) std::byte page[kPageBytes];
  make_overlap(page, 5, 2);
  ASSERT_EQ(kv::cell_of(page, 1).key, "b");
  ASSERT_EQ(kv::cell_of(page, 1).value, "1234");
  EXPECT_EQ(kv::fault_of_page(page, 5, 100), "two cells lie over each other");
  // One byte is enough, at both ends of a word of the map, and cells side by side are sound.
  for (int gap = 0; gap <= 70; ++gap) {
    kv::format_page(page, 5, kv::PageKind::leaf, 0, 2);
    kv::insert_cell(page, 0, {"c", std::string(static_cast<std::size_t>(gap), 'v'), false});
    kv::insert_cell(page, 0, {"b", std::string(100, 'v'), false});
    kv::PageHeader header = kv::header_of(page);
    EXPECT_EQ(kv::fault_of_page(page, 5, 100), "");
    kv::CellHeader cell{};
    std::memcpy(&cell, page + header.cells_begin, sizeof cell);
    ++cell.value_bytes;
    std::memcpy(page + header.cells_begin, &cell, sizeof cell);
    --header.cells_begin;
    std::memcpy(page, &header, sizeof header);
    EXPECT_EQ(kv::fault_of_page(page, 5, 100), "two cells lie over each other") << gap;
  }
}

// Random insertions, removals and splits, by all ways in which a cell finds its place, against a model.
TEST(KvPage, HoldsWhatTheModelHolds) {
  std::uint64_t holes = 0;
  std::uint64_t compactions = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    alignas(8) std::byte page[kPageBytes];
    kv::format_page(page, 5, kv::PageKind::leaf, 0, 2);
    std::map<std::string, std::string> model;
    const std::uint64_t value_bytes_max = 20 + random.below(400);
    for (int step = 0; step < 400; ++step) {
      const std::string key = "key" + std::to_string(1000 + random.below(300));
      if (model.contains(key)) {
        const kv::CellSearch search = kv::find_cell(page, key);
        ASSERT_TRUE(search.found);
        if (random.one_in(10)) {
          kv::cut_cells(page, search.index, kv::header_of(page).count);
          model.erase(model.find(key), model.end());
        } else {
          kv::remove_cell(page, search.index);
          model.erase(key);
        }
      } else {
        const std::string value(random.below(value_bytes_max), static_cast<char>('a' + random.below(26)));
        const kv::Cell cell{key, value, false};
        if (!kv::fits(page, cell.bytes())) continue;
        const kv::CellSearch search = kv::find_cell(page, key);
        ASSERT_FALSE(search.found);
        if (kv::fits_at_once(page, cell.bytes())) {
          kv::insert_cell(page, search.index, cell);
        } else if (const std::uint64_t hole = kv::hole_for(page, cell.bytes()); hole != 0) {
          kv::insert_cell_at(page, search.index, cell, hole);
          ++holes;
        } else {
          kv::compact(page);
          kv::insert_cell(page, search.index, cell);
          ++compactions;
        }
        model[key] = value;
      }
      ASSERT_EQ(kv::fault_of_page(page, 5, 100), "");
      ASSERT_EQ(kv::header_of(page).count, model.size());
      std::uint32_t index = 0;
      for (const auto& [name, content] : model) {
        ASSERT_EQ(kv::cell_of(page, index).key, name);
        ASSERT_EQ(kv::cell_of(page, index++).value, content);
      }
    }
  }
  EXPECT_GT(holes, 500u);
  EXPECT_GT(compactions, 50u);
}

}  // namespace
}  // namespace memlith::test::page_test
