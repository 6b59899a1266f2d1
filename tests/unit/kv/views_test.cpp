// docs/kv.md, "Isolation": a read-only transaction reads pages where they lie, beside commits that change them; these
// pages stay as they are as long as it is active, and come back into the region then.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::views_test {
namespace {

using namespace core;
using kv::Durability;
using kv::PageNumber;
using kv::Transaction;

class KvViews : public ::testing::Test {
 protected:
  std::unique_ptr<Transaction> view() {
    auto made = std::make_unique<Transaction>(world_.kv(), true);
    EXPECT_OK(made->begin());
    return made;
  }
  void put(const std::string& key, const std::string& value, Durability durability = Durability::weak) {
    Transaction transaction(world_.kv(), false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(map_, key, value));
    ASSERT_OK(transaction.commit(durability, nullptr).status());
  }
  std::string_view get(Transaction& transaction, const std::string& key) {
    return must(transaction.get(map_, key)).value_or(std::string_view());
  }
  std::uint64_t pages_away() {
    const kv::Words& words = world_.kv().pages().words;
    std::uint64_t away = 0;
    for (PageNumber page = 0; page < words.count(); ++page) away += words.place(page) != 0 ? 1 : 0;
    return away;
  }

  KvWorld world_;
  kv::MapNumber map_ = world_.map();
};

TEST_F(KvViews, ReadWithoutCopies) {
  put("a", "short");
  const auto reader = view();
  const std::string_view found = get(*reader, "a");
  EXPECT_EQ(found, "short");
  put("a", "other");
  EXPECT_EQ(found, "short");
  EXPECT_EQ(get(*reader, "a").data(), found.data());
  kv::Cursor cursor(*reader, map_);
  ASSERT_TRUE(must(cursor.first()));
  EXPECT_EQ(must(cursor.peek()).value.data(), found.data());
  EXPECT_EQ(must(cursor.current())->value.data(), found.data());
  ASSERT_OK(reader->for_each(map_, "", std::nullopt, [&](std::string_view, std::string_view value) {
    EXPECT_EQ(value.data(), found.data());
    return true;
  }));
}

// A page that was never changed since the opening shows what is in its file.
TEST_F(KvViews, StayWhileACheckpointWritesThePageHome) {
  put("a", std::string(100, 'a'), Durability::sync);
  ASSERT_OK(world_.kv().region().store().checkpoint());
  world_.crash();
  map_ = world_.map();
  const auto reader = view();
  const std::string_view found = get(*reader, "a");
  EXPECT_EQ(found, std::string(100, 'a'));
  put("a", std::string(100, 'b'), Durability::sync);
  ASSERT_OK(world_.kv().region().store().checkpoint());
  EXPECT_EQ(found, std::string(100, 'a'));
  EXPECT_EQ(get(*reader, "a"), found);
  EXPECT_EQ(get(*view(), "a"), std::string(100, 'b'));
}

// Views begin and end among the commits, so that pages lie in the region and elsewhere in turn.
TEST_F(KvViews, LeaveThePagesInTheRegion) {
  Random random(3);
  const auto key = [](std::uint64_t i) { return "key" + std::to_string(i); };
  Records model;
  for (std::uint64_t i = 0; i < 300; ++i) put(key(i), model[key(i)] = std::string(200, 'v'));
  std::vector<std::pair<std::unique_ptr<Transaction>, Records>> views;
  std::uint64_t away_most = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string name = key(random.below(300));
    put(name, model[name] = std::string(random.below(300), static_cast<char>('a' + random.below(26))));
    if (random.one_in(20)) views.emplace_back(view(), model);
    if (views.size() > random.below(4)) {
      const auto& [transaction, seen] = views.front();
      ASSERT_TRUE(world_.content(*transaction, map_) == seen);
      views.erase(views.begin());
    }
    away_most = std::max(away_most, pages_away());
  }
  views.clear();
  EXPECT_GT(away_most, 5u);
  for (int i = 0; i < 100; ++i) put("more", std::to_string(i));
  EXPECT_EQ(pages_away(), 0u);
  EXPECT_EQ(world_.kv().pages().kept.bytes(), 0u);
  model["more"] = "99";
  EXPECT_TRUE(world_.content(map_) == model);
  EXPECT_OK(world_.kv().verify().status());
  ASSERT_OK(world_.kv().persist());
  world_.crash();
  map_ = world_.map();
  EXPECT_TRUE(world_.content(map_) == model);
}

// Readers in threads find one state each, and what they were given stays, while writers change all of it.
TEST_F(KvViews, StayBesideWriters) {
  constexpr int kRecords = 200;
  const auto write_all = [&](char fill) {
    Transaction transaction(world_.kv(), false);
    EXPECT_OK(transaction.begin());
    for (int i = 0; i < kRecords; ++i) EXPECT_OK(transaction.put(map_, std::to_string(i), std::string(150, fill)));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
  };
  write_all('a');
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!ended) {
        Transaction reader(world_.kv(), true);
        EXPECT_OK(reader.begin());
        std::vector<std::string_view> all;
        EXPECT_OK(reader.for_each(map_, "", std::nullopt, [&](std::string_view, std::string_view value) {
          all.push_back(value);
          return true;
        }));
        wrong += all.size() == kRecords ? 0 : 1;
        for (int times = 0; times < 3; ++times) {
          for (const std::string_view each : all) wrong += each == all[0] && each == std::string(150, each[0]) ? 0 : 1;
        }
      }
    });
  }
  for (int i = 0; i < 400; ++i) write_all(static_cast<char>('a' + i % 26));
  ended = true;
  for (std::thread& each : readers) each.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_OK(world_.kv().verify().status());
}

}  // namespace
}  // namespace memlith::test::views_test
