// docs/architecture.md, "Trackers that change": a region of `auto` that has grown is tracked by faults when they are
// cheaper. Each store is found by one tracker or the other.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "region/tracker.hpp"
#include "region/tracker_choice.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::tracker_change_test {
namespace {

using namespace core;

constexpr std::uint64_t kPages = 96;

class TrackerChange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!probe_scan().ok()) GTEST_SKIP() << last_error_text();
    bytes_ = kPages * host_page_bytes();
    base_ =
        static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(base_, MAP_FAILED);
    replayed_.resize(bytes_);
    tracker_ = must(attach_scan_tracker(memory(), ""));
  }
  void TearDown() override {
    tracker_ = nullptr;
    before_ = nullptr;
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  TrackedMemory memory() const { return {.base = base_, .bytes = bytes_, .capacity_bytes = bytes_}; }
  void change() {
    const auto no_twin = [](std::uint64_t) -> const std::byte* { return nullptr; };
    before_ = std::move(tracker_);
    tracker_ = must(replace_scan_tracker(*before_, memory(), "for a test", no_twin));
  }
  void capture() {
    std::vector<Range> ranges;
    ASSERT_OK(tracker_->collect(kAllThreads, ranges));
    for (const Range& range : ranges) std::memcpy(replayed_.data() + range.offset, base_ + range.offset, range.bytes);
    tracker_->accept();
  }
  void store(std::uint64_t page) { base_[page * host_page_bytes() + 17] ^= std::byte{1}; }
  bool is_replayed() const { return std::memcmp(replayed_.data(), base_, bytes_) == 0; }

  std::uint64_t bytes_ = 0;
  std::byte* base_ = nullptr;
  std::vector<std::byte> replayed_;
  std::unique_ptr<Tracker> before_;
  std::unique_ptr<Tracker> tracker_;
};

TEST_F(TrackerChange, StoresBeforeAndAfterAreFound) {
  store(1);
  store(2);
  capture();
  store(2);
  store(3);
  change();
  EXPECT_EQ(tracker_->kind(), TrackerKind::fault);
  EXPECT_FALSE(tracker_->knows_threads());
  EXPECT_NE(tracker_->describe().find("for a test"), std::string::npos);
  store(3);
  store(4);
  capture();
  EXPECT_TRUE(is_replayed());
  for (std::uint64_t round = 0; round < 20; ++round) {  // long enough for stretches to move
    for (std::uint64_t page = round % 3; page < kPages; page += 1 + round % 5) store(page);
    capture();
    ASSERT_TRUE(is_replayed()) << round;
  }
}

// A capture that failed before gave its ranges back.
TEST_F(TrackerChange, RangesThatWereGivenBackAreFound) {
  store(5);
  std::vector<Range> ranges;
  ASSERT_OK(tracker_->collect(kAllThreads, ranges));
  tracker_->give_back();
  change();
  capture();
  EXPECT_TRUE(is_replayed());
}

TEST_F(TrackerChange, AfterARelease) {
  capture();
  ASSERT_OK(tracker_->release_clean());
  store(7);
  change();
  store(8);
  capture();
  EXPECT_TRUE(is_replayed());
}

// System calls need prepare() from then on, as with every fault tracker.
TEST_F(TrackerChange, SystemCallsArePrepared) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abcd", 4), 4);
  ASSERT_EQ(::read(ends[0], base_ + 10, 2), 2);
  change();
  EXPECT_EQ(::read(ends[0], base_ + 10, 2), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_OK(tracker_->prepare({10, 2}));
  EXPECT_EQ(::read(ends[0], base_ + 10, 2), 2);
  capture();
  EXPECT_TRUE(is_replayed());
  ::close(ends[0]);
  ::close(ends[1]);
}

// The first tracker goes on where the second one is refused.
TEST_F(TrackerChange, ARefusedChange) {
  store(1);
  TrackedMemory large = memory();
  large.capacity_bytes = std::uint64_t{17} << 40;
  EXPECT_FALSE(replace_scan_tracker(*tracker_, large, "", {}).ok());
  store(2);
  capture();
  EXPECT_TRUE(is_replayed());
}

// Threads store at every moment of the change.
TEST_F(TrackerChange, StoresBesideAChangeAreFound) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (std::uint64_t number = 0; number < 2; ++number) {
      threads.emplace_back([this, &stop, seed = 2 * round + number, number] {
        Random random(seed);
        while (!stop.load(std::memory_order_relaxed)) {
          std::byte& byte = base_[random.below(kPages) * host_page_bytes() + 64 * number];
          byte = static_cast<std::byte>(static_cast<unsigned>(byte) + 1);
        }
      });
    }
    for (int i = 0; i < 3; ++i) capture();
    change();
    for (int i = 0; i < 3; ++i) capture();
    stop = true;
    for (std::thread& thread : threads) thread.join();
    capture();
    ASSERT_TRUE(is_replayed()) << round;
    tracker_ = nullptr;
    before_ = nullptr;
    ASSERT_EQ(::mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), base_);
    replayed_.assign(bytes_, {});
    tracker_ = must(attach_scan_tracker(memory(), ""));
  }
}

// The change comes when it would have paid; a region that is stored to everywhere keeps its scans.
TEST(TrackerChoices, FollowWhatWasLost) {
  constexpr std::uint64_t kSmall = 128 * kMiB;
  constexpr std::uint64_t kLarge = 512 * kMiB;
  TrackerChoice small({});
  for (int i = 0; i < 10000; ++i) ASSERT_FALSE(small.note_scan(kSmall, 0));
  TrackerChoice quiet({});
  int captures = 1;
  while (!quiet.note_scan(kLarge, 1)) ++captures;
  EXPECT_GT(captures, 10);
  EXPECT_LT(captures, 400);
  TrackerChoice busy({});
  for (int i = 0; i < 10000; ++i) ASSERT_FALSE(busy.note_scan(kLarge, 200));
  int later = 1;
  while (!busy.note_scan(kLarge, 0)) ++later;
  EXPECT_LT(later, 3 * captures) << "what was gained before counts as much as one change";
}

// A region that has grown, as a program sees it.
TEST(TrackerChoices, ARegionThatHasGrown) {
  if (host_page_bytes() != kPageBytes) GTEST_SKIP() << "the numbers are of pages of 4 KiB";
  if (!probe_scan().ok()) GTEST_SKIP() << last_error_text();
  RegionWorld world(TrackerKind::automatic);
  Region& region = world.open("a", kMiB, kGiB);
  put(region, 100, 1);
  ASSERT_OK(persist(region));
  EXPECT_EQ(region.tracker()->kind(), TrackerKind::scan);
  ASSERT_OK(region.grow(192 * kMiB));
  for (std::uint64_t i = 0; i < 300 && region.tracker()->kind() == TrackerKind::scan; ++i) {
    put(region, 8192 + i % 2 * kMiB, i);
    put(region, 100, i);
    ASSERT_OK(Region::rollback(std::vector<Region*>{&region}, Scope::process));
    put(region, 100, i + 7);
    put(region, 150 * kMiB, i);
    ASSERT_OK(persist(region));
    EXPECT_EQ(get(region, 150 * kMiB), i);
    for (int quiet = 0; quiet < 5; ++quiet) ASSERT_OK(persist(region));
  }
  EXPECT_EQ(region.tracker()->kind(), TrackerKind::fault);
  EXPECT_NE(region.tracker()->describe().find("had grown"), std::string::npos) << region.tracker()->describe();
  EXPECT_ERROR(Errc::unsupported, persist(region, Scope::thread));
  for (std::uint64_t i = 1; i <= 20; ++i) {
    put(region, i * 8 * kMiB, i);
    put(region, 64, i);
    if (i == 10) {
      ASSERT_OK(region.grow(256 * kMiB));
      ASSERT_OK(region.release_clean());
    }
    ASSERT_OK(persist(region));
  }
  EXPECT_GT(region.hot_pages(), 0u);
  put(region, 200 * kMiB, 99);
  world.crash();
  Region& again = world.open("a");
  for (std::uint64_t i = 1; i <= 20; ++i) EXPECT_EQ(get(again, i * 8 * kMiB), i);
  EXPECT_EQ(get(again, 64), 20u);
  EXPECT_EQ(get(again, 200 * kMiB), 0u);
}

}  // namespace
}  // namespace memlith::test::tracker_change_test
