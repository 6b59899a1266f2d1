// docs/applog.md through the public interface: C, a kill, and what is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "applog_c_test.h"
#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "private/options.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::applog_test {
namespace {

TEST(AppLogInterface, InC) {
  const TempFolder folder;
  const std::string path = folder / "store";
  EXPECT_IN_CHILD([&]() -> std::string {
    const char* const wrong = applog_c_first(path.c_str());
    return wrong == nullptr ? "" : wrong;  // and leaves without closing
  });
  const char* const wrong = applog_c_second(path.c_str());
  EXPECT_EQ(wrong, nullptr) << wrong;
}

// A closed store with a log of three entries and a kv store.
void make_store(const std::string& path) {
  auto store = Store::open(path, {.create = true});
  ASSERT_TRUE(store) << store.error().message();
  auto log = AppLog::open(*store, "log", {.create = true, .size = 64 << 10});
  ASSERT_TRUE(log) << log.error().message();
  auto kv = Kv::open(*store, "kv", {.create = true});
  ASSERT_TRUE(kv) << kv.error().message();
  ASSERT_TRUE(log->append({"one", "two", "three"}));
  ASSERT_TRUE(kv->close());
  ASSERT_TRUE(log->close());
  ASSERT_TRUE(store->close());
}

// The file of the log: the only one of its size.
std::filesystem::path log_file(const std::string& store) {
  for (const auto& file : std::filesystem::directory_iterator(store + "/objects")) {
    if (file.file_size() == (64 << 10) + 4096) return file.path();
  }
  ADD_FAILURE() << "no file of the log";
  return {};
}

Error error_of_log(const std::string& path) {
  auto store = Store::open(path);
  if (!store) return store.error();
  auto log = AppLog::open(*store, "log", {.create = true});
  EXPECT_FALSE(log);
  return log.error();
}

TEST(AppLogInterface, EntriesByNumber) {
  const TempFolder folder;
  make_store(folder / "store");
  const std::string large(1000, 'x');
  {
    auto store = Store::open(folder / "store");
    ASSERT_TRUE(store) << store.error().message();
    auto log = AppLog::open(*store, "log");
    ASSERT_TRUE(log) << log.error().message();
    EXPECT_EQ(**log->get(2), "two");
    EXPECT_FALSE(log->get(4)->has_value());
    char two[2];
    std::uint64_t size = 0;
    EXPECT_EQ(memlith_applog_get(log->handle(), 3, two, sizeof two, &size), 0);
    EXPECT_EQ(size, 5u);
    EXPECT_EQ(std::string_view(two, sizeof two), "th") << "cut to the buffer";
    EXPECT_EQ(memlith_applog_get(log->handle(), 3, nullptr, 0, &size), 0);
    EXPECT_EQ(memlith_category(memlith_applog_get(log->handle(), 3, nullptr, 1, &size)), MEMLITH_INVALID);
    EXPECT_EQ(memlith_category(memlith_applog_get(log->handle(), 3, two, 2, nullptr)), MEMLITH_INVALID);
    EXPECT_TRUE(log->truncate_after(1));
    EXPECT_EQ(*log->append(large), 2u);
    EXPECT_TRUE(log->write());
    EXPECT_EQ(**log->get(2), large) << "larger than the first attempt's buffer";
    EXPECT_TRUE(log->truncate_before(2));
    EXPECT_EQ(log->truncate_after(0).error().category(), MEMLITH_INVALID);
    EXPECT_EQ(log->truncate_before(9).error().category(), MEMLITH_INVALID);
    EXPECT_EQ(log->restart(0).error().category(), MEMLITH_INVALID);
    EXPECT_TRUE(log->close());
    EXPECT_TRUE(store->close());
  }
  auto store = Store::open(folder / "store", {.read_only = true});
  ASSERT_TRUE(store) << store.error().message();
  auto log = AppLog::open(*store, "log");
  ASSERT_TRUE(log) << log.error().message();
  EXPECT_EQ(**log->get(2), large);
  EXPECT_EQ(log->truncate_after(1).error().category(), MEMLITH_READ_ONLY);
  EXPECT_EQ(log->truncate_before(2).error().category(), MEMLITH_READ_ONLY);
  EXPECT_EQ(log->restart(7).error().category(), MEMLITH_READ_ONLY);
}

TEST(AppLogInterface, TheLogOfAnotherStoreIsRefused) {
  const TempFolder folder;
  make_store(folder / "a");
  make_store(folder / "b");
  std::filesystem::copy_file(log_file(folder / "a"), log_file(folder / "b"),
                             std::filesystem::copy_options::overwrite_existing);
  const Error refused = error_of_log(folder / "b");
  EXPECT_EQ(refused.category(), MEMLITH_INCOMPATIBLE);
  EXPECT_NE(refused.message().find("another store"), std::string::npos) << refused.message();
  memlith_report report{};
  report.struct_size = sizeof report;
  EXPECT_EQ(memlith_verify((folder / "a").c_str(), &report), MEMLITH_OK);
  EXPECT_EQ(memlith_category(memlith_verify((folder / "b").c_str(), &report)), MEMLITH_INCOMPATIBLE);
}

TEST(AppLogInterface, ALogThatWasCutOrRemovedIsRefused) {
  const TempFolder folder;
  make_store(folder / "store");
  const std::filesystem::path file = log_file(folder / "store");
  std::filesystem::resize_file(file, 32 << 10);
  const Error cut = error_of_log(folder / "store");
  EXPECT_EQ(cut.category(), MEMLITH_CORRUPT) << cut.message();
  EXPECT_NE(cut.message().find("region \"log\" was cut short"), std::string::npos) << cut.message();
  std::filesystem::remove(file);
  const Error removed = error_of_log(folder / "store");
  EXPECT_EQ(removed.category(), MEMLITH_CORRUPT) << removed.message();
  EXPECT_NE(removed.message().find("region \"log\" is missing"), std::string::npos) << removed.message();
}

// The entries that are not home yet are in the redo log, so is the read position.
TEST(AppLogInterface, AStoreWithoutItsRedoLogIsRefused) {
  const TempFolder folder;
  make_store(folder / "store");
  std::filesystem::remove(folder / "store/log");
  const Error removed = error_of_log(folder / "store");
  EXPECT_EQ(removed.category(), MEMLITH_CORRUPT) << removed.message();
  EXPECT_NE(removed.message().find("but no log; "), std::string::npos) << removed.message();
}

TEST(AppLogInterface, VerifyFindsADamagedEntry) {
  const TempFolder folder;
  make_store(folder / "store");
  {
    std::fstream file(log_file(folder / "store"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 24 + 1);
    file.put('x');
  }
  EXPECT_EQ(memlith_category(memlith_verify((folder / "store").c_str(), nullptr)), MEMLITH_CORRUPT);
  const Error damaged = error_of_log(folder / "store");
  EXPECT_EQ(damaged.category(), MEMLITH_CORRUPT);
  EXPECT_NE(damaged.message().find("offset 4096"), std::string::npos) << damaged.message();
}

// The kv transaction and the consumed entry in one commit of the store.
Result<void> commit_both(const Store& store, const AppLog& log, std::uint64_t number, const KvTransaction& txn) {
  auto tx = store.begin();
  if (!tx) return tx.error();
  if (auto joined = txn.join(*tx); !joined) return joined;
  if (auto consumed = log.consume_in(*tx, number); !consumed) return consumed;
  return tx->commit();
}

TEST(AppLogInterface, ACommitNeedsAKvStoreThatItCanShareAFrameWith) {
  const TempFolder folder;
  auto store = Store::open(folder / "a", {.create = true});
  auto other = Store::open(folder / "b", {.create = true});
  auto log = AppLog::open(*store, "log", {.create = true, .size = 64 << 10});
  auto far = Kv::open(*other, "kv", {.create = true});
  memlith_kv_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE | MEMLITH_KV_VOLATILE;
  memlith_kv* opened = nullptr;
  ASSERT_EQ(memlith_kv_open(store->handle(), "cache", &options, &opened), MEMLITH_OK);
  const Kv cache(opened);
  auto kv = Kv::open(*store, "kv", {.create = true});
  ASSERT_TRUE(log && far && kv);
  ASSERT_TRUE(log->append({"one", "two"}));
  ASSERT_TRUE(log->write());
  ASSERT_TRUE(*log->read());
  ASSERT_TRUE(*log->read());
  const auto category = [&](const Kv& of, bool read_only = false) {
    auto txn = of.begin({.read_only = read_only});
    const auto done = commit_both(*store, *log, 1, *txn);
    return done ? MEMLITH_OK : done.error().category();
  };
  EXPECT_EQ(category(*far), MEMLITH_INVALID);
  EXPECT_EQ(category(cache), MEMLITH_UNSUPPORTED);
  EXPECT_EQ(category(*kv, true), MEMLITH_READ_ONLY);
  EXPECT_EQ(log->info()->consumed, 0u);
  EXPECT_EQ(category(*kv), MEMLITH_OK);
  EXPECT_EQ(log->info()->consumed, 1u);
  auto tx = store->begin();
  ASSERT_TRUE(log->consume_in(*tx, 2));
  EXPECT_EQ(log->consume_in(*tx, 3).error().category(), MEMLITH_INVALID) << "it was not read";
  EXPECT_EQ(log->close().error().category(), MEMLITH_BUSY);
  auto first = kv->begin();
  auto second = kv->begin();
  ASSERT_TRUE(first->join(*tx));
  EXPECT_EQ(second->join(*tx).error().category(), MEMLITH_INVALID) << "one transaction of a kv store";
  EXPECT_EQ(first->commit(Durability::weak).error().category(), MEMLITH_INVALID) << "it is a part";
  EXPECT_EQ(first->abort().error().category(), MEMLITH_INVALID);
  EXPECT_TRUE(tx->abort());
  EXPECT_TRUE(first->renew());
  EXPECT_EQ(log->info()->consumed, 1u);
}

TEST(AppLogInterface, AFollowerReadsNewEntriesAfterARefresh) {
  const TempFolder folder;
  auto store = Store::open(folder / "a", {.create = true});
  auto log = AppLog::open(*store, "log", {.create = true, .size = 4096});
  ASSERT_TRUE(log->append("entry 1"));
  ASSERT_TRUE(log->write());
  auto view = Store::open(folder / "a", {.follow = true});
  ASSERT_TRUE(view) << view.error().message();
  auto followed = AppLog::open(*view, "log");
  ASSERT_TRUE(followed) << followed.error().message();
  std::uint64_t number = 1;
  const auto next = [&]() -> std::string {
    auto entry = followed->read();
    if (!entry) return entry.error().message();
    return *entry ? std::string((*entry)->content) : "none";
  };
  EXPECT_EQ(next(), "entry 1");
  EXPECT_EQ(next(), "none");
  for (int round = 0; round < 45; ++round) {  // more than a lap
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(log->append("entry " + std::to_string(++number)));
    ASSERT_TRUE(log->write());
    EXPECT_EQ(next(), "none") << "it was not refreshed";
    ASSERT_TRUE(view->refresh());
    for (int i = 2; i >= 0; --i) EXPECT_EQ(next(), "entry " + std::to_string(number - i));
    for (auto entry = log->read(); *entry; entry = log->read()) ASSERT_TRUE(log->consume((*entry)->number));
  }
  // Entries consumed before the follower looked are not there for it.
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(log->append("entry " + std::to_string(++number)));
  ASSERT_TRUE(log->write());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*log->read());
  ASSERT_TRUE(log->consume(number - 1));
  ASSERT_TRUE(log->write());
  ASSERT_TRUE(view->refresh());
  EXPECT_EQ(next(), "entry " + std::to_string(number));
  EXPECT_EQ(next(), "none");
}

// A conflict leaves the position where it was.
TEST(AppLogInterface, AnAbortedTransactionConsumesNothing) {
  const TempFolder folder;
  auto store = Store::open(folder / "a", {.create = true});
  auto log = AppLog::open(*store, "log", {.create = true, .size = 64 << 10});
  auto kv = Kv::open(*store, "kv", {.create = true});
  auto map = kv->map("map", {.create = true});
  ASSERT_TRUE(log->append("one"));
  ASSERT_TRUE(log->write());
  ASSERT_TRUE(*log->read());
  auto holder = kv->begin();
  ASSERT_TRUE(holder->put(*map, "key", "value"));
  auto txn = kv->begin();
  EXPECT_EQ(txn->put(*map, "key", "other").error().category(), MEMLITH_CONFLICT);
  EXPECT_EQ(commit_both(*store, *log, 1, *txn).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->info()->consumed, 0u);
  ASSERT_TRUE(commit_both(*store, *log, 1, *holder));
  EXPECT_EQ(log->info()->consumed, 1u);
  EXPECT_EQ(log->info()->room, log->info()->size - 24);
}

}  // namespace
}  // namespace memlith::test::applog_test
