// kv/append.cpp: pages and log are reserved for the worst that a step can need, and the tree is as sound as after puts.
#include <gtest/gtest.h>

#include <string>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::append_test {
namespace {

using namespace core;
using core::kv::Transaction;

// Keys as long as they may be, which differ at their ends, so that inner pages have three children; short ones; values
// of all lengths, in the leaf and in pages of their own.
TEST(KvAppend, OfAnyRecords) {
  for (const bool long_keys : {true, false}) {
    KvWorld world;
    const kv::MapNumber map = world.map();
    Random random(long_keys ? 11 : 12);
    Records model;
    int number = 0;
    for (int step = 0; step < 25; ++step) {
      const int end = number + 1 + static_cast<int>(random.below(200));
      std::string key;
      std::string value;
      std::uint64_t appended = 0;
      EXPECT_OK(world.kv().append(
          map,
          [&](std::string_view& its_key, std::string_view& its_value) {
            if (number == end) return false;
            key = std::string(long_keys ? 1015 : 0, 'k') + std::to_string(100'000 + number++);
            value = std::string(random.one_in(50) ? random.below(20'000) : random.below(random.one_in(3) ? 1300 : 30),
                                static_cast<char>('a' + step));
            model[key] = value;
            its_key = key;
            its_value = value;
            return true;
          },
          appended));
      Transaction transaction(world.kv(), false);
      EXPECT_OK(transaction.begin());
      const std::string some = std::next(model.begin(), static_cast<std::ptrdiff_t>(random.below(model.size())))->first;
      if (step % 2 == 0) {
        EXPECT_TRUE(must(transaction.remove(map, some)));
        model.erase(some);
      } else {
        EXPECT_OK(transaction.put(map, some, "put"));
        model[some] = "put";
      }
      EXPECT_OK(transaction.commit(kv::Durability::weak, nullptr).status());
      EXPECT_OK(world.kv().verify().status());
    }
    EXPECT_TRUE(world.content(map) == model);
    EXPECT_OK(world.kv().persist());
    world.crash();
    EXPECT_TRUE(world.content(world.map()) == model);
  }
}

TEST(KvAppend, ToAMapThatWasRemoved) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  ASSERT_OK(world.kv().remove_map("map"));
  std::uint64_t appended = 7;
  bool given = false;
  const auto next = [&](std::string_view& key, std::string_view&) {
    key = "key";
    return !std::exchange(given, true);
  };
  EXPECT_EQ(world.kv().append(map, next, appended).category, Errc::invalid);
  EXPECT_EQ(appended, 0u);
}

}  // namespace
}  // namespace memlith::test::append_test
