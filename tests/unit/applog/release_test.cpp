// docs/applog.md: what a log gives back for a limit of memory. Entries that are not home, and what is appended or cut
// off meanwhile, keep their bytes.
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "applog/applog.hpp"
#include "base/random.hpp"
#include "support/limited_region.hpp"

namespace memlith::test::release_test {
namespace {

using namespace core;
using applog::AppLog;

constexpr std::uint64_t kRingBytes = 256 * kKiB;

class AppLogRelease : public ::testing::Test {
 protected:
  // The closing of a log may not call what a test has set.
  ~AppLogRelease() override { world_.set_before_transfer(nullptr); }
  static std::string text_of(std::uint64_t number, int round) {
    return std::to_string(number) + "/" + std::to_string(round) + std::string(number * 37 % 1500, 'e');
  }
  void append(int round) {
    const std::string text = text_of(first_ + entries_.size(), round);
    const AppLog::Content content{reinterpret_cast<const std::byte*>(text.data()), text.size()};
    EXPECT_OK(log_->append(std::span(&content, 1)).status());
    entries_.push_back(text);
  }
  void consume(std::size_t count) {
    EXPECT_OK(log_->truncate_before(first_ + count));
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
    first_ += count;
  }
  void cut(std::size_t count) {
    entries_.resize(entries_.size() - count);
    EXPECT_OK(log_->truncate_after(first_ + entries_.size() - 1));
  }
  void expect_all() {
    EXPECT_OK(log_->write());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      std::vector<std::byte> content;
      ASSERT_TRUE(must(log_->read_at(first_ + i, content))) << i;
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(content.data()), content.size()), entries_[i]) << i;
    }
  }

  LimitedRegion world_{"log", kRingBytes + kPageBytes, kRingBytes + kPageBytes};
  std::unique_ptr<AppLog> log_ = must(AppLog::open(world_.region(), {.create = true, .manual = true}));
  std::deque<std::string> entries_;
  std::uint64_t first_ = 1;
};

TEST_F(AppLogRelease, GivesBackWhatIsHome) {
  for (int i = 0; i < 150; ++i) append(0);
  EXPECT_OK(log_->write());
  ASSERT_GT(world_.copied_pages(), 20u);
  EXPECT_OK(log_->release_for_limit(world_.region()));
  EXPECT_LE(world_.copied_pages(), 2 * LimitedRegion::copied_at_once());
  expect_all();
  for (int i = 0; i < 20; ++i) append(1);  // the last of them are not in the redo log
  EXPECT_OK(log_->release_for_limit(world_.region()));
  EXPECT_GT(world_.copied_pages(), 3u);
  expect_all();
}

// The disk may have lost what a release wrote into the file.
TEST_F(AppLogRelease, ReadsNothingBehindAFailedFlush) {
  for (int i = 0; i < 50; ++i) append(0);
  EXPECT_OK(log_->write());
  EXPECT_OK(log_->release_for_limit(world_.region()));
  expect_all();
  world_.fail_flushes();
  EXPECT_FALSE(world_.region().store().checkpoint().ok());
  std::vector<std::byte> content;
  AppLog::Entry entry;
  EXPECT_EQ(log_->read_at(1, content).status().category, Errc::poisoned);
  EXPECT_EQ(log_->read(0, entry).status().category, Errc::poisoned);
}

// Many times around the ring: each time entries are appended, consumed and cut off beside the release's transfers.
TEST_F(AppLogRelease, KeepsWhatIsChangedMeanwhile) {
  Random random(5);
  std::uint64_t given_back = 0;
  int kept = 0;
  for (int round = 0; round < 200; ++round) {
    for (std::uint64_t i = random.below(60); i > 0; --i) append(round);
    if (random.one_in(2)) {
      EXPECT_OK(log_->write());
    }
    if (entries_.size() > 100) consume(entries_.size() - random.below(50));
    int transfers = 0;
    world_.set_before_transfer([&] {
      if (++transfers > 3) return;
      std::thread([&] {
        if (random.one_in(2) && entries_.size() > 40) cut(1 + random.below(30));
        for (std::uint64_t i = random.below(8); i > 0; --i) append(round + 1000);
      }).join();
    });
    const std::uint64_t before = world_.copied_pages();
    EXPECT_OK(log_->release_for_limit(world_.region()));
    world_.set_before_transfer(nullptr);
    const std::uint64_t after = world_.copied_pages();
    given_back += before > after ? before - after : 0;
    kept += after > 1 ? 1 : 0;
    if (random.one_in(3) && entries_.size() > 20) cut(random.below(15));
    if (round % 7 == 0) expect_all();
  }
  expect_all();
  EXPECT_GT(given_back, 500u);
  EXPECT_GT(kept, 20);
}

}  // namespace
}  // namespace memlith::test::release_test
