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

}  // namespace
}  // namespace memlith::test::stat_test
