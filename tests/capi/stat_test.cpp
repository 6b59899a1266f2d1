// Statistics of a store with a kv store and an application log: their commits and writes are counted and timed.
#include <gtest/gtest.h>

#include <string>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::stat_test {
namespace {

TEST(Stat, CountsCommitsOfKvStoresAndEntriesOfLogs) {
  const TempFolder folder;
  const std::string path = folder / "store";
  auto store = Store::open(path, {.create = true});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto kv = Kv::open(*store, "kv", {.create = true});
  ASSERT_TRUE(kv.ok()) << kv.error().message();
  auto log = AppLog::open(*store, "log", {.create = true, .size = 1 << 20});
  ASSERT_TRUE(log.ok()) << log.error().message();
  auto map = kv->map("m", {.create = true});
  ASSERT_TRUE(map.ok()) << map.error().message();
  const auto commit = [&](Durability durability) {
    return kv->transact([&](KvTransaction& txn) { return txn.put(*map, "key", "value"); }, durability).ok();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(commit(Durability::sync));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(commit(Durability::weak));
  auto reader = kv->begin();
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->get(*map, "key").ok());
  EXPECT_TRUE(reader->commit(Durability::sync).ok());  // changes nothing, and is no commit of the store
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(log->append({"a", "b", "c"}).ok());
    EXPECT_TRUE(log->write().ok());
  }
  EXPECT_TRUE(log->append("not written").ok());

  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(memlith_store_get_stats(store->handle(), &stats), 0);
  EXPECT_EQ(stats.kv_commits, 3u);
  EXPECT_EQ(stats.kv_weak_commits, 5u);
  EXPECT_GT(stats.kv_commit_p50_ns, 0u);
  EXPECT_LE(stats.kv_commit_p50_ns, stats.kv_commit_p99_ns);
  EXPECT_LE(stats.kv_commit_p999_ns, stats.kv_commit_max_ns);
  EXPECT_EQ(stats.applog_entries, 7u);
  EXPECT_EQ(stats.applog_writes, 2u);
  EXPECT_GT(stats.applog_write_p50_ns, 0u);
  EXPECT_LE(stats.applog_write_p999_ns, stats.applog_write_max_ns);
  EXPECT_EQ(stats.persists, 0u);
}

memlith_stats stats_of(const Store& store) {
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(memlith_store_get_stats(store.handle(), &stats), 0);
  return stats;
}

// AciKV's vulnerability window: from the first weak commit of a frame until it is durable.
TEST(Stat, TellsHowLongWeakCommitsAreNotDurable) {
  constexpr std::uint64_t kNeverMs = 3'600'000;
  const TempFolder folder;
  auto store = Store::open(folder / "store", {.create = true});
  ASSERT_TRUE(store.ok()) << store.error().message();
  auto one = Kv::open(*store, "one", {.create = true, .window_ms = kNeverMs});
  auto other = Kv::open(*store, "other", {.create = true, .window_ms = kNeverMs});
  ASSERT_TRUE(one.ok() && other.ok());
  const auto commit = [](Kv& kv) {
    auto map = kv.map("m", {.create = true});
    return map && kv.transact([&](KvTransaction& txn) { return txn.put(*map, "key", "value"); }, Durability::weak).ok();
  };
  ASSERT_TRUE(one->map("m", {.create = true}) && other->map("m", {.create = true}));
  ASSERT_TRUE(one->persist() && other->persist());
  EXPECT_EQ(stats_of(*store).kv_oldest_waiting_ns, 0u);
  const std::uint64_t before = stats_of(*store).kv_weak_waits;

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(commit(*one));
  const std::uint64_t age = stats_of(*store).kv_oldest_waiting_ns;
  EXPECT_GT(age, 0u);
  ASSERT_TRUE(commit(*other));
  EXPECT_GT(stats_of(*store).kv_oldest_waiting_ns, age) << "the oldest of both kv stores goes on waiting";
  EXPECT_EQ(stats_of(*store).kv_weak_waits, before) << "nothing is durable yet";

  ASSERT_TRUE(one->persist());  // one frame for both: the commits of a store are one order
  const memlith_stats after = stats_of(*store);
  EXPECT_EQ(after.kv_oldest_waiting_ns, 0u);
  EXPECT_EQ(after.kv_weak_waits, before + 2);
  EXPECT_GE(after.kv_weak_wait_max_ns, age);
  EXPECT_LE(after.kv_weak_wait_p50_ns, after.kv_weak_wait_p99_ns);

  ASSERT_TRUE(commit(*other));
  ASSERT_TRUE(one->close());
  EXPECT_GT(stats_of(*store).kv_oldest_waiting_ns, 0u) << "the other's commit waits";
  ASSERT_TRUE(other->close());
  EXPECT_EQ(stats_of(*store).kv_oldest_waiting_ns, 0u);
}

}  // namespace
}  // namespace memlith::test::stat_test
