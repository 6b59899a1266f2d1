// kv/ascending_runs.hpp: keys that rise fill their pages, also where they rise inside of a map, in one commit or in
// many. Keys in no order fill pages as before.
#include <gtest/gtest.h>

#include <string>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::split_test {
namespace {

using namespace core;
using core::kv::Durability;
using core::kv::KvReport;
using core::kv::Transaction;

constexpr int kGroups = 40;
constexpr int kOfGroup = 500;
constexpr std::uint64_t kValueBytes = 90;

std::string key_of(int group, int number) {
  return "group" + std::to_string(100 + group) + "/" + std::to_string(100'000 + number);
}

// The share of the room in leaves.
double filled(const KvReport& report) {
  return static_cast<double>(report.used_bytes) / static_cast<double>(report.leaf_pages * kv::kRoomBytes);
}

class KvSplit : public ::testing::Test {
 protected:
  void put(const std::vector<std::string>& keys) {
    Transaction transaction(world_.kv(), false);
    EXPECT_OK(transaction.begin());
    for (const std::string& key : keys) EXPECT_OK(transaction.put(map_, key, std::string(kValueBytes, 'v')));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
  }
  KvReport sound() { return must(world_.kv().verify()); }

  KvWorld world_;
  kv::MapNumber map_ = world_.map();
};

TEST_F(KvSplit, RunsThatRiseInsideOfTheMapFillTheirPages) {
  for (int number = 0; number < kOfGroup; ++number) {
    for (int group = 0; group < kGroups; ++group) put({key_of(group, number)});
  }
  const KvReport report = sound();
  EXPECT_EQ(report.records, static_cast<std::uint64_t>(kGroups * kOfGroup));
  EXPECT_GT(filled(report), 0.9);
}

TEST_F(KvSplit, SoDoRunsOfACommit) {
  for (int part = 0; part < 10; ++part) {
    for (int group = 0; group < kGroups; ++group) {
      std::vector<std::string> keys;
      for (int i = 0; i < kOfGroup / 10; ++i) keys.push_back(key_of(group, part * kOfGroup / 10 + i));
      put(keys);
    }
  }
  EXPECT_GT(filled(sound()), 0.85);
}

TEST_F(KvSplit, KeysInNoOrderHaveHalves) {
  Random random(7);
  for (int i = 0; i < kGroups * kOfGroup; ++i) put({key_of(0, static_cast<int>(random.below(900'000)))});
  EXPECT_GT(filled(sound()), 0.64);
  EXPECT_LT(filled(sound()), 0.76);
}

// Commits of many short runs, each at a page that hardly has room: pages were reserved for all splits.
TEST_F(KvSplit, RoomIsReservedForShortRunsInManyPages) {
  Random random(9);
  for (int number = 0; number < 30; ++number) {
    std::vector<std::string> keys;
    for (int group = 0; group < 400; ++group) {
      const int first = number * 4;
      for (int i = 0; i < 1 + static_cast<int>(random.below(4)); ++i) keys.push_back(key_of(group, first + i));
    }
    put(keys);
    if (number % 10 == 0) sound();
  }
  EXPECT_GT(filled(sound()), 0.5);
}

}  // namespace
}  // namespace memlith::test::split_test
