// docs/guarantees.md, "Whose stores" and "Checking threads": a persist of thread scope that returned ok has its
// caller's stores in it and no other thread's, whatever the process dies of, and the check names the pages of which
// that is not true. docs/threads.md, "Scopes", says how to use them.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memlith/heap.hpp"
#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::thread_scope_test {
namespace {

constexpr std::uint64_t kThreads = 20;
constexpr std::uint64_t kPagesEach = 3;
const auto kPageBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

Store open_store(const std::string& path) {
  return or_leave(Store::open(path, {.create = true, .tell_dropped = false, .log_bytes = 1 << 20}), 3);
}
Region open_region(const Store& store, const std::string& name, Tracker tracker) {
  return or_leave(store.region(name, {.create = true,
                                      .thread_scope = true,
                                      .tracker = tracker,
                                      .size = kThreads * kPagesEach * kPageBytes}),
                  4);
}
std::uint64_t& word(const Region& region, std::uint64_t page, std::uint64_t number = 0) {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(region.address()) + page * kPageBytes)[number];
}
void put(const Region& region, std::uint64_t page, std::uint64_t value, std::uint64_t number = 0) {
  word(region, page, number) = value;
  (void)region.touch(&word(region, page, number));
}

class ThreadScope : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, ThreadScope, ::testing::Values(Tracker::automatic, Tracker::touched),
                         [](const auto& given) { return given.param == Tracker::automatic ? "Auto" : "Explicit"; });

// ---- opening ---------------------------------------------------------------------------------------------------

TEST_P(ThreadScope, IsWhatTheRegionIsOpenedFor) {
  const TempFolder folder;
  const Store store = open_store(folder / "store");
  const Region region = open_region(store, "a", GetParam());
  EXPECT_EQ(region.info().tracker,
            static_cast<std::uint32_t>(GetParam() == Tracker::automatic ? Tracker::fault : GetParam()));
  put(region, 0, 1);
  EXPECT_TRUE(region.persist(Scope::thread));
  const auto scanned =
      store.region("b", {.create = true, .thread_scope = true, .tracker = Tracker::scan, .size = 4096});
  ASSERT_FALSE(scanned.ok());
  EXPECT_EQ(scanned.error().category(), MEMLITH_UNSUPPORTED);
  EXPECT_NE(scanned.error().message().find("name auto, fault, explicit or instrumented"), std::string::npos);
  EXPECT_EQ(store.region("b", {.tracker = Tracker::fault}).error().category(), MEMLITH_NOT_FOUND) << "none was made";
  const auto both = store.region("b", {.create = true, .process_scope = true, .thread_scope = true, .size = 4096});
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().category(), MEMLITH_INVALID);
}

// The flag makes the difference, and a heap with it is like any other in a later opening.
TEST(ThreadScopeOfHeaps, IsWhatTheHeapIsOpenedFor) {
  const TempFolder folder;
  const Store store = open_store(folder / "store");
  {
    const Heap plain = or_leave(Heap::open(store, "h", {.create = true, .tracker = Tracker::fault}), 4);
    ASSERT_TRUE(plain.root<std::uint64_t>());
    ASSERT_TRUE(plain.persist());
    const auto refused = plain.persist(Scope::thread);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().category(), MEMLITH_UNSUPPORTED);
    EXPECT_NE(refused.error().message().find("MEMLITH_REGION_THREAD_SCOPE"), std::string::npos);
  }
  const auto scanned = Heap::open(store, "h", {.thread_scope = true, .tracker = Tracker::scan});
  ASSERT_FALSE(scanned.ok());
  EXPECT_EQ(scanned.error().category(), MEMLITH_UNSUPPORTED);
  const Heap heap = or_leave(Heap::open(store, "h", {.thread_scope = true}), 4);
  **heap.root<std::uint64_t>() = 5;
  EXPECT_TRUE(heap.persist(Scope::thread));
  EXPECT_TRUE(heap.persist_async(Scope::thread));
  EXPECT_TRUE(store.persist(Scope::thread));
  EXPECT_TRUE(heap.construct<std::uint64_t>("another", 1u));
  const auto named = heap.persist(Scope::thread);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().category(), MEMLITH_BUSY);
  EXPECT_TRUE(heap.persist());
  EXPECT_TRUE(heap.persist(Scope::thread));
}

// ---- what a persist has ----------------------------------------------------------------------------------------

// One region and all of them; the other thread's pages lie between this thread's.
TEST_P(ThreadScope, APersistHasItsCallersStoresAndNoOthers) {
  const TempFolder folder;
  const Store store = open_store(folder / "store");
  const Region a = open_region(store, "a", GetParam());
  const Region b = open_region(store, "b", GetParam());
  std::atomic<int> turn{0};
  std::thread other([&] {
    put(a, 1, 7);
    put(b, 1, 7);
    turn = 1;
    while (turn != 2) std::this_thread::yield();
    put(a, 1, 8, 1);
    EXPECT_TRUE(store.persist(Scope::thread));
    turn = 3;
  });
  while (turn != 1) std::this_thread::yield();
  for (const std::uint64_t page : {0, 2}) put(a, page, 5), put(b, page, 6);
  EXPECT_TRUE(a.persist(Scope::thread));
  const auto seen = [](const Snapshot& snapshot, std::uint64_t region, std::uint64_t page, std::uint64_t number = 0) {
    const char* const base = static_cast<const char*>(snapshot.address(region));
    return reinterpret_cast<const std::uint64_t*>(base + page * kPageBytes)[number];
  };
  {
    const auto shown = store.snapshot({&a, &b});
    ASSERT_TRUE(shown);
    EXPECT_EQ(seen(*shown, 0, 0), 5u);
    EXPECT_EQ(seen(*shown, 0, 2), 5u);
    EXPECT_EQ(seen(*shown, 0, 1), 0u) << "the other thread persisted nothing";
    EXPECT_EQ(seen(*shown, 1, 0), 0u) << "only region a was persisted";
  }
  EXPECT_TRUE(store.persist(Scope::thread));
  {
    const auto shown = store.snapshot({&a, &b});
    ASSERT_TRUE(shown);
    EXPECT_EQ(seen(*shown, 1, 0), 6u);
    EXPECT_EQ(seen(*shown, 1, 1), 0u);
  }
  turn = 2;
  while (turn != 3) std::this_thread::yield();
  const auto shown = store.snapshot({&a, &b});
  ASSERT_TRUE(shown);
  EXPECT_EQ(seen(*shown, 0, 1), 7u);
  EXPECT_EQ(seen(*shown, 0, 1, 1), 8u);
  EXPECT_EQ(seen(*shown, 1, 1), 7u);
  other.join();
}

// ---- killed at random ------------------------------------------------------------------------------------------

struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
};

// The thread's pages, side by side with those of its neighbours, hold one number all over in both regions.
[[noreturn]] void persist_for_ever(const Store& store, const Region& a, const Region& b, std::uint64_t thread,
                                   Told& told) {
  for (std::uint64_t number = word(a, thread * kPagesEach) + 1;; ++number) {
    for (const Region* region : {&a, &b}) {
      for (std::uint64_t page = 0; page < kPagesEach; ++page) put(*region, thread * kPagesEach + page, number, thread);
      put(*region, thread * kPagesEach, number);
      std::this_thread::yield();  // half done: what others persist meanwhile must not have this
    }
    const auto done = number % 2 == 0 ? Store::persist({&a, &b}, Scope::thread) : store.persist(Scope::thread);
    if (!done) ::_exit(5);
    told.acknowledged[thread] = number;
  }
}

void live(const std::string& path, Tracker tracker, Told& told) {
  const Store store = open_store(path);
  const Region a = open_region(store, "a", tracker);
  const Region b = open_region(store, "b", tracker);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { persist_for_ever(store, a, b, thread, told); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ThreadScope, TwentyThreadsLoseNothingAcknowledged) {
  const TempFolder folder;
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const SharedWithChildren<Told> told;
  for (std::uint64_t life = 0; life < 10; ++life) {
    const std::uint64_t enough = told->acknowledged[life % kThreads] + 1 + random() % 8;
    KilledProcess child;
    child.start([&] { live(folder / "store", GetParam(), *told); },
                [&] { return told->acknowledged[life % kThreads] >= enough; });
    child.kill_working(random() % 3000);
    ASSERT_FALSE(HasFailure());

    const Store store = open_store(folder / "store");
    const Region a = open_region(store, "a", GetParam());
    const Region b = open_region(store, "b", GetParam());
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      const std::uint64_t found = word(a, thread * kPagesEach);
      EXPECT_GE(found, told->acknowledged[thread].load()) << "thread " << thread;
      EXPECT_LE(found, told->acknowledged[thread].load() + 1) << "thread " << thread;
      for (const Region* region : {&a, &b}) {
        for (std::uint64_t page = 0; page < kPagesEach; ++page) {
          ASSERT_EQ(word(*region, thread * kPagesEach + page, thread), found) << "thread " << thread;
        }
      }
      told->acknowledged[thread] = found;
    }
  }
}

// ---- heaps, killed at random -----------------------------------------------------------------------------------

// The lists of a thread, which come and go, and of which each entry has the number of the commit.
using Numbers = memlith::vector<std::uint64_t>;
struct Own {
  memlith::map<std::uint64_t, Numbers> numbers;
};
std::string name_of(std::uint64_t thread) { return "thread " + std::to_string(thread); }
// The sizes of the lists of commit `number`: of slabs, of pages, of whole segments.
std::uint64_t size_of(std::uint64_t number, std::uint64_t thread) {
  if ((number + thread) % 61 == 0) return 131'000 + number % 7;
  return (number + thread) % 17 == 0 ? 6000 + number % 100 : number % 90;
}
constexpr std::uint64_t kLists = 12;

// Blocks of one thread that another thread frees: passed on behind a persist.
struct PassedOn {
  std::array<std::atomic<void*>, kThreads> block;
};

[[noreturn]] void use_heap_for_ever(const Heap& heap, std::uint64_t thread, Own& own, Told& told, PassedOn& passed) {
  for (std::uint64_t number = own.numbers.empty() ? 1 : own.numbers.rbegin()->first + 1;; ++number) {
    own.numbers.emplace(number, Numbers(size_of(number, thread), number, heap.get_allocator()));
    std::this_thread::yield();  // half done: what others persist meanwhile must not have this
    if (number > kLists) own.numbers.erase(number - kLists);
    void* const mine = or_leave(heap.allocate(100 + number % 400), 6);
    void* const others = passed.block[(thread + 1) % kThreads].exchange(nullptr);
    if (others != nullptr && !heap.deallocate(others)) ::_exit(7);
    if (!heap.persist(Scope::thread)) ::_exit(5);
    told.acknowledged[thread] = number;
    void* const left = passed.block[thread].exchange(mine);  // from here on the next thread may free it
    if (left != nullptr && !heap.deallocate(left)) ::_exit(7);
  }
}

Heap open_heap(const Store& store, Tracker tracker) {
  Heap heap = or_leave(Heap::open(store, "heap", {.create = true, .thread_scope = true, .tracker = tracker}), 4);
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    // Each by a thread of its own, so that no two of them are in one page.
    if (!heap.find<Own>(name_of(thread))) {
      std::thread([&] { (void)or_leave(heap.construct<Own>(name_of(thread)), 6); }).join();
    }
  }
  if (!heap.persist()) ::_exit(5);
  return heap;
}

void live_in_heap(const std::string& path, Told& told) {
  const Store store = open_store(path);
  const Heap heap = open_heap(store, Tracker::automatic);
  PassedOn passed{};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    Own& own = *or_leave(heap.find<Own>(name_of(thread)), 6);
    threads.emplace_back([&, thread] { use_heap_for_ever(heap, thread, own, told, passed); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadScopeOfHeaps, TwentyThreadsLoseNothingAcknowledged) {
  const TempFolder folder;
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const SharedWithChildren<Told> told;
  for (std::uint64_t life = 0; life < 10; ++life) {
    const std::uint64_t enough = told->acknowledged[life % kThreads] + 1 + random() % 30;
    KilledProcess child;
    child.start([&] { live_in_heap(folder / "store", *told); },
                [&] { return told->acknowledged[life % kThreads] >= enough; });
    child.kill_working(random() % 3000);
    ASSERT_FALSE(HasFailure());

    const Store store = open_store(folder / "store");
    const Heap heap = open_heap(store, Tracker::automatic);
    ASSERT_TRUE(heap.verify()) << "life " << life;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      const Own& own = *or_leave(heap.find<Own>(name_of(thread)), 6);
      const std::uint64_t found = own.numbers.empty() ? 0 : own.numbers.rbegin()->first;
      EXPECT_GE(found, told->acknowledged[thread].load()) << "thread " << thread;
      EXPECT_LE(found, told->acknowledged[thread].load() + 1) << "thread " << thread;
      ASSERT_EQ(own.numbers.size(), std::min(found, kLists)) << "thread " << thread;
      for (const auto& [number, numbers] : own.numbers) {
        ASSERT_EQ(numbers, Numbers(size_of(number, thread), number, heap.get_allocator())) << "thread " << thread;
      }
      told->acknowledged[thread] = found;
    }
  }
}

// ---- MEMLITH_CHECK_THREADS -------------------------------------------------------------------------------------

class CheckThreads : public ::testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "the check works on x86-64 only";
#endif
    if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer calls signal handlers when it pleases";
  }
  // The standard error of a child that checks, and that opens a region of the store and works on it.
  static std::string said_by(Tracker tracker, const std::function<bool(const Store&, const Region&)>& work,
                             const char* check = "1") {
    const TempFolder folder;
    return in_child([&]() -> std::string {
      ::setenv("MEMLITH_CHECK_THREADS", check, 1);
      const std::string path = folder / "stderr";
      if (std::freopen(path.c_str(), "w", stderr) == nullptr) return "no file for standard error";
      {
        const Store store = open_store(folder / "store");
        const Region region = open_region(store, "shared", tracker);
        if (!work(store, region)) std::fprintf(stderr, "the work failed\n");
      }
      std::fflush(stderr);
      return read_file(path);
    });
  }
  static void by_another(const std::function<void()>& work) { std::thread(work).join(); }
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(CheckThreads, FindsAPageThatTwoThreadsStoreTo) {
  const std::string said = said_by(Tracker::automatic, [](const Store&, const Region& region) {
    put(region, 3, 1);
    by_another([&] { put(region, 3, 2, 5); });
    put(region, 3, 3, 6);
    put(region, 4, 4);
    return region.persist(Scope::thread).ok() && region.persist(Scope::thread).ok();
  });
  EXPECT_EQ(count_of(said, "two threads stored to page 3 between persists of thread scope"), 1u) << said;
  EXPECT_EQ(count_of(said, "two threads stored"), 1u) << said;
  EXPECT_NE(said.find("region \"shared\""), std::string::npos) << said;
  EXPECT_NE(said.find(" to offset 0x3000 at 0x"), std::string::npos) << said;
  EXPECT_NE(said.find(" to offset 0x3028 at 0x"), std::string::npos) << said;
  EXPECT_EQ(count_of(said, " at 0x"), 2u) << "both places in the code: " << said;
  EXPECT_EQ(count_of(said, "capi_tests"), 2u) << said;
}

// Also the page whose first store is another thread's, which leaves the caller's store out; and a large store, and one
// across a border of pages.
TEST_F(CheckThreads, FindsAStoreThatAPersistLeavesOut) {
  const std::string said = said_by(Tracker::fault, [](const Store& store, const Region& region) {
    by_another([&] { put(region, 0, 1); });
    std::memset(&word(region, 0), 9, 2 * kPageBytes);
    by_another([&] { std::memcpy(reinterpret_cast<char*>(&word(region, 2)) - 3, "123456", 6); });
    return store.persist(Scope::thread).ok();
  });
  EXPECT_EQ(count_of(said, "stored to page 0 "), 1u) << said;
  EXPECT_EQ(count_of(said, "stored to page 1 "), 1u) << said;
  EXPECT_EQ(count_of(said, "two threads stored"), 2u) << said;
}

// A system call that stores for another thread.
TEST_F(CheckThreads, FindsAPreparedPage) {
  const std::string said = said_by(Tracker::fault, [](const Store&, const Region& region) {
    put(region, 1, 1);
    by_another([&] { (void)region.prepare(&word(region, 1, 8), 8); });
    return region.persist(Scope::thread).ok();
  });
  EXPECT_EQ(count_of(said, "stored to page 1 "), 1u) << said;
  EXPECT_NE(said.find("by memlith_prepare"), std::string::npos) << said;
}

TEST_F(CheckThreads, SaysNothingOfOthers) {
  const auto work = [](const Store& store, const Region& region) {
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {  // neighbouring pages
        for (std::uint64_t i = 1; i <= 20; ++i) {
          put(region, thread, i, i);
          if (!region.persist(Scope::thread)) std::fprintf(stderr, "a persist failed\n");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // A page that is passed on, behind a persist.
    put(region, 9, 1);
    if (!region.persist(Scope::thread)) return false;
    by_another([&] {
      put(region, 9, 2);
      (void)region.persist(Scope::thread);
    });
    // With process scope, threads share pages.
    put(region, 9, 3);
    by_another([&] { put(region, 9, 4, 1); });
    return store.persist().ok() && store.persist(Scope::thread).ok() && region.rollback(Scope::thread).ok() &&
           word(region, 9) == 3 && word(region, 9, 1) == 4;
  };
  EXPECT_EQ(said_by(Tracker::automatic, work), "");
  EXPECT_EQ(said_by(Tracker::touched, work), "");
  // With the explicit tracker threads may share pages; and without the check nothing is said.
  const auto shared = [](const Store&, const Region& region) {
    put(region, 0, 1);
    by_another([&] { put(region, 0, 2, 1); });
    return region.persist(Scope::thread).ok();
  };
  EXPECT_EQ(said_by(Tracker::touched, shared), "");
  EXPECT_EQ(said_by(Tracker::automatic, shared, "0"), "");
}

// Bytes that are stored under the check are persisted as ever.
TEST_F(CheckThreads, LosesNoStore) {
  const std::string said = said_by(Tracker::fault, [](const Store& store, const Region& region) {
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < 64; ++i) word(region, i % kPagesEach, 4 * i + thread) = 100 * i + thread;
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!store.persist()) return false;
    const auto shown = region.snapshot();
    if (!shown) return false;
    bool same = true;
    for (std::uint64_t i = 0; i < 256; ++i) {
      const char* const page = static_cast<const char*>(shown->address()) + i / 4 % kPagesEach * kPageBytes;
      same = same && reinterpret_cast<const std::uint64_t*>(page)[i] == 100 * (i / 4) + i % 4;
    }
    return same;
  });
  EXPECT_EQ(said, "");
}

// A handler of SIGTRAP that the program installs later takes the check's place: that is said once, and stores go on.
TEST_F(CheckThreads, SaysThatAnotherHandlerTookItsPlace) {
  static std::atomic<std::uint64_t> traps{0};
  const auto share = [](const Region& region) {
    put(region, 2, 1);
    by_another([&] { put(region, 2, 2, 1); });
  };
  const std::string said = said_by(Tracker::fault, [&share](const Store& store, const Region& region) {
    std::signal(SIGTRAP, [](int) { ++traps; });
    share(region);
    return region.persist(Scope::thread).ok() && store.persist(Scope::thread).ok() && store.persist().ok() &&
           traps == 0;
  });
  EXPECT_EQ(count_of(said, "the program has installed a handler of SIGTRAP"), 1u) << said;
  EXPECT_EQ(count_of(said, "\n"), 1u) << said;
}

std::atomic<std::uint64_t> g_alarms{0};
const Region* g_region = nullptr;

// A signal handler of the program that stores to the same page, too, at any moment of the thread.
TEST_F(CheckThreads, LetsSignalHandlersStore) {
  const std::string said = said_by(Tracker::fault, [](const Store&, const Region& region) {
    constexpr std::uint64_t kAlarms = 50;
    g_region = &region;
    std::signal(SIGALRM, [](int) { word(*g_region, 1, 100) = ++g_alarms; });
    std::thread sender([thread = ::pthread_self()] {
      for (std::uint64_t sent = 0; sent < kAlarms; ++sent) {
        ::pthread_kill(thread, SIGALRM);
        while (g_alarms <= sent) std::this_thread::yield();
      }
    });
    std::uint64_t stores = 0;
    while (g_alarms < kAlarms) {
      ++stores;
      word(region, 1, stores % 100) = stores;
    }
    sender.join();
    return region.persist(Scope::thread).ok() && word(region, 1, 100) == kAlarms &&
           word(region, 1, stores % 100) == stores;
  });
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace memlith::test::thread_scope_test
