// docs/guarantees.md, "Application log of several processes": what a write has returned for is durable, whichever
// process appended it. And an application log that several processes have open: every call, through C++, with the
// program `memlith` as the keeper. MEMLITH_KILLS: how many kills.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::log_processes_test {
namespace {

#define ASSERT_OK(result) ASSERT_TRUE(result) << (result).error().message()
#define EXPECT_OK(result) EXPECT_TRUE(result) << (result).error().message()

bool is_end_of_keeper(const Error& error) {
  return error.category() == MEMLITH_POISONED || error.category() == MEMLITH_IO;
}

class ProcessesLog : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_ / "store"; }
  [[nodiscard]] Result<AppLog> open(const AppLogOptions& options = {.create = true}) const {
    return AppLog::open_shared(path(), "log", options);
  }
  [[nodiscard]] pid_t keeper() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    return memlith_stat(path().c_str(), &stats) == 0 && stats.alive != 0 ? static_cast<pid_t>(stats.process) : 0;
  }
  void kill_keeper() const {
    if (const pid_t found = keeper(); found != 0) ::kill(found, SIGKILL);
  }
  // When the keeper has ended.
  [[nodiscard]] Result<Store> open_alone() const {
    for (int i = 0;; ++i) {
      auto store = Store::open(path());
      if (store || store.error().category() != MEMLITH_BUSY || i == 1000) return store;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  TempFolder folder_;
};

std::vector<std::string> read_all(const AppLog& log) {
  std::vector<std::string> all;
  for (;;) {
    auto entry = log.read();
    if (!entry) return {"! " + entry.error().message()};
    if (!entry->has_value()) return all;
    all.emplace_back((*entry)->content);
  }
}
using Texts = std::vector<std::string>;

TEST_F(ProcessesLog, IsOneForAll) {
  auto log = open();
  ASSERT_OK(log);
  EXPECT_EQ(*log->append("one"), 1U);
  EXPECT_EQ(*log->append({"two", std::string_view(), "four"}), 4U);
  ASSERT_OK(log->write());
  const std::string large(300'000, 'l');
  EXPECT_IN_CHILD([&]() -> std::string {
    auto own = open({});
    if (!own) return own.error().message();
    if (read_all(*own) != Texts{"one", "two", "", "four"}) return "the child reads something else";
    auto number = own->append(large);
    if (!number || *number != 5) return "the child's entry has another number";
    auto ticket = own->write_weak();
    if (!ticket) return ticket.error().message();
    if (auto durable = own->wait(*ticket); !durable) return durable.error().message();
    if (own->durable() != 5) return "it is not durable";
    if (auto consumed = own->consume(2); !consumed) return consumed.error().message();
    if (auto closed = own->close(); !closed) return closed.error().message();
    return "";
  });
  EXPECT_EQ(read_all(*log), (Texts{"", "four", large}));
  auto info = log->info();
  ASSERT_OK(info);
  EXPECT_EQ(info->newest, 5U);
  EXPECT_EQ(info->durable, 5U);
  EXPECT_EQ(info->read, 5U);
  EXPECT_EQ(info->consumed, 2U);
  EXPECT_EQ(info->size, 64U << 20);
  ASSERT_OK(log->rewind());
  auto first = log->read();
  ASSERT_OK(first);
  EXPECT_EQ((*first)->number, 3U);
  EXPECT_EQ(log->consume(4).error().category(), MEMLITH_INVALID) << "it was not read since";
  ASSERT_OK(log->consume(3));
  ASSERT_OK(log->append("unwritten"));
  ASSERT_OK(log->close());
  // An ordinary store is left.
  auto store = open_alone();
  ASSERT_OK(store);
  auto alone = AppLog::open(*store);
  ASSERT_OK(alone);
  EXPECT_EQ(read_all(*alone), (Texts{"four", large, "unwritten"}));
}

TEST_F(ProcessesLog, IsReadByNumberAndCut) {
  auto log = open();
  auto other = open();
  ASSERT_OK(log);
  ASSERT_OK(other);
  ASSERT_OK(log->append({"one", "two", "three", "four"}));
  ASSERT_OK(log->write());
  EXPECT_EQ(**other->get(3), "three");
  EXPECT_FALSE(other->get(5)->has_value());
  EXPECT_EQ(read_all(*other).size(), 4U);
  ASSERT_OK(log->truncate_after(2));
  EXPECT_EQ(*log->append("another three"), 3U);
  ASSERT_OK(log->write());
  EXPECT_EQ(**other->get(3), "another three");
  EXPECT_EQ(read_all(*other), Texts{"another three"}) << "the reader goes on behind what was dropped";
  ASSERT_OK(other->truncate_before(2));
  EXPECT_FALSE(log->get(1)->has_value());
  EXPECT_EQ(log->truncate_after(0).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->truncate_before(9).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->restart(0).error().category(), MEMLITH_INVALID);
  ASSERT_OK(other->restart(100));
  EXPECT_EQ(*log->append("hundred"), 100U);
  ASSERT_OK(log->write());
  EXPECT_EQ(read_all(*other), Texts{"hundred"});
  EXPECT_EQ(read_all(*log), Texts{"hundred"});
}

TEST_F(ProcessesLog, FullIsAsItWasOpened) {
  const std::string text(8000, 'x');
  auto fails = open({.create = true, .when_full = WhenFull::fail, .size = 64 << 10, .max_size = 1 << 20});
  ASSERT_OK(fails);
  int count = 0;
  Result<std::uint64_t> full = fails->append(text);
  for (; full; full = fails->append(text)) ++count;
  EXPECT_EQ(full.error().category(), MEMLITH_FULL);
  EXPECT_EQ(count, 8);
  // In one that blocks, until another process has consumed; which can read what was not written.
  auto blocks = open({});
  ASSERT_OK(blocks);
  EXPECT_IN_CHILD([&]() -> std::string {
    auto own = open({});
    if (!own) return own.error().message();
    std::thread consumer([&] {
      auto entry = fails->read();  // of the parent: refused, and so nothing
      auto found = own->read(60'000);
      if (found && found->has_value()) (void)own->consume((*found)->number);
      if (entry) std::abort();
    });
    auto another = open({});
    auto number = another ? another->append(text) : Result<std::uint64_t>(another.error());
    consumer.join();
    return number ? "" : number.error().message();
  });
  EXPECT_EQ(blocks->info()->consumed, 1U);
  EXPECT_EQ(blocks->append(std::string(1 << 20, 'x')).error().category(), MEMLITH_FULL) << "it never has room";
  auto grows = open({.when_full = WhenFull::grow});
  ASSERT_OK(grows);
  auto before = fails->read();
  ASSERT_OK(before);
  for (int i = 0; i < 20; ++i) ASSERT_OK(grows->append(text));
  EXPECT_GT(grows->info()->size, 64U << 10);
  ASSERT_OK(grows->write());
  EXPECT_EQ(read_all(*fails), Texts(27, text)) << "the reader goes on where the entries are now";
  Result<std::uint64_t> at_most = grows->append(text);
  while (at_most) at_most = grows->append(text);
  EXPECT_EQ(at_most.error().category(), MEMLITH_FULL);
}

TEST_F(ProcessesLog, RefusesByName) {
  EXPECT_EQ(open({}).error().category(), MEMLITH_NOT_FOUND);
  auto log = open();
  ASSERT_OK(log);
  EXPECT_EQ(open({.create = true, .exclusive = true}).error().category(), MEMLITH_EXISTS);
  EXPECT_EQ(Store::open(path()).error().category(), MEMLITH_BUSY);
  EXPECT_EQ(Kv::open_shared(path(), "log").error().category(), MEMLITH_BUSY) << "the region is open";
  auto kv = Kv::open_shared(path(), "kv", {.create = true});  // beside it, in the same store
  ASSERT_OK(kv);
  EXPECT_EQ(AppLog::open_shared(path(), "kv").error().category(), MEMLITH_BUSY);
  EXPECT_EQ(AppLog::open_shared(path(), "").error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->append_all({}).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->consume(1).error().category(), MEMLITH_INVALID);
  EXPECT_EQ(log->wait(1ull << 60).error().category(), MEMLITH_INVALID);
  EXPECT_OK(log->wait(0));
  const auto unsupported = [&](const Result<void>& result) {
    return result.error().category() == MEMLITH_UNSUPPORTED &&
           result.error().message().find("several processes") != std::string::npos;
  };
  auto store = Store::open(folder_ / "another", {.create = true});
  ASSERT_OK(store);
  auto tx = store->begin();
  ASSERT_OK(tx);
  EXPECT_TRUE(unsupported(log->append_in(*tx, "x")));
  EXPECT_TRUE(unsupported(log->consume_in(*tx, 1)));
  // A forked child has it not.
  EXPECT_IN_CHILD([&]() -> std::string {
    if (log->append("x").error().category() != MEMLITH_INVALID) return "append in a child";
    if (log->read().error().category() != MEMLITH_INVALID) return "read in a child";
    if (log->durable() != 0) return "durable in a child";
    auto own = open();
    if (!own) return own.error().message();
    auto number = own->append("of the child");
    return number && own->write() ? "" : "the child cannot append to its own";
  });
  EXPECT_EQ(read_all(*log), Texts{"of the child"});
}

TEST_F(ProcessesLog, ThatLostItsKeeperIsPoisoned) {
  auto log = open();
  ASSERT_OK(log);
  ASSERT_OK(log->append("durable"));
  ASSERT_OK(log->write());
  ASSERT_OK(log->append("lost"));
  std::thread waits([&] {
    EXPECT_OK(log->read());
    EXPECT_TRUE(is_end_of_keeper(log->read(60'000).error()));
  });
  ::usleep(50'000);
  kill_keeper();
  waits.join();
  EXPECT_TRUE(is_end_of_keeper(log->append("x").error()));
  EXPECT_EQ(log->append("x").error().category(), MEMLITH_POISONED);
  EXPECT_EQ(log->read().error().category(), MEMLITH_POISONED);
  EXPECT_EQ(log->consume(1).error().category(), MEMLITH_POISONED);
  EXPECT_EQ(log->info().error().category(), MEMLITH_POISONED);
  EXPECT_EQ(log->durable(), 0U);
  EXPECT_EQ(log->close().error().category(), MEMLITH_POISONED) << "what it appended is lost";
  auto again = open({});
  ASSERT_OK(again);
  EXPECT_EQ(read_all(*again), Texts{"durable"});
}

// ---- kills

constexpr std::size_t kWorkers = 6;

struct Told {
  std::array<std::atomic<std::uint64_t>, kWorkers> acknowledged;
  std::array<std::atomic<std::uint64_t>, kWorkers> consumed;  // or about to be
  std::atomic<std::uint64_t> entries;                         // acknowledged, of all
  std::atomic<std::uint64_t> wrong;
};

// Entry `count` of a worker.
std::string text_of(std::size_t worker, std::uint64_t count) {
  return std::to_string(worker) + " " + std::to_string(count) + " " + std::string(count * 61 % 700, 'x');
}

// The newest count of each worker in the entries that are read, which are whole and in order. Each acknowledged one
// is there, or was consumed.
class Counts {
 public:
  explicit Counts(Told& told) : told_(told) {}
  void see(std::string_view text) {
    std::size_t worker = 0;
    unsigned long long count = 0;
    const std::string copy(text);
    if (std::sscanf(copy.c_str(), "%zu %llu ", &worker, &count) != 2 || worker >= kWorkers ||
        copy != text_of(worker, count) || count <= newest_[worker]) {
      ++told_.wrong;
    } else {
      newest_[worker] = count;
    }
  }
  [[nodiscard]] std::uint64_t newest(std::size_t worker) const { return newest_[worker]; }

 private:
  Told& told_;
  std::array<std::uint64_t, kWorkers> newest_{};
};

// Appends, or, the first one, consumes.
[[noreturn]] void live(const std::string& path, std::size_t number, Told& told, std::uint64_t count) {
  const AppLogOptions options{.create = true, .size = 32 << 10};
  for (;;) {
    auto log = AppLog::open_shared(path, "log", options);
    Result<void> went = log ? Result<void>() : Result<void>(log.error());
    Counts counts(told);
    while (went && number != 0) {
      auto appended = log->append(text_of(number, ++count));
      went = appended ? log->write() : Result<void>(appended.error());
      if (!went) break;
      told.acknowledged[number] = count;
      ++told.entries;
    }
    while (went && number == 0) {
      auto entry = log->read(20);
      if (!entry) went = entry.error();
      if (!entry || !entry->has_value()) continue;
      counts.see((*entry)->content);
      if ((*entry)->number % 5 != 0) continue;
      for (std::size_t each = 0; each < kWorkers; ++each) {
        told.consumed[each] = std::max(told.consumed[each].load(), counts.newest(each));
      }
      went = log->consume((*entry)->number);
    }
    if (!is_end_of_keeper(went.error())) or_leave(went, 4);
  }
}

class ProcessesLogKill : public ProcessesLog {
 protected:
  void TearDown() override {
    for (KilledProcess& each : workers_) each.kill_working();
    kill_keeper();
  }
  void start(std::size_t number) {
    const std::uint64_t after = told_->acknowledged[number] + 1000 * ++starts_;  // above what it tried
    workers_[number].start([&] { live(path(), number, *told_, after); });
  }
  void check(const AppLog& log) {
    std::array<std::uint64_t, kWorkers> before{};
    for (std::size_t i = 0; i < kWorkers; ++i) before[i] = told_->acknowledged[i];
    Counts counts(*told_);
    for (const std::string& each : read_all(log)) {
      if (each.starts_with("! ")) return;  // the keeper has ended
      counts.see(each);
    }
    for (std::size_t i = 0; i < kWorkers; ++i) {
      EXPECT_GE(std::max(counts.newest(i), told_->consumed[i].load()), before[i])
          << "an acknowledged entry of worker " << i << " is gone";
    }
    EXPECT_EQ(told_->wrong, 0U) << "entries are not whole, or not in order";
  }
  SharedWithChildren<Told> told_;
  std::array<KilledProcess, kWorkers> workers_;
  std::uint64_t starts_ = 0;
};

TEST_F(ProcessesLogKill, LeavesWholeEntriesInOrder) {
  const char* const given = std::getenv("MEMLITH_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 40;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 draw(seed);
  for (std::size_t i = 0; i < kWorkers; ++i) start(i);
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    ::usleep(static_cast<useconds_t>(draw() % 60'000));
    const std::size_t worker = draw() % kWorkers;
    const std::uint64_t what = draw() % 8;
    SCOPED_TRACE(testing::Message() << "kill " << kill << " of " << what);
    switch (what) {
      case 0: {  // everything
        kill_keeper();
        for (KilledProcess& each : workers_) each.kill_working();
        kill_keeper();  // one that a worker may have started meanwhile
        auto store = open_alone();
        ASSERT_OK(store);
        auto alone = AppLog::open(*store, "log", {.create = true, .size = 32 << 10});
        ASSERT_OK(alone);
        check(*alone);
        ASSERT_OK(alone->close());
        ASSERT_OK(store->close());
        for (std::size_t i = 0; i < kWorkers; ++i) start(i);
        break;
      }
      case 1:
      case 2: kill_keeper(); break;
      default: workers_[worker].kill_working(); start(worker);
    }
    auto log = open({.create = true, .size = 32 << 10});
    if (log) {
      check(*log);
    } else {
      ASSERT_TRUE(is_end_of_keeper(log.error())) << log.error().message();
    }
  }
  EXPECT_GT(told_->entries, static_cast<std::uint64_t>(kills)) << "the workers do too little to be disturbed";
}

}  // namespace
}  // namespace memlith::test::log_processes_test
