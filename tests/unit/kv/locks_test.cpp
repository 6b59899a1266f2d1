// src/kv/ranges.hpp and src/kv/locks.hpp: joined ranges are the ranges that were added; transactions that may wait get
// the lock when its holder ends, and never wait for each other in a circle.
#include <gtest/gtest.h>

#include <thread>

#include "base/random.hpp"
#include "kv/part.hpp"
#include "kv_world.hpp"
#include "region/transaction.hpp"

namespace memlith::test::locks_test {
namespace {

using namespace core;
using kv::Durability;
using kv::KeyRange;
using kv::RangeSet;
using kv::Transaction;

constexpr std::chrono::milliseconds kLong{3'600'000};

std::string key_of(std::uint64_t i) {
  std::string digits = std::to_string(i);
  return "key" + std::string(8 - digits.size(), '0') + digits;
}

TEST(KvRanges, AreWhatWasAdded) {
  constexpr std::uint64_t kKeys = 30;
  const std::string all = "abcdefghijklmnopqrstuvwxyz0123456789";
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    RangeSet joined(std::pmr::get_default_resource());
    std::vector<KeyRange> added;
    for (int i = 0; i < 20; ++i) {
      KeyRange range{static_cast<kv::PageNumber>(2 + random.below(2)), !random.one_in(9), {}, {}};
      const std::uint64_t low = random.below(kKeys);
      if (!random.one_in(9)) range.low = std::string_view(all).substr(low, 1);
      if (range.has_high) range.high = std::string_view(all).substr(low + random.below(5), 1);
      if (range.has_high && range.high < range.low) std::swap(range.low, range.high);
      if (range.has_high && range.high.empty()) continue;
      joined.add(range);
      added.push_back(range);
      for (kv::PageNumber map = 1; map < 5; ++map) {
        const bool any = std::any_of(added.begin(), added.end(), [map](const KeyRange& r) { return r.map == map; });
        ASSERT_EQ(joined.any_in(map), any) << seed;
        for (std::size_t k = 0; k < all.size(); ++k) {
          const kv::RecordKey key{map, std::string_view(all).substr(k, 1)};
          const bool in_one =
              std::any_of(added.begin(), added.end(), [&key](const KeyRange& r) { return r.contains(key); });
          ASSERT_EQ(joined.contains(key), in_one) << seed << ": " << key.key << " of map " << map;
        }
      }
      for (const KeyRange& each : added) ASSERT_TRUE(joined.covers(each)) << seed;
      ASSERT_LE(joined.size(), added.size());
    }
    EXPECT_FALSE(joined.covers({9, true, "a", "b"}));
  }
}

TEST(KvRanges, ThatMeetAreOne) {
  RangeSet joined(std::pmr::get_default_resource());
  joined.add({2, true, "c", "d"});
  joined.add({2, true, "f", "g"});
  EXPECT_EQ(joined.size(), 2u);
  EXPECT_FALSE(joined.covers({2, true, "c", "g"}));
  joined.add({2, true, "d", "f"});
  EXPECT_EQ(joined.size(), 1u);
  EXPECT_TRUE(joined.covers({2, true, "c", "g"}));
  joined.add({2, false, "a", {}});
  EXPECT_EQ(joined.size(), 1u);
  EXPECT_TRUE(joined.covers({2, false, "zz", {}}));
}

class KvLocks : public ::testing::Test {
 protected:
  KvLocks() {
    Transaction filling(world.kv(), false);
    EXPECT_OK(filling.begin());
    for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_OK(filling.put(map, key_of(i), "v"));
    EXPECT_OK(filling.commit(Durability::weak, nullptr).status());
  }
  KvWorld world;
  kv::MapNumber map = world.map();
};

// The cost of another transaction's write does not grow with the number of seeks. With a list of ranges that every
// write goes through, this takes minutes.
TEST_F(KvLocks, SeeksOfOneLeaveTheWritesOfOthersAlone) {
  Transaction seeking(world.kv(), false);
  ASSERT_OK(seeking.begin());
  kv::Cursor cursor(seeking, map);
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_TRUE(must(cursor.seek(key_of(i % 500))));
  Transaction writing(world.kv(), false);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    ASSERT_OK(writing.begin());
    ASSERT_OK(writing.put(map, key_of(501 + i % 400), "w"));
    ASSERT_OK(writing.commit(Durability::weak, nullptr).status());
  }
  EXPECT_TRUE(seeking.active());
}

TEST_F(KvLocks, AWriterWaitsForTheHolder) {
  Transaction holder(world.kv(), false);
  ASSERT_OK(holder.begin());
  kv::Cursor scan(holder, map);
  for (bool more = must(scan.first()); more; more = must(scan.next())) {
  }
  std::thread waiter([this] {
    Transaction transaction(world.kv(), false);
    transaction.set_wait(kLong);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map, "new", "w"));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
  });
  while (world.kv().locks().waiting() == 0) std::this_thread::yield();
  holder.abort();
  waiter.join();
  EXPECT_EQ(world.kv().conflicts(), 0u);
  EXPECT_EQ(world.content(map).at("new"), "w");
}

TEST_F(KvLocks, TheWaitIsBounded) {
  Transaction holder(world.kv(), false);
  ASSERT_OK(holder.begin());
  ASSERT_OK(holder.put(map, "held", "1"));
  Transaction waiter(world.kv(), false);
  waiter.set_wait(std::chrono::milliseconds(2));
  ASSERT_OK(waiter.begin());
  EXPECT_EQ(waiter.get(map, "held").status().category, Errc::conflict);
  EXPECT_FALSE(waiter.active());
  EXPECT_EQ(world.kv().locks().waiting(), 0u);
}

// Two read a record, and both want to write it: the second one is refused at once, and the first one gets the lock.
TEST_F(KvLocks, NoneWaitInACircle) {
  Transaction first(world.kv(), false);
  Transaction second(world.kv(), false);
  for (Transaction* const each : {&first, &second}) {
    each->set_wait(kLong);
    ASSERT_OK(each->begin());
    ASSERT_TRUE(must(each->get(map, key_of(1))).has_value());
  }
  std::thread waiter([&] {
    EXPECT_OK(first.put(map, key_of(1), "first"));
    EXPECT_OK(first.commit(Durability::weak, nullptr).status());
  });
  while (world.kv().locks().waiting() == 0) std::this_thread::yield();
  const Status refused = second.put(map, key_of(1), "second");
  EXPECT_EQ(refused.category, Errc::conflict);
  EXPECT_NE(last_error_text().find("wait for each other"), std::string::npos) << last_error_text();
  waiter.join();
  EXPECT_EQ(world.content(map).at(key_of(1)), "first");
}

// Threads that all take the same few locks in any order: every transaction ends, and no update is lost.
TEST_F(KvLocks, WaitersCountTogether) {
  constexpr int kThreads = 4;
  constexpr int kEach = 300;
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      Transaction transaction(world.kv(), false);
      transaction.set_wait(kLong);
      for (int i = 0; i < kEach;) {
        ASSERT_OK(transaction.begin());
        Status status = kOk;
        for (int n = 0; n < 3 && status.ok(); ++n) {
          const std::string key = "count" + std::to_string(random.below(4));
          const auto now = transaction.get(map, key);
          status = now.status();
          if (!status.ok()) break;
          const int count = now->has_value() ? std::stoi(std::string(**now)) : 0;
          status = transaction.put(map, key, std::to_string(count + 1));
        }
        if (status.ok()) {
          ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
          ++i;
          done += 3;
        } else {
          ASSERT_EQ(status.category, Errc::conflict);
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  std::uint64_t sum = 0;
  for (const auto& [key, value] : world.content(map)) sum += key.starts_with("count") ? std::stoull(value) : 0;
  EXPECT_EQ(sum, done);
}

// Threads that move amounts from record to record, beside others that read all of them as a range, remove a range, or
// are idle and lose their locks: no reader sees half of a transfer, and every transaction ends.
TEST_F(KvLocks, RangesAndRecordsOfManyThreadsKeepASum) {
  constexpr std::uint64_t kAccounts = 24;
  constexpr int kEach = 150;
  const auto account = [](std::uint64_t number) { return "account" + std::to_string(100 + number); };
  {
    Transaction filling(world.kv(), false);
    ASSERT_OK(filling.begin());
    for (std::uint64_t i = 0; i < kAccounts; ++i) ASSERT_OK(filling.put(map, account(i), "100"));
    ASSERT_OK(filling.commit(Durability::weak, nullptr).status());
  }
  world.kv().set_txn_timeout(std::chrono::milliseconds(1));
  const auto sum_of = [&](Transaction& transaction, std::uint64_t& sum) -> Status {
    kv::Cursor cursor(transaction, map);
    MEMLITH_TRY(cursor.set_prefix("account"));
    for (;;) {
      MEMLITH_TRY_ASSIGN(const bool more, cursor.next());
      if (!more) return kOk;
      MEMLITH_TRY_ASSIGN(const auto record, cursor.current());
      sum += std::stoull(std::string(record->value));
    }
  };
  const auto move = [&](Transaction& transaction, std::uint64_t from, std::uint64_t to) -> Status {
    for (const auto& [number, more] : {std::pair{from, -1}, std::pair{to, 1}}) {
      MEMLITH_TRY_ASSIGN(const auto now, transaction.get(map, account(number)));
      MEMLITH_TRY(transaction.put(map, account(number), std::to_string(std::stoi(std::string(*now)) + more)));
    }
    return kOk;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      Transaction transaction(world.kv(), false);
      if (t % 2 == 0) transaction.set_wait(kLong);
      for (int done = 0; done < kEach;) {
        ASSERT_OK(transaction.begin());
        Status status = kOk;
        std::uint64_t sum = kAccounts * 100;
        if (t < 4) {
          const std::uint64_t from = random.below(kAccounts);
          status = move(transaction, from, (from + 1 + random.below(kAccounts - 1)) % kAccounts);
          if (random.one_in(20)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        } else if (random.one_in(3)) {
          std::uint64_t removed = 0;
          status = transaction.remove_range(map, "key", "kez", removed);
        } else {
          sum = 0;
          status = sum_of(transaction, sum);
        }
        if (status.ok()) status = transaction.commit(Durability::weak, nullptr).status();
        if (!status.ok()) {
          ASSERT_EQ(status.category, Errc::conflict) << last_error_text();
          continue;
        }
        ASSERT_EQ(sum, kAccounts * 100);
        ++done;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(world.kv().locks().waiting(), 0u);
  Transaction last(world.kv(), false);
  ASSERT_OK(last.begin());
  std::uint64_t sum = 0;
  ASSERT_OK(sum_of(last, sum));
  EXPECT_EQ(sum, kAccounts * 100);
}

// More locks than the table began with: each is found, and goes with its transaction.
TEST_F(KvLocks, ManyRecordsOfOneTransaction) {
  Transaction holder(world.kv(), false);
  Transaction other(world.kv(), false);
  for (const bool ends : {false, true}) {
    ASSERT_OK(holder.begin());
    for (std::uint64_t i = 0; i < 3000; ++i)
      ASSERT_OK(i % 2 == 0 ? holder.put(map, key_of(i), "h") : holder.get(map, key_of(i)).status());
    for (std::uint64_t i = 0; i < 3000; i += 7) {
      ASSERT_OK(other.begin());
      ASSERT_EQ(other.put(map, key_of(i), "o").category, Errc::conflict) << i;
      ASSERT_OK(other.begin());
      ASSERT_EQ(other.get(map, key_of(i)).ok(), i % 2 == 1) << i;
      other.abort();
    }
    ends ? holder.abort() : static_cast<void>(must(holder.commit(Durability::weak, nullptr)));
    ASSERT_OK(other.begin());
    for (std::uint64_t i = 0; i < 3000; i += 7) ASSERT_OK(other.put(map, key_of(i), "o")) << i;
    other.abort();
  }
}

// With a timeout, an abandoned transaction blocks no other, and its next call says so.
TEST(KvTimeout, AnIdleTransactionLosesItsLocks) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  const auto begin = [&](Transaction& transaction, std::chrono::milliseconds wait) {
    transaction.set_wait(wait);
    EXPECT_OK(transaction.begin());
  };
  for (int next = 0; next < 9; ++next) {
    Transaction idle(world.kv(), false);
    Transaction other(world.kv(), false);
    world.kv().set_txn_timeout(std::chrono::milliseconds(0));
    begin(idle, {});
    EXPECT_OK(idle.put(map, "key", "idle"));
    kv::Cursor cursor(idle, map);
    EXPECT_TRUE(must(cursor.first()));
    world.kv().set_txn_timeout(std::chrono::milliseconds(1));
    begin(other, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(other.put(map, "key", "other").category, Errc::conflict) << "it was not used since there is a timeout";
    EXPECT_OK(idle.put(map, "key2", "idle"));
    begin(other, next % 2 == 0 ? std::chrono::milliseconds(0) : kLong);
    if (next % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_OK(other.put(map, "key", "other"));
    switch (next) {
      case 0: EXPECT_EQ(idle.put(map, "key3", "late").category, Errc::conflict); break;
      case 1: EXPECT_EQ(idle.get(map, "key3").error().category, Errc::conflict); break;
      case 2: EXPECT_EQ(cursor.next().error().category, Errc::conflict); break;
      case 3: EXPECT_EQ(cursor.peek().error().category, Errc::conflict); break;
      case 4: EXPECT_EQ(idle.put(map, "key", "again").category, Errc::conflict); break;
      case 5: EXPECT_EQ(idle.get(map, "key").error().category, Errc::conflict) << "of its own write"; break;
      case 6: EXPECT_EQ(idle.savepoint().error().category, Errc::conflict); break;
      case 7: EXPECT_EQ(cursor.current_key().error().category, Errc::conflict); break;
      default: EXPECT_EQ(idle.commit(Durability::weak, nullptr).error().category, Errc::conflict); break;
    }
    EXPECT_FALSE(idle.active());
    EXPECT_OK(other.commit(Durability::weak, nullptr).status());
    // It begins again as if nothing had been.
    begin(idle, {});
    EXPECT_EQ(must(idle.get(map, "key")), "other");
    EXPECT_OK(idle.commit(Durability::weak, nullptr).status());
  }
}

// A part whose commit is refused always, behind the kv store's.
class Refuses final : public Participant {
 public:
  explicit Refuses(Region& region) : region_(region) {}
  [[nodiscard]] Kind kind() const override { return Kind::region; }
  [[nodiscard]] Region& region() const override { return region_; }
  Result<FrameNeed> prepare() override { return fail(Errc::full, Detail::none, "the test refuses"); }
  Status add_to(JointFrame&) override { return kOk; }
  void finish(Lsn) noexcept override {}
  void cancel() noexcept override {}

 private:
  Region& region_;
};

// The transaction goes on behind a commit that was cancelled, and may lose its locks as before.
TEST(KvTimeout, ATransactionWhoseCommitWasCancelledLosesItsLocks) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  Region& region = world.open_region("other", kPageBytes);
  world.kv().set_txn_timeout(std::chrono::milliseconds(60'000));
  Transaction idle(world.kv(), false);
  EXPECT_OK(idle.begin());
  EXPECT_OK(idle.put(map, "key", "idle"));
  {
    core::Transaction joint(region.store());
    EXPECT_OK(joint.add(std::make_unique<kv::KvPart>(idle)));
    EXPECT_OK(joint.add(std::make_unique<Refuses>(region)));
    EXPECT_EQ(joint.capture(false).error().category, Errc::full);
    EXPECT_TRUE(idle.active());
    joint.forget();
  }
  Transaction other(world.kv(), false);
  EXPECT_OK(other.begin());
  EXPECT_EQ(other.put(map, "key", "other").category, Errc::conflict) << "it was used just now";
  world.kv().set_txn_timeout(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_OK(other.begin());
  EXPECT_OK(other.put(map, "key", "other"));
  EXPECT_EQ(idle.commit(Durability::weak, nullptr).error().category, Errc::conflict);
  EXPECT_OK(other.commit(Durability::weak, nullptr).status());
  EXPECT_EQ(world.content(map), (Records{{"key", "other"}}));
}

// The others are: one that is used again and again, one that waits, and one that commits.
TEST(KvTimeout, ATransactionThatIsNotIdleKeepsItsLocks) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  world.kv().set_txn_timeout(std::chrono::milliseconds(60'000));
  Transaction busy(world.kv(), false);
  EXPECT_OK(busy.begin());
  EXPECT_OK(busy.put(map, "key", "busy"));
  Transaction other(world.kv(), false);
  EXPECT_OK(other.begin());
  EXPECT_EQ(other.put(map, "key", "other").category, Errc::conflict);
  EXPECT_OK(busy.put(map, "key2", "busy"));
  // Waits for `busy`, for longer than the timeout, with a lock that a third one wants.
  Transaction waits(world.kv(), false);
  waits.set_wait(kLong);
  EXPECT_OK(waits.begin());
  EXPECT_OK(waits.put(map, "mine", "waits"));
  std::thread waiter([&] { EXPECT_OK(waits.put(map, "key", "waits")); });
  while (world.kv().locks().waiting() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  world.kv().set_txn_timeout(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_OK(other.begin());
  EXPECT_EQ(other.put(map, "mine", "other").category, Errc::conflict);
  EXPECT_OK(busy.commit(Durability::weak, nullptr).status());
  waiter.join();
  EXPECT_OK(waits.commit(Durability::weak, nullptr).status());
  Transaction reader(world.kv(), true);
  EXPECT_OK(reader.begin());
  EXPECT_EQ(must(reader.get(map, "key")), "waits");
  EXPECT_EQ(must(reader.get(map, "mine")), "waits");
}

}  // namespace
}  // namespace memlith::test::locks_test
