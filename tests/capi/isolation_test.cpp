// The isolation test of MemSnap (ASPLOS 2024, section 7): threads increment random keys under page locks and persist
// what they stored, each for itself, until the process is killed. What comes back is explained exactly by the
// transactions that were acknowledged, plus at most one of each thread that was on its way, whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::isolation_test {
namespace {

constexpr std::uint64_t kThreads = 20;
constexpr std::uint64_t kKeys = 100'000;
constexpr std::uint64_t kKeysPerTransaction = 100;
constexpr std::uint64_t kKeysPerPage = 4;  // records of 1 KiB; with many to a page, all transactions would meet
// The fault tracker tells threads apart by the kernel's pages.
const auto kPageBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uint64_t kKeyPages = (kKeys + kKeysPerPage - 1) / kKeysPerPage;
const std::uint64_t kSize = (kThreads + kKeyPages) * kPageBytes;  // a page of its own for each thread, then the keys

// Shared with the child that is killed: how many transactions each thread was told are durable, and how many it began.
struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
  std::array<std::atomic<std::uint64_t>, kThreads> begun;
};

// The region: every thread counts its transactions in its own page, in the same transaction.
struct Layout {
  explicit Layout(void* address) : bytes(static_cast<char*>(address)) {}
  [[nodiscard]] std::uint64_t& done_by(std::uint64_t thread) const { return word(thread * kPageBytes); }
  [[nodiscard]] std::uint64_t& key(std::uint64_t number) const {
    return word((kThreads + number / kKeysPerPage) * kPageBytes + number % kKeysPerPage * 1024);
  }
  [[nodiscard]] std::uint64_t& word(std::uint64_t offset) const {
    return *reinterpret_cast<std::uint64_t*>(bytes + offset);
  }
  char* bytes;
};

Region open_region(const Store& store, Tracker tracker) {
  auto region = store.region("keys", {.create = true, .tracker = tracker, .size = kSize});
  if (!region) std::fprintf(stderr, "%s\n", region.error().message().c_str()), ::_exit(3);
  return std::move(*region);
}

void increment_for_ever(const Store& store, const Region& region, std::vector<std::mutex>& locks, Told& told,
                        std::uint64_t thread, std::uint64_t seed) {
  const Layout layout(region.address());
  std::mt19937_64 random(seed + thread);
  std::vector<std::uint64_t> keys(kKeysPerTransaction);
  std::vector<std::uint64_t> pages;
  for (;;) {
    pages.clear();
    for (std::uint64_t& key : keys) pages.push_back((key = random() % kKeys) / kKeysPerPage);
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    for (const std::uint64_t page : pages) locks[page].lock();
    told.begun[thread].fetch_add(1);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      // Half done, it waits: what others persist meanwhile must not hold the first half.
      if (i == keys.size() / 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      ++layout.key(keys[i]);
      (void)region.touch(&layout.key(keys[i]));
    }
    ++layout.done_by(thread);
    (void)region.touch(&layout.done_by(thread));
    // The capture fixes the order, so others may have the pages before it is durable.
    const auto ticket = region.persist_async(Scope::thread);
    for (const std::uint64_t page : pages) locks[page].unlock();
    if (!ticket || !store.wait(*ticket)) ::_exit(4);
    told.acknowledged[thread].fetch_add(1);
  }
}

void live(const std::string& path, Tracker tracker, Told& told, std::uint64_t seed) {
  auto store = Store::open(path, {.create = true, .log_bytes = 8 << 20});
  if (!store) ::_exit(5);
  const Region region = open_region(*store, tracker);
  std::vector<std::mutex> locks(kKeyPages);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { increment_for_ever(*store, region, locks, told, thread, seed); });
  }
  for (std::thread& thread : threads) thread.join();
}

class Isolation : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, Isolation, ::testing::Values(Tracker::fault, Tracker::touched),
                         [](const auto& given) { return given.param == Tracker::fault ? "Fault" : "Explicit"; });

TEST_P(Isolation, KilledAtRandom) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer dies with more than 64 locks held by a thread";
  const TempFolder folder;
  const std::string path = folder / "store";
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, kThreads> before{};
  std::uint64_t transactions = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    const SharedWithChildren<Told> shared;
    const Told& told = *shared;
    const std::uint64_t of_the_child = random();
    // Killed once something was acknowledged, at any moment after.
    KilledProcess child;
    child.start([&] { live(path, GetParam(), *shared, of_the_child); },
                [&] { return told.acknowledged[round % kThreads] != 0; });
    child.kill_working(random() % 40'000);
    ASSERT_FALSE(HasFailure());

    auto store = Store::open(path, {.create = true});
    ASSERT_TRUE(store) << store.error().message();
    const Region region = open_region(*store, GetParam());
    const Layout layout(region.address());
    std::uint64_t sum = 0;
    for (std::uint64_t key = 0; key < kKeys; ++key) sum += layout.key(key);
    std::uint64_t done = 0;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      const std::uint64_t now = layout.done_by(thread);
      done += now;
      const std::uint64_t since = now - before[thread];
      EXPECT_GE(since, told.acknowledged[thread].load()) << "an acknowledged transaction is lost; thread " << thread;
      EXPECT_LE(since, told.begun[thread].load()) << "thread " << thread;
      EXPECT_LE(since, told.acknowledged[thread].load() + 1) << "more than one was on its way; thread " << thread;
      before[thread] = now;
    }
    EXPECT_EQ(sum, done * kKeysPerTransaction) << "a transaction came back in part; round " << round;
    ASSERT_FALSE(HasFailure());
    transactions = done;
    ASSERT_TRUE(store->close());
  }
  std::printf("transactions %llu\n", static_cast<unsigned long long>(transactions));
  EXPECT_GE(transactions, 5u);
}

}  // namespace
}  // namespace memlith::test::isolation_test
