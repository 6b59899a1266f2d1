// The table of docs/heap.md, "Which container": pages that an operation dirties among 100,000 keys, and the room that
// they take. The program prints both; the bounds are those that the containers are made for.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memlith/btree.hpp"
#include "memlith/flat_hash.hpp"
#include "memlith/heap.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::pages_of_operations_test {
namespace {

constexpr int kKeys = 100'000;
constexpr int kOperations = 400;

struct Measured {
  double insert = 0;
  double replace = 0;
  double erase = 0;
  double bytes = 0;  // of the heap, for each element
};

// Keys of 12 bytes; values of `value_bytes`.
template <class Map>
void measure(std::size_t value_bytes, Measured& measured) {
  const TempFolder folder;
  auto store = Store::open(folder / "store", {.create = true, .tell_dropped = false});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto heap = Heap::open(*store, "heap", {.create = true});
  ASSERT_TRUE(heap.ok()) << heap.error().message();
  auto root = heap->root<Map>();
  ASSERT_TRUE(root.ok()) << root.error().message();
  Map& map = **root;
  std::mt19937_64 random(1);
  const auto new_key = [&] {
    char text[13];
    std::snprintf(text, sizeof text, "%012llx", static_cast<unsigned long long>(random() >> 16));
    return std::string(text);
  };
  std::vector<std::string> keys;
  for (int i = 0; i < kKeys; ++i) {
    keys.push_back(new_key());
    map.try_emplace(keys.back(), std::string(value_bytes, 'v'));
  }
  ASSERT_TRUE(heap->persist().ok());
  const auto pages_of = [&](auto change) {
    const std::uint64_t before = store->stats()->captured_pages;
    for (int i = 0; i < kOperations; ++i) {
      change();
      EXPECT_TRUE(heap->persist_async().ok());
    }
    return static_cast<double>(store->stats()->captured_pages - before) / kOperations;
  };
  measured.bytes = static_cast<double>(heap->verify()->block_bytes) / kKeys;
  measured.insert = pages_of([&] {
    keys.push_back(new_key());
    map.try_emplace(keys.back(), std::string(value_bytes, 'v'));
  });
  measured.replace = pages_of([&] {
    map.find(keys[random() % keys.size()])->second.replace(0, 4, std::to_string(random() % 9000 + 1000));
  });
  measured.erase = pages_of([&] {
    std::swap(keys[random() % keys.size()], keys.back());
    map.erase(keys.back());
    keys.pop_back();
  });
}

class PagesOfOperations : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Values, PagesOfOperations, ::testing::Values(8, 100),
                         [](const auto& given) { return "Of" + std::to_string(given.param) + "Bytes"; });

TEST_P(PagesOfOperations, AreFewWhereContainersAreMadeForPages) {
  std::array<Measured, 4> all;
  measure<map<memlith::string, memlith::string>>(GetParam(), all[0]);
  measure<unordered_map<memlith::string, memlith::string>>(GetParam(), all[1]);
  measure<btree_map<memlith::string, memlith::string>>(GetParam(), all[2]);
  measure<flat_hash_map<memlith::string, memlith::string>>(GetParam(), all[3]);
  constexpr std::array kNames{"map", "unordered_map", "btree_map", "flat_hash_map"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::printf("%-14s values of %3zu bytes: insert %.1f, replace %.1f, erase %.1f pages; %.0f bytes an element\n",
                kNames[i], GetParam(), all[i].insert, all[i].replace, all[i].erase, all[i].bytes);
  }
  const bool owned = GetParam() > 15;  // the value has a block of its own: its page, and that of the heap's bit
  for (const std::size_t made_for_pages : {2, 3}) {
    const Measured& one = all[made_for_pages];
    EXPECT_LT(one.insert, owned ? 3.4 : 1.4);
    EXPECT_LT(one.replace, owned ? 2.1 : 1.1);
    EXPECT_LT(one.erase, owned ? 2.4 : 1.2);
    EXPECT_LT(one.insert * (owned ? 1.5 : 3), all[0].insert);
    EXPECT_LT(one.bytes, all[0].bytes * 1.2);
  }
}

}  // namespace
}  // namespace memlith::test::pages_of_operations_test
