// docs/heap.md, "Threads that persist by themselves": in a heap for thread scope, a persist has what its thread stored,
// allocated and freed, and nothing of other threads; the heap is sound after a crash at any moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "sim/worker.hpp"
#include "support/heap_words.hpp"

namespace memlith::test::thread_heap_test {
namespace {

using namespace core;

constexpr HeapOptions kForThreads{.thread_scope = true};

std::unique_ptr<HeapWorld> make_world(TrackerKind tracker, std::uint64_t reserve = 64 * kMiB) {
  return std::make_unique<HeapWorld>(tracker, 256 * kKiB, reserve, StoreOptions{}, kForThreads);
}

std::uint64_t page_of(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address) / kPageBytes; }

class ThreadHeapTest : public ::testing::TestWithParam<TrackerKind> {
 protected:
  void SetUp() override {
    const bool is_shared = GetParam() == TrackerKind::fault && host_page_bytes() != kPageBytes;
    if (is_shared) GTEST_SKIP() << "refused: blocks of two threads would share a page of the kernel";
  }
};
INSTANTIATE_TEST_SUITE_P(By, ThreadHeapTest,
                         ::testing::Values(TrackerKind::fault, TrackerKind::touched, TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// ---- any sequence ----------------------------------------------------------------------------------------------

std::uint64_t any_size(Random& random) {
  switch (random.below(24)) {
    case 0: return 1 + random.below(200 * kKiB);
    case 1: return 1 + random.below(3 * kMiB);
    case 2: return random.below(4096);
    default: return random.below(300);
  }
}

constexpr std::size_t kThreads = 4;

// Threads that use a heap, and what each of them has done and not persisted.
class Threads {
 public:
  explicit Threads(HeapWorld& world) : world_(world) {}

  void allocate(std::size_t thread, std::uint64_t bytes) {
    workers_[thread].run([&] {
      std::byte* const block = world_.allocate(bytes);
      ASSERT_NE(block, nullptr);
      contents_[block] = world_.blocks.at(block);
      due_[thread].allocated.insert(block);
      due_[thread].freed.erase(block);
    });
  }
  void free(std::size_t thread, std::byte* block) {
    workers_[thread].run([&] {
      world_.free(block);
      EXPECT_TRUE(is_error(world_.heap().arenas().free(block), Errc::invalid)) << "twice";
      EXPECT_TRUE(is_error(world_.heap().arenas().block_bytes(block).status(), Errc::invalid));
    });
    // A block of pages goes back to a thread that has not persisted it.
    const bool whole_pages = contents_.at(block).size() > kSmallBytesMax;
    const auto owner =
        std::find_if(due_.begin(), due_.end(), [block](const Due& each) { return each.allocated.contains(block); });
    if (whole_pages && owner != due_.end()) {
      owner->allocated.erase(block);
    } else {
      due_[thread].freed.insert(block);
    }
  }
  void persist(std::size_t thread) {
    workers_[thread].run([&] { ASSERT_OK(test::persist(world_.region(), Scope::thread)); });
    was_persisted(thread);
  }
  void persist_all() {
    ASSERT_OK(world_.persist());
    for (std::size_t thread = 0; thread < kThreads; ++thread) was_persisted(thread);
    EXPECT_EQ(committed, world_.blocks);
  }
  void lost() {
    world_.blocks = committed;
    due_ = {};
  }

  Blocks committed;

 private:
  struct Due {
    std::set<std::byte*> allocated;
    std::set<std::byte*> freed;
  };
  void was_persisted(std::size_t thread) {
    for (std::byte* block : due_[thread].allocated) committed[block] = contents_.at(block);
    for (std::byte* block : due_[thread].freed) {
      committed.erase(block);
      for (Due& each : due_) each.allocated.erase(block);
    }
    due_[thread] = {};
  }

  HeapWorld& world_;
  std::array<Worker, kThreads> workers_;
  std::array<Due, kThreads> due_;
  Blocks contents_;  // of the block that was handed out last at an address
};

TEST_P(ThreadHeapTest, IsWhatItsThreadsPersistedAfterACrash) {
  const auto world = make_world(GetParam(), 256 * kMiB);
  Random random(11);
  Threads threads(*world);
  for (int round = 0; round < 8; ++round) {
    for (int i = 0; i < 400; ++i) {
      const std::size_t self = random.below(kThreads);
      const std::uint64_t draw = random.below(12);
      if (draw < 7 && world->blocks.size() < 300) {
        threads.allocate(self, any_size(random));
      } else if (draw < 11 && !world->blocks.empty()) {
        auto chosen = world->blocks.begin();
        std::advance(chosen, static_cast<std::ptrdiff_t>(random.below(world->blocks.size())));
        threads.free(self, chosen->first);
      } else if (draw == 11) {
        threads.persist(self);
      }
      if (random.one_in(50)) {
        ASSERT_OK(world->heap().verify().status());
      }
      ASSERT_FALSE(HasFailure()) << "round " << round << ", step " << i;
    }
    if (round % 4 == 2) {
      threads.persist_all();
      world->expect();
    }
    if (round % 3 == 1) {
      ASSERT_OK(world->rollback());
    } else {
      world->crash();
    }
    threads.lost();
    world->expect();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// ---- pages -----------------------------------------------------------------------------------------------------

// New blocks of two threads never share a page, also when slabs of an earlier run have room.
TEST_P(ThreadHeapTest, EachThreadAllocatesFromPagesOfItsOwn) {
  const auto world = make_world(GetParam());
  std::array<Worker, 2> workers;
  std::set<std::uint64_t> pages[3];
  const auto allocate = [&](std::size_t thread) {
    workers[thread].run([&] {
      for (const std::uint64_t bytes : {24, 100, 1000, 40'000}) {
        std::byte* const block = world->allocate(bytes);
        for (std::uint64_t at = 0; at < bytes; ++at) pages[thread].insert(page_of(block + at));
      }
      ASSERT_OK(test::persist(world->region(), Scope::thread));
    });
  };
  for (int i = 0; i < 50; ++i) allocate(static_cast<std::size_t>(i % 2));
  for (const std::uint64_t page : pages[0]) EXPECT_FALSE(pages[1].contains(page));
  world->crash();
  if (GetParam() != TrackerKind::fault) return;  // where threads are known by byte, slabs of earlier runs are filled
  pages[2] = std::exchange(pages[0], {});
  pages[2].merge(pages[1]);
  for (int i = 0; i < 10; ++i) allocate(0);
  for (const std::uint64_t page : pages[0]) EXPECT_FALSE(pages[2].contains(page)) << "of another thread's earlier run";
  world->expect();
}

// The room of an earlier run is used again: in any slab where threads are known by byte, else in an empty one.
TEST_P(ThreadHeapTest, RoomOfAnEarlierRunIsUsedAgain) {
  const auto world = make_world(GetParam());
  std::byte* const first = world->allocate(200);
  std::byte* const second = world->allocate(200);
  ASSERT_OK(world->persist());
  world->crash();
  Worker worker;
  worker.run([&] {
    world->free(first);
    ASSERT_OK(test::persist(world->region(), Scope::thread));
    std::byte* const third = world->allocate(200);
    EXPECT_EQ(page_of(third) == page_of(second), GetParam() != TrackerKind::fault);
    for (std::byte* const block : {second, third}) world->free(block);
    ASSERT_OK(test::persist(world->region(), Scope::thread));
    const auto report = world->heap().verify();
    ASSERT_OK(report.status());
    EXPECT_EQ(report->slab_bytes, kSizeClasses[class_of(200)].pages * kPageBytes) << "one is kept for the thread";
  });
}

// Threads come and go: what they need in the heap is used again, once what they did was captured.
TEST_P(ThreadHeapTest, ArenasOfEndedThreadsAreUsedAgain) {
  const auto world = make_world(GetParam());
  const auto one = [&](bool persists) {
    std::thread([&] {
      std::byte* const block = world->allocate(64);
      ASSERT_OK(test::persist(world->region(), Scope::thread));
      std::memset(block, 'x', 64);
      (void)world->region().touch(block, 64);
      world->blocks[block] = std::string(64, 'x');
      if (persists) {
        ASSERT_OK(test::persist(world->region(), Scope::thread));
      }
    }).join();
  };
  std::set<std::uint64_t> pages;
  const auto look = [&] {
    pages.clear();
    for (const auto& [block, content] : world->blocks) pages.insert(page_of(block));
    return pages.size();
  };
  const bool by_page = GetParam() == TrackerKind::fault;
  for (int i = 0; i < 10; ++i) one(true);
  EXPECT_EQ(look(), by_page ? 10u : 1u);
  one(false);
  EXPECT_EQ(look(), by_page ? 11u : 1u);
  one(true);
  EXPECT_EQ(look(), by_page ? 12u : 2u) << "the stores of the thread before are not captured";
  world->crash();
  const auto unpersisted = std::count_if(world->blocks.begin(), world->blocks.end(), [](const auto& each) {
    return std::memcmp(each.first, each.second.data(), 64) != 0;
  });
  EXPECT_EQ(unpersisted, 1);
}

// ---- what is refused -------------------------------------------------------------------------------------------

TEST_P(ThreadHeapTest, NamesNeedAPersistOfProcessScope) {
  const auto world = make_world(GetParam());
  std::byte* const block = world->allocate(100);
  const ObjectType type{"type", 100, 16, 0};
  ASSERT_OK(world->heap().names().set("one", block, type));
  EXPECT_TRUE(is_error(test::persist(world->region(), Scope::thread), Errc::busy));
  EXPECT_NE(std::string(last_error_text()).find("process scope"), std::string::npos);
  ASSERT_OK(world->persist());
  ASSERT_OK(test::persist(world->region(), Scope::thread));
  ASSERT_OK(world->heap().names().remove("one"));
  EXPECT_TRUE(is_error(test::persist(world->region(), Scope::thread), Errc::busy));
  ASSERT_OK(world->rollback());
  ASSERT_OK(test::persist(world->region(), Scope::thread));
  ASSERT_OK(world->heap().names().find("one").status());
}

TEST_P(ThreadHeapTest, ARollbackOfAThreadIsRefused) {
  const auto world = make_world(GetParam());
  Region* const region = &world->region();
  EXPECT_TRUE(is_error(Region::rollback({&region, 1}, Scope::thread), Errc::unsupported));
}

// A persist that finds no room in the log leaves everything due, and nothing of it comes with another thread's.
TEST_P(ThreadHeapTest, ARefusedPersistLeavesEverythingDue) {
  StoreOptions options;
  options.log_bytes = 1 * kMiB;
  options.log_max_bytes = 1 * kMiB;
  HeapWorld world(GetParam(), 256 * kKiB, 64 * kMiB, options, kForThreads);
  Threads threads(world);
  threads.allocate(0, 100);
  threads.persist(0);
  Worker large;
  std::byte* block = nullptr;
  large.run([&] {
    for (int i = 0; i < 40; ++i) world.allocate(48 * kKiB);
    block = world.allocate(64);
    EXPECT_FALSE(test::persist(world.region(), Scope::thread).ok());
  });
  threads.allocate(0, 100);
  threads.persist(0);
  world.crash();
  threads.lost();
  world.expect();
}

}  // namespace
}  // namespace memlith::test::thread_heap_test
