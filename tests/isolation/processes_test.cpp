// docs/several-processes.md, "Promises": histories of transactions of eight processes that have a kv store open are
// strictly serialisable in the order of the commits' numbers, while clients are killed and stopped, their keeper is
// killed, and the power goes. What was acknowledged as durable is there then. Mistakes that are put into the keeper and
// into the clients are found. MEMLITH_TRANSACTIONS: how many transactions a test looks at.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory_resource>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "isolation/file_journal.hpp"
#include "isolation/simulated_disk.hpp"
#include "kv/proposal.hpp"
#include "mutants/mutants.hpp"
#include "processes/asks.hpp"
#include "processes/client.hpp"
#include "processes/kept_kvs.hpp"
#include "shared/keeper.hpp"
#include "shm/words.hpp"
#include "support/child.hpp"
#include "support/crash_world.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::processes_test {
namespace {

using namespace core;

constexpr std::size_t kWorkers = 8;
constexpr std::uint64_t kCommitsMax = 1 << 19;
constexpr std::uint64_t kEpochTransactions = 700;
constexpr const char* kMarkers = "m";  // the map of the records by which a transaction is told from others

struct Told {
  Journal::Counters counters;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> most{0};                             // transactions, behind which the workers rest
  std::atomic<std::uint64_t> cut{0};                              // not 0: the power goes now; a seed
  std::atomic<std::uint64_t> newest{0};                           // commit of which the keeper has noted the marker
  std::array<std::atomic<std::uint64_t>, kCommitsMax> markers{};  // by the number of the commit
};

// The number in a value (Journal::fresh_value).
std::uint64_t number_of(std::string_view value) {
  return std::strtoull(std::string(value.substr(1)).c_str(), nullptr, 10);
}

// ---- the keeper -------------------------------------------------------------------------------------------------

// Notes which transaction got which number: a client that is killed cannot tell.
class NotingKvs final : public shared::Service {
 public:
  NotingKvs(Session& session, Told& told) : kvs_(session), told_(told) {}
  Result<std::array<int, 2>> open(std::uint32_t client, const shared::Request& request,
                                  shared::Answer& answer) override {
    return kvs_.open(client, request, answer);
  }
  Result<std::optional<Lsn>> serve(std::uint32_t client, const shared::Request& request, std::string_view payload,
                                   shared::Answer& answer) override {
    auto served = kvs_.serve(client, request, payload, answer);
    if (served.ok() && processes::ask_of(request) == processes::Ask::commit) note(payload, answer.bytes);
    return served;
  }
  bool work() override { return kvs_.work(); }
  void leave(std::uint32_t client) override { kvs_.leave(client); }
  void say_failed() override { kvs_.say_failed(); }

 private:
  void note(std::string_view payload, std::uint64_t commit) {
    kv::Proposal proposal(std::pmr::get_default_resource());
    if (!proposal.read(payload).ok() || commit >= kCommitsMax) return;
    for (const auto& [record, pending] : proposal.locks.writes) {
      if (record.key.front() == 'w') told_.markers[commit] = number_of(pending.value);
    }
    told_.newest = commit;
  }

  processes::KeptKvs kvs_;
  Told& told_;
};

enum class Disk : std::uint8_t { real, simulated };

struct Mistakes {
  const char* name = "";
  Mutant of_keeper = Mutant::none;
  Mutant of_clients = Mutant::none;
};

// Now and then within a commit, the keeper rests.
void rest_sometimes() {
  static std::atomic<std::uint64_t> steps{0};
  if (++steps % 11 == 0) ::usleep(50);
}

[[noreturn]] void keep(const std::string& folder, Disk disk, Told& told, const Mistakes& mistakes, int ready) {
  active_mutant = mistakes.of_keeper;
  if (*mistakes.name != '\0') shm::observer = rest_sometimes;
  std::optional<SimulatedDisk> simulated;
  shared::KeeperOptions options;
  options.path = folder + "/store";
  options.create = true;
  options.grace = std::chrono::seconds(60);
  options.service = [&](Session& session) { return std::make_unique<NotingKvs>(session, told); };
  options.ready = [ready] { ::close(ready); };
  if (disk == Disk::simulated) {
    simulated.emplace(folder + "/medium", told.cut);
    options.open = [&] { return simulated->open(); };
  }
  const Status kept = shared::keep(options);
  if (!kept.ok()) std::fprintf(stderr, "%s\n", std::string(last_error_text()).c_str());
  ::_exit(kept.ok() ? 0 : 1);
}

// ---- clients ----------------------------------------------------------------------------------------------------

Result<std::unique_ptr<processes::KvClient>> open(const std::string& folder) {
  processes::KvClientOptions options;
  options.path = folder + "/store";
  options.name = "kv";
  options.create = true;
  options.program = "/nowhere";  // the test starts keepers
  return processes::KvClient::open(options);
}

[[noreturn]] void leave_without_keeper(Status why) {
  const bool is_that = why.category == Errc::io || why.category == Errc::poisoned || why.category == Errc::not_found;
  if (!is_that) std::fprintf(stderr, "%s\n", std::string(last_error_text()).c_str());
  ::_exit(is_that ? 0 : 1);
}

// Until it is told to stop, or the keeper ends.
[[noreturn]] void work(const std::string& folder, const std::string& journal_path, std::size_t number,
                       std::uint64_t seed, Told& told) {
  FileJournal journal(journal_path, told.counters);
  const auto kv = open(folder);
  if (!kv.ok()) leave_without_keeper(kv.error());
  const auto markers = (*kv)->open_map(kMarkers, false, false);
  if (!markers.ok()) leave_without_keeper(markers.error());
  Client client(**kv, journal, seed);
  client.set_marker(*markers, "w" + std::to_string(number));
  client.set_sync_one_in(12);
  while (!told.stop && !client.has_ended()) {
    if (told.counters.ended < told.most) {
      client.step();
    } else {
      ::usleep(200);
    }
  }
  client.end();
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}

// ---- the test ---------------------------------------------------------------------------------------------------

class World {
 public:
  explicit World(Disk disk, std::uint64_t seed, const Mistakes& mistakes = {})
      : disk_(disk), mistakes_(mistakes), random_(seed) {
    start_keeper();
    const auto kv = must(open(folder_.path()));
    for (const std::string& map : {Journal::map_of(0), Journal::map_of(1), std::string(kMarkers)}) {
      must(kv->open_map(map, true, false));
    }
    history_.keys = Journal().history().keys;
    for (std::size_t i = 0; i < kWorkers; ++i) history_.keys.push_back(kMarkers + ("/w" + std::to_string(i)));
    newest_ = told_->newest = kv->newest();
  }
  ~World() {
    for (KilledProcess& each : workers_) each.kill();
    keeper_.kill();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  struct Counts {
    std::uint64_t committed = 0;
    std::uint64_t aborted = 0;
    std::uint64_t unknown = 0;  // clients were killed in a commit, or their keeper was
    std::uint64_t kills = 0;
    std::uint64_t stops = 0;
    std::uint64_t ends_of_keepers = 0;
    std::uint64_t lost = 0;  // commits that were not durable
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

  // Some hundred transactions, with `disturbances`; then, if wanted, the keeper's end. Returns what is wrong.
  std::string epoch(std::uint64_t disturbances, bool ends_keeper) {
    told_->stop = false;
    journals_.clear();
    const std::uint64_t start = told_->counters.ended;
    told_->most = start + 2 * kEpochTransactions;  // however long this process is not run
    for (std::size_t i = 0; i < kWorkers; ++i) start_worker(i);
    std::vector<std::uint64_t> moments(disturbances);
    for (std::uint64_t& each : moments) each = start + random_.below(kEpochTransactions);
    std::sort(moments.begin(), moments.end());
    for (const std::uint64_t moment : moments) {
      if (!await(moment)) return "the processes stand still";
      if (!disturb()) return "all wait for a process that is stopped";
    }
    if (!await(start + kEpochTransactions)) return "the processes stand still";
    if (ends_keeper) end_keeper();
    told_->stop = true;
    for (KilledProcess& each : workers_) {
      if (each.wait() != 0) return "a process has failed";
    }
    if (ends_keeper) start_keeper();
    return judge(ends_keeper);
  }

 private:
  void start_keeper() {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    told_->cut = 0;
    keeper_.start([&] {
      ::close(ends[0]);
      keep(folder_.path(), disk_, *told_, mistakes_, ends[1]);
    });
    ::close(ends[1]);
    char byte = 0;
    ASSERT_EQ(::read(ends[0], &byte, 1), 0);  // the end: clients can connect
    ::close(ends[0]);
  }
  void end_keeper() {
    ++counts_.ends_of_keepers;
    if (disk_ == Disk::real) return (void)keeper_.kill();
    told_->cut = random_.next() | 1;
    (void)keeper_.wait();
  }
  void start_worker(std::size_t number) {
    journals_.push_back(folder_ / ("journal " + std::to_string(journals_.size())));
    const std::uint64_t seed = random_.next();
    workers_[number].start([&] {
      active_mutant = mistakes_.of_clients;
      work(folder_.path(), journals_.back(), number, seed, *told_);
    });
  }
  // False: nothing happens.
  bool await(std::uint64_t ended) {
    std::uint64_t before = told_->counters.ended;
    for (int idle = 0; told_->counters.ended < ended; ++idle) {
      ::usleep(200);
      const std::uint64_t now = told_->counters.ended;
      if (now != before) idle = 0;
      before = now;
      if (idle == 200'000) return false;
    }
    return true;
  }
  bool disturb() {
    const std::size_t number = random_.below(kWorkers);
    if (random_.one_in(4)) {
      ++counts_.stops;
      const std::uint64_t wanted = told_->counters.ended + 30;
      told_->most = std::max(told_->most.load(), wanted);
      workers_[number].signal(SIGSTOP);
      const bool others_go_on = await(wanted);
      workers_[number].signal(SIGCONT);
      return others_go_on;
    }
    ++counts_.kills;
    workers_[number].kill_working();
    start_worker(number);
    return true;
  }

  // ---- what was recorded, against what is there

  std::string judge(bool has_ended) {
    const auto kv = must(open(folder_.path()));
    // The keeper has answered to what came after the last message of a dead process.
    for (int i = 0; i < 2; ++i) must(kv->info());
    EXPECT_OK(kv->persist());
    EXPECT_OK(kv->verify().status());
    const std::map<std::string, std::string> content = content_of(*kv);
    const std::uint64_t left = kv->newest();
    collect(content, left);
    const std::uint64_t newest = newest_number();
    if (const auto anomaly = find_anomaly(history_)) return anomaly->kind + ": " + anomaly->text;
    for (const Recorded& each : history_.transactions) {
      ++(each.committed ? counts_.committed : counts_.aborted);
      if (each.durable > left) return "an acknowledged commit is gone";
    }
    // The keeper's own commits, which free pages, are behind it, too.
    if (!has_ended && left < newest) return "the newest commit is gone";
    counts_.lost += newest - std::min(left, newest);
    if (content != content_after(history_, left)) return "what is left is not the state after its last commit";
    for (std::uint64_t lost = left + 1; lost <= told_->newest; ++lost) told_->markers[lost] = 0;
    history_.before = content;
    newest_ = told_->newest = left;
    return "";
  }
  static std::map<std::string, std::string> content_of(processes::KvClient& kv) {
    std::map<std::string, std::string> content;
    kv::Transaction transaction(kv, true);
    EXPECT_OK(transaction.begin());
    for (const std::string& map : {Journal::map_of(0), Journal::map_of(1), std::string(kMarkers)}) {
      kv::Cursor cursor(transaction, must(kv.open_map(map, false, false)));
      for (bool more = must(cursor.first()); more; more = must(cursor.next())) {
        const auto record = must(cursor.current());
        content[map + "/" + std::string(record->key)] = record->value;
      }
    }
    return content;
  }
  // All transactions of the epoch. Of those whose outcome is unknown, the keeper's notes tell the number, or that there
  // is none; but for the commit in which a keeper died, the newest, which counts if anything shows it. `left`: the
  // newest that is there.
  void collect(const std::map<std::string, std::string>& content, std::uint64_t left) {
    std::map<std::uint64_t, std::uint64_t> numbers;  // by marker
    for (std::uint64_t commit = newest_ + 1; commit <= told_->newest; ++commit) {
      numbers[told_->markers[commit]] = commit;
    }
    history_.transactions.clear();
    std::vector<std::size_t> unknown;
    std::set<std::string> seen;
    std::set<std::string> there;
    for (const auto& [key, value] : content) there.insert(value);
    for (const std::string& journal : journals_) {
      if (!std::filesystem::exists(journal)) continue;  // its process was killed before it had one
      for (Noted& each : FileJournal::read(read_file(journal))) {
        std::set<std::string> own;  // which it may see without a commit
        for (const Action& action : each.recorded.actions) {
          if (action.kind == Action::Kind::write && action.value) own.insert(*action.value);
          if (action.kind == Action::Kind::read && action.value && !own.contains(*action.value)) {
            seen.insert(*action.value);
          }
          for (const auto& [key, value] : action.found) {
            if (!own.contains(value)) seen.insert(value);
          }
        }
        if (!each.is_known) unknown.push_back(history_.transactions.size());
        history_.transactions.push_back(std::move(each.recorded));
      }
      std::filesystem::remove(journal);
    }
    for (const std::size_t i : unknown) settle(history_.transactions[i], numbers, there, seen, left);
    counts_.unknown += unknown.size();
  }
  void settle(Recorded& unknown, const std::map<std::uint64_t, std::uint64_t>& numbers,
              const std::set<std::string>& there, const std::set<std::string>& seen, std::uint64_t left) const {
    unknown.ended = ~std::uint64_t{0};
    if (!unknown.wrote) return;  // it has not told what it read
    const std::string& marker = *unknown.actions.back().value;
    const auto noted = numbers.find(number_of(marker));
    const bool is_seen = std::any_of(unknown.actions.begin(), unknown.actions.end(), [&](const Action& each) {
      return each.kind == Action::Kind::write && each.value && seen.contains(*each.value);
    });
    if (noted != numbers.end()) {
      unknown.number = noted->second;
    } else if (there.contains(marker)) {
      unknown.number = left;
    } else if (is_seen) {
      unknown.number = std::max(left, told_->newest.load()) + 1;
    } else {
      return;
    }
    unknown.committed = true;
    unknown.from = unknown.to = unknown.number - 1;
  }
  [[nodiscard]] std::uint64_t newest_number() const {
    std::uint64_t newest = newest_;
    for (const Recorded& each : history_.transactions) newest = std::max(newest, each.committed ? each.number : 0);
    return newest;
  }

  const Disk disk_;
  const Mistakes mistakes_;
  Random random_;
  TempFolder folder_;
  SharedWithChildren<Told> told_;
  KilledProcess keeper_;
  std::array<KilledProcess, kWorkers> workers_;
  std::vector<std::string> journals_;  // of the epoch
  History history_;
  std::uint64_t newest_ = 0;  // commit before the epoch
  Counts counts_;
};

void play(Disk disk) {
  const char* const given = std::getenv("MEMLITH_TRANSACTIONS");
  const std::uint64_t wanted = given != nullptr ? std::strtoull(given, nullptr, 10) : scaled(4000);
  const std::uint64_t seed = seed_for_this_run();
  World world(disk, seed);
  Random random(seed + 1);
  const World::Counts& counts = world.counts();
  while (counts.committed < wanted) {
    const std::string wrong = world.epoch(random.below(4), random.one_in(2));
    ASSERT_EQ(wrong, "") << "seed " << seed << ", behind " << counts.committed << " transactions";
  }
  std::printf(
      "%zu transactions committed, %zu aborted, %zu of unknown outcome; %zu kills and %zu stops of clients, %zu "
      "ends of keepers, %zu commits lost that were not durable\n",
      counts.committed, counts.aborted, counts.unknown, counts.kills, counts.stops, counts.ends_of_keepers,
      counts.lost);
  EXPECT_GT(counts.aborted, 100U) << "they hardly met";
  EXPECT_GT(counts.unknown, 0U);
}

TEST(ProcessesIsolation, HoldsWhileClientsAndKeepersAreKilled) { play(Disk::real); }
TEST(ProcessesIsolation, HoldsWhileClientsAreKilledAndThePowerGoes) { play(Disk::simulated); }

class PlantedInProcesses : public testing::TestWithParam<Mistakes> {};

TEST_P(PlantedInProcesses, IsFound) {
  std::string found;
  World world(Disk::real, 1, GetParam());
  for (int i = 0; i < 60 && found.empty(); ++i) found = world.epoch(0, true);
  EXPECT_NE(found, "") << "nothing was found";
  std::printf("%s\n", found.c_str());
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedInProcesses,
                         testing::Values(Mistakes{"LostUpdate", Mutant::kv_reads_not_validated, Mutant::none},
                                         Mistakes{"Phantom", Mutant::kv_ranges_not_validated, Mutant::none},
                                         Mistakes{"DirtyRead", Mutant::none, Mutant::kv_view_of_unfinished},
                                         Mistakes{"SnapshotMoves", Mutant::none, Mutant::kv_snapshot_moves},
                                         Mistakes{"AnswerBeforeFlush", Mutant::answer_before_durable, Mutant::none}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace memlith::test::processes_test
