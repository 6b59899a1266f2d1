// docs/several-processes.md, "Promises": random histories of transactions of several clients of one keeper are
// strictly serialisable in the order of their numbers. Each client has a handle of its own, as another process has. A
// keeper that does not look whether what was read is as it was, and a client whose snapshot moves, are found.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <set>
#include <string>
#include <thread>

#include "isolation/client.hpp"
#include "mutants/mutants.hpp"
#include "processes/client.hpp"
#include "processes/kept_kvs.hpp"
#include "shared/keeper.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::processes_test {
namespace {

using namespace core;

// In a process of its own, until the object ends.
class KeeperProcess {
 public:
  KeeperProcess(const std::string& path, Mutant mutant) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      active_mutant = mutant;
      shared::KeeperOptions options;
      options.path = path;
      options.create = true;
      options.service = [](Session& session) { return std::make_unique<processes::KeptKvs>(session); };
      options.ready = [&] { ::close(ends[1]); };
      ::_exit(shared::keep(options).ok() ? 0 : 1);
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // the end: clients can connect
    ::close(ends[0]);
  }
  ~KeeperProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  KeeperProcess(const KeeperProcess&) = delete;
  KeeperProcess& operator=(const KeeperProcess&) = delete;

 private:
  pid_t pid_ = -1;
};

std::unique_ptr<processes::KvClient> open(const std::string& path) {
  processes::KvClientOptions options;
  options.path = path;
  options.name = "kv";
  options.create = true;
  return must(processes::KvClient::open(options));
}

struct Played {
  std::optional<Anomaly> anomaly;
  std::size_t committed = 0;
  std::size_t aborted = 0;
};

Played play(std::uint64_t seed, int steps, Mutant of_keeper = Mutant::none, Mutant of_clients = Mutant::none) {
  TempFolder folder;
  const std::string path = folder / "store";
  const KeeperProcess keeper(path, of_keeper);
  Journal journal;
  active_mutant = of_clients;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto kv = open(path);
      Client client(*kv, journal, seed * 8 + t);
      client.set_sync_one_in(20);
      for (int i = 0; i < steps; ++i) client.step();
      client.end();
    });
  }
  for (std::thread& each : threads) each.join();
  active_mutant = Mutant::none;
  EXPECT_OK(open(path)->verify().status());
  Played played{find_anomaly(journal.history())};
  for (const Recorded& each : journal.history().transactions) ++(each.committed ? played.committed : played.aborted);
  return played;
}

std::string told(const std::optional<Anomaly>& anomaly) { return anomaly ? anomaly->kind + ": " + anomaly->text : ""; }

TEST(ProcessesIsolation, ClientsAreSerialisable) {
  const std::uint64_t seed = seed_for_this_run();
  std::size_t committed = 0;
  std::size_t aborted = 0;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Played played = play(seed + i, 1500);
    ASSERT_FALSE(played.anomaly) << "seed " << seed + i << ": " << told(played.anomaly);
    committed += played.committed;
    aborted += played.aborted;
  }
  EXPECT_GT(committed, 1000U);
  EXPECT_GT(aborted, 100U) << "they hardly met";
  std::printf("%zu transactions committed, %zu aborted\n", committed, aborted);
}

struct Planted {
  const char* name;
  Mutant of_keeper;
  Mutant of_clients;
};

class PlantedInProcesses : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInProcesses, IsFound) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 30 && found.empty(); ++seed) {
    found = told(play(seed, 1500, GetParam().of_keeper, GetParam().of_clients).anomaly);
  }
  EXPECT_NE(found, "") << "nothing was found";
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedInProcesses,
                         testing::Values(Planted{"ReadsNotValidated", Mutant::kv_reads_not_validated, Mutant::none},
                                         Planted{"RangesNotValidated", Mutant::kv_ranges_not_validated, Mutant::none},
                                         Planted{"SnapshotMoves", Mutant::none, Mutant::kv_snapshot_moves}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace memlith::test::processes_test
