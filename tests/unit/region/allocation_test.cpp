// docs/guarantees.md, "Memory": once warm, persist allocates nothing, so running out of memory cannot strike in its
// middle.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/count_allocations.hpp"
#include "support/region_words.hpp"

namespace memlith::test::allocation_test {
namespace {

using namespace core;

class Allocation : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, Allocation,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// Small and streamed transactions, of one region and of two, after a first round of each.
TEST_P(Allocation, WarmPersistAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  StoreOptions options;
  options.manual_checkpoint = true;
  options.log_bytes = 32 * kMiB;
  RegionWorld world(GetParam(), options);
  Region& a = world.open("a", 1 * kMiB);
  Region& b = world.open("b", 1 * kMiB);
  const auto round = [&](std::uint64_t value) {
    for (std::uint64_t offset = 0; offset < kMiB; offset += 8192) put(a, offset, value);  // 512 KiB of pages: streamed
    ASSERT_TRUE(persist(a).ok());
    put(a, 0, value + 1);
    put(b, 0, value + 1);
    ASSERT_TRUE(persist(a, b).ok());
    ASSERT_TRUE(persist(b).ok());  // nothing stored
  };
  for (std::uint64_t i = 0; i < 3; ++i) round(i);
  const std::uint64_t before = allocations;
  for (std::uint64_t i = 3; i < 13; ++i) round(i);
  EXPECT_EQ(allocations, before);
  EXPECT_GT(before, 0u) << "the counter does not count";
}

// Another thread, which stores to a clean page on request, and should not have to wait for the requester.
class Storer {
 public:
  explicit Storer(std::byte* clean)
      : thread_([this, clean] {
          for (std::int64_t asked = 0; asked >= 0; asked = asked_) {
            if (asked > done_) {
              clean[done_ * kPageBytes] = std::byte{1};
              ++done_;
            }
            std::this_thread::yield();
          }
        }) {
    one_ = this;
  }
  ~Storer() {
    asked_ = -1;
    thread_.join();
    one_ = nullptr;
  }
  [[nodiscard]] std::int64_t stores() const { return done_; }
  [[nodiscard]] bool waited() const { return waited_; }
  static void ask() {
    if (one_->waited_) return;
    const std::int64_t number = ++one_->asked_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (one_->done_ != number && !one_->waited_) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > end) one_->waited_ = true;
    }
  }

 private:
  static inline Storer* one_ = nullptr;
  std::atomic<std::int64_t> asked_{0};
  std::atomic<std::int64_t> done_{0};
  std::atomic<bool> waited_{false};
  std::thread thread_;
};

// No store waits for a thread that allocates memory or reads home: the storing thread may be in a signal handler that
// interrupted its own malloc(3) or fork(2), and then both would wait forever.
TEST_P(Allocation, NoStoreWaitsForOne) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be seen under ThreadSanitizer";
  constexpr std::uint64_t kPages = 256;  // half of them the storer's
  const auto map_at = [](std::byte* at, std::uint64_t bytes, int protection, int fixed) {
    return static_cast<std::byte*>(::mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0));
  };
  std::byte* const base = map_at(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, 0);
  const auto map_home = [&](std::uint64_t begin, std::uint64_t end) {
    return map_at(base + begin, end - begin, PROT_READ, MAP_FIXED) == base + begin ? kOk : Status{Errc::io};
  };
  auto tracker = must(attach_tracker(GetParam(), {base, kPages * kPageBytes, kPages * kPageBytes, map_home}));
  Storer storer(base + kPages / 2 * kPageBytes);
  const ThreadNumber self = tracker->knows_threads() ? this_thread_number() : kAllThreads;
  const auto store = [&](std::uint64_t pages) {
    for (std::uint64_t page = 0; page < pages; ++page) {
      base[page * kPageBytes] = static_cast<std::byte>(1 + std::to_integer<int>(base[page * kPageBytes]));
      tracker->touch({page * kPageBytes, 1});
    }
  };
  std::vector<Range> ranges;
  const auto take = [&](std::uint64_t pages) {
    store(pages);
    ranges = {};
    at_each = Storer::ask;
    EXPECT_OK(tracker->collect(self, ranges));
    at_each = nullptr;
    EXPECT_GE(ranges.size() * kPageBytes, pages);
  };
  for (const std::uint64_t pages : {1, 4, 16, 64}) {
    take(pages);
    tracker->accept();
  }
  take(20);
  store(20);  // with no twin
  tracker->accept();
  store(100);
  std::vector<Range> others;
  at_each = Storer::ask;
  EXPECT_OK(tracker->rollback(self, others));
  normalize(others);
  for (const Range& range : others) {
    EXPECT_OK(tracker->restore(
        range,
        [](std::uint64_t, std::span<std::byte> target) {
          Storer::ask();
          std::fill(target.begin(), target.end(), std::byte{0});
          return kOk;
        },
        true));
  }
  tracker->accept();
  if (tracker->releases_any_time()) {
    EXPECT_OK(tracker->release_clean());
  }
  at_each = nullptr;
  EXPECT_FALSE(storer.waited());
  EXPECT_GT(storer.stores(), 0);
  EXPECT_LT(storer.stores(), std::int64_t{kPages / 2});
  tracker = nullptr;
  ::munmap(base, kPages * kPageBytes);
}

}  // namespace
}  // namespace memlith::test::allocation_test
