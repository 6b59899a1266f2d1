// docs/architecture.md, "Hot pages": pages that nearly every capture finds stored to stay writable and are compared
// with their twins. Replaying what captures logged makes the memory as it was captured, whichever pages are hot.
#include "region/hot_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "base/host.hpp"
#include "base/random.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::hot_pages_test {
namespace {

using namespace core;

constexpr std::uint64_t kPages = 256;
constexpr std::uint64_t kBytes = kPages * kPageBytes;

std::vector<TrackerKind> page_trackers() {
  std::vector<TrackerKind> kinds{TrackerKind::fault};
  if (probe_scan().ok()) kinds.push_back(TrackerKind::scan);
  return kinds;
}
std::string name_of_given(const ::testing::TestParamInfo<TrackerKind>& given) { return name_of_tracker(given.param); }

// Memory, and what replaying the pieces of each accepted capture makes of it.
// Where the kernel's pages are larger, a page that is left open would leave its neighbours open.
bool none_is_left_open() { return host_page_bytes() != kPageBytes; }

class HotPagesTest : public ::testing::TestWithParam<TrackerKind> {
 protected:
  void SetUp() override {
    if (none_is_left_open()) GTEST_SKIP() << "no page is left open";
  }
  HotPagesTest() : memory_(map()), replayed_(map()) {
    const auto map_home = [this](std::uint64_t begin, std::uint64_t end) {
      void* const got = ::mmap(memory_ + begin, end - begin, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      return got != MAP_FAILED ? kOk : fail_errno(errno, Detail::tracker, "mmap");
    };
    tracker_ = must(attach_tracker(GetParam(), {memory_, kBytes, kBytes, map_home}));
    if (GetParam() == TrackerKind::scan) twins_ = must(Twins::make(kBytes));
    hot_ = must(HotPages::make(*tracker_, memory_, kBytes));
  }
  ~HotPagesTest() override {
    hot_ = nullptr;
    tracker_ = nullptr;
    ::munmap(memory_, kBytes);
    ::munmap(replayed_, kBytes);
  }
  static std::byte* map() {
    void* const got = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    return static_cast<std::byte*>(got);
  }
  void store(std::uint64_t page, std::uint64_t word = 3) {
    std::uint64_t value = ++value_;
    std::memcpy(memory_ + page * kPageBytes + word * 8, &value, sizeof value);
  }

  // As Region does it. Returns the number of bytes that were logged.
  std::uint64_t capture(bool accepted = true) {
    std::vector<Range> stored;
    EXPECT_OK(tracker_->collect(kAllThreads, stored));
    normalize(stored);
    std::vector<SourceExtent> pieces;
    if (twins_ != nullptr) {
      twins_->reduce(memory_, stored, nullptr, pieces);
    } else {
      for (const Range& range : stored) pieces.push_back({range, memory_ + range.offset});
    }
    hot_->add_pieces(kWholeRegion, pieces);
    if (!accepted) {
      tracker_->give_back();
      if (twins_ != nullptr) twins_->give_back();
      hot_->give_back();
      return 0;
    }
    std::uint64_t bytes = 0;
    for (const SourceExtent& piece : pieces) {
      std::memcpy(replayed_ + piece.range.offset, piece.source, piece.range.bytes);
      bytes += piece.range.bytes;
    }
    tracker_->accept();
    if (twins_ != nullptr) twins_->accept();
    hot_->accept();
    hot_->note_capture(stored, kBytes, twins_.get());
    return bytes;
  }
  void expect_replayed() const {
    for (std::uint64_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(std::memcmp(memory_ + page * kPageBytes, replayed_ + page * kPageBytes, kPageBytes), 0) << page;
    }
  }
  void heat(std::uint64_t page) {
    for (std::uint64_t i = 0; i < 2 * HotPages::kCaptures; ++i) {
      store(page);
      capture();
    }
    ASSERT_GE(hot_->count(), 1u);
  }

  std::byte* memory_;
  std::byte* replayed_;
  std::unique_ptr<Tracker> tracker_;
  std::unique_ptr<Twins> twins_;
  std::unique_ptr<HotPages> hot_;
  std::uint64_t value_ = 0;
};
INSTANTIATE_TEST_SUITE_P(With, HotPagesTest, ::testing::ValuesIn(page_trackers()), name_of_given);

// Hot from the sixth of eight captures on, cool after sixteen that find the page unchanged; only changes are logged.
TEST_P(HotPagesTest, BecomeHotAndCool) {
  for (int i = 1; i <= 10; ++i) {
    store(5);
    EXPECT_GT(capture(), 0u);
    EXPECT_EQ(hot_->count(), i >= HotPages::kStored ? 1u : 0u) << i;
    expect_replayed();
  }
  store(5);
  EXPECT_LE(capture(), 8u) << "more than the changed word was logged";
  for (std::uint32_t i = 1; i <= HotPages::kUnchanged; ++i) {
    EXPECT_EQ(hot_->count(), 1u) << i;
    EXPECT_EQ(capture(), 0u) << "nothing was stored";
  }
  EXPECT_EQ(hot_->count(), 0u);
  EXPECT_EQ(capture(), 0u) << "nothing was stored";
  store(5);
  EXPECT_GT(capture(), 0u);
  expect_replayed();
}

TEST_P(HotPagesTest, PagesOfEveryOtherCaptureStayCool) {
  for (int i = 0; i < 40; ++i) {
    store(i % 2 == 0 ? 5 : 9);
    capture();
  }
  EXPECT_EQ(hot_->count(), 0u);
}

// Bytes that change back to what was captured before are logged: the twin follows each capture.
TEST_P(HotPagesTest, TwinsFollowEachCapture) {
  heat(5);
  const auto put_word = [this](std::uint64_t value) {
    std::memcpy(memory_ + 5 * kPageBytes + 800, &value, sizeof value);
  };
  for (int i = 0; i < 6; ++i) {
    put_word(i % 2 == 0 ? 7 : 0);
    EXPECT_GT(capture(), 0u);
    expect_replayed();
  }
}

TEST_P(HotPagesTest, AreBounded) {
  for (int i = 0; i < 12; ++i) {
    for (std::uint64_t page = 0; page < kPages; page += 2) store(page);
    capture();
  }
  EXPECT_EQ(hot_->count(), HotPages::kPagesMax);
  expect_replayed();
}

// A capture that failed is in the next one, also where a page changed back meanwhile.
TEST_P(HotPagesTest, FailedCapturesComeAgain) {
  heat(5);
  const std::uint64_t before = value_;
  store(5);
  capture(false);
  std::memcpy(memory_ + 5 * kPageBytes + 24, &before, sizeof before);
  EXPECT_EQ(capture(), 0u) << "the page is as it was captured";
  store(5);
  capture(false);
  EXPECT_GT(capture(), 0u);
  expect_replayed();
}

// Stores, captures that succeed and fail, and pages that are cooled at any time, at random.
TEST_P(HotPagesTest, AgreeWithReplay) {
  Random random(31);
  std::size_t hottest = 0;
  for (int round = 0; round < 1500; ++round) {
    for (std::uint64_t page = 0; page < 8; ++page) {
      if (random.below(10) > page) store(page * 7, random.below(512));
    }
    for (std::uint64_t i = random.below(6); i-- > 0;) store(random.below(kPages), random.below(512));
    if (random.one_in(40)) {
      ASSERT_OK(hot_->cool(random.one_in(2) ? kWholeRegion : Range{0, 15 * kPageBytes}));
    }
    capture(!random.one_in(10));
    hottest = std::max(hottest, hot_->count());
    capture();
    expect_replayed();
  }
  EXPECT_GE(hottest, 3u) << "hardly any page was hot";
}

// A rollback of the tracker finds the stores to pages that were hot: it restores them or tells which they are.
TEST_P(HotPagesTest, CooledPagesAreRolledBack) {
  heat(5);
  store(5);
  ASSERT_OK(hot_->cool(kWholeRegion));
  std::vector<Range> others;
  ASSERT_OK(tracker_->rollback(kAllThreads, others));
  if (GetParam() == TrackerKind::fault) {
    EXPECT_TRUE(others.empty());
    expect_replayed();
  } else {
    EXPECT_EQ(others, (std::vector<Range>{{5 * kPageBytes, kPageBytes}}));
  }
  tracker_->accept();
}

// Another thread stores all the time while the page becomes hot and cools.
TEST_P(HotPagesTest, StoresWhileAPageCoolsAreFound) {
  auto* const counter = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + 5 * kPageBytes);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load(std::memory_order_relaxed)) counter->fetch_add(1, std::memory_order_relaxed);
  });
  std::size_t times_hot = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < HotPages::kStored + 2; ++i) {
      const std::uint64_t seen = counter->load();
      while (counter->load() == seen) std::this_thread::yield();
      const std::uint64_t before = counter->load();
      capture();
      std::uint64_t replayed = 0;
      std::memcpy(&replayed, replayed_ + 5 * kPageBytes, sizeof replayed);
      EXPECT_GE(replayed, before) << "a store before the capture is not in it";
    }
    times_hot += hot_->count();
    if (GetParam() == TrackerKind::fault && round % 2 == 0) continue;
    EXPECT_OK(hot_->cool(kWholeRegion));
  }
  stop = true;
  other.join();
  capture();
  expect_replayed();
  EXPECT_GT(times_hot, 0u);
}

// ---- regions ---------------------------------------------------------------------------------------------------

class HotRegions : public ::testing::TestWithParam<TrackerKind> {
 protected:
  HotRegions() { world_.process_scope = true; }
  void SetUp() override {
    if (none_is_left_open()) GTEST_SKIP() << "no page is left open";
  }
  // After this, pages 0 to 3 are hot, and word 0 of page n is 100 + n.
  Region& heated() {
    Region& region = world_.open("a", kBytes);
    for (std::uint64_t i = 0; i < 10; ++i) {
      for (std::uint64_t page = 0; page < 4; ++page) put(region, page * kPageBytes, 91 + i + page);
      EXPECT_OK(persist(region));
    }
    EXPECT_EQ(region.hot_pages(), 4u);
    return region;
  }
  void expect_after_crash(std::uint64_t page, std::uint64_t value) {
    world_.crash();
    EXPECT_EQ(get(world_.open("a"), page * kPageBytes), value);
  }
  RegionWorld world_{GetParam(), tiny_options()};
};
INSTANTIATE_TEST_SUITE_P(With, HotRegions, ::testing::ValuesIn(page_trackers()), name_of_given);

TEST_P(HotRegions, ComeBackAfterACrash) {
  Region& region = heated();
  put(region, 2 * kPageBytes, 7);
  put(region, 50 * kPageBytes, 8);
  ASSERT_OK(persist(region));
  put(region, 2 * kPageBytes, 9);
  expect_after_crash(2, 7);
  EXPECT_EQ(get(world_["a"], 50 * kPageBytes), 8u);
  EXPECT_EQ(get(world_["a"], 3 * kPageBytes), 103u);
}

TEST_P(HotRegions, AnUnchangedRegionMakesNoFrame) {
  Region& region = heated();
  const std::uint64_t frames = world_.frames();
  for (std::uint32_t i = 0; i < 2 * HotPages::kUnchanged; ++i) ASSERT_OK(persist(region));
  EXPECT_EQ(world_.frames(), frames);
  EXPECT_EQ(region.hot_pages(), 0u);
}

TEST_P(HotRegions, RollBack) {
  Region& region = heated();
  put(region, kPageBytes, 7);
  put(region, kPageBytes + 64, 7);
  put(region, 40 * kPageBytes, 7);
  Region* const one = &region;
  ASSERT_OK(Region::rollback({&one, 1}, Scope::process));
  EXPECT_EQ(get(region, kPageBytes), 101u);
  EXPECT_EQ(get(region, kPageBytes + 64), 0u);
  EXPECT_EQ(get(region, 40 * kPageBytes), 0u);
  put(region, kPageBytes, 8);
  ASSERT_OK(persist(region));
  expect_after_crash(1, 8);
}

TEST_P(HotRegions, ReleaseMemory) {
  Region& region = heated();
  put(region, kPageBytes, 7);
  ASSERT_OK(region.release_clean());
  EXPECT_EQ(get(region, 0), 100u);
  EXPECT_EQ(get(region, kPageBytes), 7u);
  ASSERT_OK(persist(region));
  expect_after_crash(1, 7);
}

TEST_P(HotRegions, AreDiscarded) {
  Region& region = heated();
  put(region, kPageBytes, 7);
  put(region, 2 * kPageBytes, 7);
  ASSERT_OK(region.discard(region.address() + kPageBytes, kPageBytes));
  EXPECT_EQ(get(region, kPageBytes), 0u);
  EXPECT_EQ(get(region, 2 * kPageBytes), 7u);
  EXPECT_EQ(region.hot_pages(), 3u);
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, kPageBytes), 0u);
  EXPECT_EQ(get(again, 2 * kPageBytes), 7u);
}

TEST_P(HotRegions, APersistOfARangeLeavesOtherHotPagesDue) {
  Region& region = heated();
  put(region, kPageBytes, 7);
  put(region, 2 * kPageBytes, 8);
  ASSERT_OK(region.persist_range(region.address() + kPageBytes, 8, Scope::process));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, kPageBytes), 7u);
  EXPECT_EQ(get(again, 2 * kPageBytes), 102u);
}

TEST_P(HotRegions, WhatDoesNotFitStays) {
  Region& region = world_.open("a", 4 * kMiB);
  for (std::uint64_t i = 0; i < 10; ++i) {
    put(region, 0, 1 + i);
    ASSERT_OK(persist(region));
  }
  ASSERT_EQ(region.hot_pages(), 1u);
  put(region, 0, 77);
  std::memset(region.address() + 4 * kPageBytes, 7, 4 * kMiB - 4 * kPageBytes);
  ASSERT_EQ(persist(region).category, Errc::full);
  ASSERT_OK(region.persist_range(region.address(), kPageBytes, Scope::process));
  expect_after_crash(0, 77);
}

TEST_P(HotRegions, HaveProcessScopeOnly) {
  Region& region = heated();
  Region* const one = &region;
  EXPECT_EQ(persist(region, Scope::thread).category, Errc::unsupported);
  EXPECT_NE(last_error_text().find("MEMLITH_REGION_PROCESS_SCOPE"), std::string::npos);
  EXPECT_EQ(Region::rollback({&one, 1}, Scope::thread).category, Errc::unsupported);
}

// Where thread scope may come, the fault tracker has to know each thread's stores.
TEST(HotRegion, FaultWithThreadScopeHasNone) {
  RegionWorld world(TrackerKind::fault, tiny_options());
  Region& region = world.open("a", kBytes);
  for (std::uint64_t i = 0; i < 20; ++i) {
    put(region, 0, i);
    ASSERT_OK(persist(region));
  }
  EXPECT_EQ(region.hot_pages(), 0u);
  std::thread([&] { put(region, 0, 50); }).join();
  put(region, host_page_bytes(), 51);
  ASSERT_OK(persist(region, Scope::thread));
  world.crash();
  Region& again = world.open("a");
  EXPECT_EQ(get(again, 0), 19u);
  EXPECT_EQ(get(again, host_page_bytes()), 51u);
}

}  // namespace
}  // namespace memlith::test::hot_pages_test
