// docs/architecture.md, "trackers": every store is in the next collect, once; a store after it is in the one after that.
#include "region/tracker.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "support/expect.hpp"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace memlith::test {
namespace {

using namespace core;
using Ranges = std::vector<Range>;

Ranges normal(Ranges ranges) {
  normalize(ranges);
  return ranges;
}

// Sorted, joined where ranges touch or overlap, and nothing covered that was not.
TEST(Normalize, SortsAndJoins) {
  EXPECT_EQ(normal({}), Ranges{});
  EXPECT_EQ(normal({{5, 1}}), (Ranges{{5, 1}}));
  EXPECT_EQ(normal({{10, 5}, {0, 5}}), (Ranges{{0, 5}, {10, 5}}));
  EXPECT_EQ(normal({{0, 5}, {5, 5}}), (Ranges{{0, 10}}));
  EXPECT_EQ(normal({{0, 5}, {6, 5}}), (Ranges{{0, 5}, {6, 5}}));
  EXPECT_EQ(normal({{0, 100}, {10, 5}, {50, 60}}), (Ranges{{0, 110}}));
  EXPECT_EQ(normal({{3, 4}, {3, 4}, {3, 2}}), (Ranges{{3, 4}}));
  EXPECT_EQ(normal({{1ull << 45, 8}, {0, 1ull << 45}}), (Ranges{{0, (1ull << 45) + 8}}));
}

// Against a set of bytes, for random ranges.
TEST(Normalize, AgreesWithASetOfBytes) {
  Random random(23);
  for (int round = 0; round < 500; ++round) {
    Ranges ranges;
    std::vector<bool> covered(300, false);
    for (std::uint64_t i = random.below(20); i-- > 0;) {
      const Range range{random.below(250), 1 + random.below(20)};
      ranges.push_back(range);
      std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    std::vector<bool> seen(300, false);
    std::uint64_t last_end = 0;
    for (const Range& range : normal(ranges)) {
      ASSERT_TRUE(last_end == 0 || range.offset > last_end) << "not joined, or out of order";
      last_end = range.offset + range.bytes;
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    ASSERT_EQ(seen, covered);
  }
}

constexpr std::uint64_t kPages = 64;

// A tracker on plain anonymous memory.
class PageTracker : public ::testing::TestWithParam<TrackerKind> {
 protected:
  PageTracker() {
    base_ = static_cast<std::byte*>(::mmap(nullptr, 2 * kPages * kPageBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    tracker_ = must(attach_tracker(GetParam(), base_, kPages * kPageBytes, 2 * kPages * kPageBytes));
  }
  ~PageTracker() override {
    tracker_ = nullptr;
    ::munmap(base_, 2 * kPages * kPageBytes);
  }
  void store(std::uint64_t page) { base_[page * kPageBytes + 17] = std::byte{1}; }
  Ranges collect() {
    Ranges ranges;
    EXPECT_OK(tracker_->collect(ranges));
    return normal(ranges);
  }
  static Ranges pages(std::uint64_t first, std::uint64_t count) { return {{first * kPageBytes, count * kPageBytes}}; }

  std::byte* base_;
  std::unique_ptr<Tracker> tracker_;
};
INSTANTIATE_TEST_SUITE_P(Of, PageTracker, ::testing::Values(TrackerKind::scan, TrackerKind::mprotect),
                         [](const auto& given) { return given.param == TrackerKind::scan ? "Scan" : "Mprotect"; });

// Nothing stored, nothing seen; a store is seen once; the same store again is seen again.
TEST_P(PageTracker, SeesEachStoreOnce) {
  EXPECT_EQ(collect(), Ranges{});
  for (int round = 0; round < 3; ++round) {
    store(5);
    store(5);
    EXPECT_EQ(collect(), pages(5, 1)) << round;
    EXPECT_EQ(collect(), Ranges{}) << round;
  }
}

// Reading is not storing.
TEST_P(PageTracker, ReadingIsNotSeen) {
  volatile std::byte sum{};
  for (std::uint64_t page = 0; page < kPages; ++page) sum = base_[page * kPageBytes];
  (void)sum;
  EXPECT_EQ(collect(), Ranges{});
}

// The first and the last page, neighbours, and all of them.
TEST_P(PageTracker, EdgesAndNeighbours) {
  store(0);
  store(kPages - 1);
  store(7);
  store(8);
  EXPECT_EQ(collect(),
            (Ranges{{0, kPageBytes}, {7 * kPageBytes, 2 * kPageBytes}, {(kPages - 1) * kPageBytes, kPageBytes}}));
  for (std::uint64_t page = 0; page < kPages; ++page) store(page);
  EXPECT_EQ(collect(), pages(0, kPages));
  EXPECT_EQ(collect(), Ranges{});
}

// Every other page: as many ranges as there can be, more than one call of the kernel returns in larger regions.
TEST_P(PageTracker, EveryOtherPage) {
  for (std::uint64_t page = 0; page < kPages; page += 2) store(page);
  EXPECT_EQ(collect().size(), kPages / 2);
  EXPECT_EQ(collect(), Ranges{});
}

// Random stores against a set of pages, many times over.
TEST_P(PageTracker, AgreesWithASetOfPages) {
  Random random(31);
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> stored(kPages, false);
    for (std::uint64_t i = random.below(30); i-- > 0;) {
      const std::uint64_t page = random.below(kPages);
      store(page);
      stored[page] = true;
    }
    std::vector<bool> seen(kPages, false);
    for (const Range& range : collect()) {
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset / kPageBytes), range.bytes / kPageBytes,
                  true);
    }
    ASSERT_EQ(seen, stored) << round;
  }
}

// Pages that join later are clean at first and tracked from then on; the others keep their marks.
TEST_P(PageTracker, GrowKeepsMarksAndAddsCleanPages) {
  store(3);
  ASSERT_OK(tracker_->grow(2 * kPages * kPageBytes));
  EXPECT_EQ(collect(), pages(3, 1));
  store(kPages);
  store(2 * kPages - 1);
  EXPECT_EQ(collect(), (Ranges{{kPages * kPageBytes, kPageBytes}, {(2 * kPages - 1) * kPageBytes, kPageBytes}}));
}

// Detaching leaves the memory usable.
TEST_P(PageTracker, MemoryOutlivesTheTracker) {
  store(1);
  tracker_ = nullptr;
  ASSERT_EQ(::mprotect(base_, kPages * kPageBytes, PROT_READ | PROT_WRITE), 0);
  store(1);
  EXPECT_EQ(base_[kPageBytes + 17], std::byte{1});
}

class ExplicitTracker : public ::testing::Test {
 protected:
  Ranges collect() {
    Ranges ranges;
    EXPECT_OK(tracker_->collect(ranges));
    return normal(ranges);
  }
  std::unique_ptr<Tracker> tracker_ = attach_explicit_tracker();
};

// Exactly the bytes that were told, once.
TEST_F(ExplicitTracker, GivesWhatItWasTold) {
  tracker_->touch({10, 4});
  tracker_->touch({14, 4});
  tracker_->touch({100, 1});
  tracker_->touch({12, 2});
  EXPECT_EQ(collect(), (Ranges{{10, 8}, {100, 1}}));
  EXPECT_EQ(collect(), Ranges{});
}

// More touches than it keeps one by one, in random order, against a set of bytes.
TEST_F(ExplicitTracker, AgreesWithASetOfBytes) {
  Random random(41);
  constexpr std::uint64_t kSpace = 1 << 18;
  for (int round = 0; round < 3; ++round) {
    std::vector<bool> touched(kSpace, false);
    for (int i = 0; i < 20'000; ++i) {
      const Range range{random.below(kSpace - 8), 1 + random.below(8)};
      tracker_->touch(range);
      std::fill_n(touched.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    std::vector<bool> seen(kSpace, false);
    for (const Range& range : collect())
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    ASSERT_TRUE(seen == touched) << round;
  }
}

// Every kind says how it works here, in one line.
TEST(Trackers, DescribeThemselves) {
  for (const TrackerKind kind :
       {TrackerKind::automatic, TrackerKind::scan, TrackerKind::touched, TrackerKind::mprotect}) {
    const std::string text = describe_tracker(kind);
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace memlith::test
