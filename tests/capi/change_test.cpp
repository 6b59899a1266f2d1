// docs/heap.md, "Undo": an exception undoes what the function of transact() changed, in memory, in the heap's blocks
// and on the disk; nothing of the function's changes is durable without the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::change_test {

struct Shop {  // an aggregate
  map<string, vector<int>> orders;
  map<string, int> stock;
  std::uint64_t changes = 0;
};

namespace {

template <class T>
::testing::AssertionResult fine(const T& result) {
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.error().message();
}
template <class T>
std::int32_t category(const T& result) {
  return result.ok() ? std::int32_t{MEMLITH_OK} : result.error().category();
}

Store open_store(const std::string& path, std::uint64_t log_max = 0) {
  auto store = Store::open(path, {.create = true, .log_bytes = log_max, .log_max_bytes = log_max});
  EXPECT_TRUE(fine(store));
  return std::move(*store);
}
Heap open_heap(const Store& store, Tracker tracker = Tracker::automatic) {
  auto heap = Heap::open(store, "heap", {.create = true, .tracker = tracker});
  EXPECT_TRUE(fine(heap));
  return std::move(*heap);
}

Region open_region(const Store& store, const std::string& name, Tracker tracker = Tracker::automatic) {
  auto region = store.region(name, {.create = true, .tracker = tracker, .size = 4096});
  EXPECT_TRUE(fine(region));
  return std::move(*region);
}

std::string long_name(int i) { return "an item with a name that does not fit the string itself " + std::to_string(i); }

class Undo : public ::testing::TestWithParam<Tracker> {
 protected:
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(By, Undo, ::testing::Values(Tracker::scan, Tracker::fault),
                         [](const auto& given) { return given.param == Tracker::scan ? "Scan" : "Fault"; });

TEST_P(Undo, AnExceptionUndoesEverything) {
  const std::string path = folder_ / "store";
  std::uint64_t blocks = 0;
  {
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    Shop& shop = **heap.root<Shop>();
    for (int i = 0; i < 50; ++i) shop.stock[long_name(i).c_str()] = i;
    ASSERT_TRUE(fine(heap.persist()));
    shop.orders["before"].push_back(1);  // not persisted when the change begins
    blocks = heap.verify()->blocks;
    EXPECT_THROW((void)heap.transact([&] {
      const string local(300, 'x');  // of the heap
      for (int i = 0; i < 200; ++i) shop.orders[long_name(i).c_str()].assign(100, i);
      shop.stock.clear();
      shop.orders["before"].clear();
      throw std::out_of_range(local.c_str());
    }),
                 std::out_of_range);
    EXPECT_EQ(shop.orders.size(), 1u);
    EXPECT_EQ(shop.stock.size(), 50u);
    EXPECT_EQ(heap.verify()->blocks, blocks);
    ASSERT_TRUE(fine(heap.persist()));  // of what is there now
  }
  const Store store = open_store(path);
  const Heap heap = open_heap(store, GetParam());
  const Shop& shop = **heap.root<Shop>();
  ASSERT_EQ(shop.orders.size(), 1u);
  EXPECT_EQ(shop.orders.begin()->second.size(), 1u);
  EXPECT_EQ(shop.stock.size(), 50u);
  EXPECT_EQ(shop.stock.find(long_name(49).c_str())->second, 49);
  EXPECT_EQ(heap.verify()->blocks, blocks);
}

TEST_P(Undo, WhatReturnsIsDurable) {
  const std::string path = folder_ / "store";
  {
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    Shop& shop = **heap.root<Shop>();
    const auto size = heap.transact([&] {
      shop.stock["pen"] = 3;
      return shop.stock.size();
    });
    ASSERT_TRUE(fine(size));
    EXPECT_EQ(*size, 1u);
    ASSERT_TRUE(fine(heap.transact([&] { shop.stock["ink"] = 4; })));
    const auto refused = heap.transact([&]() -> Result<int> {
      shop.stock["ink"] = 5;
      shop.stock.erase("pen");
      return Error(MEMLITH_NOT_FOUND, "no such customer");
    });
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message(), "no such customer");
    EXPECT_EQ(shop.stock.size(), 2u);
    EXPECT_EQ(*heap.transact([&]() -> Result<int> { return ++shop.stock["ink"]; }), 5);
    shop.stock["pen"] = 99;  // never persisted
  }
  const Store store = open_store(path);
  const Heap heap = open_heap(store, GetParam());
  const Shop& shop = **heap.root<Shop>();
  EXPECT_EQ(shop.stock.find("pen")->second, 3);
  EXPECT_EQ(shop.stock.find("ink")->second, 5);
}

// Calls that would make half of the change durable, or undo it behind its back, are refused to every thread.
TEST_P(Undo, NothingElseCapturesMeanwhile) {
  Store store = open_store(folder_ / "store");
  Heap heap = open_heap(store, GetParam());
  Shop& shop = **heap.root<Shop>();
  const auto look = [&] {
    EXPECT_EQ(category(heap.persist()), MEMLITH_BUSY);
    EXPECT_EQ(category(heap.persist_async()), MEMLITH_BUSY);
    EXPECT_EQ(category(store.persist()), MEMLITH_BUSY);
    EXPECT_EQ(category(heap.rollback()), MEMLITH_BUSY);
    EXPECT_EQ(category(heap.transact([] { FAIL() << "a change within a change was run"; })), MEMLITH_BUSY);
    EXPECT_EQ(memlith_category(memlith_heap_close(heap.handle())), MEMLITH_BUSY);
  };
  ASSERT_TRUE(fine(heap.transact([&] {
    shop.stock["pen"] = 1;
    look();
    std::thread(look).join();
    EXPECT_EQ(shop.stock.at("pen"), 1);
  })));
  EXPECT_THROW((void)heap.transact([&] {
    shop.stock["pen"] = 2;
    look();
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  EXPECT_EQ(shop.stock.at("pen"), 1);
  EXPECT_TRUE(fine(heap.persist()));
}

TEST_P(Undo, AChangeThatDoesNotFitTheLogIsUndone) {
  const Store store = open_store(folder_ / "store", 256 << 10);
  const Heap heap = open_heap(store, GetParam());
  Shop& shop = **heap.root<Shop>();
  shop.stock["pen"] = 1;
  const auto done = heap.transact([&] {
    shop.stock["pen"] = 2;
    for (int i = 0; i < 400; ++i) shop.orders[long_name(i).c_str()].assign(1000, i);
  });
  EXPECT_EQ(category(done), MEMLITH_FULL);
  EXPECT_EQ(shop.stock.at("pen"), 1);
  EXPECT_TRUE(shop.orders.empty());
  ASSERT_TRUE(fine(heap.transact([&] { shop.stock["pen"] = 3; })));
  EXPECT_TRUE(heap.verify().ok());
}

// A heap and a region in one change.
TEST_P(Undo, OfAllRegionsOfAStore) {
  const std::string path = folder_ / "store";
  {
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    const Region region = open_region(store, "count", GetParam());
    Shop& shop = **heap.root<Shop>();
    int& count = **region.root<int>();
    ASSERT_TRUE(fine(store.transact([&] {
      shop.stock["pen"] = 1;
      count = 1;
    })));
    EXPECT_THROW((void)store.transact([&] {
      count = 2;
      shop.stock["pen"] = 2;
      throw 7;
    }),
                 int);
    EXPECT_EQ(count, 1);
    EXPECT_THROW((void)region.transact([&] {
      count = 3;
      throw 7;
    }),
                 int);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(shop.stock.at("pen"), 1);
  }
  const Store store = open_store(path);
  const Region region = open_region(store, "count", GetParam());
  EXPECT_EQ(**region.root<int>(), 1);
  const Heap heap = open_heap(store, GetParam());
  EXPECT_EQ((**heap.root<Shop>()).stock.at("pen"), 1);
}

// Threads that take turns with a lock: none is refused, nothing is lost, and a change that throws leaves nothing.
TEST_P(Undo, UnderALock) {
  const std::string path = folder_ / "store";
  constexpr int kEach = 60;
  {
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    Shop& shop = **heap.root<Shop>();
    std::mutex mutex;
    const auto work = [&](int self) {
      for (int i = 0; i < kEach; ++i) {
        std::unique_lock lock(mutex);
        try {
          const auto done = heap.transact(lock, [&] {
            ++shop.changes;
            shop.orders[long_name(self).c_str()].push_back(i);
            if (i % 3 == 0) throw std::runtime_error("no");
          });
          EXPECT_TRUE(fine(done));
          EXPECT_FALSE(lock.owns_lock());
        } catch (const std::runtime_error&) {
          EXPECT_TRUE(lock.owns_lock());
        }
      }
    };
    std::thread one(work, 1);
    std::thread two(work, 2);
    one.join();
    two.join();
    std::unique_lock lock(mutex);
    lock.unlock();
    EXPECT_EQ(category(heap.transact(lock, [] { FAIL() << "run without the lock"; })), MEMLITH_INVALID);
  }
  const Store store = open_store(path);
  const Heap heap = open_heap(store, GetParam());
  const Shop& shop = **heap.root<Shop>();
  EXPECT_EQ(shop.changes, 2u * (kEach - kEach / 3));
  for (const auto& [name, numbers] : shop.orders) EXPECT_EQ(numbers.size(), std::size_t{kEach - kEach / 3});
}

// Killed at any moment, every second change undone by an exception: after each restart both halves of every committed
// change are there, no half of an undone one, and no block without an owner.
TEST_P(Undo, AKillLeavesNoHalfOfAChange) {
  const std::string path = folder_ / "store";
  const SharedWithChildren<std::atomic<std::uint64_t>> acknowledged;
  const auto live = [&] {
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    Shop& shop = **heap.root<Shop>();
    for (int i = 0;; ++i) {
      try {
        const auto done = heap.transact([&] {
          ++shop.changes;
          const std::string name = long_name(static_cast<int>(shop.changes % 40));
          if (shop.changes % 5 == 0) shop.orders.erase(name.c_str());
          shop.orders[name.c_str()].push_back(static_cast<int>(shop.changes));
          if (i % 2 == 0) throw std::runtime_error("no");
          shop.stock["orders"] = static_cast<int>(shop.changes);
        });
        if (!done) ::_exit(3);
        acknowledged->store(shop.changes);
      } catch (const std::runtime_error&) {
      }
    }
  };
  std::mt19937_64 random(std::random_device{}());
  for (int kill = 0; kill < 12; ++kill) {
    KilledProcess child;
    child.start(live);
    child.kill_working(20'000 + random() % 80'000);
    ASSERT_FALSE(HasFailure());
    const Store store = open_store(path);
    const Heap heap = open_heap(store, GetParam());
    const Shop& shop = **heap.root<Shop>();
    EXPECT_GE(shop.changes, acknowledged->load());
    EXPECT_LE(shop.changes, acknowledged->load() + 1);
    if (shop.changes > 0) {
      EXPECT_EQ(shop.stock.at("orders"), static_cast<int>(shop.changes));
    }
    std::uint64_t blocks = shop.changes == 0 ? 0 : 3;  // the root, its name, and "orders"
    for (const auto& [name, numbers] : shop.orders) {
      blocks += 3;
      for (const int each : numbers) EXPECT_LE(each, static_cast<int>(shop.changes));
    }
    if (shop.changes > 0) {
      EXPECT_EQ(heap.verify()->blocks, blocks);
    }
    acknowledged->store(shop.changes);
  }
  EXPECT_GT(acknowledged->load(), 0u);
}

TEST(UndoInC, RegionsAreCheckedAndHandlesFreed) {
  const TempFolder folder;
  const Store store = open_store(folder / "store");
  const Store other = open_store(folder / "other");
  const Region region = open_region(store, "a");
  const Region foreign = open_region(other, "a");
  auto* const word = static_cast<int*>(region.address());
  memlith_region* handle = region.handle();
  memlith_txn* txn = nullptr;
  ASSERT_EQ(memlith_begin(store.handle(), &txn), 0);
  EXPECT_EQ(memlith_category(memlith_txn_add_region(txn, foreign.handle(), MEMLITH_UNDO)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_txn_add_region(txn, handle, 2)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_txn_add_region(txn, nullptr, 0)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_txn_add_region(nullptr, handle, MEMLITH_UNDO)), MEMLITH_INVALID);
  ASSERT_EQ(memlith_txn_add_region(txn, handle, MEMLITH_UNDO), 0);
  ASSERT_EQ(memlith_txn_add_region(txn, handle, MEMLITH_UNDO), 0);
  ASSERT_EQ(memlith_txn_add_region(txn, handle, 0), 0);
  *word = 1;
  EXPECT_EQ(memlith_category(memlith_commit(txn, 9, nullptr)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_persist(&handle, 1, MEMLITH_SCOPE_PROCESS)), MEMLITH_BUSY);
  ASSERT_EQ(memlith_abort(txn), 0);
  EXPECT_EQ(*word, 0);
  ASSERT_EQ(memlith_begin(store.handle(), &txn), 0);
  ASSERT_EQ(memlith_txn_add_region(txn, nullptr, MEMLITH_UNDO), 0);
  *word = 2;
  std::uint64_t ticket = 0;
  ASSERT_EQ(memlith_commit(txn, MEMLITH_COMMIT_WEAK, &ticket), 0);
  EXPECT_GT(ticket, 0u);
  ASSERT_EQ(memlith_wait(store.handle(), ticket), 0);
  ASSERT_EQ(memlith_rollback(&handle, 1, MEMLITH_SCOPE_PROCESS), 0);
  EXPECT_EQ(*word, 2);
}

// An abort undoes all parts: stores to a region, announced bytes, records. A commit has all of them in one frame.
TEST(UndoInC, AllPartsAreUndoneOrCommitted) {
  const TempFolder folder;
  const Store store = open_store(folder / "store");
  const Region region = open_region(store, "a");
  auto announced = store.region("b", {.create = true, .tracker = Tracker::touched, .size = 4096});
  ASSERT_TRUE(announced);
  auto kv = Kv::open(store, "kv", {.create = true});
  ASSERT_TRUE(kv);
  auto map = kv->map("map", {.create = true});
  ASSERT_TRUE(map);
  auto* const word = static_cast<int*>(region.address());
  auto* const other = static_cast<int*>(announced->address());
  for (const bool commits : {false, true}) {
    auto txn = store.begin();
    auto records = kv->begin();
    ASSERT_TRUE(txn && records);
    ASSERT_TRUE(fine(region.join(*txn, OnAbort::undoes)));
    ASSERT_TRUE(txn->touch_before(other));
    ASSERT_TRUE(records->put(*map, "key", "value"));
    ASSERT_TRUE(records->join(*txn));
    *word = 3;
    *other = 4;
    ASSERT_TRUE(fine(commits ? txn->commit() : txn->abort()));
    EXPECT_EQ(*word, commits ? 3 : 0);
    EXPECT_EQ(*other, commits ? 4 : 0);
    EXPECT_EQ(kv->begin({.read_only = true})->get(*map, "key").ok(), commits);
    EXPECT_TRUE(fine(region.persist())) << "the change has ended";
  }
  ASSERT_TRUE(fine(region.rollback()));
  EXPECT_EQ(*word, 3);
}

}  // namespace
}  // namespace memlith::test::change_test
