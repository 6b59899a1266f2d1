// region/page_difference.hpp: what differs between a page and its older copy, whatever other threads store meanwhile.
#include "region/page_difference.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace memlith::test::page_difference_test {
namespace {

using namespace core;

constexpr std::uint64_t kWords = kPageBytes / sizeof(std::uint64_t);

struct alignas(kPageBytes) Page {
  std::array<std::uint64_t, kWords> words{};
  [[nodiscard]] const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(words.data()); }
};

std::vector<Range> difference(const Page& page, const Page& before, Exactness exactness = Exactness::words) {
  std::vector<Range> ranges;
  add_difference(page.bytes(), before.bytes(), 0, exactness, ranges);
  return ranges;
}

TEST(PageDifference, HasBytesOrWholeWords) {
  Page page;
  const Page before;
  EXPECT_TRUE(equals_twin(page.bytes(), before.bytes()));
  EXPECT_TRUE(difference(page, before).empty());
  page.words[9] = 0x100;
  EXPECT_FALSE(equals_twin(page.bytes(), before.bytes()));
  EXPECT_EQ(difference(page, before), (std::vector<Range>{{72, 8}}));
  EXPECT_EQ(difference(page, before, Exactness::bytes), (std::vector<Range>{{73, 1}}));
  page.words[11] = 1;  // a gap of one word costs less than an extent
  page.words[kWords - 1] = 1;
  EXPECT_EQ(difference(page, before), (std::vector<Range>{{72, 24}, {kPageBytes - 8, 8}}));
  for (std::uint64_t i = 0; i < kWords; i += 2) page.words[i] = 1;
  EXPECT_EQ(difference(page, before), (std::vector<Range>{{0, kPageBytes}}));
}

// Another thread counts in a word, whose low byte is as before once in 256 times. What was stored elsewhere is found.
TEST(PageDifference, SeesStoresBesideAThreadThatStores) {
  Page page;
  Page before;
  before.words[0] = 3;
  page.words[2] = 7;
  page.words[kWords - 1] = 7;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    const std::atomic_ref<std::uint64_t> counter(page.words[0]);
    while (!stop.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
  });
  while (std::atomic_ref<std::uint64_t>(page.words[0]).load() == 0) std::this_thread::yield();
  int missed = 0;
  const Range last{kPageBytes - 8, 8};
  for (int i = 0; i < 1'000'000 && missed == 0; ++i) {
    if (equals_twin(page.bytes(), before.bytes())) ++missed;
    if (i % 8 != 0) continue;
    const std::vector<Range> ranges = difference(page, before);
    if (ranges.size() != 2 || ranges.front().offset + ranges.front().bytes != 24 || ranges.back() != last) ++missed;
  }
  stop = true;
  other.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace memlith::test::page_difference_test
