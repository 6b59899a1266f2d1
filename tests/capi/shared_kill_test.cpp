// docs/shared-regions.md, "What a death leaves": processes that move amounts between accounts of one table are killed
// again and again, and so are their keepers, and everything at once. The sum of the accounts stays zero, and every
// acknowledged commit is there. MEMLITH_KILLS: how many kills; `./dev soak shared` has many.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "memlith/shared.hpp"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::shared_kill_test {
namespace {

constexpr int kAccounts = 16;
constexpr int kWorkers = 4;
constexpr auto kLong = std::chrono::seconds(60);

struct Table {
  std::int64_t account[kAccounts];
  std::uint64_t done[kWorkers];  // commits of each worker
};

struct Told {
  std::array<std::atomic<std::uint64_t>, kWorkers> acknowledged;  // values of `done` that were
  std::array<std::atomic<std::uint64_t>, kWorkers> tried;
};

bool is_end_of_keeper(const Error& error) {
  return error.category() == MEMLITH_POISONED || error.category() == MEMLITH_IO;
}

class Worker {
 public:
  Worker(std::string path, std::size_t number, Told& told)
      : path_(std::move(path)), number_(number), told_(told), draw_(std::random_device{}()) {}

  [[noreturn]] void live() {
    for (;;) {
      const auto region = or_leave(SharedRegion::open(path_, "table", {.create = true, .size = sizeof(Table)}), 3);
      memlith::Result<void> moved;
      while ((moved = move(region))) {
      }
      if (!is_end_of_keeper(moved.error())) or_leave(moved, 4);
    }
  }

 private:
  memlith::Result<void> move(const SharedRegion& region) {
    auto& table = *region.as<Table>();
    auto tx = region.begin();
    if (!tx) return tx.error();
    auto& from = table.account[draw_() % kAccounts];
    auto& to = table.account[draw_() % kAccounts];
    auto& done = table.done[number_];
    for (const void* each :
         {static_cast<const void*>(&from), static_cast<const void*>(&to), static_cast<const void*>(&done)}) {
      auto taken = tx->touch_before(each, 8, std::chrono::milliseconds(20));
      if (!taken && taken.error().category() == MEMLITH_CONFLICT) return {};  // begins again
      if (!taken) return taken;
    }
    const auto amount = static_cast<std::int64_t>(draw_() % 1000);
    from -= amount;
    to += amount;
    const std::uint64_t number = ++done;
    if (draw_() % 8 == 0) return {};  // aborts
    told_.tried[number_] = std::max(told_.tried[number_].load(), number);
    if (draw_() % 4 == 0) {
      auto ticket = tx->commit_weak();
      if (!ticket) return ticket.error();
      if (auto durable = region.wait(*ticket); !durable) return durable;
    } else if (auto durable = tx->commit(); !durable) {
      return durable;
    }
    told_.acknowledged[number_] = std::max(told_.acknowledged[number_].load(), number);
    return {};
  }

  const std::string path_;
  const std::size_t number_;
  Told& told_;
  std::mt19937_64 draw_;
};

using Acknowledged = std::array<std::uint64_t, kWorkers>;

class SharedKill : public testing::Test {
 protected:
  void TearDown() override {
    for (std::size_t i = 0; i < kWorkers; ++i) kill_worker(i);
    kill_keeper();
  }

  [[nodiscard]] std::string path() const { return folder_ / "store"; }
  void start(std::size_t number) {
    workers_[number].start([&] { Worker(path(), number, *told_).live(); });
  }
  void kill_worker(std::size_t number) { workers_[number].kill_working(); }
  void kill_keeper() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    if (memlith_stat(path().c_str(), &stats) == 0 && stats.alive != 0) {
      ::kill(static_cast<pid_t>(stats.process), SIGKILL);
    }
  }
  [[nodiscard]] Acknowledged acknowledged() const {
    Acknowledged all{};
    for (std::size_t i = 0; i < kWorkers; ++i) all[i] = told_->acknowledged[i];
    return all;
  }
  void check(const Table& table, const Acknowledged& before) const {
    std::int64_t sum = 0;
    for (const std::int64_t each : table.account) sum += each;
    EXPECT_EQ(sum, 0) << "a part of a commit is there, or was undone";
    for (std::size_t i = 0; i < kWorkers; ++i) {
      EXPECT_GE(table.done[i], before[i]) << "an acknowledged commit is gone";
      EXPECT_LE(table.done[i], told_->tried[i]) << "there is a commit that no process made";
    }
  }
  // Beside the workers, with a range that excludes them.
  void check_shared() const {
    for (int i = 0; i < 100; ++i) {
      auto region = SharedRegion::open(path(), "table", {.create = true, .size = sizeof(Table)});
      ASSERT_TRUE(region) << region.error().message();
      const Acknowledged before = acknowledged();
      auto tx = region->begin();
      memlith::Result<void> taken = tx ? tx->touch_before(region->address(), sizeof(Table), kLong) : tx.error();
      if (taken) return check(*region->as<Table>(), before);
      ASSERT_TRUE(is_end_of_keeper(taken.error())) << taken.error().message();
    }
  }
  // Checks the disk, when no process has the store.
  void check_alone() const {
    const Acknowledged before = acknowledged();
    for (int i = 0; i < 2000; ++i) {
      auto store = Store::open(path());
      if (!store && store.error().category() == MEMLITH_BUSY) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      ASSERT_TRUE(store) << store.error().message();
      auto region = store->region("table");
      ASSERT_TRUE(region) << region.error().message();
      return check(*static_cast<const Table*>(region->address()), before);
    }
    FAIL() << "the store stays in use";
  }

  TempFolder folder_;
  SharedWithChildren<Told> told_;
  std::array<KilledProcess, kWorkers> workers_;
};

TEST_F(SharedKill, LeavesWholeCommits) {
  const char* const given = std::getenv("MEMLITH_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 40;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 draw(seed);
  check_shared();  // makes the table
  for (std::size_t i = 0; i < kWorkers; ++i) start(i);
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    ::usleep(static_cast<useconds_t>(draw() % 80'000));
    const std::uint64_t what = draw() % 8;
    if (what == 0) {  // everything
      kill_keeper();
      for (std::size_t i = 0; i < kWorkers; ++i) kill_worker(i);
      kill_keeper();  // one that a worker may have started meanwhile
      check_alone();
      for (std::size_t i = 0; i < kWorkers; ++i) start(i);
    } else if (what <= 2) {
      kill_keeper();
    } else {
      const std::size_t worker = draw() % kWorkers;
      kill_worker(worker);
      check_shared();
      start(worker);
    }
    check_shared();
  }
  std::uint64_t commits = 0;
  for (const std::uint64_t each : acknowledged()) commits += each;
  EXPECT_GT(commits, static_cast<std::uint64_t>(kills)) << "the workers do too little to be disturbed";
  std::printf("%d kills, %llu acknowledged commits\n", kills, static_cast<unsigned long long>(commits));
}

}  // namespace
}  // namespace memlith::test::shared_kill_test
