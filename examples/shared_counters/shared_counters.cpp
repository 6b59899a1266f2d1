// Four processes and a table of counters that all of them change, killed at random.
//
//   shared_counters [FOLDER] [SECONDS]     works for a moment (2 s), and prints what it found
//
// Each process moves amounts between counters, and counts its moves in the table. The amounts add up to zero, whichever
// process is killed in the middle of a move: the keeper, a process of memlith's that the first of them starts, undoes
// the changes that a dead process has not committed. Kill all of it, and start it again:
//   while true; do timeout -s KILL 0.5 shared_counters; done
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memlith/shared.hpp>
#include <numeric>
#include <random>
#include <string>
#include <thread>

namespace {

constexpr int kProcesses = 4;

struct Table {
  std::array<std::int64_t, 32> counter;
  std::array<std::uint64_t, kProcesses> moves;  // of each process
  std::uint64_t runs;
};

using memlith::SharedRegion;

memlith::Result<SharedRegion> open(const std::string& folder) {
  return SharedRegion::open(folder, "counters", {.create = true, .size = sizeof(Table)});
}

int failed(const memlith::Error& error) {
  std::cerr << "shared_counters: " << error.message() << "\n";
  return 1;
}

// One move: taken, stored, committed.
memlith::Result<void> move(const SharedRegion& region, std::uint64_t& moves, std::int64_t& from, std::int64_t& to,
                           std::int64_t amount) {
  auto tx = region.begin();
  if (!tx) return tx.error();
  for (const std::int64_t* each : {&from, &to}) {
    auto taken = tx->touch_before(each, std::chrono::milliseconds(50));
    // Two that wait for each other: this one aborts, and the caller goes on with another move.
    if (!taken && taken.error().category() == MEMLITH_CONFLICT) return {};
    if (!taken) return taken;
  }
  if (auto taken = tx->touch_before(&moves); !taken) return taken;
  from -= amount;
  to += amount;
  ++moves;
  return tx->commit();  // here the move is durable
}

int work(const std::string& folder, std::size_t number) {
  auto region = open(folder);
  if (!region) return failed(region.error());
  Table& table = *region->as<Table>();
  std::mt19937 draw(std::random_device{}());
  for (;;) {
    auto& from = table.counter[draw() % table.counter.size()];
    auto& to = table.counter[draw() % table.counter.size()];
    if (auto moved = move(*region, table.moves[number], from, to, draw() % 100); !moved) return failed(moved.error());
  }
}

class Workers {
 public:
  explicit Workers(std::string folder) : folder_(std::move(folder)) {
    for (std::size_t i = 0; i < processes_.size(); ++i) start(i);
  }
  ~Workers() {
    for (const pid_t each : processes_) kill_one(each);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void replace(std::size_t number) {
    kill_one(processes_[number]);
    start(number);
  }

 private:
  void start(std::size_t number) {
    processes_[number] = ::fork();
    if (processes_[number] == 0) ::_exit(work(folder_, number));
  }
  static void kill_one(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }

  const std::string folder_;
  std::array<pid_t, kProcesses> processes_{};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "shared-counters-store";
  if (folder.starts_with('-')) {
    std::cout << "usage: shared_counters [FOLDER] [SECONDS]\n";
    return folder == "--help" ? 0 : 1;
  }
  const std::chrono::duration<double> time(argc > 2 ? std::atof(argv[2]) : 2.0);
  int kills = 0;
  {
    Workers workers(folder);
    std::mt19937 draw(std::random_device{}());
    const auto end = std::chrono::steady_clock::now() + time;
    for (; std::chrono::steady_clock::now() < end; ++kills) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + draw() % 100));
      workers.replace(draw() % kProcesses);
    }
  }
  auto region = open(folder);
  if (!region) return failed(region.error());
  Table& table = *region->as<Table>();
  auto tx = region->begin();
  if (!tx) return failed(tx.error());
  // With everything taken, no half of a move is seen.
  if (auto taken = tx->touch_before(&table); !taken) return failed(taken.error());
  ++table.runs;
  const auto sum = std::accumulate(table.counter.begin(), table.counter.end(), std::int64_t{0});
  const auto moves = std::accumulate(table.moves.begin(), table.moves.end(), std::uint64_t{0});
  const std::uint64_t run = table.runs;
  if (auto committed = tx->commit(); !committed) return failed(committed.error());
  std::cout << "run " << run << ": " << kills << " processes killed, " << moves << " moves so far, the sum is "
            << (sum == 0 ? "right" : "WRONG") << "\n";
  return sum == 0 ? 0 : 1;
}
