// region/store_lists.hpp: reports of instrumented code are taken once and never lost, whatever interrupts what.
#include "region/store_lists.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "region/tracker.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::store_lists_test {
namespace {

using namespace core;

constexpr std::uintptr_t kBase = 0x200000000000;
constexpr std::uintptr_t kBytes = 1 << 20;

class StoreLists : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(watch_stores(memory_));
    add_tracked_addresses(&cell_);
  }
  void TearDown() override {
    remove_tracked_addresses(&cell_);
    unwatch_stores(memory_);
  }
  std::vector<Range> take(ThreadNumber thread = kAllThreads) {
    std::vector<StoredBy> taken;
    EXPECT_OK(take_stores(thread, memory_, taken));
    std::vector<Range> ranges;
    for (const StoredBy& each : taken) ranges.push_back({each.range.begin - kBase, each.range.end - each.range.begin});
    normalize(ranges);
    return ranges;
  }
  static void record(std::uint64_t offset, std::uint64_t bytes) {
    record_store(kBase + offset, kBase + offset + bytes);
  }
  StoredRange memory_{kBase, kBase + kBytes};
  TrackedAddresses cell_;
};

using Ranges = std::vector<Range>;

TEST_F(StoreLists, GiveWhatWasRecordedOnce) {
  record(16, 4);
  record(20, 4);
  record(100, 1);
  record(18, 2);
  EXPECT_EQ(take(), (Ranges{{16, 8}, {100, 1}}));
  EXPECT_EQ(take(), Ranges{});
  record(100, 1);
  EXPECT_EQ(take(), (Ranges{{100, 1}})) << "a range that was taken is recorded again";
}

TEST_F(StoreLists, CutRangesToTheRegion) {
  record_store(kBase - 8, kBase + 8);
  record_store(kBase + kBytes - 1, kBase + kBytes + 7);
  record_store(kBase + kBytes, kBase + kBytes + 7);
  EXPECT_EQ(take(), (Ranges{{0, 8}, {kBytes - 1, 1}}));
}

TEST_F(StoreLists, TellTheAddressesToEachModule) {
  EXPECT_EQ(cell_.low, kBase - kTrackedMargin);
  EXPECT_EQ(cell_.high, kBase + kBytes + kTrackedMargin);
  const StoredRange other{kBase + 8 * kBytes, kBase + 9 * kBytes};
  ASSERT_OK(watch_stores(other));
  EXPECT_EQ(cell_.high, other.end + kTrackedMargin);
  unwatch_stores(other);
  EXPECT_GE(cell_.high, memory_.end);
  unwatch_stores(memory_);
  EXPECT_EQ(cell_.high, 0u);
  EXPECT_EQ(cell_.low, ~std::uintptr_t{0});
  ASSERT_OK(watch_stores(memory_));
}

// A thread stores, another one sees that and stores: never is the second store taken without the first. Lists of other
// threads lie between those of the two, so that a taker that looks at one after the other needs a while in between.
TEST_F(StoreLists, TakeNoStoreWithoutTheOneBeforeIt) {
  constexpr std::uint64_t kPlaces =
      kBytes / 32;  // the first thread's at the beginning of 32 bytes, the second's behind
  constexpr int kBetween = 200;
  std::atomic<std::uint64_t> first{0};
  std::atomic<std::uint64_t> second{0};
  std::atomic<int> lists{0};
  std::atomic<bool> begins{false};
  const auto make_list = [&] {
    record(0, 8);
    record(16, 8);
    const int made = ++lists;
    begins.wait(false);
    return made;
  };
  const auto store_after = [&](std::atomic<std::uint64_t>& seen, std::uint64_t less, std::atomic<std::uint64_t>& mine,
                               std::uint64_t offset) {
    make_list();
    for (std::uint64_t place = 0; place < kPlaces; ++place) {
      while (seen.load(std::memory_order_acquire) < place + 1 - less) {
      }
      record(place * 32 + offset, 8);
      mine.store(place + 1, std::memory_order_release);
    }
  };
  // The list that was made last is looked at first.
  std::vector<std::thread> threads;
  const auto start = [&](auto&& act) {
    const int before = lists;
    threads.emplace_back(act);
    while (lists == before) std::this_thread::yield();
  };
  start([&] { store_after(first, 0, second, 16); });
  for (int i = 0; i < kBetween; ++i) start(make_list);
  start([&] { store_after(second, 1, first, 0); });
  (void)take();
  begins = true;
  begins.notify_all();

  // By place: 1 when its first store was taken, 2 when its second was. A store may be taken twice.
  std::vector<unsigned> found(kPlaces);
  std::uint64_t wrong = 0;
  const auto look = [&] {
    const std::vector<Range> taken = take();
    for (const Range& each : taken) found[each.offset / 32] |= each.offset % 32 == 0 ? 1u : 2u;
    for (const Range& each : taken) wrong += found[each.offset / 32] == 2 ? 1 : 0;
  };
  while (second.load(std::memory_order_relaxed) < kPlaces) look();
  for (std::thread& each : threads) each.join();
  look();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(std::count(found.begin(), found.end(), 3), static_cast<std::ptrdiff_t>(kPlaces)) << "none is lost";
}

// A region is closed: what was stored to it is forgotten, and what was stored to another one is not.
TEST_F(StoreLists, ForgetAClosedRegion) {
  const StoredRange other{kBase + 8 * kBytes, kBase + 9 * kBytes};
  ASSERT_OK(watch_stores(other));
  record(8, 8);
  record_store(other.begin, other.begin + 8);
  unwatch_stores(other);
  ASSERT_OK(watch_stores(other));
  std::vector<StoredBy> taken;
  ASSERT_OK(take_stores(kAllThreads, other, taken));
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(take(), (Ranges{{8, 8}}));
  unwatch_stores(other);
}

// Far more than the ring holds, in random order, against a set of bytes.
TEST_F(StoreLists, AgreeWithASetOfBytes) {
  Random random(43);
  for (int round = 0; round < 3; ++round) {
    std::vector<bool> stored(kBytes, false);
    for (int i = 0; i < 50'000; ++i) {
      const Range range{random.below(kBytes - 64), 1 + random.below(64)};
      record(range.offset, range.bytes);
      std::fill_n(stored.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    }
    std::vector<bool> seen(kBytes, false);
    for (const Range& range : take())
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
    ASSERT_TRUE(seen == stored) << round;
  }
}

TEST_F(StoreLists, TellThreadsApartAndKeepThoseThatEnded) {
  record(0, 8);
  ThreadNumber other = 0;
  std::thread([&] {
    other = this_thread_number();
    record(8, 8);
    for (std::uint64_t i = 0; i < 5000; ++i) record(4096 + 16 * i, 1);
  }).join();
  EXPECT_EQ(take(this_thread_number()), (Ranges{{0, 8}}));
  std::thread([&] { EXPECT_EQ(take(this_thread_number()), Ranges{}); }).join();
  const Ranges rest = take(other);
  ASSERT_EQ(rest.size(), 5001u);
  EXPECT_EQ(rest.front(), (Range{8, 8}));
  EXPECT_EQ(take(), Ranges{});
  for (int i = 0; i < 50; ++i) std::thread([&] { record(24, 8); }).join();
  EXPECT_EQ(take(), (Ranges{{24, 8}}));
}

// Threads count up in their own words while another thread takes: the last value of each word was taken after it was
// stored, or is in the next ranges.
TEST_F(StoreLists, LoseNothingWhileOthersTake) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kWords = 64;
  static std::atomic<std::uint64_t> memory[kThreads][kWords];
  std::uint64_t copy[kThreads][kWords] = {};
  for (auto& row : memory) {
    for (auto& word : row) word = 0;
  }
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      for (std::uint64_t i = 1; i <= 150'000; ++i) {
        const std::uint64_t word = random.one_in(2) ? i % kWords : 5;
        memory[t][word].store(i, std::memory_order_relaxed);
        record((static_cast<std::uint64_t>(t) * kWords + word) * 8, 8);
      }
      --running;
    });
  }
  const auto copy_taken = [&] {
    for (const Range& range : take()) {
      for (std::uint64_t at = range.offset / 8; at < (range.offset + range.bytes) / 8; ++at) {
        copy[at / kWords][at % kWords] = memory[at / kWords][at % kWords].load(std::memory_order_relaxed);
      }
    }
  };
  while (running > 0) copy_taken();
  for (std::thread& thread : threads) thread.join();
  copy_taken();
  for (int t = 0; t < kThreads; ++t) {
    for (std::uint64_t word = 0; word < kWords; ++word) EXPECT_EQ(copy[t][word], memory[t][word].load()) << t << word;
  }
}

void announce(std::uint64_t offset, std::uint64_t bytes) { announce_store(kBase + offset, kBase + offset + bytes); }

// GCC's code tells of a store before it is made, and not of every further one to the same place.
TEST_F(StoreLists, TakeAnnouncedStoresUntilTheirThreadSettles) {
  announce(16, 4);
  EXPECT_EQ(take(), (Ranges{{16, 4}}));
  EXPECT_EQ(take(), Ranges{}) << "the thread that takes has settled";

  std::atomic<int> step{0};
  const auto go = [&step](int to) {
    step = to;
    step.notify_all();
    while (step == to) step.wait(to);
  };
  std::thread storing([&] {
    for (int done = 0;;) {
      while (step == done) step.wait(done);
      switch (step) {
        case 1: announce(32, 8), announce(40, 8), record(100, 4); break;
        case 3: settle_stores(), announce(40, 8), announce(200, 8); break;
        case 5: settle_stores(); break;
        default: return;
      }
      done = step + 1;
      step = done;
      step.notify_all();
    }
  });
  go(1);
  EXPECT_EQ(take(), (Ranges{{32, 16}, {100, 4}}));
  EXPECT_EQ(take(), (Ranges{{32, 16}, {100, 4}})) << "what was announced may be stored again";
  go(3);
  EXPECT_EQ(take(), (Ranges{{32, 16}, {100, 4}, {200, 8}})) << "a last time, and what is announced since";
  EXPECT_EQ(take(), (Ranges{{40, 8}, {200, 8}}));
  go(5);
  EXPECT_EQ(take(), (Ranges{{40, 8}, {200, 8}}));
  EXPECT_EQ(take(), Ranges{});
  step = 7;
  step.notify_all();
  storing.join();

  std::thread([] { announce(64, 8); }).join();
  EXPECT_EQ(take(), (Ranges{{64, 8}}));
  EXPECT_EQ(take(), Ranges{}) << "its thread has ended";
}

// Threads announce a word once and count it up many times, among more other words than a list has room for.
TEST_F(StoreLists, LoseNothingOfWhatIsAnnouncedOnce) {
  constexpr std::uint64_t kWords = 3000;
  static std::atomic<std::uint64_t> memory[2][kWords];
  std::uint64_t copy[2][kWords] = {};
  for (auto& row : memory) {
    for (auto& word : row) word = 0;
  }
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < 40; ++round) {
        announce(t * kWords * 8, 8);
        for (std::uint64_t i = 1; i < kWords; ++i) {
          announce((t * kWords + i * 7 % kWords) * 8, 8);
          memory[t][i * 7 % kWords].store(round, std::memory_order_relaxed);
          memory[t][0].fetch_add(1, std::memory_order_relaxed);
        }
        if (round % 3 == 2) settle_stores();
      }
      --running;
    });
  }
  const auto copy_taken = [&] {
    for (const Range& range : take()) {
      for (std::uint64_t at = range.offset / 8; at < (range.offset + range.bytes) / 8; ++at) {
        copy[at / kWords][at % kWords] = memory[at / kWords][at % kWords].load(std::memory_order_relaxed);
      }
    }
  };
  while (running > 0) copy_taken();
  for (std::thread& thread : threads) thread.join();
  copy_taken();
  for (std::uint64_t t = 0; t < 2; ++t) {
    for (std::uint64_t word = 0; word < kWords; ++word) EXPECT_EQ(copy[t][word], memory[t][word].load()) << t << word;
  }
}

// A value that another thread has seen is in that thread's ranges, though its store is recorded a moment later.
TEST_F(StoreLists, KnowAtomicStoresBeforeTheyAreRecorded) {
  static std::atomic<std::uint64_t> word;
  word = 0;
  std::atomic<bool> stop{false};
  std::thread storing([&] {
    for (std::uint64_t i = 1; i <= 100'000 && !stop; ++i) {
      begin_atomic_store(kBase, kBase + 8);
      word.store(i, std::memory_order_release);
      if (i % 1000 == 0) std::this_thread::yield();
      end_atomic_store(kBase, kBase + 8, true);
    }
    stop = true;
  });
  std::uint64_t copy = 0;
  while (!stop) {
    const std::uint64_t seen = word.load(std::memory_order_acquire);
    if (!take().empty()) copy = word.load(std::memory_order_acquire);
    if (copy < seen) {
      ADD_FAILURE() << "saw " << seen << ", and the copy has " << copy;
      break;
    }
  }
  stop = true;
  storing.join();
  begin_atomic_store(kBase, kBase + 8);
  end_atomic_store(kBase, kBase + 8, false);
  (void)take();
  EXPECT_EQ(take(), Ranges{}) << "a compare-and-swap that fails stores nothing";
}

std::atomic<std::uint64_t> g_handled{0};
void record_in_handler(int) {
  // Its own bytes, each once.
  const std::uint64_t number = g_handled.fetch_add(1);
  record_store(kBase + kBytes / 2 + number % (kBytes / 4) * 2, kBase + kBytes / 2 + number % (kBytes / 4) * 2 + 1);
}

// A signal handler stores, whatever the thread is in the middle of.
TEST_F(StoreLists, LoseNothingToSignalHandlers) {
  g_handled = 0;
  struct sigaction action{}, before{};
  action.sa_handler = record_in_handler;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 50}, {0, 50}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  std::vector<bool> mine(kBytes / 4, false);
  std::vector<bool> seen(kBytes, false);
  Random random(47);
  for (int i = 0; i < 1'000'000; ++i) {
    const std::uint64_t at = random.below(kBytes / 4 / 16) * 16;
    mine[at] = true;
    record(at, 1);
    if (i % 30'000 != 0) continue;
    for (const Range& range : take())
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
  }
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  for (const Range& range : take())
    std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes, true);
  for (std::uint64_t at = 0; at < mine.size(); ++at) ASSERT_EQ(seen[at], mine[at]) << at;
  const std::uint64_t handled = g_handled;
  EXPECT_GT(handled, 0u);
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(handled, kBytes / 4); ++i) {
    ASSERT_TRUE(seen[kBytes / 2 + 2 * i]) << "signal " << i << " of " << handled;
  }
}

// A child that was forked while other threads store can watch memory of its own.
TEST_F(StoreLists, WorkInAForkedChild) {
  std::atomic<bool> stop{false};
  std::thread storing([&] {
    for (std::uint64_t i = 0; !stop; ++i) record(i % 1000 * 64, 8);
  });
  for (int i = 0; i < 20; ++i) {
    (void)take();
    const pid_t child = ::fork();
    if (child == 0) {
      const StoredRange own{kBase + 16 * kBytes, kBase + 17 * kBytes};
      std::vector<StoredBy> taken;
      if (!watch_stores(own).ok()) ::_exit(2);
      for (std::uint64_t k = 0; k < 5000; ++k) record_store(own.begin + 16 * k, own.begin + 16 * k + 1);
      if (!take_stores(kAllThreads, own, taken).ok()) ::_exit(3);
      ::_exit(taken.size() == 5000 ? 0 : 4);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  storing.join();
}

// Stores recorded by hand are persisted; others are not.
TEST(InstrumentedRegion, PersistsExactlyWhatWasRecorded) {
  RegionWorld world(TrackerKind::instrumented, {});
  Region& region = world.open("a", 16 * kPageBytes);
  std::memset(region.address(), 7, 64);
  const auto base = reinterpret_cast<std::uintptr_t>(region.address());
  record_store(base + 1, base + 3);
  record_store(base + 62, base + 64);
  ASSERT_OK(persist(region));
  world.crash();
  const Region& again = world.open("a");
  for (std::uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(again.address()[i], std::byte{static_cast<unsigned char>(i == 1 || i == 2 || i >= 62 ? 7 : 0)}) << i;
  }
}

}  // namespace
}  // namespace memlith::test::store_lists_test
