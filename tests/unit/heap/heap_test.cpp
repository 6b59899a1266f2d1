// docs/heap.md: blocks do not overlap, a heap is at one persisted point after a crash, verify() accounts for every
// byte, and a region at its limit refuses with everything intact.
#include "heap/heap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/random.hpp"
#include "support/heap_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class HeapTest : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, HeapTest,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// Sizes of every kind: slabs, pages, whole segments.
std::uint64_t any_size(Random& random) {
  switch (random.below(16)) {
    case 0: return 1 + random.below(200 * kKiB);
    case 1: return random.one_in(8) ? 1 + random.below(3 * kMiB) : random.below(40 * kKiB);
    case 2: return random.below(4096);
    default: return random.below(300);
  }
}

void churn(HeapWorld& world, Random& random, int steps, std::size_t most) {
  for (int i = 0; i < steps; ++i) {
    if (world.blocks.size() < most && !random.one_in(3)) {
      const std::uint64_t alignment = random.one_in(6) ? std::uint64_t{16} << random.below(9) : 16;
      world.allocate(any_size(random), alignment);
    } else if (!world.blocks.empty()) {
      auto chosen = world.blocks.begin();
      std::advance(chosen, static_cast<std::ptrdiff_t>(random.below(world.blocks.size())));
      world.free(chosen->first);
    }
  }
}

// Persisted changes are there after a crash, later ones are not, blocks and free space alike.
TEST_P(HeapTest, IsAtOnePersistedPointAfterACrash) {
  HeapWorld world(GetParam());
  Random random(7);
  for (int round = 0; round < 6; ++round) {
    churn(world, random, 300, 200);
    world.expect();
    ASSERT_OK(world.persist());
    const Blocks persisted = world.blocks;
    churn(world, random, 100, 200);
    world.crash();
    world.blocks = persisted;
    world.expect();
  }
}

// A rollback takes the heap back, with what it remembers; a heap that was never persisted is an empty one again.
TEST_P(HeapTest, RollsBack) {
  HeapWorld world(GetParam());
  Random random(8);
  churn(world, random, 100, 100);
  ASSERT_OK(world.rollback());
  world.blocks.clear();
  world.expect();
  churn(world, random, 200, 100);
  ASSERT_OK(world.persist());
  const Blocks persisted = world.blocks;
  churn(world, random, 200, 100);
  ASSERT_OK(world.rollback());
  world.blocks = persisted;
  world.expect();
  churn(world, random, 200, 100);
  world.expect();
}

// Everything freed, everything is free: one segment is left, and no block.
TEST_P(HeapTest, GivesEverythingBack) {
  HeapWorld world(GetParam());
  Random random(9);
  churn(world, random, 600, 400);
  while (!world.blocks.empty()) world.free(world.blocks.begin()->first);
  world.expect();
  ASSERT_OK(world.persist());
  world.crash();
  world.expect();
  world.allocate(40 * kMiB);  // in one piece
  world.expect();
}

// At its limit the heap refuses, and has everything that it had; what is freed can be had again.
TEST_P(HeapTest, RefusesAtItsLimit) {
  for (const std::uint64_t bytes : {100u, 5000u, 70'000u, 1'500'000u}) {
    HeapWorld world(GetParam(), 64 * kKiB, 5 * kMiB + 20 * kPageBytes);
    while (world.try_allocate(bytes) != nullptr) {
    }
    EXPECT_NE(std::string(last_error_text()).find("max_size"), std::string::npos) << last_error_text();
    world.expect();
    EXPECT_GE(world.blocks.size() * bytes * 10, 5 * kMiB * 5);  // not half of it was wasted
    world.free(world.blocks.rbegin()->first);
    world.allocate(bytes);
    EXPECT_FALSE(world.heap().arenas().allocate(bytes, 16).ok());
    ASSERT_OK(world.persist());
    world.crash();
    world.expect();
    EXPECT_FALSE(world.heap().arenas().allocate(bytes, 16).ok());
  }
}

// A small allocation or free changes a few bytes of the heap's structures: the median is one.
TEST(Heap, ChangesFewBytesPerOperation) {
  HeapWorld world(TrackerKind::fault, 512 * kKiB);
  Heap& heap = world.heap();
  Random random(3);
  std::vector<void*> blocks;
  std::vector<std::uint64_t> changed;
  for (int i = 0; i < 500; ++i) {
    const std::vector<std::byte> before(world.region().address(), world.region().address() + world.region().size());
    if (blocks.empty() || !random.one_in(3)) {
      blocks.push_back(must(heap.arenas().allocate(1 + random.below(1000), 16)));
    } else {
      const std::size_t chosen = random.below(blocks.size());
      ASSERT_OK(heap.arenas().free(blocks[chosen]));
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    std::uint64_t count = 0;
    for (std::size_t at = 0; at < before.size(); ++at) count += before[at] != world.region().address()[at];
    changed.push_back(count);
  }
  std::sort(changed.begin(), changed.end());
  EXPECT_EQ(changed[changed.size() / 2], 1u);
  EXPECT_LE(changed[changed.size() * 99 / 100], 8u);
}

// A pointer to no block is refused, and named; the heap is as it was.
TEST(Heap, RefusesWhatIsNoBlock) {
  HeapWorld world(TrackerKind::fault);
  std::byte* const small = world.allocate(100);
  std::byte* const pages = world.allocate(50'000);
  std::byte* const huge = world.allocate(2'000'000);
  int local = 0;
  for (void* const wrong :
       {static_cast<void*>(small + 16), static_cast<void*>(small + 1), static_cast<void*>(pages + 4096),
        static_cast<void*>(huge + 4096), static_cast<void*>(huge + kMiB), static_cast<void*>(&local),
        static_cast<void*>(world.region().address()),
        static_cast<void*>(world.region().address() + world.region().size())}) {
    EXPECT_TRUE(is_error(world.heap().arenas().free(wrong), Errc::invalid));
    EXPECT_NE(std::string(last_error_text()).find("heap \"heap\""), std::string::npos) << last_error_text();
  }
  world.allocate(100);
  for (std::byte* const each : {small, pages, huge}) {
    world.free(each);
    EXPECT_TRUE(is_error(world.heap().arenas().free(each), Errc::invalid)) << "freed twice";
  }
  EXPECT_TRUE(is_error(world.heap().arenas().allocate(8, 24), Errc::invalid));
  EXPECT_TRUE(is_error(world.heap().arenas().allocate(8, 8192), Errc::invalid));
  EXPECT_TRUE(is_error(world.heap().arenas().allocate(~0ull, 16), Errc::no_space));
  world.expect();
}

// A slab is taken over by another thread's arena, freed into by a third, and given back: nothing is lost or handed out
// twice.
TEST(Heap, ThreadsAllocateSideBySide) {
  HeapWorld world(TrackerKind::fault, 1 * kMiB, 256 * kMiB);
  constexpr int kThreads = 6;
  std::vector<std::vector<std::byte*>> left(kThreads);
  std::vector<std::vector<std::byte*>> handed(kThreads);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(static_cast<std::uint64_t>(100 * round + t));
        for (std::byte* each : handed[static_cast<std::size_t>(t)]) EXPECT_OK(world.heap().arenas().free(each));
        std::vector<std::byte*>& mine = left[static_cast<std::size_t>(t)];
        for (int i = 0; i < 4000; ++i) {
          if (mine.empty() || !random.one_in(3)) {
            const std::uint64_t bytes = random.one_in(200) ? any_size(random) : 8 + random.below(500);
            auto* const block = static_cast<std::byte*>(must(world.heap().arenas().allocate(bytes, 16)));
            *block = std::byte{1};
            mine.push_back(block);
          } else {
            std::swap(mine[random.below(mine.size())], mine.back());
            EXPECT_OK(world.heap().arenas().free(mine.back()));
            mine.pop_back();
          }
          if (t == 0 && i % 200 == 0) {
            EXPECT_OK(world.persist());
          }
        }
      });
    }
    for (std::thread& each : threads) each.join();
    std::size_t count = 0;
    for (const auto& each : left) count += each.size();
    const auto report = world.heap().verify();
    ASSERT_OK(report);
    EXPECT_EQ(report->blocks, count);
    for (std::size_t t = 0; t < kThreads; ++t) handed[(t + 1) % kThreads] = std::exchange(left[t], {});
  }
  ASSERT_OK(world.persist());
  world.crash();
  ASSERT_OK(world.heap().verify());
}

// A capture at any moment of other threads' allocations finds a whole heap: no capture has half of one.
TEST(Heap, EveryCaptureIsOfAWholeHeap) {
  HeapWorld world(TrackerKind::fault, 256 * kKiB, 256 * kMiB);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        Random random(t + static_cast<std::uint64_t>(10 * round));
        std::vector<void*> mine;
        while (!stop.load()) {
          if (mine.size() < 40) mine.push_back(must(world.heap().arenas().allocate(any_size(random), 16)));
          if (mine.size() > 30) {
            EXPECT_OK(world.heap().arenas().free(mine.back()));
            mine.pop_back();
          }
        }
        for (void* each : mine) EXPECT_OK(world.heap().arenas().free(each));
      });
    }
    for (int i = 0; i < 5; ++i) EXPECT_OK(world.persist());
    stop.store(true);
    for (std::thread& each : threads) each.join();
    world.crash();
    const auto report = world.heap().verify();
    ASSERT_OK(report);
    EXPECT_LE(report->blocks, 200u);
    std::vector<void*> all;
    ASSERT_OK(world.heap().for_each_block([&](std::byte* block, std::uint64_t) { all.push_back(block); }));
    for (void* each : all) ASSERT_OK(world.heap().arenas().free(each));
    ASSERT_OK(world.persist());
  }
}

// The thread scope is refused: threads share the heap's structures.
TEST(Heap, RefusesThreadScope) {
  HeapWorld world(TrackerKind::fault);
  world.allocate(100);
  EXPECT_TRUE(is_error(persist(world.region(), Scope::thread), Errc::unsupported));
  EXPECT_NE(std::string(last_error_text()).find("heap"), std::string::npos);
  ASSERT_OK(world.persist());
}

}  // namespace
}  // namespace memlith::test
