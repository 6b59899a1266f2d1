// docs/kv.md: a range goes as whole subtrees. The transaction sees what it has removed and put since; the commit
// changes few pages, and the others are freed in steps, beside other commits.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "kv_world.hpp"

namespace memlith::test::range_test {
namespace {

using namespace core;
using core::kv::Cursor;
using core::kv::Durability;
using core::kv::Transaction;

std::string key_of(std::uint64_t number) { return std::to_string(1'000'000 + number); }

class KvRange : public ::testing::Test {
 protected:
  void fill(std::uint64_t records, std::uint64_t value_bytes, std::uint64_t long_each = 0) {
    std::uint64_t next = 0;
    while (next < records) {
      const auto filling = begin();
      for (int i = 0; i < 200 && next < records; ++i, ++next) {
        const bool is_long = long_each != 0 && next % long_each == 3;
        put(*filling, model_, key_of(next), std::string(is_long ? 9000 + next % 20'000 : value_bytes, 'v'));
      }
      EXPECT_OK(filling->commit(Durability::weak, nullptr).status());
    }
    EXPECT_OK(kv().persist());
  }
  std::unique_ptr<Transaction> begin() {
    auto begun = std::make_unique<Transaction>(kv(), false);
    EXPECT_OK(begun->begin());
    return begun;
  }
  void put(Transaction& transaction, Records& records, const std::string& key, const std::string& value) {
    EXPECT_OK(transaction.put(map_, key, value));
    records[key] = value;
  }
  void remove(Transaction& transaction, Records& records, std::optional<std::string> from,
              std::optional<std::string> to) {
    const auto first = records.lower_bound(from.value_or(""));
    const auto end = to.has_value() ? records.lower_bound(std::max(*to, from.value_or(""))) : records.end();
    std::uint64_t removed = 0;
    EXPECT_OK(transaction.remove_range(map_, from, to, removed));
    EXPECT_EQ(removed, static_cast<std::uint64_t>(std::distance(first, end)));
    records.erase(first, end);
  }
  void expect_sound() {
    const auto report = must(kv().verify());
    EXPECT_EQ(report.records, model_.size());
    EXPECT_EQ(kv().header().removing, 0u);
  }
  kv::Kv& kv() { return world_.kv(); }

  KvWorld world_;
  kv::MapNumber map_ = world_.map();
  Records model_;
};

// Ranges of all lengths, several in a transaction, with puts and removals between them, looked at from within.
TEST_F(KvRange, AModelTellsWhatIsThere) {
  for (const std::uint64_t value_bytes : {60u, 1000u}) {
    fill(value_bytes == 60 ? 6000 : 1500, value_bytes, 37);
    Random random(value_bytes);
    for (int round = 0; round < 120; ++round) {
      const auto transaction = begin();
      Records changed = model_;
      std::optional<std::pair<std::uint64_t, Records>> savepoint;
      for (std::uint64_t i = 1 + random.below(6); i > 0; --i) {
        const auto some_key = [&] { return key_of(random.below(6500)) + (random.one_in(3) ? "x" : ""); };
        const std::uint64_t act = random.below(8);
        if (act < 3) {
          const std::string from = some_key();
          const bool is_short = random.one_in(2);
          const auto to = is_short ? from + "~" : some_key();
          remove(*transaction, changed, random.one_in(40) ? std::nullopt : std::optional(from),
                 random.one_in(40) ? std::nullopt : std::optional(to));
        } else if (act == 3) {
          const std::string key = some_key();
          EXPECT_EQ(must(transaction->remove(map_, key)), changed.erase(key) == 1);
        } else if (act == 4 && !savepoint.has_value()) {
          savepoint.emplace(must(transaction->savepoint()), changed);
        } else if (act == 5 && savepoint.has_value()) {
          EXPECT_OK(transaction->undo_to(savepoint->first));
          changed = savepoint->second;
        } else {
          for (int more = 0; more < 20; ++more) {
            put(*transaction, changed, some_key(), std::string(random.one_in(9) ? 5000 : value_bytes, 'n'));
          }
        }
        const std::string looked_for = some_key();
        const auto found = must(transaction->get(map_, looked_for));
        EXPECT_EQ(found.has_value(), changed.contains(looked_for));
      }
      if (round % 5 == 0) {
        EXPECT_TRUE(world_.content(*transaction, map_) == changed);
      }
      if (random.one_in(5)) {
        transaction->abort();
        continue;
      }
      EXPECT_OK(transaction->commit(random.one_in(10) ? Durability::sync : Durability::weak, nullptr).status());
      model_ = std::move(changed);
      expect_sound();
      if (random.one_in(8)) fill(300, value_bytes);
    }
    EXPECT_TRUE(world_.content(map_) == model_);
  }
  EXPECT_OK(kv().persist());
  world_.crash();
  map_ = world_.map();
  EXPECT_TRUE(world_.content(map_) == model_);
}

// The commit itself changes the pages along the ends of the range; the rest is freed in steps of a number of pages.
TEST_F(KvRange, OfManyPagesIsFreedInSteps) {
  fill(60'000, 90);
  const auto full = must(kv().verify());
  Transaction reader(kv(), true);
  EXPECT_OK(reader.begin());
  const std::uint64_t logged = kv().weak_commits().logged_bytes();
  std::vector<std::uint64_t> freed;
  kv().watch_removals(32, [&] {
    const auto report = must(kv().verify());
    freed.push_back(report.free_pages);
    EXPECT_EQ(must(reader.get(map_, key_of(30'000)))->size(), 90u);
    Transaction beside(kv(), false);
    EXPECT_OK(beside.begin());
    EXPECT_FALSE(must(beside.get(map_, key_of(30'000))).has_value());
    EXPECT_OK(beside.put(map_, key_of(30'000 + freed.size() % 2), "again"));
    EXPECT_OK(beside.remove(map_, key_of(30'000 + freed.size() % 2)).status());
    EXPECT_OK(beside.commit(Durability::weak, nullptr).status());
  });
  const auto transaction = begin();
  remove(*transaction, model_, key_of(10), key_of(59'990));
  EXPECT_OK(transaction->commit(Durability::weak, nullptr).status());
  kv().watch_removals(32, nullptr);
  reader.abort();
  expect_sound();
  EXPECT_OK(kv().persist());
  ASSERT_GT(freed.size(), full.leaf_pages / 40);
  EXPECT_LT(freed.front(), full.free_pages + full.leaf_pages / 2);
  for (std::size_t i = 1; i < freed.size(); ++i) EXPECT_LE(freed[i] - freed[i - 1], 34u) << i;
  EXPECT_LT(kv().weak_commits().logged_bytes() - logged, full.leaf_pages * 160);  // not by the record
  EXPECT_TRUE(world_.content(map_) == model_);
  EXPECT_LE(must(kv().verify()).depth_max, 2u);
}

// A range goes only where no other transaction has read or written in it.
TEST_F(KvRange, IsLockedAgainstReadersAndWriters) {
  fill(100, 10);
  const auto conflicts = [&](auto&& first, auto&& second) {
    const auto one = begin();
    const auto other = begin();
    EXPECT_OK(first(*one));
    return second(*other).category == Errc::conflict;
  };
  const auto removes = [&](std::uint64_t from, std::uint64_t to) {
    return [&, from, to](Transaction& transaction) {
      std::uint64_t removed = 0;
      return transaction.remove_range(map_, key_of(from), key_of(to), removed);
    };
  };
  const auto reads = [&](std::uint64_t key) {
    return [&, key](Transaction& transaction) { return transaction.get(map_, key_of(key)).status(); };
  };
  const auto writes = [&](std::uint64_t key) {
    return [&, key](Transaction& transaction) { return transaction.put(map_, key_of(key) + "new", "n"); };
  };
  const auto scans = [&](std::uint64_t from, std::uint64_t to) {
    return [&, from, to](Transaction& transaction) {
      Cursor cursor(transaction, map_);
      EXPECT_OK(cursor.set_bounds(key_of(from), key_of(to)));
      return cursor.first().status();
    };
  };
  EXPECT_TRUE(conflicts(removes(20, 40), reads(30)));
  EXPECT_TRUE(conflicts(removes(20, 40), writes(30)));
  EXPECT_TRUE(conflicts(removes(20, 40), scans(10, 30)) || conflicts(removes(20, 40), scans(25, 30)));
  EXPECT_TRUE(conflicts(removes(20, 40), removes(39, 50)));
  EXPECT_TRUE(conflicts(reads(30), removes(20, 40)));
  EXPECT_TRUE(conflicts(writes(30), removes(20, 40)));
  EXPECT_TRUE(conflicts(scans(30, 35), removes(20, 40)));
  EXPECT_FALSE(conflicts(removes(20, 40), reads(41)));
  EXPECT_FALSE(conflicts(removes(20, 40), writes(41)));
  EXPECT_FALSE(conflicts(removes(20, 40), removes(41, 50)));
  // A range whose removal was undone is locked as one that was read.
  const auto undone = begin();
  const std::uint64_t savepoint = must(undone->savepoint());
  EXPECT_OK(removes(20, 40)(*undone));
  EXPECT_OK(undone->undo_to(savepoint));
  EXPECT_TRUE(must(undone->get(map_, key_of(30))).has_value());
  EXPECT_OK(reads(30)(*begin()));
  EXPECT_EQ(writes(30)(*begin()).category, Errc::conflict);
}

// In a region that has no room for more a range goes, whatever its values are.
TEST_F(KvRange, NeedsNoRoom) {
  for (const std::uint64_t long_each : {0u, 5u, 1u}) {
    fill(3000, 60, long_each);
    const std::uint64_t size = kv().info()->region_bytes;
    const auto transaction = begin();
    remove(*transaction, model_, key_of(100), key_of(2900));
    EXPECT_OK(transaction->commit(Durability::weak, nullptr).status());
    EXPECT_EQ(kv().info()->region_bytes, size);
    expect_sound();
  }
}

}  // namespace
}  // namespace memlith::test::range_test
