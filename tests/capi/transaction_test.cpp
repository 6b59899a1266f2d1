// Transactions through the interface: memlith/transaction.h, memlith/transaction.hpp.
#include <gtest/gtest.h>

#include <cstring>

#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::transaction_test {
namespace {

struct Account {
  std::int64_t balance;
};

class TransactionCalls : public ::testing::Test {
 protected:
  TransactionCalls() { reopen(); }
  void reopen() {
    region_.reset();
    store_.reset();
    store_.emplace(std::move(*Store::open(folder_ / "store", {.create = true})));
    region_.emplace(std::move(*store_->region("a", {.create = true, .tracker = Tracker::touched, .size = 1 << 16})));
    accounts_ = static_cast<Account*>(region_->address());
  }
  TempFolder folder_;
  std::optional<Store> store_;
  std::optional<Region> region_;
  Account* accounts_ = nullptr;
};

TEST_F(TransactionCalls, CommitOrAbort) {
  auto transaction = store_->begin();
  ASSERT_TRUE(transaction);
  ASSERT_TRUE(transaction->touch_before(&accounts_[0]));
  accounts_[0].balance = 100;
  ASSERT_TRUE(transaction->commit());
  {
    auto dropped = store_->begin();
    ASSERT_TRUE(dropped->touch_before(accounts_, 2 * sizeof(Account)));
    accounts_[0].balance -= 200;
    accounts_[1].balance += 200;
  }
  EXPECT_EQ(accounts_[0].balance, 100);
  EXPECT_EQ(accounts_[1].balance, 0);
  auto soon = store_->begin();
  ASSERT_TRUE(soon->touch_before(&accounts_[1]));
  accounts_[1].balance = 7;
  auto ticket = soon->commit_weak();
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(store_->wait(*ticket));
  reopen();
  EXPECT_EQ(accounts_[0].balance, 100);
  EXPECT_EQ(accounts_[1].balance, 7);
}

TEST_F(TransactionCalls, WriteWhatWasBuiltAside) {
  const Account given[2] = {{5}, {6}};
  auto transaction = store_->begin();
  ASSERT_TRUE(transaction->write(&accounts_[3], &given[0], sizeof(Account)));
  ASSERT_TRUE(transaction->write(&accounts_[9], &given[1], sizeof(Account)));
  EXPECT_EQ(accounts_[3].balance, 5);
  ASSERT_TRUE(transaction->commit());
  auto refused = store_->begin();
  int outside = 0;
  ASSERT_TRUE(refused->write(&accounts_[3], &given[1], sizeof(Account)));
  EXPECT_EQ(refused->write(&outside, &given[0], 4).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(outside, 0);
  EXPECT_TRUE(refused->abort());
  EXPECT_EQ(accounts_[3].balance, 5);
  reopen();
  EXPECT_EQ(accounts_[3].balance, 5);
  EXPECT_EQ(accounts_[9].balance, 6);
}

TEST_F(TransactionCalls, RefuseWhatCannotBe) {
  memlith_txn* tx = nullptr;
  ASSERT_EQ(memlith_begin(store_->handle(), &tx), 0);
  EXPECT_EQ(memlith_category(memlith_begin(nullptr, &tx)), MEMLITH_INVALID);
  int outside = 0;
  EXPECT_EQ(memlith_category(memlith_touch_before(tx, &outside, sizeof outside)), MEMLITH_INVALID);
  ASSERT_EQ(memlith_touch_before(tx, accounts_, sizeof(Account)), 0);
  EXPECT_EQ(memlith_category(memlith_region_close(region_->handle())), MEMLITH_BUSY);
  EXPECT_EQ(memlith_category(memlith_region_release(region_->handle())), MEMLITH_BUSY);
  EXPECT_EQ(memlith_category(memlith_commit(tx, 2, nullptr)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_txn_write(tx, accounts_, nullptr, 1)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_category(memlith_txn_write(nullptr, accounts_, &outside, 1)), MEMLITH_INVALID);
  EXPECT_EQ(memlith_txn_write(tx, accounts_, nullptr, 0), 0);
  EXPECT_EQ(memlith_abort(tx), 0);
  EXPECT_EQ(memlith_abort(nullptr), 0);
  ASSERT_TRUE(region_->release());
}

// A transaction that the log cannot take is still open, and an abort undoes it.
TEST_F(TransactionCalls, OneThatDoesNotFitIsUndone) {
  auto small = Store::open(folder_ / "small", {.create = true, .log_bytes = 1 << 20, .log_max_bytes = 1 << 20});
  ASSERT_TRUE(small);
  auto region = small->region("a", {.create = true, .tracker = Tracker::touched, .size = 4 << 20});
  ASSERT_TRUE(region);
  auto transaction = small->begin();
  ASSERT_TRUE(transaction->touch_before(region->address(), region->size()));
  std::memset(region->address(), 1, region->size());
  const auto refused = transaction->commit();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), MEMLITH_FULL);
  EXPECT_TRUE(transaction->abort());
  EXPECT_EQ(*static_cast<char*>(region->address()), 0);
}

}  // namespace
}  // namespace memlith::test::transaction_test
