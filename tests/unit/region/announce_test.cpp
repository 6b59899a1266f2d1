// memlith_announce: pages that are opened before they are stored to, alone or because their neighbours were. A hint, so
// each store is found whatever was announced, and what was not stored to is not logged.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "base/random.hpp"
#include "region/tracker.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::announce_test {
namespace {

using namespace core;

constexpr std::uint64_t kPages = 128;

class Announced : public ::testing::Test {
 protected:
  Announced() : bytes_(kPages * host_page_bytes()), replayed_(bytes_) {
    base_ =
        static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    tracker_ = must(attach_tracker(TrackerKind::fault, {.base = base_, .bytes = bytes_, .capacity_bytes = bytes_}));
  }
  ~Announced() override {
    tracker_ = nullptr;
    ::munmap(base_, bytes_);
  }
  Range page(std::uint64_t first, std::uint64_t count = 1) const {
    return {first * host_page_bytes(), count * host_page_bytes()};
  }
  void announce(std::vector<Range> ranges) { tracker_->announce(ranges); }
  void store(std::uint64_t page) {
    std::byte& byte = base_[page * host_page_bytes() + 17];
    byte = static_cast<std::byte>(static_cast<unsigned>(byte) + 1);
  }
  std::vector<std::uint64_t> captured(ThreadNumber thread = kAllThreads) {
    std::vector<Range> ranges;
    EXPECT_OK(tracker_->collect(thread, ranges));
    std::vector<std::uint64_t> pages;
    for (const Range& range : ranges) {
      std::memcpy(replayed_.data() + range.offset, base_ + range.offset, range.bytes);
      pages.push_back(range.offset / host_page_bytes());
    }
    tracker_->accept();
    return pages;
  }
  bool is_replayed() const { return std::memcmp(replayed_.data(), base_, bytes_) == 0; }

  std::uint64_t bytes_;
  std::vector<std::byte> replayed_;
  std::byte* base_;
  std::unique_ptr<Tracker> tracker_;
};

using Pages = std::vector<std::uint64_t>;

TEST_F(Announced, OnlyStoresAreCaptured) {
  tracker_->forget_threads();
  announce({page(1, 4), page(40), page(100, 28)});
  for (const std::uint64_t stored : {2, 40, 70}) store(stored);
  EXPECT_EQ(captured(), (Pages{2, 40, 70}));
  store(2);
  store(3);
  announce({page(3), page(4)});
  store(4);
  store(101);
  EXPECT_EQ(captured(), (Pages{2, 3, 4, 101}));
  announce({page(0, kPages)});
  EXPECT_EQ(captured(), Pages{});
  store(5);
  EXPECT_EQ(captured(), Pages{5});
}

// The first of two threads to store to a page counts, not the one that announced it.
TEST_F(Announced, ThreadsAreToldApart) {
  announce({page(7)});
  std::thread([this] {
    store(7);
    EXPECT_EQ(captured(this_thread_number()), Pages{7});
  }).join();
}

// A stretch of 64 KiB of which captures find many pages is opened at once.
TEST_F(Announced, NeighboursAreOpenedWithAPage) {
  tracker_->forget_threads();
  for (int round = 0; round < 8; ++round) {
    Pages stored;
    for (std::uint64_t each = round % 2; each < 16; each += 3) {
      store(each);
      stored.push_back(each);
    }
    EXPECT_EQ(captured(), stored) << round;
  }
  store(3);
  EXPECT_EQ(captured(), Pages{3});
  store(3);
  EXPECT_EQ(captured(), Pages{3});
}

TEST_F(Announced, WhateverIsAnnouncedEachStoreIsFound) {
  tracker_->forget_threads();
  Random random(59);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t around = random.below(kPages);
    for (std::uint64_t i = random.below(4); i-- > 0;) {
      const std::uint64_t first = random.below(kPages);
      announce({page(first, 1 + random.below(kPages - first))});
    }
    for (std::uint64_t i = random.below(20); i-- > 0;) store((around + random.below(24)) % kPages);
    if (random.below(8) == 0) {
      std::vector<Range> ranges;
      ASSERT_OK(tracker_->collect(kAllThreads, ranges));
      for (std::uint64_t i = random.below(3); i-- > 0;) store(random.below(kPages));
      if (random.below(2) == 0) announce({page(around)});
      tracker_->give_back();
    }
    if (random.below(16) == 0) {
      std::vector<Range> others;
      ASSERT_OK(tracker_->rollback(kAllThreads, others));
      tracker_->give_back();
      ASSERT_TRUE(!others.empty() || is_replayed()) << round;
    }
    if (random.below(3) == 0) captured();
    if (random.below(3) != 0) continue;
    captured();
    ASSERT_TRUE(is_replayed()) << round;
  }
}

TEST_F(Announced, BesideThreads) {
  tracker_->forget_threads();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 2; ++number) {
    threads.emplace_back([this, &stop, number] {
      Random random(number);
      while (!stop.load(std::memory_order_relaxed)) {
        const std::uint64_t first = random.below(kPages - 4);
        if (random.below(2) == 0) announce({page(first, 3)});
        std::byte& byte = base_[(first + random.below(4)) * host_page_bytes() + 64 * number];
        byte = static_cast<std::byte>(static_cast<unsigned>(byte) + 1);
      }
    });
  }
  for (int i = 0; i < 300; ++i) captured();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  captured();
  EXPECT_TRUE(is_replayed());
}

}  // namespace
}  // namespace memlith::test::announce_test
