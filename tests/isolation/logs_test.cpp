// docs/several-processes.md, "Promises": eight processes append to one application log, read it and consume, while they
// are killed and stopped, their keeper is killed, or its power goes. Everything that any of them has learnt of an entry
// is noted where a death does not reach it: the number of an append that was acknowledged as durable, and each entry
// that was read. Two never learn two things of one number; what was learnt stays, in that order, until it is consumed;
// what was acknowledged can be read at once; and an append has a higher number than what was known before it began.
// MEMLITH_ENTRIES: how many entries a test looks at.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "isolation/simulated_disk.hpp"
#include "mutants/mutants.hpp"
#include "processes/kept_logs.hpp"
#include "processes/log_client.hpp"
#include "shared/keeper.hpp"
#include "shm/words.hpp"
#include "support/child.hpp"
#include "support/crash_world.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::logs_test {
namespace {

using namespace core;
using processes::LogClient;

constexpr std::size_t kWorkers = 8;  // the first one consumes
constexpr std::uint64_t kNumbersMax = 1 << 20;
constexpr std::uint64_t kEpochEntries = 500;
constexpr std::uint64_t kRingBytes = 16 * kKiB;

// An entry of a worker: which one of its entries, counted from 1 on, and the worker.
struct Id {
  std::uint64_t count = 0;
  std::uint64_t worker = 0;
};
std::uint64_t packed(Id id) { return id.count * kWorkers + id.worker; }
Id unpacked(std::uint64_t word) { return {word / kWorkers, word % kWorkers}; }
std::string text_of(Id id) {
  return std::to_string(packed(id)) + ":" + std::string(packed(id) * 37 % 613, static_cast<char>('a' + id.count % 26));
}
std::optional<Id> id_of(std::string_view text) {
  std::uint64_t word = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), word).ec != std::errc()) return std::nullopt;
  const Id id = unpacked(word);
  return text == text_of(id) ? std::optional(id) : std::nullopt;
}

struct Told {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> cut{0};
  std::array<std::atomic<std::uint64_t>, kNumbersMax> entries{};  // by number, packed; 0: of that none is known
  std::atomic<std::uint64_t> newest{0};                           // number of those
  std::atomic<std::uint64_t> appended{0};                         // acknowledged
  std::atomic<std::uint64_t> read{0};
  // Number of an entry of which two things are known, or which was not found although it was acknowledged.
  std::atomic<std::uint64_t> wrong{0};
  std::array<std::atomic<std::uint64_t>, kWorkers> tried{};  // the newest entry of each worker, acknowledged or not

  void learn(std::uint64_t number, Id id) {
    if (number >= kNumbersMax) return;
    std::uint64_t before = 0;
    if (!entries[number].compare_exchange_strong(before, packed(id)) && before != packed(id)) wrong = number;
    for (std::uint64_t known = newest; known < number && !newest.compare_exchange_weak(known, number);) {
    }
  }
};

enum class Disk : std::uint8_t { real, simulated };

void rest_sometimes() {
  static std::atomic<std::uint64_t> steps{0};
  if (++steps % 7 == 0) ::usleep(50);
}

struct Mistakes {
  const char* name = "";
  Mutant of_keeper = Mutant::none;
  Mutant of_clients = Mutant::none;
};

[[noreturn]] void keep(const std::string& folder, Disk disk, Told& told, Mutant mutant, int ready) {
  active_mutant = mutant;
  std::optional<SimulatedDisk> simulated;
  shared::KeeperOptions options;
  options.path = folder + "/store";
  options.create = true;
  options.grace = std::chrono::seconds(60);
  options.service = [](Session& session) { return std::make_unique<processes::KeptLogs>(session); };
  options.ready = [ready] { ::close(ready); };
  if (disk == Disk::simulated) {
    simulated.emplace(folder + "/medium", told.cut);
    options.open = [&] { return simulated->open(); };
  }
  const Status kept = shared::keep(options);
  if (!kept.ok()) std::fprintf(stderr, "%s\n", std::string(last_error_text()).c_str());
  ::_exit(kept.ok() ? 0 : 1);
}

Result<std::unique_ptr<LogClient>> open(const std::string& folder) {
  processes::LogClientOptions options;
  options.path = folder + "/store";
  options.name = "log";
  options.create = true;
  options.program = "/nowhere";  // the test starts keepers
  options.size_bytes = kPageBytes + kRingBytes;
  options.reserve_bytes = kPageBytes + kRingBytes;
  return LogClient::open(options);
}

class Worker {
 public:
  Worker(LogClient& log, std::size_t number, std::uint64_t seed, Told& told)
      : log_(log), number_(number), told_(told), random_(seed) {}

  // Until it is told to stop, or a call fails.
  Status live() {
    while (!told_.stop) {
      const Status went = number_ == 0 ? consume() : random_.one_in(3) ? read(random_.below(20)) : append();
      if (!went.ok()) return went;
    }
    return kOk;
  }

 private:
  Status append() {
    const std::uint64_t known = told_.newest;
    const std::size_t count = 1 + random_.below(3);
    std::vector<std::string> texts;
    std::vector<LogClient::Content> contents;
    const std::uint64_t first = told_.tried[number_] + 1;
    for (std::size_t i = 0; i < count; ++i) texts.push_back(text_of({first + i, number_}));
    for (const std::string& each : texts) contents.push_back(std::as_bytes(std::span(each)));
    told_.tried[number_] += count;
    MEMLITH_TRY_ASSIGN(const std::uint64_t last, log_.append(contents));
    if (random_.one_in(4)) return kOk;  // and another process writes it
    if (random_.one_in(2)) {
      MEMLITH_TRY(log_.write().status());
    } else {
      MEMLITH_TRY_ASSIGN(const Lsn ticket, log_.write_weak());
      MEMLITH_TRY(log_.wait(ticket));
    }
    if (last - (count - 1) <= known) told_.wrong = last;
    for (std::size_t i = 0; i < count; ++i) told_.learn(last - (count - 1) + i, {first + i, number_});
    told_.appended += count;
    return random_.one_in(4) ? find(last) : kOk;
  }
  // It was acknowledged: any process can read it until it is consumed.
  Status find(std::uint64_t number) {
    std::vector<std::byte> content;
    MEMLITH_TRY_ASSIGN(const bool is_there, log_.read_at(number, content));
    if (is_there) {
      note(number, content);
      return kOk;
    }
    MEMLITH_TRY_ASSIGN(const applog::AppLogReport report, log_.info());
    if (report.consumed < number) told_.wrong = number;
    return kOk;
  }
  Status read(std::uint64_t entries) {
    if (random_.one_in(8)) log_.rewind();
    LogClient::Entry entry;
    for (; entries > 0; --entries) {
      MEMLITH_TRY_ASSIGN(const bool any, log_.read(random_.one_in(2) ? 5 : 0, entry));
      if (!any) return kOk;
      note(entry.number, entry.content);
    }
    std::vector<std::byte> content;
    const std::uint64_t some = told_.newest - std::min(told_.newest.load(), random_.below(30));
    MEMLITH_TRY_ASSIGN(const bool is_there, log_.read_at(some, content));
    if (is_there) note(some, content);
    return kOk;
  }
  Status consume() {
    LogClient::Entry entry;
    MEMLITH_TRY_ASSIGN(const bool any, log_.read(5, entry));
    if (!any) return kOk;
    note(entry.number, entry.content);
    return random_.one_in(4) ? log_.consume(entry.number) : kOk;
  }
  void note(std::uint64_t number, LogClient::Content content) {
    const auto id = id_of({reinterpret_cast<const char*>(content.data()), content.size()});
    if (id.has_value()) {
      told_.learn(number, *id);
    } else {
      told_.wrong = number;
    }
    ++told_.read;
  }

  LogClient& log_;
  const std::size_t number_;
  Told& told_;
  Random random_;
};

[[noreturn]] void work(const std::string& folder, std::size_t number, std::uint64_t seed, Told& told) {
  const Status went = [&]() -> Status {
    MEMLITH_TRY_ASSIGN(const std::unique_ptr<LogClient> log, open(folder));
    return Worker(*log, number, seed, told).live();
  }();
  const bool is_explained =
      went.ok() || went.category == Errc::io || went.category == Errc::poisoned || went.category == Errc::not_found;
  if (!is_explained) std::fprintf(stderr, "%s\n", std::string(last_error_text()).c_str());
  ::_exit(is_explained ? 0 : 1);
}

class World {
 public:
  explicit World(Disk disk, std::uint64_t seed, const Mistakes& mistakes = {})
      : disk_(disk), mistakes_(mistakes), random_(seed) {
    start_keeper();
  }
  ~World() {
    for (KilledProcess& each : workers_) each.kill();
    keeper_.kill();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  struct Counts {
    std::uint64_t kills = 0;
    std::uint64_t stops = 0;
    std::uint64_t ends_of_keepers = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const Told& told() const { return *told_; }

  // Some hundred entries, with `disturbances`; then, if wanted, the keeper's end. Returns what is wrong.
  std::string epoch(std::uint64_t disturbances, bool ends_keeper) {
    told_->stop = false;
    for (std::size_t i = 0; i < kWorkers; ++i) start_worker(i);
    for (; disturbances > 0; --disturbances) {
      if (!await(kEpochEntries / 5)) return "the processes stand still";
      if (!disturb()) return "all wait for a process that is stopped";
    }
    if (!await(kEpochEntries / 5)) return "the processes stand still";
    if (ends_keeper) end_keeper();
    told_->stop = true;
    if (!ends_keeper) free_room();
    for (KilledProcess& each : workers_) {
      if (each.wait() != 0) return "a process has failed";
    }
    if (ends_keeper) start_keeper();
    return judge();
  }

 private:
  void start_keeper() {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    told_->cut = 0;
    keeper_.start([&] {
      ::close(ends[0]);
      keep(folder_.path(), disk_, *told_, mistakes_.of_keeper, ends[1]);
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
    const std::uint64_t seed = random_.next();
    workers_[number].start([&] {
      active_mutant = mistakes_.of_clients;
      if (*mistakes_.name != '\0') shm::observer = rest_sometimes;
      work(folder_.path(), number, seed, *told_);
    });
  }
  // Until this number of further entries is acknowledged.
  [[nodiscard]] bool await(std::uint64_t more) const {
    const std::uint64_t wanted = told_->appended + more;
    for (int idle = 0; told_->appended < wanted; ++idle) {
      if (told_->wrong != 0) return true;
      const std::uint64_t before = told_->appended;
      ::usleep(200);
      if (told_->appended != before) idle = 0;
      if (idle == 100'000) return false;
    }
    return true;
  }
  bool disturb() {
    // All need the one that consumes.
    const bool stops = random_.one_in(4);
    const std::size_t number = stops ? 1 + random_.below(kWorkers - 1) : random_.below(kWorkers);
    if (!stops) {
      ++counts_.kills;
      workers_[number].kill_working();
      start_worker(number);
      return true;
    }
    ++counts_.stops;
    workers_[number].signal(SIGSTOP);
    const bool others_go_on = await(30);
    workers_[number].signal(SIGCONT);
    return others_go_on;
  }
  // An append may wait for the one that consumes, which has ended.
  void free_room() {
    const auto log = must(open(folder_.path()));
    for (int i = 0; i < 50; ++i) {
      if (!log->truncate_before(must(log->info()).durable).ok()) std::abort();
      ::usleep(2000);
    }
  }

  // The log, against all that is known of it.
  std::string judge() {
    if (told_->wrong != 0) return "two things, or nothing, are known of entry " + std::to_string(told_->wrong);
    const auto log = must(open(folder_.path()));
    EXPECT_OK(log->write());
    const applog::AppLogReport report = must(log->info());
    if (report.durable < told_->newest) return "an entry is gone that was known to be durable";
    std::array<std::uint64_t, kWorkers> newest{};
    LogClient::Entry entry;
    std::uint64_t number = report.consumed;
    while (must(log->read(0, entry))) {
      if (entry.number != ++number) return "the numbers do not follow each other";
      const auto id = id_of({reinterpret_cast<const char*>(entry.content.data()), entry.content.size()});
      if (!id.has_value() || id->count > told_->tried[id->worker]) return "there is an entry that no process made";
      if (id->count <= newest[id->worker]) return "an entry is there twice, or out of order";
      newest[id->worker] = id->count;
      told_->learn(number, *id);
    }
    if (number != report.durable) return "not all durable entries can be read";
    return told_->wrong == 0 ? "" : "another entry is where one was known to be durable";
  }

  const Disk disk_;
  const Mistakes mistakes_;
  Random random_;
  TempFolder folder_;
  SharedWithChildren<Told> told_;
  KilledProcess keeper_;
  std::array<KilledProcess, kWorkers> workers_;
  Counts counts_;
};

void play(Disk disk) {
  const char* const given = std::getenv("MEMLITH_ENTRIES");
  const std::uint64_t wanted = given != nullptr ? std::strtoull(given, nullptr, 10) : scaled(6000);
  const std::uint64_t seed = seed_for_this_run();
  World world(disk, seed);
  Random random(seed + 1);
  while (world.told().appended < wanted) {
    const std::string wrong = world.epoch(random.below(4), random.one_in(2));
    ASSERT_EQ(wrong, "") << "seed " << seed << ", behind " << world.told().appended << " entries";
  }
  const World::Counts& counts = world.counts();
  std::printf("%lu entries acknowledged, %lu read; %lu kills and %lu stops of clients, %lu ends of keepers\n",
              world.told().appended.load(), world.told().read.load(), counts.kills, counts.stops,
              counts.ends_of_keepers);
}

TEST(ProcessesLogs, KeepWhatIsKnownWhileClientsAndKeepersAreKilled) { play(Disk::real); }
TEST(ProcessesLogs, KeepWhatIsKnownWhileClientsAreKilledAndThePowerGoes) { play(Disk::simulated); }

class PlantedInLogs : public testing::TestWithParam<Mistakes> {};

TEST_P(PlantedInLogs, IsFound) {
  std::string found;
  World world(Disk::real, 1, GetParam());
  for (int i = 0; i < 60 && found.empty(); ++i) found = world.epoch(0, true);
  EXPECT_NE(found, "") << "nothing was found";
  std::printf("%s\n", found.c_str());
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedInLogs,
                         testing::Values(Mistakes{"AnswerBeforeFlush", Mutant::answer_before_durable, Mutant::none},
                                         Mistakes{"NotConfirmed", Mutant::none, Mutant::applog_not_confirmed},
                                         Mistakes{"ConsumedNotShown", Mutant::applog_consumed_not_shown, Mutant::none}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace memlith::test::logs_test
