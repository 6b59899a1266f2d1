// One commit for several structures of a store: memory of regions, a heap, records of a kv store, two application logs.
// docs/transactions.md. After a crash at any moment all of them show the same number of commits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "memlith/applog.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::one_commit_test {
namespace {

struct Counters {
  std::uint64_t announced;
  std::uint64_t stored;
};

// Everything that takes part. `source` has entries that are consumed, `audit` gets one with each commit.
struct Opened {
  Store store;
  Region region;
  Heap heap;
  Kv kv;
  KvMap map;
  AppLog source;
  AppLog audit;

  static Opened open(const std::string& path) {
    Store store = or_leave(Store::open(path, {.create = true, .log_bytes = 1 << 20}), 3);
    Region region = or_leave(store.region("counters", {.create = true, .tracker = Tracker::touched, .size = 4096}), 4);
    Heap heap = or_leave(Heap::open(store, "heap", {.create = true}), 5);
    Kv kv = or_leave(Kv::open(store, "kv", {.create = true, .window_ms = 1000}), 6);
    const KvMap map = or_leave(kv.map("map", {.create = true}), 7);
    AppLog source = or_leave(AppLog::open(store, "source", {.create = true, .size = 64 << 10}), 8);
    AppLog audit = or_leave(AppLog::open(store, "audit", {.create = true, .size = 64 << 10}), 9);
    return {std::move(store),  std::move(region), std::move(heap), std::move(kv), map,
            std::move(source), std::move(audit)};
  }
  [[nodiscard]] Counters& counters() const { return *static_cast<Counters*>(region.address()); }
  [[nodiscard]] std::uint64_t in_kv() {
    auto txn = or_leave(kv.begin({.read_only = true}), 10);
    const auto found = or_leave(txn.find(map, "number"), 10);
    return found ? std::stoull(std::string(*found)) : 0;
  }
  [[nodiscard]] vector<std::uint64_t>& in_heap() { return *or_leave(heap.root<vector<std::uint64_t>>(), 11); }

  // Commit `number`. `weak_before`: a commit of the kv store alone that waits for its window when this one is made.
  Result<void> step(std::uint64_t number, bool weak_before, bool wait) {
    if (weak_before) {
      auto alone = or_leave(kv.begin(), 12);
      or_leave(alone.put(map, "alone", std::to_string(number)), 12);
      (void)or_leave(alone.commit(Durability::weak), 12);
    }
    auto tx = or_leave(store.begin(), 13);
    auto txn = or_leave(kv.begin(), 14);
    or_leave(txn.put(map, "number", std::to_string(number)), 15);
    or_leave(txn.join(tx), 16);
    or_leave(tx.touch_before(&counters().announced), 17);
    counters().announced = number;
    counters().stored = number;
    or_leave(region.touch(&counters().stored, sizeof(std::uint64_t)), 18);
    or_leave(region.join(tx), 19);
    in_heap().push_back(number);
    or_leave(heap.join(tx), 20);
    or_leave(source.append("entry " + std::to_string(number)), 21);
    or_leave(source.write(), 22);
    const auto entry = or_leave(source.read(), 23);
    if (!entry) ::_exit(24);
    or_leave(source.consume_in(tx, entry->number), 25);
    std::uint64_t audited = 0;
    while (const auto each = or_leave(audit.read(), 26)) audited = each->number;
    if (audited != 0) or_leave(audit.consume_in(tx, audited), 27);
    or_leave(audit.append_in(tx, std::to_string(number)), 28);
    if (wait) return tx.commit();
    if (auto ticket = tx.commit_weak(); !ticket) return ticket.error();
    return {};
  }
};

// The number that all of them show.
void expect_agreement(Opened& opened, std::uint64_t least, std::uint64_t most) {
  const std::uint64_t number = opened.counters().stored;
  EXPECT_GE(number, least);
  EXPECT_LE(number, most);
  EXPECT_EQ(opened.counters().announced, number);
  EXPECT_EQ(opened.in_kv(), number);
  const vector<std::uint64_t>& all = opened.in_heap();
  ASSERT_EQ(all.size(), number);
  if (number > 0) {
    EXPECT_EQ(all.back(), number);
  }
  EXPECT_EQ(opened.source.info()->consumed, number);
  EXPECT_EQ(opened.audit.info()->newest, number);
  auto heap_report = opened.heap.verify();
  EXPECT_TRUE(heap_report) << heap_report.error().message();
}

TEST(OneCommit, EveryStructureShowsTheSameCommitsAfterAKill) {
  const TempFolder folder;
  std::mt19937_64 draw(7);
  const SharedWithChildren<std::atomic<std::uint64_t>> acknowledged;
  for (int life = 0; life < 12; ++life) {
    const std::uint64_t before = *acknowledged;
    KilledProcess child;
    child.start([&] {
      Opened opened = Opened::open(folder / "s");
      for (std::uint64_t number = opened.counters().stored + 1;; ++number) {
        const bool wait = number % 3 != 0;
        or_leave(opened.step(number, number % 4 == 1, wait), 30);
        if (wait) *acknowledged = number;
      }
    });
    child.kill_working(draw() % 100'000);
    ASSERT_FALSE(HasFailure());
    Opened opened = Opened::open(folder / "s");
    expect_agreement(opened, std::max(before, acknowledged->load()), ~std::uint64_t{0});
    ASSERT_FALSE(::testing::Test::HasFailure()) << "after kill " << life;
  }
  EXPECT_GT(acknowledged->load(), 0u);
}

// Commits that are made one behind the other in different structures, weak ones, appended entries and asynchronous
// persists, are one sequence: a kill leaves a prefix of it.
TEST(OneCommit, AKillLeavesAPrefixOfTheCommitsOfAllStructures) {
  const TempFolder folder;
  std::mt19937_64 draw(11);
  const auto record = [](Kv& kv, const KvMap map) -> std::uint64_t {
    auto txn = or_leave(kv.begin({.read_only = true}), 40);
    const auto found = or_leave(txn.find(map, "number"), 41);
    return found ? std::stoull(std::string(*found)) : 0;
  };
  const auto put = [](const Kv& kv, const KvMap map, std::uint64_t number, Durability durability) {
    auto txn = or_leave(kv.begin(), 42);
    or_leave(txn.put(map, "number", std::to_string(number)), 43);
    or_leave(txn.put(map, "filling", std::string(number % 3 * 500, 'f')), 43);
    (void)or_leave(txn.commit(durability), 44);
  };
  std::uint64_t most = 0;
  for (int life = 0; life < 12; ++life) {
    KilledProcess child;
    child.start([&] {
      Opened opened = Opened::open(folder / "s");
      Kv other = or_leave(Kv::open(opened.store, "other", {.create = true, .window_ms = 1}), 45);
      const KvMap in_other = or_leave(other.map("map", {.create = true}), 46);
      for (std::uint64_t number = opened.counters().stored + 1;; ++number) {
        put(other, in_other, number, Durability::weak);
        while (opened.source.info()->newest < number) or_leave(opened.source.append("entry"), 47);
        put(opened.kv, opened.map, number, number % 16 == 0 ? Durability::sync : Durability::weak);
        opened.counters().stored = number;
        or_leave(opened.region.touch(&opened.counters().stored, sizeof number), 48);
        // Most of the time nothing but the windows brings anything to the disk.
        if (number % 8 != 0) continue;
        (void)or_leave(opened.region.persist_async(), 49);
        while (const auto entry = or_leave(opened.source.read(), 50)) {
          or_leave(opened.source.consume(entry->number), 51);
        }
      }
    });
    child.kill_working(draw() % 60'000);
    ASSERT_FALSE(HasFailure());
    Opened opened = Opened::open(folder / "s");
    Kv other = or_leave(Kv::open(opened.store, "other", {.create = true}), 52);
    const std::uint64_t first = record(other, or_leave(other.map("map", {.create = true}), 53));
    const std::uint64_t second = opened.source.info()->newest;
    const std::uint64_t third = record(opened.kv, opened.map);
    const std::uint64_t last = opened.counters().stored;
    EXPECT_GE(first, second) << "life " << life;
    EXPECT_GE(second, third) << "life " << life;
    EXPECT_LE(first, third + 1) << "life " << life;
    EXPECT_GE(third, last) << "life " << life;
    EXPECT_LT(third, last + 9) << "life " << life;
    most = std::max(most, first);
    ASSERT_FALSE(::testing::Test::HasFailure());
    // The next life goes on from one state.
    opened.counters().stored = first;
    ASSERT_TRUE(opened.region.touch(&opened.counters().stored, sizeof first));
    while (opened.source.info()->newest < first) ASSERT_TRUE(opened.source.append("entry"));
    put(opened.kv, opened.map, first, Durability::weak);
    ASSERT_TRUE(opened.region.persist());
  }
  EXPECT_GT(most, 0u);
}

// A commit of all refuses as a whole whatever a commit of one of them would refuse.
TEST(OneCommit, APartThatIsRefusedLeavesEverythingAsItWas) {
  const TempFolder folder;
  Opened opened = Opened::open(folder / "s");
  ASSERT_TRUE(opened.step(1, false, true));
  auto tx = opened.store.begin();
  auto txn = opened.kv.begin();
  ASSERT_TRUE(txn->put(opened.map, "number", "2"));
  ASSERT_TRUE(txn->join(*tx));
  ASSERT_TRUE(tx->touch_before(&opened.counters().announced));
  opened.counters().announced = 2;
  ASSERT_TRUE(opened.audit.append_in(*tx, std::string(80 << 10, 'x'))) << "larger than the log, not than a frame";
  const auto refused = tx->commit();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), MEMLITH_FULL) << refused.error().message();
  EXPECT_NE(refused.error().message().find("audit"), std::string::npos) << refused.error().message();
  EXPECT_EQ(opened.in_kv(), 1u);
  EXPECT_TRUE(tx->abort());
  expect_agreement(opened, 1, 1);
  ASSERT_TRUE(opened.step(2, true, true)) << "the store goes on";
  expect_agreement(opened, 2, 2);
}

TEST(OneCommit, ALogWithoutRoomLeavesEverythingAsItWas) {
  const TempFolder folder;
  auto store = Store::open(folder / "s", {.create = true, .log_bytes = 1 << 20, .log_max_bytes = 4 << 20});
  auto region = store->region("large", {.create = true, .tracker = Tracker::touched, .size = 16 << 20});
  auto kv = Kv::open(*store, "kv", {.create = true});
  auto map = kv->map("map", {.create = true});
  std::memset(region->address(), 1, 16 << 20);
  ASSERT_TRUE(region->touch(region->address(), 16 << 20));
  auto tx = store->begin();
  auto txn = kv->begin();
  ASSERT_TRUE(txn->put(*map, "key", "value"));
  ASSERT_TRUE(txn->join(*tx));
  ASSERT_TRUE(region->join(*tx));
  EXPECT_EQ(tx->commit().error().category(), MEMLITH_FULL);
  EXPECT_EQ(kv->begin({.read_only = true})->get(*map, "key").error().category(), MEMLITH_NOT_FOUND);
  ASSERT_TRUE(store->set_log_max(64 << 20));
  EXPECT_TRUE(tx->commit()) << "it was still open, and there is room now";
  EXPECT_TRUE(kv->begin({.read_only = true})->get(*map, "key"));
  EXPECT_TRUE(region->persist()) << "the store is not poisoned";
}

TEST(OneCommit, ARecordThatIsInConflictEndsNothingElse) {
  const TempFolder folder;
  Opened opened = Opened::open(folder / "s");
  auto holder = opened.kv.begin();
  ASSERT_TRUE(holder->put(opened.map, "number", "9"));
  auto tx = opened.store.begin();
  auto txn = opened.kv.begin();
  ASSERT_TRUE(txn->join(*tx));
  EXPECT_EQ(txn->put(opened.map, "number", "1").error().category(), MEMLITH_CONFLICT);
  ASSERT_TRUE(tx->touch_before(&opened.counters().announced));
  opened.counters().announced = 1;
  EXPECT_EQ(tx->commit().error().category(), MEMLITH_INVALID) << "its kv transaction has ended";
  EXPECT_TRUE(tx->abort());
  EXPECT_EQ(opened.counters().announced, 0u);
  ASSERT_TRUE(holder->abort());
  ASSERT_TRUE(opened.step(1, false, true));
  expect_agreement(opened, 1, 1);
}

TEST(OneCommit, WritesThatComeToNothingAreAPartAsWell) {
  const TempFolder folder;
  Opened opened = Opened::open(folder / "s");
  ASSERT_TRUE(opened.step(1, false, true));
  auto tx = opened.store.begin();
  auto txn = opened.kv.begin();
  ASSERT_TRUE(txn->put(opened.map, "nothing", "2"));
  ASSERT_TRUE(txn->remove(opened.map, "nothing"));
  ASSERT_TRUE(txn->join(*tx));
  ASSERT_TRUE(tx->touch_before(&opened.counters().announced));
  ASSERT_TRUE(tx->commit());
  expect_agreement(opened, 1, 1);
}

// Tickets of a commit with parts, of a kv commit that waits behind it, and of both together.
TEST(OneCommit, OneWaitIsForTheTicketsOfAllStructures) {
  const TempFolder folder;
  Opened opened = Opened::open(folder / "s");
  ASSERT_TRUE(opened.step(1, true, false));
  const std::uint64_t first = opened.store.newest();
  ASSERT_TRUE(opened.store.wait(first));
  EXPECT_GE(opened.store.durable(), first);
  EXPECT_GE(opened.kv.durable(), first);
  auto alone = opened.kv.begin();
  ASSERT_TRUE(alone->put(opened.map, "alone", "behind"));
  auto ticket = alone->commit(Durability::weak);
  ASSERT_TRUE(ticket);
  EXPECT_GE(*ticket, first);
  auto read = opened.kv.begin({.read_only = true});
  EXPECT_GE(*read->commit(Durability::weak), *ticket);  // what it has seen
  const std::uint64_t newest = opened.store.newest();
  EXPECT_GE(newest, *ticket);
  ASSERT_TRUE(opened.store.wait(newest));
  EXPECT_GE(opened.store.durable(), newest);
  EXPECT_GE(opened.kv.durable(), newest);
  expect_agreement(opened, 1, 1);
}

}  // namespace
}  // namespace memlith::test::one_commit_test
