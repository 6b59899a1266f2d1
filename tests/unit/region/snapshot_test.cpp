// region/snapshot.hpp on the simulated disk: what fails and what does not, and whose state a snapshot shows.
#include "region/snapshot.hpp"

#include <gtest/gtest.h>

#include "support/region_words.hpp"

namespace memlith::test::snapshot_test {
namespace {

using namespace core;

class SnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = must(Store::open(volume_, tiny_options()));
    a_ = open("a");
    b_ = open("b");
  }
  std::unique_ptr<Region> open(const std::string& name) {
    RegionOptions options;
    options.create = true;
    options.tracker = TrackerKind::touched;
    options.size_bytes = 4 * kPageBytes;
    return must(Region::open(*store_, name, options));
  }
  Result<std::unique_ptr<Snapshot>> make() {
    Region* const both[] = {a_.get(), b_.get()};
    return Snapshot::make(both);
  }
  static std::uint64_t word(const Snapshot& snapshot, std::uint64_t index, std::uint64_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, snapshot.address(index) + offset, sizeof value);
    return value;
  }

  SimVolume volume_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Region> a_;
  std::unique_ptr<Region> b_;
};

// A data file that cannot be read for the copy is no reason to poison the store; nothing was written.
TEST_F(SnapshotTest, AReadThatFailsPoisonsNothing) {
  put(*a_, 0, 1);
  put(*b_, kPageBytes, 2);
  ASSERT_OK(persist(*a_, *b_));
  ASSERT_OK(store_->checkpoint());
  volume_.faults().plan(SimFaults::Kind::fail_read, 1);  // behind the directory's
  EXPECT_ERROR(Errc::io, make());
  EXPECT_EQ(volume_.faults().fired(SimFaults::Kind::fail_read), 1u);
  volume_.faults().clear();
  volume_.faults().plan(SimFaults::Kind::no_memory, 2);
  EXPECT_ERROR(Errc::no_memory, make());
  EXPECT_EQ(volume_.faults().fired(SimFaults::Kind::no_memory), 1u);
  volume_.faults().clear();
  EXPECT_FALSE(store_->log().poisoned());
  put(*a_, 0, 3);
  ASSERT_OK(persist(*a_));
  const auto snapshot = must(make());
  EXPECT_EQ(word(*snapshot, 0, 0), 3u);
  EXPECT_EQ(word(*snapshot, 1, kPageBytes), 2u);
}

// A checkpoint that fails poisons as ever, and a poisoned store gives no snapshot; one that was made before stays what
// it was.
TEST_F(SnapshotTest, APoisonedStoreGivesNone) {
  put(*a_, 0, 1);
  ASSERT_OK(persist(*a_));
  const auto before = must(make());
  put(*a_, 0, 2);
  ASSERT_OK(persist(*a_));
  volume_.faults().plan(SimFaults::Kind::fail_flush, 0);
  EXPECT_ERROR(Errc::io, make());
  EXPECT_TRUE(store_->log().poisoned());
  EXPECT_ERROR(Errc::poisoned, make());
  EXPECT_EQ(word(*before, 0, 0), 1u);
}

// Captures that are not durable yet are not in a snapshot.
TEST_F(SnapshotTest, HoldsWhatIsDurableOnly) {
  put(*a_, 0, 1);
  ASSERT_OK(persist(*a_));
  put(*a_, 0, 2);
  ASSERT_OK(a_->grow(8 * kPageBytes));
  Region* const one = a_.get();
  const Lsn captured = must(Region::capture({&one, 1}, Scope::process, false));
  const auto before = must(make());
  EXPECT_EQ(word(*before, 0, 0), 1u);
  EXPECT_EQ(before->size(0), 4 * kPageBytes);
  EXPECT_LT(before->lsn(), captured);
  ASSERT_OK(store_->sync(captured));
  const auto after = must(make());
  EXPECT_EQ(word(*after, 0, 0), 2u);
  EXPECT_EQ(after->size(0), 8 * kPageBytes);
  EXPECT_GE(after->lsn(), captured);
  EXPECT_EQ(word(*before, 0, 0), 1u);
}

TEST_F(SnapshotTest, OfTwoStoresIsRefused) {
  SimVolume other;
  const auto second = must(Store::open(other, tiny_options()));
  RegionOptions options;
  options.create = true;
  options.size_bytes = kPageBytes;
  const auto region = must(Region::open(*second, "a", options));
  Region* const both[] = {a_.get(), region.get()};
  EXPECT_ERROR(Errc::invalid, Snapshot::make(both));
  EXPECT_ERROR(Errc::invalid, Snapshot::make({}));
}

}  // namespace
}  // namespace memlith::test::snapshot_test
