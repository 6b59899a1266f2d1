// docs/several-processes.md: eight processes move amounts between records of one kv store. They are killed and stopped
// again and again, and so are their keepers, and everything at once. The sum of the accounts is zero in each snapshot,
// and every acknowledged commit is there. MEMLITH_KILLS: how many kills.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "memlith/kv.hpp"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::processes_kill_test {
namespace {

constexpr std::size_t kAccounts = 16;
constexpr std::size_t kWorkers = 8;

struct Told {
  std::array<std::atomic<std::uint64_t>, kWorkers> acknowledged;  // numbers of commits that were
  std::array<std::atomic<std::uint64_t>, kWorkers> tried;
  std::atomic<std::uint64_t> torn;                     // snapshots whose sum was not zero
  std::array<std::atomic<pid_t>, kWorkers> processes;  // of those in containers, as they are seen from outside
};

bool is_end_of_keeper(const Error& error) {
  return error.category() == MEMLITH_POISONED || error.category() == MEMLITH_IO;
}

std::string account(std::size_t number) { return "account " + std::to_string(number); }
std::string done_of(std::size_t worker) { return "done " + std::to_string(worker); }

// No value is 0.
Result<std::int64_t> number_in(KvTransaction& txn, KvMap map, const std::string& key) {
  auto value = txn.find(map, key);
  if (!value) return value.error();
  return value->has_value() ? std::stoll(std::string(**value)) : 0;
}

Result<std::int64_t> sum(KvTransaction& txn, KvMap map) {
  std::int64_t all = 0;
  auto read = txn.get_range(map, "account", "b", [&](std::string_view, std::string_view value) {
    all += std::stoll(std::string(value));
    return true;
  });
  if (!read) return read.error();
  return all;
}

Result<Kv> open(const std::string& path) { return Kv::open_shared(path, "kv", {.create = true}); }

class Worker {
 public:
  Worker(std::string path, std::size_t number, Told& told)
      : path_(std::move(path)), number_(number), told_(told), draw_(std::random_device{}()) {}

  [[noreturn]] void live() {
    for (;;) {
      auto kv = open(path_);
      if (!kv && is_end_of_keeper(kv.error())) continue;
      Result<void> went = kv ? work(or_leave(std::move(kv), 3)) : Result<void>(kv.error());
      if (!is_end_of_keeper(went.error())) or_leave(went, 4);
    }
  }

 private:
  Result<void> work(const Kv& kv) {
    auto map = kv.map("bank", {.create = true});
    if (!map) return map.error();
    for (;;) {
      auto went = draw_() % 4 == 0 ? look(kv, *map) : move(kv, *map);
      if (!went) return went;
    }
  }
  Result<void> look(const Kv& kv, KvMap map) {
    auto txn = kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto all = sum(*txn, map);
    if (!all) return all.error();
    if (*all != 0) ++told_.torn;
    return {};
  }
  Result<void> move(const Kv& kv, KvMap map) {
    const std::string from = account(draw_() % kAccounts);
    const std::string to = account(draw_() % kAccounts);
    const auto amount = static_cast<std::int64_t>(draw_() % 1000);
    const bool weak = draw_() % 4 == 0;
    const bool scans = draw_() % 8 == 0;
    std::uint64_t number = 0;
    auto ticket = kv.transact(
        [&](KvTransaction& txn) -> Result<void> {
          if (scans) {
            auto all = sum(txn, map);
            if (!all) return all.error();
            if (*all != 0) ++told_.torn;
          }
          for (const auto& [key, more] : {std::pair(from, -amount), std::pair(to, amount)}) {
            auto had = number_in(txn, map, key);
            if (!had) return had.error();
            if (auto put = txn.put(map, key, std::to_string(*had + more)); !put) return put;
          }
          auto done = number_in(txn, map, done_of(number_));
          if (!done) return done.error();
          number = static_cast<std::uint64_t>(*done) + 1;
          told_.tried[number_] = std::max(told_.tried[number_].load(), number);
          return txn.put(map, done_of(number_), std::to_string(number));
        },
        weak ? Durability::weak : Durability::sync);
    if (!ticket) return ticket.error();
    if (weak) {
      if (auto durable = kv.wait(*ticket); !durable) return durable;
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

class ProcessesKill : public testing::Test {
 protected:
  void TearDown() override {
    for (std::size_t i = 0; i < kWorkers; ++i) workers_[i].kill_working();
    kill_keeper();
  }

  [[nodiscard]] std::string path() const { return folder_ / "store"; }
  void start(std::size_t number) {
    workers_[number].start([&] { Worker(path(), number, *told_).live(); });
  }
  void kill_keeper() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    if (memlith_stat(path().c_str(), &stats) == 0 && stats.alive != 0) {
      ::kill(static_cast<pid_t>(stats.process), SIGKILL);
    }
  }
  // Until that process has committed again.
  void await_commit_of(std::size_t number) const {
    const std::uint64_t before = told_->acknowledged[number];
    while (told_->acknowledged[number] == before) ::usleep(100);
  }
  [[nodiscard]] Acknowledged acknowledged() const {
    Acknowledged all{};
    for (std::size_t i = 0; i < kWorkers; ++i) all[i] = told_->acknowledged[i];
    return all;
  }
  Result<void> look(const Kv& kv) const {
    const Acknowledged before = acknowledged();
    auto map = kv.map("bank");
    if (!map) return map.error();
    auto txn = kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto all = sum(*txn, *map);
    if (!all) return all.error();
    EXPECT_EQ(*all, 0) << "a part of a commit is there";
    for (std::size_t i = 0; i < kWorkers; ++i) {
      auto done = number_in(*txn, *map, done_of(i));
      if (!done) return done.error();
      EXPECT_GE(static_cast<std::uint64_t>(*done), before[i]) << "an acknowledged commit is gone";
      EXPECT_LE(static_cast<std::uint64_t>(*done), told_->tried[i]) << "there is a commit that no process made";
    }
    EXPECT_EQ(told_->torn, 0U) << "a snapshot has a part of a commit";
    return {};
  }
  // Until each other process has committed again. Tells how long that took.
  [[nodiscard]] double await_commits_of_others(std::size_t number) const {
    const auto start = std::chrono::steady_clock::now();
    const Acknowledged before = acknowledged();
    for (std::size_t other = 0; other < kWorkers; ++other) {
      while (other != number && told_->acknowledged[other] == before[other]) ::usleep(100);
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  void check_shared() const {
    for (int i = 0; i < 100; ++i) {
      auto kv = open(path());
      auto looked = kv ? look(*kv) : Result<void>(kv.error());
      if (looked) return;
      ASSERT_TRUE(is_end_of_keeper(looked.error())) << looked.error().message();
    }
    FAIL() << "each keeper ends";
  }
  // When no process has the store.
  void check_alone() const {
    for (int i = 0; i < 2000; ++i) {
      auto store = Store::open(path());
      if (!store && store.error().category() == MEMLITH_BUSY) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      ASSERT_TRUE(store) << store.error().message();
      auto kv = Kv::open(*store);
      ASSERT_TRUE(kv) << kv.error().message();
      auto verified = kv->verify();
      ASSERT_TRUE(verified) << verified.error().message();
      auto looked = look(*kv);
      ASSERT_TRUE(looked) << looked.error().message();
      return;
    }
    FAIL() << "the store stays in use";
  }

  TempFolder folder_;
  SharedWithChildren<Told> told_;
  std::array<KilledProcess, kWorkers> workers_;
};

TEST_F(ProcessesKill, LeavesWholeCommits) {
  const char* const given = std::getenv("MEMLITH_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 40;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 draw(seed);
  {
    auto kv = open(path());
    ASSERT_TRUE(kv) << kv.error().message();
    ASSERT_TRUE(kv->map("bank", {.create = true}));
  }
  // The longest time until each other process had committed again.
  double beside_none_ms = 0;
  double killed_ms = 0;
  double stopped_ms = 0;
  for (std::size_t i = 0; i < kWorkers; ++i) start(i);
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    ::usleep(static_cast<useconds_t>(draw() % 80'000));
    const std::uint64_t what = draw() % 8;
    const std::size_t worker = draw() % kWorkers;
    if (what == 0) {  // everything
      kill_keeper();
      for (std::size_t i = 0; i < kWorkers; ++i) workers_[i].kill_working();
      kill_keeper();  // one that a worker may have started meanwhile
      check_alone();
      for (std::size_t i = 0; i < kWorkers; ++i) start(i);
    } else if (what <= 2) {
      kill_keeper();
    } else if (what == 3) {  // a process that is stopped, wherever it is, is in no other's way
      workers_[worker].signal(SIGSTOP);
      stopped_ms = std::max(stopped_ms, await_commits_of_others(worker));
      workers_[worker].signal(SIGCONT);
    } else {
      beside_none_ms = std::max(beside_none_ms, await_commits_of_others(worker));
      workers_[worker].kill_working();
      killed_ms = std::max(killed_ms, await_commits_of_others(worker));
      check_shared();
      start(worker);
    }
    check_shared();
  }
  std::uint64_t commits = 0;
  for (const std::uint64_t each : acknowledged()) commits += each;
  EXPECT_GT(commits, static_cast<std::uint64_t>(kills)) << "the workers do too little to be disturbed";
  std::printf(
      "%d kills, %llu acknowledged commits; at most so long until all others had committed again: %.1f ms behind "
      "a kill of a client, %.1f ms beside one that is stopped, %.1f ms without either\n",
      kills, static_cast<unsigned long long>(commits), killed_ms, stopped_ms, beside_none_ms);
}

// ---- containers -----------------------------------------------------------------------------------------------------

constexpr int kNoContainers = 77;

bool write_word(const char* path, const std::string& word) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool done = file >= 0 && ::write(file, word.data(), word.size()) == static_cast<ssize_t>(word.size());
  ::close(file);
  return done;
}

// Name spaces of its own for the calling process and its children: users, mounts, IPC, host name; and process numbers
// for its children alone. The folder is at /mnt/NAME there, and nowhere else.
bool enter_container(const std::string& folder, const std::string& name) {
  const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
  const std::string group = "0 " + std::to_string(::getegid()) + " 1";
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return false;
  (void)write_word("/proc/self/setgroups", "deny");
  const std::string inside = "/mnt/" + name;
  return write_word("/proc/self/uid_map", user) && write_word("/proc/self/gid_map", group) &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", "/mnt", "tmpfs", 0, nullptr) == 0 && ::mkdir(inside.c_str(), 0755) == 0 &&
         ::mount(folder.c_str(), inside.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         ::mount("none", folder.c_str(), "tmpfs", 0, nullptr) == 0 && ::sethostname(name.data(), name.size()) == 0;
}

// Runs `act` as the first process of a container, and ends with it.
[[noreturn]] void live_in_container(const std::string& folder, const std::string& name,
                                    const std::function<void(int proc)>& act) {
  const int proc = ::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);  // with the process numbers of outside
  if (!enter_container(folder, name)) ::_exit(kNoContainers);
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // and with it go all that are in the container
    if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) ::_exit(kNoContainers);
    act(proc);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(first, &status, 0);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

pid_t number_outside(int proc) {
  std::array<char, 32> number{};
  return ::readlinkat(proc, "self", number.data(), number.size() - 1) > 0 ? std::atoi(number.data()) : 0;
}

// Two containers share a volume, which each has at another path. Two workers are in each.
class ProcessesInContainers : public ProcessesKill {
 protected:
  void TearDown() override {
    for (KilledProcess& each : containers_) each.kill();
  }
  void start_container(std::size_t container) {
    containers_[container].start([&] {
      const std::string name = container == 0 ? "ada" : "grace";
      live_in_container(folder_.path(), name, [&](int proc) {
        for (const std::size_t number : {2 * container, 2 * container + 1}) {
          if (::fork() != 0) continue;
          told_->processes[number] = number_outside(proc);
          Worker("/mnt/" + name + "/store", number, *told_).live();
        }
        for (;;) ::wait(nullptr);
      });
    });
  }
  void kill_worker(std::size_t number) const { ::kill(told_->processes[number], SIGKILL); }
  void await_commits_in(std::size_t container) const {
    await_commit_of(2 * container);
    await_commit_of(2 * container + 1);
  }

  std::array<KilledProcess, 2> containers_;
};

TEST_F(ProcessesInContainers, LeaveWholeCommits) {
  KilledProcess probe;
  probe.start([&] { live_in_container(folder_.path(), "probe", [](int) {}); });
  if (WEXITSTATUS(probe.wait()) == kNoContainers) GTEST_SKIP() << "this user may not make name spaces";
  for (const std::size_t first : {0, 1, 0}) {
    const std::size_t second = 1 - first;
    start_container(first);  // and in it the keeper
    await_commits_in(first);
    start_container(second);
    await_commits_in(second);
    // A process of each.
    kill_worker(2 * second);
    await_commit_of(2 * second + 1);
    await_commits_in(first);
    kill_worker(2 * first);
    await_commit_of(2 * first + 1);
    await_commit_of(2 * second + 1);
    // The one without the keeper, and the one with it: then a process of the other one starts a keeper.
    containers_[second].kill();
    await_commit_of(2 * first + 1);
    start_container(second);
    await_commits_in(second);
    containers_[first].kill();
    await_commits_in(second);
    start_container(first);
    await_commits_in(first);
    check_shared();  // from outside
    for (KilledProcess& each : containers_) each.kill();
    check_alone();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace memlith::test::processes_kill_test
