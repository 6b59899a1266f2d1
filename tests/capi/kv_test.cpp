// memlith/kv.h and memlith/kv.hpp keep their contract (docs/kv.md); the calls from C stand in kv_c_test.c.
#include "memlith/kv.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/process_memory.hpp"
#include "support/temp_folder.hpp"

extern "C" int kv_in_c(const char* path);

namespace memlith::test::kv_test {
namespace {

TEST(KvInC, EveryCall) {
  const TempFolder folder;
  EXPECT_EQ(kv_in_c((folder / "store").c_str()), 0) << "the line of kv_c_test.c that failed";
}

class KvInCpp : public ::testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    auto store = Store::open(folder_ / "store", {.create = true});
    ASSERT_TRUE(store) << store.error().message();
    store_.emplace(std::move(*store));
    auto opened = Kv::open(*store_, "kv", {.create = true, .window_ms = 3'600'000});
    ASSERT_TRUE(opened) << opened.error().message();
    kv.emplace(std::move(*opened));
    auto found = kv->map("map", {.create = true});
    ASSERT_TRUE(found) << found.error().message();
    map = *found;
  }
  void close() {
    ASSERT_TRUE(kv->close());
    ASSERT_TRUE(store_->close());
    kv.reset();
    store_.reset();
  }
  std::optional<std::string> value_of(std::string_view key) {
    auto reader = kv->begin({.read_only = true});
    EXPECT_TRUE(reader);
    auto found = reader->find(map, key);
    EXPECT_TRUE(found) << found.error().message();
    if (!*found) return std::nullopt;
    return std::string(**found);
  }
  std::uint64_t put(std::string_view key, std::string_view value, Durability durability = Durability::weak) {
    auto done = kv->transact([&](KvTransaction& txn) { return txn.put(map, key, value); }, durability);
    EXPECT_TRUE(done) << done.error().message();
    return *done;
  }

  TempFolder folder_;
  std::optional<Store> store_;
  std::optional<Kv> kv;
  KvMap map = 0;
};

TEST_F(KvInCpp, KeepsWhatWasCommitted) {
  put("weak", "1");
  EXPECT_GT(put("sync", std::string(100'000, 's'), Durability::sync), 0u);
  EXPECT_EQ(value_of("weak"), "1");
  EXPECT_EQ(value_of("none"), std::nullopt);
  close();
  open();
  EXPECT_EQ(value_of("weak"), "1");
  EXPECT_EQ(value_of("sync"), std::string(100'000, 's'));
  EXPECT_EQ(kv->verify()->records, 2u);
  // A kv store, an ordinary region and a heap do not pass for each other.
  EXPECT_EQ(store_->region("kv").error().category(), MEMLITH_BUSY);
  auto plain = store_->region("plain", {.create = true, .size = 64 << 10});
  ASSERT_TRUE(plain && plain->root<int>() && store_->persist() && plain->close());
  const auto wrong = Kv::open(*store_, "plain");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().category(), MEMLITH_INCOMPATIBLE) << wrong.error().message();
}

// Errors and exceptions of the function abort; a conflict begins again, also one that the function did not pass on.
TEST_F(KvInCpp, TransactAbortsOrTriesAgain) {
  put("a", "0");
  const auto refused = kv->transact(
      [&](KvTransaction& txn) -> memlith::Result<void> {
        EXPECT_TRUE(txn.put(map, "a", "1"));
        return txn.remove(map, "none");
      },
      Durability::weak);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), MEMLITH_NOT_FOUND);
  EXPECT_THROW((void)kv->transact(
                   [&](KvTransaction& txn) -> memlith::Result<void> {
                     EXPECT_TRUE(txn.put(map, "a", "2"));
                     throw std::runtime_error("of the program");
                   },
                   Durability::weak),
               std::runtime_error);
  EXPECT_EQ(value_of("a"), "0");
  EXPECT_EQ(kv->info()->transactions, 0u);

  auto holder = kv->begin();
  ASSERT_TRUE(holder && holder->put(map, "a", "held"));
  int tries = 0;
  ASSERT_TRUE(kv->transact(
      [&](KvTransaction& txn) -> memlith::Result<void> {
        if (++tries == 3) {
          EXPECT_TRUE(holder->commit(Durability::weak));
        }
        (void)txn.put(map, "a", "after");
        return {};
      },
      Durability::weak));
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(value_of("a"), "after");
  EXPECT_EQ(kv->info()->conflicts, 2u);
}

// No commit is lost, whatever the threads do to each other; and no lock stays behind.
TEST_F(KvInCpp, ThreadsCountTogether) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  put("count", "0");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        auto done = kv->transact(
            [&](KvTransaction& txn) -> memlith::Result<void> {
              auto now = txn.get(map, "count");
              if (!now) return now.error();
              return txn.put(map, "count", std::to_string(std::stoi(std::string(*now)) + 1));
            },
            Durability::weak);
        EXPECT_TRUE(done) << done.error().message();
      }
      // A thread that ends in the middle: the transaction on its stack is aborted, and its lock goes.
      auto left = kv->begin();
      (void)left->put(map, "count", "lost");
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(value_of("count"), std::to_string(kThreads * kEach));
  EXPECT_EQ(kv->info()->transactions, 0u);
  put("count", "free");
}

// Locks go with commit, abort, conflict, an error of the commit, and the handle.
TEST_F(KvInCpp, LocksEndWithTheirTransaction) {
  put("held", "0");
  const auto take = [&](KvTransaction& txn) {
    EXPECT_TRUE(txn.put(map, "held", "1"));
    EXPECT_TRUE(txn.find(map, "read"));
    auto cursor = txn.cursor(map);
    EXPECT_TRUE(cursor && cursor->first());
  };
  const auto free_now = [&](const char* why) {
    auto other = kv->begin();
    for (const char* key : {"held", "read", "gap", "hel"}) EXPECT_TRUE(other->put(map, key, "2")) << why << ": " << key;
    EXPECT_TRUE(other->abort());
  };
  auto txn = kv->begin();
  take(*txn);
  EXPECT_TRUE(txn->commit(Durability::weak));
  free_now("commit");
  EXPECT_TRUE(txn->renew());
  take(*txn);
  EXPECT_TRUE(txn->abort());
  free_now("abort");
  EXPECT_TRUE(txn->renew());
  auto holder = kv->begin();
  ASSERT_TRUE(holder->put(map, "zzz", "1"));
  take(*txn);
  EXPECT_EQ(txn->put(map, "zzz", "2").error().category(), MEMLITH_CONFLICT);
  EXPECT_TRUE(holder->abort());
  free_now("conflict");
  {
    auto dropped = kv->begin();
    take(*dropped);
  }
  free_now("handle");
  std::thread([&] {
    auto own = kv->begin();
    take(*own);
  }).join();
  free_now("the end of a thread");
}

TEST_F(KvInCpp, CursorsSeeOwnWritesAndGoBothWays) {
  for (int i = 0; i < 1000; ++i) put(IntegerKey(i - 500), std::to_string(i));
  auto txn = kv->begin();
  ASSERT_TRUE(txn->put(map, IntegerKey(5000), "own"));
  ASSERT_TRUE(txn->remove(map, IntegerKey(0)));
  auto cursor = txn->cursor(map);
  std::vector<int> forwards;
  for (auto more = cursor->first(); more && *more; more = cursor->next()) {
    forwards.push_back(integer_of_key<int>(cursor->current()->key));
  }
  EXPECT_EQ(forwards.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(forwards.begin(), forwards.end()));
  EXPECT_EQ(forwards.back(), 5000);
  std::vector<int> backwards;
  for (auto more = cursor->last(); more && *more; more = cursor->prev()) {
    backwards.push_back(integer_of_key<int>(cursor->current()->key));
  }
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(backwards, forwards);
  int sum = 0;
  EXPECT_TRUE(txn->get_range(map, IntegerKey(-2), IntegerKey(3), [&](std::string_view key, std::string_view) {
    sum += 10 + integer_of_key<int>(key);
    return true;
  }));
  EXPECT_EQ(sum, 40);
  // A returned value stays until the transaction ends.
  auto early = txn->get(map, IntegerKey(-500));
  for (int i = 1; i < 400; ++i) ASSERT_TRUE(txn->put(map, IntegerKey(i), std::string(900, 'n')));
  EXPECT_EQ(*early, "0");
}

TEST_F(KvInCpp, PutsIfAsExpected) {
  auto txn = kv->begin();
  ASSERT_TRUE(txn);
  EXPECT_FALSE(*txn->put_if(map, "a", "1", "2")) << "there is no record";
  EXPECT_TRUE(*txn->put_if(map, "a", std::nullopt, "1"));
  EXPECT_FALSE(*txn->put_if(map, "a", std::nullopt, "2")) << "there is a record";
  EXPECT_FALSE(*txn->put_if(map, "a", "", "2"));
  EXPECT_TRUE(*txn->put_if(map, "a", "1", "2"));
  EXPECT_TRUE(*txn->put_if(map, "b", std::nullopt, std::nullopt)) << "nothing is there, and nothing shall be";
  EXPECT_TRUE(*txn->put_if(map, "empty", std::nullopt, ""));
  ASSERT_TRUE(txn->commit(Durability::sync));
  EXPECT_EQ(value_of("a"), "2");
  EXPECT_EQ(value_of("b"), std::nullopt);
  EXPECT_EQ(value_of("empty"), "");
  ASSERT_TRUE(txn->renew());
  EXPECT_FALSE(*txn->put_if(map, "a", "1", std::nullopt));
  EXPECT_TRUE(*txn->put_if(map, "a", "2", std::nullopt));
  ASSERT_TRUE(txn->commit(Durability::weak));
  EXPECT_EQ(value_of("a"), std::nullopt);
  auto reader = kv->begin({.read_only = true});
  EXPECT_EQ(reader->put_if(map, "a", std::nullopt, "1").error().category(), MEMLITH_READ_ONLY);
}

// Two that both find a record absent: one of them puts it.
TEST_F(KvInCpp, WhatWasFoundAbsentConflicts) {
  auto one = kv->begin();
  auto two = kv->begin();
  ASSERT_TRUE(memlith_kv_txn_set_wait(two->handle(), 0) == MEMLITH_OK);
  EXPECT_FALSE(*one->put_if(map, "a", "not there", "1"));
  auto second = two->put_if(map, "a", std::nullopt, "2");
  EXPECT_FALSE(second) << "the other transaction has read that there is none";
  EXPECT_EQ(second.error().category(), MEMLITH_CONFLICT);
  EXPECT_TRUE(*one->put_if(map, "a", std::nullopt, "1"));
  ASSERT_TRUE(one->commit(Durability::weak));
  EXPECT_EQ(value_of("a"), "1");
}

TEST_F(KvInCpp, RemovesARange) {
  for (int i = 0; i < 500; ++i) put(IntegerKey(i), std::string(i % 7 == 0 ? 9000 : 20, 'v'));
  auto txn = kv->begin();
  ASSERT_TRUE(txn->put(map, IntegerKey(1000), "new"));
  EXPECT_EQ(*txn->remove_range(map, IntegerKey(100), IntegerKey(400)), 300u);
  EXPECT_EQ(*txn->remove_range(map, IntegerKey(100), IntegerKey(400)), 0u);
  EXPECT_EQ(*txn->remove_range(map, IntegerKey(490), {}), 11u);  // with the own record
  auto other = kv->begin();
  ASSERT_TRUE(memlith_kv_txn_set_wait(other->handle(), 0) == MEMLITH_OK);
  const std::string between = std::string(IntegerKey(200)) + "x";  // which there never was
  EXPECT_EQ(other->put(map, between, "late").error().category(), MEMLITH_CONFLICT)
      << "a record in a range that another transaction has emptied";
  ASSERT_TRUE(txn->commit(Durability::sync));
  int left = 0;
  auto reader = kv->begin({.read_only = true});
  ASSERT_TRUE(reader->get_range(map, {}, {}, [&](std::string_view key, std::string_view) {
    const int number = integer_of_key<int>(key);
    EXPECT_TRUE(number < 100 || (number >= 400 && number < 490)) << number;
    ++left;
    return true;
  }));
  EXPECT_EQ(left, 190);
  EXPECT_EQ(reader->remove_range(map, {}, {}).error().category(), MEMLITH_READ_ONLY);
  ASSERT_TRUE(txn->renew());
  EXPECT_EQ(*txn->remove_range(map, {}, {}), 190u);
  ASSERT_TRUE(txn->commit(Durability::weak));
  EXPECT_TRUE(kv->verify());
}

TEST_F(KvInCpp, CursorsKeepToTheirBounds) {
  for (const char* key : {"a", "b/1", "b/2", "b/3", "b0", "c\xff", "c\xff\xff/1", "d"}) put(key, "v");
  const auto keys = [](memlith::Cursor& cursor, bool forward) {
    std::string all;
    for (auto found = forward ? cursor.next() : cursor.prev(); *found;
         found = forward ? cursor.next() : cursor.prev()) {
      all.append(cursor.current()->key).append(" ");
    }
    return all;
  };
  for (const bool read_only : {true, false}) {
    auto txn = kv->begin({.read_only = read_only});
    auto cursor = txn->cursor(map);
    ASSERT_TRUE(cursor->set_prefix("b/"));
    EXPECT_EQ(keys(*cursor, true), "b/1 b/2 b/3 ");
    EXPECT_TRUE(*cursor->prev());
    EXPECT_EQ(cursor->current()->key, "b/3");
    ASSERT_TRUE(cursor->set_prefix("b/"));
    EXPECT_EQ(keys(*cursor, false), "b/3 b/2 b/1 ");
    EXPECT_TRUE(*cursor->next());
    EXPECT_EQ(cursor->current()->key, "b/1");
    EXPECT_TRUE(*cursor->seek("a"));
    EXPECT_EQ(cursor->current()->key, "b/1");
    EXPECT_FALSE(*cursor->seek("b0"));
    EXPECT_TRUE(*cursor->prev());
    EXPECT_EQ(cursor->current()->key, "b/3");
    ASSERT_TRUE(cursor->set_prefix("c\xff\xff"));
    EXPECT_EQ(keys(*cursor, true), "c\xff\xff/1 ");
    ASSERT_TRUE(cursor->set_bounds("b/2", "c"));
    EXPECT_EQ(keys(*cursor, true), "b/2 b/3 b0 ");
    ASSERT_TRUE(cursor->set_bounds("b/2", "b/2"));
    EXPECT_EQ(keys(*cursor, true), "");
    EXPECT_EQ(keys(*cursor, false), "");
    ASSERT_TRUE(cursor->set_bounds("", "b/2"));
    EXPECT_EQ(keys(*cursor, false), "b/1 a ");
    ASSERT_TRUE(cursor->set_bounds("c", ""));
    EXPECT_EQ(keys(*cursor, false), "d c\xff\xff/1 c\xff ");
    ASSERT_TRUE(cursor->set_prefix(""));
    EXPECT_EQ(keys(*cursor, true), "a b/1 b/2 b/3 b0 c\xff c\xff\xff/1 d ");
  }
}

// Own writes count, and nothing outside of the bounds is locked.
TEST_F(KvInCpp, BoundsOfATransactionThatWrites) {
  for (const char* key : {"a", "b/1", "b/3", "c"}) put(key, "v");
  auto txn = kv->begin();
  auto cursor = txn->cursor(map);
  ASSERT_TRUE(txn->put(map, "b/2", "own"));
  ASSERT_TRUE(txn->put(map, "bb", "own, outside"));
  ASSERT_TRUE(txn->remove(map, "b/1"));
  ASSERT_TRUE(cursor->set_prefix("b/"));
  std::string all;
  while (*cursor->next()) all.append(cursor->current()->key).append(" ");
  EXPECT_EQ(all, "b/2 b/3 ");
  auto other = kv->begin();
  ASSERT_TRUE(memlith_kv_txn_set_wait(other->handle(), 0) == MEMLITH_OK);
  EXPECT_TRUE(other->put(map, "a/1", "free"));
  EXPECT_TRUE(other->put(map, "b0x", "free"));
  EXPECT_TRUE(other->put(map, "c", "free"));
  EXPECT_EQ(other->put(map, "b/4", "late").error().category(), MEMLITH_CONFLICT);
}

// Exact in one page, and near in a tree of several levels.
TEST_F(KvInCpp, EstimatesARange) {
  for (int i = 0; i < 20; ++i) put(IntegerKey(i), "four");
  {
    auto txn = kv->begin({.read_only = true});
    EXPECT_EQ(txn->estimate(map, {}, {})->records, 20u);
    EXPECT_EQ(txn->estimate(map, IntegerKey(5), IntegerKey(12))->records, 7u);
    EXPECT_EQ(txn->estimate(map, IntegerKey(5), IntegerKey(12))->bytes, 7u * 12);
    EXPECT_EQ(txn->estimate(map, IntegerKey(12), IntegerKey(5))->records, 0u);
    EXPECT_EQ(txn->estimate(map, IntegerKey(15), {})->bytes, 5u * 12);
    EXPECT_EQ(txn->estimate(map, IntegerKey(12), IntegerKey(12))->records, 0u);
  }
  put(IntegerKey(5), "of another length");
  EXPECT_EQ(kv->begin({.read_only = true})->estimate(map, IntegerKey(5), IntegerKey(7))->bytes, 8u + 17 + 12);
  EXPECT_EQ(kv->begin({.read_only = true})->estimate(map, IntegerKey(6), IntegerKey(8))->bytes, 2u * 12);
  constexpr int kMany = 40'000;
  for (int i = 0; i < kMany; i += 500) {
    ASSERT_TRUE(kv->transact(
        [&](KvTransaction& txn) -> Result<void> {
          for (int j = i; j < i + 500; ++j) {
            if (auto done = txn.put(map, IntegerKey(j * 7 % kMany), std::string(100, 'v')); !done) return done;
          }
          return {};
        },
        Durability::weak));
  }
  auto txn = kv->begin({.read_only = true});
  for (const auto& [from, to] : {std::pair(0, kMany), {100, 39'000}, {15'000, 25'000}, {777, 2'777}}) {
    const double wanted = to - from;
    const auto found = *txn->estimate(map, IntegerKey(from), IntegerKey(to));
    EXPECT_NEAR(static_cast<double>(found.records), wanted, wanted / 3) << from << " to " << to;
    EXPECT_NEAR(static_cast<double>(found.bytes), wanted * 108, wanted * 36) << from << " to " << to;
  }
  EXPECT_NEAR(static_cast<double>(txn->estimate(map, {}, {})->records), kMany, kMany / 3.0);
}

TEST_F(KvInCpp, AppendsInOrder) {
  constexpr int kMany = 30'000;
  const auto value_of_number = [](int i) { return std::string(i % 1000 == 999 ? 9'000 : i % 200, 'v'); };
  put(IntegerKey(-5), "before");
  int next = 0;
  std::string key;
  std::string value;
  const auto records = [&](int end) {
    return [&, end]() -> std::optional<KvRecord> {
      if (next == end) return std::nullopt;
      key = std::string(IntegerKey(next));
      value = value_of_number(next++);
      return KvRecord{key, value};
    };
  };
  EXPECT_EQ(*kv->append(map, records(kMany / 2)), std::uint64_t{kMany} / 2);
  EXPECT_EQ(*kv->append(map, records(kMany)), std::uint64_t{kMany} / 2);
  EXPECT_EQ(*kv->append(map, records(kMany)), 0u);
  EXPECT_EQ(kv->info()->durable, kv->info()->commits);
  ASSERT_TRUE(kv->verify());
  const auto info = *kv->info();
  EXPECT_EQ(info.records, std::uint64_t{kMany} + 1);
  auto txn = kv->begin({.read_only = true});
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(std::string(*txn->get(map, IntegerKey(i))), value_of_number(i)) << i;
  // Pages are filled: the records have 112 bytes with what lies around them, and the long values three pages each.
  EXPECT_LT(info.pages - info.free_pages, kMany * 112 / 4096 * 11 / 10 + 3 * kMany / 1000 + 20);

  std::uint64_t count = 77;
  next = 5;
  auto refused = kv->append(map, records(7), &count);
  EXPECT_EQ(refused.error().category(), MEMLITH_INVALID);
  EXPECT_EQ(count, 0u);
  auto writer = kv->begin();
  ASSERT_TRUE(writer->put(map, IntegerKey(3), "x"));
  next = kMany;
  EXPECT_EQ(kv->append(map, records(kMany + 1)).error().category(), MEMLITH_CONFLICT);
  ASSERT_TRUE(writer->abort());
  next = kMany;
  EXPECT_EQ(*kv->append(map, records(kMany + 1)), 1u);
}

// A range of long values takes no memory, in a transaction that reads and in one that writes.
TEST_F(KvInCpp, LongValuesOfARangeTakeNoMemory) {
  constexpr int kValues = 60;
  for (int i = 0; i < kValues; ++i) put(IntegerKey(i), std::string(1 << 20, static_cast<char>('a' + i % 26)));
  ASSERT_TRUE(kv->persist());
  for (const bool read_only : {true, false}) {
    auto txn = kv->begin({.read_only = read_only});
    const std::uint64_t before = anonymous_bytes();
    int seen = 0;
    ASSERT_TRUE(txn->get_range(map, {}, {}, [&](std::string_view key, std::string_view value) {
      const int number = integer_of_key<int>(key);
      EXPECT_EQ(value.size(), std::size_t{1} << 20);
      EXPECT_EQ(value.find_first_not_of(static_cast<char>('a' + number % 26)), value.npos);
      EXPECT_LT(anonymous_bytes(), before + (10 << 20)) << (read_only ? "reading" : "writing");
      ++seen;
      return true;
    }));
    EXPECT_EQ(seen, kValues);
  }
}

TEST_F(KvInCpp, OpenedReadOnly) {
  put("a", "1");
  close();
  auto store = Store::open(folder_ / "store", {.read_only = true});
  ASSERT_TRUE(store) << store.error().message();
  auto reading = Kv::open(*store, "kv");
  ASSERT_TRUE(reading) << reading.error().message();
  auto found = reading->map("map");
  ASSERT_TRUE(found);
  EXPECT_EQ(reading->begin().error().category(), MEMLITH_READ_ONLY);
  EXPECT_EQ(reading->map("other", {.create = true}).error().category(), MEMLITH_READ_ONLY);
  EXPECT_EQ(reading->remove_map("map").error().category(), MEMLITH_READ_ONLY);
  EXPECT_EQ(*reading->maps(), std::vector<std::string>{"map"});
  {
    auto reader = reading->begin({.read_only = true});
    ASSERT_TRUE(reader);
    EXPECT_EQ(*reader->get(*found, "a"), "1");
  }
  EXPECT_TRUE(reading->verify());
  EXPECT_TRUE(reading->persist());
  EXPECT_TRUE(reading->close());
}

TEST_F(KvInCpp, WaitsAndCallsWhenDurable) {
  const std::uint64_t first = put("a", "1");
  const std::uint64_t second = put("b", "1");
  EXPECT_LT(kv->durable(), first);
  std::atomic<int> called{0};
  ASSERT_TRUE(kv->on_durable(first, [&](std::int32_t code) { called += code == 0 ? 1 : 100; }));
  ASSERT_TRUE(store_->wait(second));
  EXPECT_GE(kv->durable(), second);
  while (called == 0) std::this_thread::yield();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(kv->on_durable(~std::uint64_t{0}, [](std::int32_t) {}).error().category(), MEMLITH_INVALID);
  // A sync commit takes the weak ones before it along.
  const std::uint64_t third = put("c", "1");
  put("d", "1", Durability::sync);
  EXPECT_GE(kv->durable(), third);
}

}  // namespace
}  // namespace memlith::test::kv_test
