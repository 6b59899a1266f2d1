// docs/guarantees.md, "Memory": regions whose tracker is told of stores keep to the limit, too. A page is released only
// if it is as it is at home, so a store of which nothing was told yet stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/host.hpp"
#include "base/random.hpp"
#include "region/session.hpp"
#include "support/process_memory.hpp"
#include "support/sanitizers.hpp"
#include "support/store_words.hpp"

namespace memlith::test::memory_limit_test {
namespace {

using namespace core;

constexpr std::uint64_t kPages = 1024;
constexpr std::uint64_t kLimitPages = 256;

class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() { open(); }
  void open() {
    StoreOptions options;
    options.create = true;
    session_ = must(Session::open(must(place_of_store(folder_ / "store", StoreKind::folder)), options,
                                  kLimitPages * kPageBytes));
    RegionOptions region;
    region.create = true;
    region.tracker = TrackerKind::touched;
    region.size_bytes = kPages * kPageBytes;
    region.limited = Limited::always;
    region_ = must(session_->open_region("a", region))->region.get();
  }
  void reopen() {
    ASSERT_OK(Session::close(std::move(session_)));
    open();
  }
  std::atomic_ref<std::uint64_t> word(std::uint64_t page, std::uint64_t index = 0) const {
    return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(region_->address() +
                                                                           page * kPageBytes)[index]);
  }
  void put(std::uint64_t page, std::uint64_t value) const {
    word(page) = value;
    EXPECT_OK(region_->touch(region_->address() + page * kPageBytes, sizeof value));
  }
  void persist() { EXPECT_OK(session_->persist({&region_, 1}, Scope::process)); }
  // Stores to so many pages, with a persist for every 16 of them.
  void put_all(std::uint64_t first, std::uint64_t end, std::uint64_t value) {
    for (std::uint64_t page = first; page < end; ++page) {
      put(page, value + page);
      if (page % 16 == 15) persist();
    }
    persist();
  }
  // Pages of the region that are private copies.
  [[nodiscard]] std::uint64_t copies() const { return own_pages(region_->address(), kPages * kPageBytes); }

  TempFolder folder_;
  std::unique_ptr<Session> session_;
  Region* region_ = nullptr;
};

TEST_F(MemoryLimit, ExplicitRegionsKeepToIt) {
  for (std::uint64_t round = 1; round <= 2; ++round) {
    put_all(0, kPages, round * 10'000);
    EXPECT_LE(copies(), kLimitPages / 2 + 16);
    EXPECT_OK(session_->memory_status());
    for (std::uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(word(page), round * 10'000 + page);
  }
  reopen();
  for (std::uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(word(page), 20'000 + page);
}

// Pages that are persisted again and again count once.
TEST_F(MemoryLimit, CountsPagesNotPersists) {
  const std::uint64_t checkpoints = session_->store().counters().checkpoints.load();
  for (std::uint64_t i = 0; i < 2 * kLimitPages; ++i) {
    put(i % 4, i);
    persist();
  }
  EXPECT_EQ(session_->store().counters().checkpoints.load(), checkpoints);
  EXPECT_EQ(region_->copied_pages(), round_up(4 * kPageBytes, host_page_bytes()) / kPageBytes);
}

// Also where a store sets back what is in the log and at home.
TEST_F(MemoryLimit, StoresWithoutATouchStay) {
  put_all(0, 64, 1000);
  for (std::uint64_t page = 0; page < 64; page += 2) word(page, 7) = 5;
  for (std::uint64_t page = 1; page < 64; page += 2) word(page) = 0;
  put_all(64, kPages, 2000);
  EXPECT_LE(copies(), kLimitPages / 2 + 16 + 64);
  for (std::uint64_t page = 0; page < 64; page += 2) ASSERT_EQ(word(page, 7), 5u) << page;
  for (std::uint64_t page = 1; page < 64; page += 2) ASSERT_EQ(word(page), 0u) << page;
  EXPECT_OK(region_->touch(region_->address(), 64 * kPageBytes));
  persist();
  reopen();
  for (std::uint64_t page = 0; page < 64; page += 2) ASSERT_EQ(word(page, 7), 5u) << page;
  for (std::uint64_t page = 1; page < 64; page += 2) ASSERT_EQ(word(page), 0u) << page;
}

// Another thread stores all the time to a few pages, and tells nothing.
TEST_F(MemoryLimit, StoresBesideAReleaseStay) {
  std::atomic<bool> stop{false};
  std::array<std::uint64_t, kPages> stored{};
  std::uint64_t wrong = 0;
  std::thread other([&] {
    Random random(5);
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint64_t page = 5 + 64 * random.below(kPages / 64);
      wrong += word(page, 9).load(std::memory_order_relaxed) != stored[page] ? 1 : 0;
      word(page, 9).store(++stored[page], std::memory_order_relaxed);
    }
  });
  for (std::uint64_t round = 1; round <= 4; ++round) put_all(0, kPages, round * 10'000);
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0u) << "stores were lost from memory";
  for (std::uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(word(page, 9), stored[page]) << page;
}

// Transactions count and are released as persists are; one that is open keeps the region's memory.
TEST_F(MemoryLimit, Transactions) {
  const auto change = [this](std::uint64_t page, std::uint64_t value) {
    OpenTransaction& open = *session_->begin();
    EXPECT_OK(session_->touch_before(open, region_->address() + page * kPageBytes, 8));
    word(page) = value;
    return &open;
  };
  for (std::uint64_t page = 0; page < kPages; ++page) {
    EXPECT_OK(session_->commit(*change(page, 100 + page), page % 64 == 0).status());
  }
  EXPECT_LE(copies(), kLimitPages / 2 + 16);
  OpenTransaction* const open = change(5, 7);
  put_all(8, kPages, 1000);
  EXPECT_EQ(session_->memory_status().category, Errc::busy);
  EXPECT_EQ(word(5), 7u);
  ASSERT_OK(session_->abort(*open));
  EXPECT_EQ(word(5), 105u);
  for (int i = 0; i < 300; ++i) persist();  // the release is tried again
  EXPECT_OK(session_->memory_status());
  EXPECT_LE(copies(), kLimitPages / 2 + 16);
  for (std::uint64_t page = 8; page < kPages; ++page) ASSERT_EQ(word(page), 1000 + page);
}

}  // namespace
}  // namespace memlith::test::memory_limit_test
