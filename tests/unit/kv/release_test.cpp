// docs/kv.md, "Memory": what is given back for a limit of memory. A page whose newest change is not home keeps its
// bytes, whenever that change was made.
#include <gtest/gtest.h>

#include "kv_world.hpp"
#include "support/limited_region.hpp"

namespace memlith::test::release_test {
namespace {

using namespace core;
using core::kv::Durability;
using core::kv::Kv;
using core::kv::Transaction;

constexpr int kRecords = 2000;
constexpr int kStep = 16;  // so many records fill a page, roughly

class KvRelease : public ::testing::Test {
 protected:
  KvRelease() {
    map_ = must(kv_->open_map("map", true, false));
    for (int i = 0; i < kRecords; ++i) put(i, "first");
    EXPECT_OK(kv_->persist());
  }
  // The closing of a kv store may not call what a test has set.
  ~KvRelease() override { world_.set_before_transfer(nullptr); }
  void put(int number, const std::string& word) {
    const std::string key = "key" + std::to_string(number);
    const std::string value = word + std::string(200, 'v');
    Transaction transaction(*kv_, false);
    EXPECT_OK(transaction.begin());
    EXPECT_OK(transaction.put(map_, key, value));
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
    model_[key] = value;
  }
  // But for a page of the kernel's in which the kv store ends.
  void expect_all_given_back() {
    const bool ends_within = LimitedRegion::copied_at_once() > 1;
    EXPECT_LE(world_.copied_pages(), ends_within ? LimitedRegion::copied_at_once() : 0);
  }
  void expect_as_committed() {
    Transaction reader(*kv_, true);
    EXPECT_OK(reader.begin());
    for (const auto& [key, value] : model_) {
      const auto found = reader.get(map_, key);
      ASSERT_TRUE(found.ok() && found->has_value()) << key;
      EXPECT_EQ(**found, value) << key;
    }
    EXPECT_OK(kv_->verify().status());
  }

  LimitedRegion world_{"kv", 64 * kKiB, 64 * kMiB};
  std::unique_ptr<Kv> kv_ = must(Kv::open(world_.region(), {true, {}, true}));
  core::kv::PageNumber map_ = 0;
  Records model_;
};

TEST_F(KvRelease, GivesBackWhatIsHome) {
  const std::uint64_t before = world_.copied_pages();
  ASSERT_GT(before, std::uint64_t{kRecords / kStep});
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  expect_all_given_back();
  expect_as_committed();
}

// Commits that no checkpoint has brought home, and that no flush has made durable.
TEST_F(KvRelease, BringsHomeWhatItGivesBack) {
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  for (int i = 0; i < kRecords; i += kStep) put(i, "second");
  EXPECT_OK(kv_->persist());
  for (int i = 1; i < kRecords; i += 2 * kStep) put(i, "third");
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  expect_all_given_back();
  expect_as_committed();
}

// Commits beside each write and flush of the release.
TEST_F(KvRelease, KeepsWhatIsChangedMeanwhile) {
  int next = 0;
  world_.set_before_transfer([&] {
    for (int i = 0; i < 8; ++i, next += kStep) put(next % kRecords, "meanwhile " + std::to_string(next));
  });
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  world_.set_before_transfer(nullptr);
  EXPECT_GT(next, 0);
  EXPECT_GT(world_.copied_pages(), 0u);
  EXPECT_LT(world_.copied_pages(), LimitedRegion::copied_at_once() * kRecords / kStep);
  expect_as_committed();
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  expect_all_given_back();
  expect_as_committed();
}

// The disk loses what a release wrote home. The log has it, but pages that were given back show what was there before.
TEST_F(KvRelease, ReadsNothingOlderBehindAFailedFlush) {
  EXPECT_OK(world_.region().store().checkpoint());
  for (int i = 0; i < kRecords; ++i) put(i, "second");
  EXPECT_OK(kv_->persist());
  Transaction reader(*kv_, true);
  EXPECT_OK(reader.begin());
  EXPECT_OK(reader.get(map_, "key5").status());
  EXPECT_OK(kv_->release_for_limit(world_.region()));
  expect_as_committed();
  world_.fail_flushes();
  EXPECT_FALSE(world_.region().store().checkpoint().ok());
  EXPECT_EQ(reader.get(map_, "key5").status().category, Errc::poisoned);
  EXPECT_EQ(kv_->begin(true).status().category, Errc::poisoned);
}

}  // namespace
}  // namespace memlith::test::release_test
