// docs/guarantees.md, "Memory": a commit of a kv store that finds no memory changes nothing, whichever allocation
// fails, and the store goes on.
#include <gtest/gtest.h>

#include <functional>

#include "base/no_throw.hpp"
#include "kv/part.hpp"
#include "kv_world.hpp"
#include "region/region_part.hpp"
#include "region/transaction.hpp"
#include "support/count_allocations.hpp"

namespace memlith::test::memory_test {
namespace {

using namespace core;
using core::kv::Durability;
using core::kv::PageNumber;
using core::kv::Transaction;

class KvOutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
    map_ = world_.map();
    for (int i = 0; i < 60; ++i) model_[name(i)] = std::string(100, static_cast<char>('a' + i % 26));
    model_[name(60)] = std::string(20'000, 'o');
    Transaction transaction(world_.kv(), false);
    ASSERT_OK(transaction.begin());
    for (const auto& [key, value] : model_) ASSERT_OK(transaction.put(map_, key, value));
    ASSERT_OK(transaction.commit(Durability::sync, nullptr).status());
  }
  static std::string name(int number) { return std::string(30, 'k') + std::to_string(1000 + number); }

  using Fill = std::function<Status(Transaction&, Records&)>;
  // Commits what `fill` writes, while each allocation of the commit fails in turn, by itself or with all behind it;
  // then without a failure. Returns how often that was.
  std::uint64_t each_in_turn(bool keeps, const Fill& fill) {
    for (std::uint64_t n = 1;; ++n) {
      Records after = model_;
      Transaction transaction(world_.kv(), false);
      EXPECT_OK(transaction.begin());
      EXPECT_OK(fill(transaction, after));
      const std::uint64_t before = failures;
      keeps_failing = keeps;
      fails_in = n;
      const Status done = no_throw([&] { return transaction.commit(Durability::weak, nullptr).status(); });
      fails_in = 0;
      keeps_failing = false;
      const bool failed = failures != before;
      EXPECT_EQ(done.category, failed ? Errc::no_memory : Errc::ok) << "allocation " << n << ": " << last_error_text();
      EXPECT_FALSE(transaction.active());
      if (!failed) model_ = after;
      EXPECT_TRUE(world_.content(map_) == model_) << "allocation " << n;
      EXPECT_OK(world_.kv().verify().status());
      if (!failed || HasFailure()) return n - 1;
    }
  }
  void commit_with_region(bool keeps) {
    Region& region = world_.open_region("counts", 64 * kKiB);
    Store& store = region.store();
    Records after = model_;
    Transaction records(world_.kv(), false);
    ASSERT_OK(records.begin());
    for (int i = 0; i < 100; ++i) {
      after[name(400 + i)] = std::string(200, keeps ? 'q' : 'p');
      ASSERT_OK(records.put(map_, name(400 + i), after[name(400 + i)]));
    }
    core::Transaction joint(store);
    for (std::uint64_t page = 0; page < 16; ++page) put(region, page * kPageBytes, keeps ? 2 : 1);
    ASSERT_OK(joint.add(std::make_unique<core::kv::KvPart>(records)));
    ASSERT_OK(joint.add(std::make_unique<RegionPart>(region)));
    std::uint64_t n = 0;
    for (bool failed = true; failed;) {
      const std::uint64_t before = failures;
      keeps_failing = keeps;
      fails_in = ++n;
      const Status done = no_throw([&] { return joint.capture(false).status(); });
      fails_in = 0;
      keeps_failing = false;
      failed = failures != before;
      ASSERT_EQ(done.category, failed ? Errc::no_memory : Errc::ok) << "allocation " << n << ": " << last_error_text();
      ASSERT_OK(store.failure());
      ASSERT_TRUE(world_.content(map_) == (failed ? model_ : after)) << "allocation " << n;
    }
    EXPECT_GT(n, 3u);
    joint.forget();
    model_ = after;
    ASSERT_OK(store.sync(store.log().head()));
  }
  void crash_and_look() {
    ASSERT_OK(world_.kv().persist());
    world_.crash();
    EXPECT_TRUE(world_.content(world_.map()) == model_);
  }

  KvWorld world_;
  PageNumber map_ = 0;
  Records model_;
};

// Values of other lengths, of several pages and of none, splits, merges, and the pages of a value that goes.
TEST_F(KvOutOfMemory, ACommitIsUndoneAndTheStoreGoesOn) {
  int round = 0;
  const auto fill = [&](Transaction& transaction, Records& after) -> Status {
    ++round;
    for (int i = 0; i < 150; ++i) {
      const std::string key = name(i * 7 % 200);
      after[key] = std::string(static_cast<std::size_t>(80 + i % 5 * 200), static_cast<char>('A' + i % 26));
      MEMLITH_TRY(transaction.put(map_, key, after[key]));
    }
    for (int i = 0; i < 30; ++i) {
      MEMLITH_TRY(transaction.remove(map_, name(i)).status());
      after.erase(name(i));
    }
    after[name(60)] = std::string(9000, 'p');
    return transaction.put(map_, name(60), after[name(60)]);
  };
  EXPECT_GT(each_in_turn(false, fill), 3u);
  ASSERT_NO_FATAL_FAILURE(crash_and_look());
}

TEST_F(KvOutOfMemory, AlsoWithoutAnyMemoryFromThenOn) {
  const auto fill = [&](Transaction& transaction, Records& after) -> Status {
    for (int i = 0; i < 40; ++i) {
      after[name(300 + i)] = std::string(300, 'n');
      MEMLITH_TRY(transaction.put(map_, name(300 + i), after[name(300 + i)]));
    }
    return kOk;
  };
  EXPECT_GT(each_in_turn(true, fill), 1u);
  ASSERT_NO_FATAL_FAILURE(crash_and_look());
}

// A snapshot needs the pages as they were; it sees them, whether or not a commit could be completed.
TEST_F(KvOutOfMemory, BesideASnapshot) {
  for (const bool keeps : {false, true}) {
    const Records as_it_was = model_;
    Transaction snapshot(world_.kv(), true);
    ASSERT_OK(snapshot.begin());
    const auto fill = [&](Transaction& transaction, Records& after) -> Status {
      for (const int i : {3, 40}) {  // in two leaves, and nothing else
        after[name(i)] = std::string(100, keeps ? 'x' : 'y');
        MEMLITH_TRY(transaction.put(map_, name(i), after[name(i)]));
      }
      return kOk;
    };
    EXPECT_GT(each_in_turn(keeps, fill), 1u);
    EXPECT_TRUE(world_.content(snapshot, map_) == as_it_was);
  }
  ASSERT_NO_FATAL_FAILURE(crash_and_look());
}

// Memory of a region and records in one frame: the transaction is still open, and nothing of either has happened.
TEST_F(KvOutOfMemory, ACommitWithARegionIsStillOpen) {
  for (const bool keeps : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(commit_with_region(keeps));
    world_.crash();
    map_ = world_.map();
    ASSERT_TRUE(world_.content(map_) == model_);
    ASSERT_EQ(get(world_.open_region("counts"), 15 * kPageBytes), keeps ? 2u : 1u);
    world_.close_region("counts");
  }
}

// Few writes that each change one leaf allocate nothing once memory for them is there.
TEST_F(KvOutOfMemory, AWarmCommitOfAFewRecordsAllocatesNothingForItsPages) {
  const auto put = [&](char value) {
    Transaction transaction(world_.kv(), false);
    ASSERT_OK(transaction.begin());
    ASSERT_OK(transaction.put(map_, name(5), std::string(100, value)));
    const std::uint64_t before = allocations;
    ASSERT_OK(transaction.commit(Durability::weak, nullptr).status());
    if (value > 'e') {
      EXPECT_EQ(allocations, before);
    }
  };
  for (char value = 'a'; value < 'j'; ++value) ASSERT_NO_FATAL_FAILURE(put(value));
}

}  // namespace
}  // namespace memlith::test::memory_test
