// Processes that share a region, for tests: a keeper, and clients that move amounts between accounts.
//
// The sum of the accounts is zero in every committed state. Each client counts its commits in a counter of its own, in
// the same transaction; what was acknowledged is counted outside of the store.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "mutants/mutants.hpp"
#include "shared/client.hpp"
#include "shared/keeper.hpp"
#include "shm/words.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {

using core::Mutant;
using core::shared::Client;
using core::shared::SharedTransaction;

constexpr int kAccounts = 16;
constexpr int kClients = 8;
constexpr auto kLong = std::chrono::seconds(20);

struct Table {
  std::array<std::int64_t, kAccounts> account;
  std::array<std::uint64_t, kClients> done;
};

// A process that was forked from the test, killed with the object.
class Child {
 public:
  explicit Child(const std::function<void()>& act) : pid_(::fork()) {
    if (pid_ != 0) return;
    act();
    ::_exit(0);
  }
  ~Child() { kill(); }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }

  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    (void)wait();
  }
  // The status of waitpid(2).
  int wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

// Words that forked processes share with the test.
struct Told {
  std::atomic<std::uint64_t> steps{0};     // that were done
  std::atomic<std::uint64_t> die_at{0};    // the step at which the process kills itself; 0: none
  std::atomic<std::uint64_t> pause_us{0};  // at each step
  std::atomic<std::uint64_t> stage{0};     // how far a process has come
  std::array<std::atomic<std::uint64_t>, kClients> acknowledged{};
};

inline Told* make_told() {
  void* const memory = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Told{};
}

inline Told* told = make_told();

inline void step() {
  if (const std::uint64_t pause = told->pause_us; pause > 0) ::usleep(static_cast<useconds_t>(pause));
  const std::uint64_t number = ++told->steps;
  if (number == told->die_at) ::kill(::getpid(), SIGKILL);
}

// Waits until a process has come so far.
inline void await_stage(std::uint64_t stage) {
  for (int i = 0; i < 20'000 && told->stage < stage; ++i) ::usleep(1000);
  ASSERT_GE(told->stage, stage) << "a process did not come so far";
}

// Leaves the process with what went wrong.
template <class T>
T or_leave(core::Result<T> result, int code) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", std::string(core::last_error_text()).c_str());
  ::_exit(code);
}
inline void or_leave(core::Status status, int code) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(core::last_error_text()).c_str());
  ::_exit(code);
}

class SharedWorld : public testing::Test {
 protected:
  void SetUp() override {
    told->steps = told->die_at = told->pause_us = told->stage = 0;
    for (auto& each : told->acknowledged) each = 0;
  }

  [[nodiscard]] std::string path() const { return folder_ / "store"; }

  // Returns when clients can connect. With `steps`, the keeper counts them from then on.
  [[nodiscard]] Child start_keeper(bool steps = false, Mutant mutant = Mutant::none,
                                   const core::shared::MakeService& service = {}) const {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    Child keeper([&] {
      ::close(ends[0]);
      core::active_mutant = mutant;
      core::shared::KeeperOptions options;
      options.path = path();
      options.create = true;
      options.grace = std::chrono::seconds(30);
      options.service = service;
      options.ready = [&] {
        if (steps) core::shm::observer = step;
        ::close(ends[1]);
      };
      or_leave(core::shared::keep(options), 9);
    });
    ::close(ends[1]);
    char nothing = 0;
    EXPECT_EQ(::read(ends[0], &nothing, 1), 0);
    ::close(ends[0]);
    return keeper;
  }

  [[nodiscard]] core::Result<std::unique_ptr<Client>> open() const {
    core::shared::ClientOptions options;
    options.path = path();
    options.region = "table";
    options.bytes = sizeof(Table);
    options.create = true;
    options.program = "/nowhere";  // the test starts keepers
    return Client::open(options);
  }

  static Table& table_of(Client& client) { return *reinterpret_cast<Table*>(client.address()); }

  // Moves an amount, in ranges that the caller's transaction takes. Aborts instead, if wanted.
  static void move(Client& client, int number, int from, int to, std::int64_t amount, bool aborts = false) {
    Table& table = table_of(client);
    SharedTransaction* const tx = or_leave(client.begin(), 10);
    for (const int each : {from, to}) {
      or_leave(tx->touch_before(&table.account[static_cast<std::size_t>(each)], 8, kLong), 11);
    }
    auto& done = table.done[static_cast<std::size_t>(number)];
    or_leave(tx->touch_before(&done, sizeof done, kLong), 12);
    table.account[static_cast<std::size_t>(from)] -= amount;
    core::shm::step("between two stores");
    table.account[static_cast<std::size_t>(to)] += amount;
    ++done;
    if (aborts) return or_leave(client.abort(*tx), 13);
    (void)or_leave(client.commit(*tx, true), 14);
    ++told->acknowledged[static_cast<std::size_t>(number)];
  }

  // Empty if all is well: the sum is zero, and every acknowledged commit is there, and at most one more.
  [[nodiscard]] static std::string complaint(const Table& table) {
    std::int64_t sum = 0;
    for (const std::int64_t each : table.account) sum += each;
    if (sum != 0) return "the sum is " + std::to_string(sum);
    for (std::size_t i = 0; i < kClients; ++i) {
      const std::uint64_t acknowledged = told->acknowledged[i];
      if (table.done[i] < acknowledged) return "an acknowledged commit is gone";
      if (table.done[i] > acknowledged + 1) return "there are commits that no client made";
    }
    return {};
  }

  // The view of a client of the living keeper, with everything taken.
  [[nodiscard]] std::string look() const {
    auto client = open();
    if (!client.ok()) return std::string(core::last_error_text());
    auto tx = (*client)->begin();
    if (!tx.ok()) return std::string(core::last_error_text());
    if (!(*tx)->touch_before((*client)->address(), sizeof(Table), kLong).ok()) {
      return std::string(core::last_error_text());
    }
    return complaint(table_of(**client));
  }

  TempFolder folder_;
};

}  // namespace memlith::test
