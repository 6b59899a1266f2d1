// docs/kv.md: maps hold what was committed, in order, whatever the sizes; a crash leaves what was made durable; locks
// and snapshots keep transactions apart; verify() accounts for every page.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::kv_test {
namespace {

using namespace core;
using kv::Durability;
using kv::PageNumber;
using kv::Transaction;

std::string any_key(Random& random, std::uint64_t keys) {
  const std::uint64_t number = random.below(keys);
  std::string key = "key" + std::to_string(number * 7919 % 100003);
  if (number % 13 == 0) key += std::string(1 + number * 31 % 900, 'k');
  return key;
}

std::string any_value(Random& random) {
  switch (random.below(12)) {
    case 0: return "";
    case 1: return std::string(1 + random.below(20000), static_cast<char>('a' + random.below(26)));
    case 2: return std::string(random.below(1400), static_cast<char>('a' + random.below(26)));
    default: return std::string(random.below(140), static_cast<char>('a' + random.below(26)));
  }
}

class KvTest : public ::testing::Test {
 protected:
  std::unique_ptr<Transaction> begin(bool read_only = false) {
    auto made = std::make_unique<Transaction>(world.kv(), read_only);
    EXPECT_OK(made->begin());
    return made;
  }
  void put(PageNumber map, const std::string& key, const std::string& value, Durability durability = Durability::weak) {
    const auto transaction = begin();
    ASSERT_OK(transaction->put(map, key, value));
    ASSERT_OK(transaction->commit(durability, nullptr).status());
  }
  std::optional<std::string> get(Transaction& transaction, PageNumber map, const std::string& key) {
    const auto found = must(transaction.get(map, key));
    if (!found.has_value()) return std::nullopt;
    return std::string(*found);
  }
  KvWorld world;
};

TEST_F(KvTest, HoldsWhatTheModelHolds) {
  Random random(11);
  kv::MapNumber maps[] = {world.map("a"), world.map("b")};
  Records model[2];
  Records durable[2];
  for (int round = 0; round < 400; ++round) {
    const auto transaction = begin();
    Records changed[2] = {model[0], model[1]};
    const std::uint64_t keys = round % 100 < 60 ? 3000 : 40;  // it grows, then shrinks
    for (std::uint64_t i = 1 + random.below(30); i-- > 0;) {
      const std::uint64_t which = random.below(2);
      const std::string key = any_key(random, keys);
      if (round % 100 >= 50 ? random.below(5) > 0 : random.one_in(6)) {
        const auto at = changed[which].lower_bound(key);
        if (at == changed[which].end()) continue;
        ASSERT_TRUE(must(transaction->remove(maps[which], at->first)));
        changed[which].erase(at);
      } else {
        const std::string value = any_value(random);
        ASSERT_OK(transaction->put(maps[which], key, value));
        changed[which][key] = value;
      }
    }
    if (random.one_in(5)) {
      for (int which : {0, 1}) ASSERT_TRUE(world.content(*transaction, maps[which]) == changed[which]) << round;
    }
    if (random.one_in(7)) {
      transaction->abort();
    } else {
      const bool sync = random.one_in(9);
      ASSERT_OK(transaction->commit(sync ? Durability::sync : Durability::weak, nullptr).status());
      for (int which : {0, 1}) model[which] = changed[which];
      for (int which : {0, 1}) {
        if (sync) durable[which] = model[which];
      }
    }
    if (round % 10 == 0) {
      const auto report = world.kv().verify();
      ASSERT_OK(report.status());
      EXPECT_EQ(report->records, model[0].size() + model[1].size());
    }
    if (round % 67 == 66) {
      world.crash();
      for (int which : {0, 1}) maps[which] = world.map(which == 0 ? "a" : "b");
      for (int which : {0, 1}) model[which] = durable[which];
      for (int which : {0, 1}) ASSERT_TRUE(world.content(maps[which]) == model[which]) << round;
    }
  }
  for (int which : {0, 1}) ASSERT_TRUE(world.content(maps[which]) == model[which]);
}

// Everything that was removed can be used again.
TEST_F(KvTest, AnEmptyMapGivesItsPagesBack) {
  const PageNumber map = world.map();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) put(map, "key" + std::to_string(i * 7919 % 3001), std::string(100, 'x'));
    put(map, "long", std::string(200000, 'y'));
    EXPECT_GT(must(world.kv().verify()).leaf_pages, 80u);
    const auto transaction = begin();
    kv::Cursor cursor(*transaction, map);
    for (bool more = must(cursor.first()); more; more = must(cursor.next())) ASSERT_TRUE(must(cursor.remove()));
    ASSERT_OK(transaction->commit(Durability::sync, nullptr).status());
    const auto report = must(world.kv().verify());
    EXPECT_EQ(report.records, 0u);
    EXPECT_EQ(report.leaf_pages, 2u);  // of the map and of the catalogue
    EXPECT_EQ(report.inner_pages + report.overflow_pages, 0u);
  }
  EXPECT_LT(world.kv().header().pages, 400u);
  EXPECT_OK(world.kv().remove_map("map"));
  EXPECT_EQ(must(world.kv().verify()).maps, 0u);
  const auto transaction = begin();
  EXPECT_EQ(transaction->put(map, "key", "value").category, Errc::invalid);
}

TEST_F(KvTest, ConflictsEndTheTransaction) {
  const PageNumber map = world.map();
  put(map, "b", "1");
  put(map, "d", "1");
  const auto reader = begin();
  EXPECT_EQ(get(*reader, map, "b"), "1");
  const auto expect_conflict = [&](const std::string& key) {
    const auto writer = begin();
    EXPECT_EQ(writer->put(map, key, "2").category, Errc::conflict) << key;
    EXPECT_FALSE(writer->active());
  };
  expect_conflict("b");
  EXPECT_EQ(get(*reader, map, "nothing"), std::nullopt);
  expect_conflict("nothing");
  kv::Cursor cursor(*reader, map);
  EXPECT_TRUE(must(cursor.seek("c")));
  expect_conflict("c");
  expect_conflict("cc");
  expect_conflict("d");
  put(map, "e", "1");
  EXPECT_TRUE(must(cursor.next()));
  EXPECT_FALSE(must(cursor.next()));
  expect_conflict("x");
  put(map, "a", "1");
  // No reader sees a writer's key before it commits.
  const auto other = begin();
  EXPECT_OK(other->put(map, "aa", "1"));
  kv::Cursor from_start(*reader, map);
  EXPECT_TRUE(must(from_start.first()));
  EXPECT_EQ(from_start.next().status().category, Errc::conflict);
  EXPECT_FALSE(reader->active());
  EXPECT_EQ(reader->get(map, "b").status().category, Errc::invalid);
  EXPECT_EQ(cursor.first().status().category, Errc::invalid);
  EXPECT_OK(other->commit(Durability::weak, nullptr).status());
}

TEST_F(KvTest, SavepointsUndoWrites) {
  const PageNumber map = world.map();
  put(map, "a", "1");
  const auto transaction = begin();
  ASSERT_OK(transaction->put(map, "a", "2"));
  const std::uint64_t first = must(transaction->savepoint());
  ASSERT_OK(transaction->put(map, "a", "3"));
  ASSERT_OK(transaction->put(map, "b", "3"));
  const std::uint64_t second = must(transaction->savepoint());
  ASSERT_TRUE(must(transaction->remove(map, "a")));
  EXPECT_EQ(get(*transaction, map, "a"), std::nullopt);
  ASSERT_OK(transaction->undo_to(second));
  EXPECT_EQ(get(*transaction, map, "a"), "3");
  ASSERT_OK(transaction->undo_to(first));
  EXPECT_EQ(get(*transaction, map, "a"), "2");
  EXPECT_EQ(get(*transaction, map, "b"), std::nullopt);
  EXPECT_EQ(transaction->undo_to(second).category, Errc::invalid);
  ASSERT_OK(transaction->commit(Durability::weak, nullptr).status());
  EXPECT_TRUE(world.content(map) == (Records{{"a", "2"}}));
}

TEST_F(KvTest, RefusesWhatItCannotHold) {
  const PageNumber map = world.map();
  const auto transaction = begin();
  EXPECT_EQ(transaction->put(map, "", "v").category, Errc::invalid);
  EXPECT_EQ(transaction->put(map, std::string(1025, 'k'), "v").category, Errc::invalid);
  EXPECT_OK(transaction->put(map, std::string(1024, 'k'), std::string(kv::kValueBytesMax, 'v')));
  EXPECT_EQ(transaction->put(map, "k", std::string(kv::kValueBytesMax + 1, 'v')).category, Errc::invalid);
  EXPECT_EQ(transaction->put(map + 1, "k", "v").category, Errc::invalid);
  EXPECT_EQ(transaction->put(1, "k", "v").category, Errc::invalid);
  EXPECT_EQ(world.kv().open_map("", true, false).status().category, Errc::invalid);
  EXPECT_EQ(world.kv().open_map("none", false, false).status().category, Errc::not_found);
  EXPECT_EQ(world.kv().open_map("map", true, true).status().category, Errc::exists);
  EXPECT_OK(transaction->put(map, "k", "v"));
  const auto reader = begin(true);
  EXPECT_EQ(reader->put(map, "k", "v").category, Errc::read_only);
  EXPECT_EQ(reader->remove(map, "k").status().category, Errc::read_only);
}

// A number stands for one map: neither 0 nor the number of a map that was removed reaches another one, although the new
// map may have the same root page.
TEST_F(KvTest, TheNumberOfAMapIsNeverThatOfAnother) {
  const kv::MapNumber old = world.map();
  put(old, "a", "old");
  const auto zero = begin();
  EXPECT_EQ(zero->put(0, "a", "1").category, Errc::invalid);
  EXPECT_EQ(zero->get(0, "a").status().category, Errc::invalid);
  EXPECT_EQ(kv::Cursor(*zero, 0).first().status().category, Errc::invalid);
  zero->abort();
  const auto before = begin(true);
  kv::Cursor standing(*before, old);
  ASSERT_OK(world.kv().remove_map("map"));
  for (int i = 0; i < 200; ++i) {  // more than the table's first piece has room for
    const kv::MapNumber fresh = world.map("map" + std::to_string(i));
    EXPECT_NE(fresh, old);
    const auto transaction = begin();
    EXPECT_EQ(transaction->put(old, "a", "stale").category, Errc::invalid);
    EXPECT_EQ(transaction->remove(old, "a").status().category, Errc::invalid);
    EXPECT_EQ(kv::Cursor(*transaction, old).first().status().category, Errc::invalid);
    EXPECT_TRUE(transaction->active());
    EXPECT_EQ(get(*transaction, fresh, "a"), std::nullopt);
    transaction->abort();
    EXPECT_EQ(begin(true)->get(old, "a").status().category, Errc::invalid);
    if (i % 2 == 0) {
      ASSERT_OK(world.kv().remove_map("map" + std::to_string(i)));
    }
  }
  // Who began to read before the removal goes on.
  EXPECT_EQ(get(*before, old, "a"), "old");
  EXPECT_TRUE(must(standing.first()));
  EXPECT_EQ(must(world.kv().verify()).maps, 100u);
  EXPECT_EQ(must(world.kv().map_count()), 100u);
}

// Counting maps goes through the catalogue once. With a step from its beginning for each map this takes minutes.
TEST(KvMaps, ManyAreCountedAtOnce) {
  KvWorld world({true, {}, true, true});
  for (int i = 0; i < 4000; ++i) (void)world.map("map" + std::to_string(i));
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(must(world.kv().map_count()), 4000u);
}

// The memory of a transaction's use is gone in the next: ranges, records, savepoints.
// A commit has its number for good, also where its writes come to nothing.
TEST_F(KvTest, ACommitThatChangesNothingKeepsItsNumber) {
  kv::MapNumber map = world.map();
  const auto commit_nothing = [&] {
    const auto transaction = begin();
    EXPECT_OK(transaction->put(map, "key", "value"));
    EXPECT_TRUE(must(transaction->remove(map, "key")));
    return must(transaction->commit(Durability::sync, nullptr));
  };
  EXPECT_EQ(commit_nothing(), 2u);
  world.crash();
  EXPECT_EQ(world.kv().newest(), 2u);
  map = world.map();
  EXPECT_EQ(commit_nothing(), 3u);
  put(map, "other", "value", Durability::sync);
  EXPECT_EQ(commit_nothing(), 5u);
  world.crash();
  EXPECT_EQ(world.kv().newest(), 5u);
}

TEST_F(KvTest, ATransactionIsUsedAgain) {
  const PageNumber map = world.map();
  for (int i = 0; i < 300; ++i) put(map, "key" + std::to_string(i), std::string(100, 'x'));
  Transaction transaction(world.kv(), false);
  for (int round = 0; round < 50; ++round) {
    ASSERT_OK(transaction.begin());
    for (int i = 0; i < round % 7; ++i) {
      kv::Cursor cursor(transaction, map);
      ASSERT_TRUE(must(cursor.seek("key" + std::to_string((round * 31 + i * 17) % 300))));
      (void)must(cursor.next());
    }
    for (int i = 0; i < 20; ++i) {
      const std::string key = "key" + std::to_string((round * 7 + i) % 300);
      EXPECT_TRUE(get(transaction, map, key).has_value());
      ASSERT_OK(transaction.put(map, key, std::string(100, 'y')));
    }
    if (round % 3 == 0) {
      transaction.abort();
    } else {
      ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
    }
    const auto other = begin();  // no lock has stayed
    for (int i = 0; i < 300; i += 10) ASSERT_OK(other->put(map, "key" + std::to_string(i), "z"));
    other->abort();
  }
  EXPECT_OK(world.kv().verify().status());
}

// The log bytes of an insert in random order, splits included: a split logs the half that moves, and the room that
// it leaves is used again without moving what is there.
TEST_F(KvTest, WhatAnInsertLogs) {
  const PageNumber map = world.map();
  constexpr std::uint64_t kInserts = 20'000;
  const std::uint64_t before = world.kv().weak_commits().logged_bytes();
  for (std::uint64_t i = 0; i < kInserts; ++i) {
    char key[17];
    std::snprintf(key, sizeof key, "%016llx", static_cast<unsigned long long>(Random(i + 1).next()));
    put(map, key, std::string(100, 'x'));
  }
  ASSERT_OK(world.kv().persist());
  EXPECT_LE((world.kv().weak_commits().logged_bytes() - before) / kInserts, 340u);
  EXPECT_OK(world.kv().verify().status());
}

// A clean opening is as fast with many records as with few: it looks at the pages that lead to the maps, and no others.
// Counted, not timed.
TEST_F(KvTest, OpeningLooksAtFewPages) {
  PageNumber map = world.map();
  for (int i = 0; i < 20'000; i += 500) {
    const auto transaction = begin();
    for (int k = i; k < i + 500; ++k)
      ASSERT_OK(transaction->put(map, "key" + std::to_string(k), std::string(100, 'x')));
    ASSERT_OK(transaction->commit(Durability::weak, nullptr).status());
  }
  ASSERT_OK(world.kv().persist());
  world.crash();  // which is a clean opening to the region
  const kv::Words& words = world.kv().pages().words;
  const auto looked_at = [&words] {
    std::uint64_t looked = 0;
    for (PageNumber page = 0; page < words.count(); ++page) looked += words.word(page) != 0 ? 1 : 0;
    return looked;
  };
  map = world.map();
  EXPECT_GT(words.count(), 500u);
  EXPECT_LE(looked_at(), 3u) << "the catalogue, and the map's root";
  EXPECT_TRUE(get(*begin(true), map, "key777").has_value());
  EXPECT_LE(looked_at(), 6u) << "and from there one page of each level";
}

// A record that comes behind the last leaf, while a cursor stands in that leaf and has not locked so far.
TEST_F(KvTest, CursorsSeeWhatASplitPutBehindTheirLeaf) {
  for (int records = 1; records < 50; ++records) {
    const PageNumber map = world.map("map" + std::to_string(records));
    const auto key = [](int i) { return "key" + std::to_string(100 + i); };
    {
      const auto filling = begin();
      for (int i = 0; i < records; ++i) ASSERT_OK(filling->put(map, key(i), std::string(90, 'x')));
      ASSERT_OK(filling->commit(Durability::weak, nullptr).status());
    }
    const auto transaction = begin();
    kv::Cursor cursor(*transaction, map);
    ASSERT_TRUE(must(cursor.first()));
    put(map, key(records), std::string(90, 'x'));
    int seen = 1;
    while (must(cursor.next())) ++seen;
    EXPECT_EQ(seen, records + 1);
  }
}

// A reader sees the sum that every transfer keeps, however long it reads; and what it saw stays.
TEST_F(KvTest, SnapshotsSeeOneState) {
  const PageNumber map = world.map();
  constexpr int kAccounts = 500;
  {
    const auto transaction = begin();
    for (int i = 0; i < kAccounts; ++i) ASSERT_OK(transaction->put(map, "account" + std::to_string(i), "1000"));
    ASSERT_OK(transaction->commit(Durability::weak, nullptr).status());
  }
  std::atomic<bool> ended{false};
  std::vector<std::thread> writers;
  for (std::uint64_t seed : {1, 2}) {
    writers.emplace_back([&, seed] {
      Random random(seed);
      Transaction transaction(world.kv(), false);
      for (int done = 0; done < 3000 && !ended;) {
        ASSERT_OK(transaction.begin());
        const std::string from = "account" + std::to_string(random.below(kAccounts));
        const std::string to = "account" + std::to_string(random.below(kAccounts));
        const auto move = [&](const std::string& account, int amount) -> Status {
          MEMLITH_TRY_ASSIGN(const auto value, transaction.get(map, account));
          const int now = std::stoi(std::string(*value)) + amount;
          return transaction.put(map, account, std::to_string(now));
        };
        Status status = move(from, -7);
        if (status.ok()) status = move(to, 7);
        if (status.ok()) {
          ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
          ++done;
        } else {
          ASSERT_EQ(status.category, Errc::conflict);
        }
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    const auto reader = begin(true);
    const Records before = world.content(*reader, map);
    int sum = 0;
    for (const auto& [key, value] : before) sum += std::stoi(value);
    EXPECT_EQ(sum, kAccounts * 1000);
    EXPECT_TRUE(world.content(*reader, map) == before);
  }
  ended = true;
  for (std::thread& each : writers) each.join();
  (void)begin(true);  // what commits kept for a reader that had just ended goes with the next one
  EXPECT_EQ(world.kv().pages().kept.bytes(), 0u);
  EXPECT_OK(world.kv().verify().status());
}

// Such a commit leaves its number for the log. A verification in between reads the header, and must not count the
// number as left.
TEST_F(KvTest, ACommitThatChangesNothingIsDurableAfterAVerification) {
  const PageNumber map = world.map();
  ASSERT_OK(world.kv().persist());
  const auto transaction = begin();
  ASSERT_OK(transaction->put(map, "key", "value"));
  ASSERT_OK(transaction->remove(map, "key").status());
  const auto number = transaction->commit(Durability::weak, nullptr);
  ASSERT_OK(number.status());
  ASSERT_OK(world.kv().verify().status());
  ASSERT_OK(world.kv().persist());
  EXPECT_EQ(world.kv().durable(), *number);
}

// A view that ends takes the copies with it that only it needed, many more than are let go in one step; the others see
// what they saw.
TEST_F(KvTest, AViewTakesItsCopiesWithIt) {
  const PageNumber map = world.map();
  constexpr int kRecords = 3000;
  const auto write_all = [&](char fill) {
    for (int first = 0; first < kRecords; first += 100) {
      const auto transaction = begin();
      for (int i = first; i < first + 100; ++i) {
        ASSERT_OK(transaction->put(map, std::to_string(i), std::string(1000, fill)));
      }
      ASSERT_OK(transaction->commit(Durability::weak, nullptr).status());
    }
  };
  const auto expect_all = [&](Transaction& view, char fill) {
    for (const auto& [key, value] : world.content(view, map)) ASSERT_EQ(value, std::string(1000, fill)) << key;
  };
  write_all('a');
  const auto first = begin(true);
  write_all('b');
  const std::uint64_t of_first = world.kv().pages().kept.bytes();
  ASSERT_GT(of_first, 10 * 64 * kPageBytes);
  auto second = begin(true);
  write_all('c');
  auto third = begin(true);
  write_all('d');
  ASSERT_EQ(world.kv().pages().kept.bytes(), 3 * of_first);
  expect_all(*second, 'b');
  second.reset();
  EXPECT_EQ(world.kv().pages().kept.bytes(), 2 * of_first);
  expect_all(*first, 'a');
  expect_all(*third, 'c');
  world.kv().pages().kept.forget_from(1);
  third.reset();
  EXPECT_EQ(world.kv().pages().kept.bytes(), of_first);
  expect_all(*first, 'a');
}

// The threads' commits become durable by themselves, and callbacks tell in order.
TEST(KvWindow, WeakCommitsBecomeDurable) {
  KvWorld world({true, {5, 16 * kMiB}, false});
  const PageNumber map = world.map();
  std::vector<Lsn> told;
  std::mutex mutex;
  Lsn last;
  for (int i = 0; i < 50; ++i) {
    Transaction transaction(world.kv(), false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(map, std::to_string(i), "v"));
    ASSERT_OK(transaction.commit(Durability::weak, &last).status());
    world.kv().weak_commits().when_durable(last, [&](Lsn ticket, Status status) {
      EXPECT_OK(status);
      const std::lock_guard lock(mutex);
      told.push_back(ticket);
    });
  }
  while (world.kv().durable_ticket() < last) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_OK(world.kv().wait(last));
  EXPECT_EQ(world.kv().wait(Lsn{~std::uint64_t{0}}).category, Errc::invalid);
  EXPECT_OK(world.kv().stop());
  EXPECT_EQ(told.size(), 50u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
}

// A callback that takes its time delays no window: while it runs, a later weak commit becomes durable by itself.
TEST(KvWindow, ASlowCallbackStretchesNoWindow) {
  KvWorld world({true, {5, 16 * kMiB}, false});
  const kv::MapNumber map = world.map();
  const auto commit = [&] {
    Lsn ticket;
    Transaction transaction(world.kv(), false);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map, "key", "v"));
    EXPECT_OK(transaction.commit(Durability::weak, &ticket).status());
    return ticket;
  };
  std::atomic<bool> called{false};
  std::atomic<std::uint64_t> second{0};
  std::atomic<bool> passed{false};
  world.kv().weak_commits().when_durable(commit(), [&](Lsn, Status) {
    called = true;
    // It gives up some day, so that a failure is one and no hang.
    for (int i = 0; i < 5000 && !passed; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      passed = second != 0 && world.kv().durable_ticket().value >= second;
    }
  });
  while (!called) std::this_thread::yield();
  second = commit().value;
  EXPECT_OK(world.kv().stop());
  EXPECT_TRUE(passed);
}

// The region grows while there is room for many commits: none of them has to wait for the disk.
TEST(KvWindow, TheRegionGrowsAhead) {
  KvWorld world({true, {5, 16 * kMiB}, false});
  const PageNumber map = world.map();
  Region& region = world.kv().region();
  ASSERT_OK(region.grow(kMiB));
  for (int i = 0; world.kv().header().pages * kPageBytes <= kMiB / 5 * 4; ++i) {
    Transaction transaction(world.kv(), false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(map, std::to_string(i), std::string(500, 'v')));
    ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
  }
  while (region.size() == kMiB) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_OK(world.kv().stop());
  EXPECT_OK(world.kv().verify().status());
}

}  // namespace
}  // namespace memlith::test::kv_test
