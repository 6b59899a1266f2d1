// base/workers.hpp: jobs run when they are wanted, one thread at a time each; threads are started as needed and end
// with the Workers.
#include "base/workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "support/process_memory.hpp"

namespace memlith::test {
namespace {

using namespace core;
using Job = Workers::Job;
using std::chrono::hours;
using std::chrono::milliseconds;

Workers::Time now() { return SteadyClock::now(); }

TEST(Workers, AJobRunsOncePerWantAtLeast) {
  Workers workers(2);
  std::counting_semaphore<> ran(0);
  Job job([&]() -> std::optional<Workers::Time> {
    ran.release();
    return std::nullopt;
  });
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(workers.want(job, now()));
    ran.acquire();
  }
  workers.withdraw(job);
}

// One that is wanted while it runs runs again, and never beside itself.
TEST(Workers, AJobThatRunsIsRunAgain) {
  Workers workers(4);
  std::atomic<int> inside{0};
  std::atomic<int> worst{0};
  std::atomic<int> rounds{0};
  Job job([&]() -> std::optional<Workers::Time> {
    worst = std::max(worst.load(), ++inside);
    std::this_thread::yield();
    --inside;
    ++rounds;
    return std::nullopt;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const int before = rounds.load();
        EXPECT_TRUE(workers.want(job, now()));
        if (round % 100 == 0) {
          while (rounds.load() <= before) std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  workers.withdraw(job);
  EXPECT_EQ(worst, 1);
}

// A job runs when its time has come, and sooner when that is wanted; one that returns a time runs again at that time.
TEST(Workers, JobsRunAtTheirTimes) {
  Workers workers(1);
  std::counting_semaphore<> ran(0);
  int left = 3;
  Job repeated([&]() -> std::optional<Workers::Time> {
    ran.release();
    return --left > 0 ? std::optional(now() + milliseconds(1)) : std::nullopt;
  });
  std::counting_semaphore<> late_ran(0);
  Job late([&]() -> std::optional<Workers::Time> {
    late_ran.release();
    return std::nullopt;
  });
  ASSERT_TRUE(workers.want(late, now() + hours(1)));
  ASSERT_TRUE(workers.want(repeated, now() + milliseconds(1)));
  for (int i = 0; i < 3; ++i) ran.acquire();
  EXPECT_FALSE(late_ran.try_acquire());
  ASSERT_TRUE(workers.want(late, now() + hours(2)));  // no later than it was
  ASSERT_TRUE(workers.want(late, now()));
  late_ran.acquire();
  workers.withdraw(repeated);
  workers.withdraw(late);
}

// When withdraw() returns, the job does not run, and nothing makes it run again.
TEST(Workers, AWithdrawnJobIsOver) {
  Workers workers(2);
  for (int round = 0; round < 200; ++round) {
    auto content = std::make_unique<std::atomic<int>>(0);
    Job job([&, target = content.get()]() -> std::optional<Workers::Time> {
      ++*target;
      return now();
    });
    ASSERT_TRUE(workers.want(job, now()));
    while (round % 2 == 0 && content->load() == 0) std::this_thread::yield();
    workers.withdraw(job);
    const int count = content->load();
    EXPECT_TRUE(workers.want(job, now()));
    std::this_thread::yield();
    EXPECT_EQ(content->load(), count);
    content = nullptr;
  }
}

// Threads come as jobs need them, up to the limit, and all go with the Workers.
TEST(Workers, ThreadsAreFewAndEnd) {
  const std::uint64_t before = thread_count();
  {
    Workers workers(3);
    EXPECT_EQ(thread_count(), before);
    std::latch inside(3);
    std::atomic<bool> go_on{false};
    std::atomic<int> ran{0};
    std::vector<std::unique_ptr<Job>> jobs;
    for (int i = 0; i < 20; ++i) {
      jobs.push_back(std::make_unique<Job>([&, i]() -> std::optional<Workers::Time> {
        if (i < 3) {
          inside.count_down();
          go_on.wait(false);
        }
        ++ran;
        return std::nullopt;
      }));
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(workers.want(*jobs[static_cast<std::size_t>(i)], now()));
    inside.wait();
    EXPECT_EQ(thread_count(), before + 3);
    EXPECT_FALSE(workers.crowded());
    for (std::size_t i = 3; i < jobs.size(); ++i) ASSERT_TRUE(workers.want(*jobs[i], now()));
    EXPECT_TRUE(workers.crowded()) << "jobs wait, and all threads are busy";
    EXPECT_EQ(thread_count(), before + 3);
    go_on = true;
    go_on.notify_all();
    while (ran < 20) std::this_thread::yield();
    for (const auto& job : jobs) workers.withdraw(*job);
  }
  EXPECT_EQ(thread_count_down_to(before), before);
}

}  // namespace
}  // namespace memlith::test
