// docs/threads.md: threads that change shared data under a lock persist with persist(lock), which captures while the
// lock is held. Then no kill shows half a change. The other order, unlock and then persist, does: here by construction,
// not by luck.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::threads_test {
namespace {

constexpr std::uint64_t kThreads = 8;
constexpr std::uint64_t kAccounts = 64;
constexpr std::uint64_t kMoney = 1000;  // in each at first
constexpr int kKills = 25;

// Accounts side by side, so that threads share pages; and how many transfers each thread has made, in the same
// transaction.
struct Bank {
  std::array<std::int64_t, kAccounts> accounts;
  std::array<std::uint64_t, kThreads> transfers;
  Bank() : accounts{}, transfers{} { accounts.fill(kMoney); }
  [[nodiscard]] std::int64_t sum() const {
    std::int64_t sum = 0;
    for (const std::int64_t account : accounts) sum += account;
    return sum;
  }
};
constexpr std::int64_t kSum = kAccounts * kMoney;

// The store and its bank, which stays open until the process ends.
struct OpenBank {
  Store store;
  Region region;
  Bank* bank;
};
OpenBank open_bank(const std::string& path, Tracker tracker) {
  auto store = Store::open(path, {.create = true, .log_bytes = 1 << 20});
  if (!store) std::fprintf(stderr, "%s\n", store.error().message().c_str()), ::_exit(3);
  auto region = store->region("bank", {.create = true, .tracker = tracker, .size = 1 << 16});
  if (!region) std::fprintf(stderr, "%s\n", region.error().message().c_str()), ::_exit(4);
  auto bank = region->root<Bank>();
  if (!bank || !region->persist()) ::_exit(5);
  Bank* const address = *bank;
  return {std::move(*store), std::move(*region), address};
}

void add(const Region& region, std::int64_t& account, std::int64_t money) {
  account += money;
  (void)region.touch(&account);
}
void count(const Region& region, std::uint64_t& transfers) {
  ++transfers;
  (void)region.touch(&transfers);
}

class Threads : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, Threads, ::testing::Values(Tracker::scan, Tracker::fault, Tracker::touched),
                         [](const auto& given) {
                           return given.param == Tracker::scan    ? "Scan"
                                  : given.param == Tracker::fault ? "Fault"
                                                                  : "Explicit";
                         });

// ---- the recipe, killed at random ------------------------------------------------------------------------------

struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
};

void transfer_for_ever(const OpenBank& open, std::mutex& mutex, Told& told, std::uint64_t thread, std::uint64_t seed) {
  std::mt19937_64 random(seed + thread);
  for (;;) {
    std::unique_lock lock(mutex);
    const auto money = static_cast<std::int64_t>(random() % 100);
    add(open.region, open.bank->accounts[random() % kAccounts], -money);
    if (random() % 4 == 0) std::this_thread::yield();  // half done: what others capture meanwhile must not hold this
    add(open.region, open.bank->accounts[random() % kAccounts], money);
    count(open.region, open.bank->transfers[thread]);
    if (!open.region.persist(lock) || lock.owns_lock()) ::_exit(6);
    told.acknowledged[thread].fetch_add(1);
  }
}

void live(const std::string& path, Tracker tracker, Told& told, std::uint64_t seed) {
  const OpenBank open = open_bank(path, tracker);
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { transfer_for_ever(open, mutex, told, thread, seed); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Threads, NoKillShowsHalfAChange) {
  const TempFolder folder;
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, kThreads> before{};
  for (int kill = 0; kill < kKills; ++kill) {
    const SharedWithChildren<Told> told;
    const std::uint64_t of_the_child = random();
    KilledProcess child;
    child.start([&] { live(folder / "store", GetParam(), *told, of_the_child); },
                [&] { return told->acknowledged[static_cast<std::size_t>(kill) % kThreads] != 0; });
    child.kill_working(random() % 10'000);
    ASSERT_FALSE(HasFailure());

    OpenBank open = open_bank(folder / "store", GetParam());
    ASSERT_EQ(open.bank->sum(), kSum) << "half a transfer came back; kill " << kill;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      const std::uint64_t made = open.bank->transfers[thread] - before[thread];
      before[thread] = open.bank->transfers[thread];
      EXPECT_GE(made, told->acknowledged[thread].load()) << "an acknowledged transfer is lost; thread " << thread;
      EXPECT_LE(made, told->acknowledged[thread].load() + 1) << "thread " << thread;
    }
    ASSERT_TRUE(open.store.close());
  }
}

// ---- why the order matters -------------------------------------------------------------------------------------

// A mutex that, when it is let go for the first time, lets the other thread take it and make the first half of a
// change. So the other thread is in the middle of its change by the time that unlock() returns: one of the schedules
// that any machine may choose.
class HandOver {
 public:
  void lock() { mutex_.lock(); }
  void unlock() {
    mutex_.unlock();
    if (std::this_thread::get_id() != first_) return;
    unlocked_ = true;
    while (!half_done_) std::this_thread::yield();
  }
  void wait_until_unlocked() const {
    while (!unlocked_) std::this_thread::yield();
  }
  void half_done() { half_done_ = true; }

 private:
  std::mutex mutex_;
  const std::thread::id first_ = std::this_thread::get_id();
  std::atomic<bool> unlocked_{false};
  std::atomic<bool> half_done_{false};
};

enum class Order : std::uint8_t { unlock_then_persist, persist_with_the_lock };

// One thread makes a transfer and persists it, while another one is stuck half-way in a transfer of its own. Then the
// process dies.
[[noreturn]] void make_one_and_a_half(const std::string& path, Tracker tracker, Order order) {
  ::alarm(60);
  const OpenBank open = open_bank(path, tracker);
  HandOver mutex;
  std::thread([&] {
    mutex.wait_until_unlocked();
    const std::lock_guard lock(mutex);
    add(open.region, open.bank->accounts[3], -7);
    mutex.half_done();
    for (;;) ::pause();  // it would add them to another account now
  }).detach();
  std::unique_lock lock(mutex);
  add(open.region, open.bank->accounts[1], -5);
  add(open.region, open.bank->accounts[2], 5);
  bool done = false;
  if (order == Order::unlock_then_persist) {
    lock.unlock();
    done = open.region.persist().ok();
  } else {
    done = open.region.persist(lock).ok();
  }
  ::_exit(done && !lock.owns_lock() && open.bank->accounts[3] == kMoney - 7 ? 0 : 8);
}

// The accounts 1, 2 and 3, as found after that.
std::array<std::int64_t, 3> found_after(Tracker tracker, Order order) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) make_one_and_a_half(folder / "store", tracker, order);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const OpenBank open = open_bank(folder / "store", tracker);
  return {open.bank->accounts[1], open.bank->accounts[2], open.bank->accounts[3]};
}

TEST_P(Threads, TheOrderMatters) {
  using Found = std::array<std::int64_t, 3>;
  EXPECT_EQ(found_after(GetParam(), Order::persist_with_the_lock), (Found{kMoney - 5, kMoney + 5, kMoney}));
  EXPECT_EQ(found_after(GetParam(), Order::unlock_then_persist), (Found{kMoney - 5, kMoney + 5, kMoney - 7}))
      << "the wrong order has become right: change docs/threads.md";
}

// ---- the call itself -------------------------------------------------------------------------------------------

template <class T>
::testing::AssertionResult refused(const T& result, std::int32_t category) {
  if (result.ok()) return ::testing::AssertionFailure() << "ok";
  if (result.error().category() == category && !result.error().message().empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().code() << ": " << result.error().message();
}

// Any lock that std::unique_lock takes; several regions in one.
TEST_P(Threads, TakesAnyLockAndSeveralRegions) {
  const TempFolder folder;
  std::recursive_mutex mutex;
  {
    OpenBank open = open_bank(folder / "store", GetParam());
    auto other = open.store.region("other", {.create = true, .tracker = GetParam(), .size = 4096});
    ASSERT_TRUE(other) << other.error().message();
    auto* const word = static_cast<std::uint64_t*>(other->address());
    std::unique_lock lock(mutex);
    add(open.region, open.bank->accounts[0], 1);
    *word = 1;
    EXPECT_TRUE(other->touch(word));
    const std::uint64_t frames = open.store.info().frames;
    EXPECT_TRUE(open.store.persist({&open.region, &*other}, lock));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_EQ(open.store.info().frames, frames + 1);
    EXPECT_GE(open.store.durable(), 1u);
    // With nothing stored, the lock is let go all the same.
    lock.lock();
    EXPECT_TRUE(open.region.persist(lock));
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_TRUE(refused(open.region.persist(lock), MEMLITH_INVALID));
    EXPECT_TRUE(refused(open.store.persist({&*other}, lock), MEMLITH_INVALID));
  }
  const OpenBank open = open_bank(folder / "store", GetParam());
  EXPECT_EQ(open.bank->accounts[0], static_cast<std::int64_t>(kMoney) + 1);
}

// A change that cannot be captured leaves the lock held, so it can be taken back before another thread sees it.
TEST_P(Threads, AFailedCaptureKeepsTheLock) {
  const TempFolder folder;
  auto store = Store::open(folder / "store", {.create = true, .log_bytes = 1 << 20, .log_max_bytes = 1 << 20});
  ASSERT_TRUE(store) << store.error().message();
  auto region = store->region("large", {.create = true, .tracker = GetParam(), .size = 8 << 20});
  ASSERT_TRUE(region) << region.error().message();
  auto* const bytes = static_cast<unsigned char*>(region->address());
  std::mutex mutex;
  std::unique_lock lock(mutex);
  for (std::uint64_t i = 0; i < region->size(); i += 8) bytes[i] = static_cast<unsigned char>(i / 8 % 251 + 1);
  ASSERT_TRUE(region->touch(bytes, region->size()));
  EXPECT_TRUE(refused(region->persist(lock), MEMLITH_FULL));
  ASSERT_TRUE(lock.owns_lock());
  const auto undone = region->rollback();
  EXPECT_TRUE(undone) << undone.error().message();
  EXPECT_EQ(bytes[80], 0u);
  EXPECT_TRUE(region->persist(lock));
  if (region->info().tracker == MEMLITH_TRACKER_SCAN) {
    lock.lock();
    EXPECT_TRUE(refused(region->persist(lock, Scope::thread), MEMLITH_UNSUPPORTED));
    EXPECT_TRUE(lock.owns_lock());
  }
}

// The scope is the process's unless the thread's is asked for by name, whatever tracker the region was opened with:
// what another thread stored, to the same page even, is in the persist.
TEST_P(Threads, TheDefaultScopeIsTheProcess) {
  const TempFolder folder;
  {
    const OpenBank open = open_bank(folder / "store", GetParam());
    std::thread([&] { add(open.region, open.bank->accounts[0], 1); }).join();
    add(open.region, open.bank->accounts[1], 1);
    EXPECT_TRUE(open.region.persist());
    std::thread([&] { add(open.region, open.bank->accounts[0], 1); }).join();
    add(open.region, open.bank->accounts[1], 1);
    EXPECT_TRUE(open.store.persist());
    std::thread([&] { add(open.region, open.bank->accounts[0], 1); }).join();
    add(open.region, open.bank->accounts[1], 1);
    auto ticket = open.region.persist_async();
    ASSERT_TRUE(ticket);
    EXPECT_TRUE(open.store.wait(*ticket));
    std::thread([&] { add(open.region, open.bank->accounts[0], 1); }).join();
    EXPECT_TRUE(open.region.rollback());
  }
  const OpenBank open = open_bank(folder / "store", GetParam());
  EXPECT_EQ(open.bank->accounts[0], static_cast<std::int64_t>(kMoney) + 3);
  EXPECT_EQ(open.bank->accounts[1], static_cast<std::int64_t>(kMoney) + 3);
}

}  // namespace
}  // namespace memlith::test::threads_test
