// The floor shm and shared regions under the laboratory's scheduler: every order of two or three processes within a
// bound of preemptions, with the death of one of them at each step. docs/testing.md, "Schedules".
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lab/exploration.hpp"
#include "mutants/mutants.hpp"
#include "shared/control.hpp"
#include "shared/kept_region.hpp"
#include "shm/robust_mutex.hpp"
#include "shm/segment.hpp"
#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "support/expect.hpp"

namespace memlith::test::exploration_test {
namespace {

using namespace core;
using core::shared::Control;
using core::shared::KeptRegion;
using core::shared::Owner;
using lab::Explored;
using lab::Scheduler;

class WithMutant {
 public:
  explicit WithMutant(Mutant mutant) { active_mutant = mutant; }
  ~WithMutant() { active_mutant = Mutant::none; }
};

// ---- the mutex: two words are equal while no process has it

struct Board {
  static constexpr std::uint64_t kLayout = 1;
  shm::RobustMutex mutex;
  shm::Word left{0};
  shm::Word right{0};
};

void count(Board& board, const shm::Participant& self, std::string& wrong) {
  const auto repair = [&board] { board.right.store(board.left.load()); };
  const shm::RobustLock lock(board.mutex, self, repair);
  if (board.left.load() != board.right.load()) wrong = "two processes have the mutex, or nothing was repaired";
  board.left.store(board.left.load() + 1);
  board.right.store(board.right.load() + 1);
}

// Processes that take the mutex once each; the first and the second may die.
std::string take_in_turns(Scheduler& scheduler, std::size_t processes) {
  auto board = shm::Segment<Board>::make("board", false, [](Board&) { return kOk; });
  std::vector<shm::Participant> selves;
  for (std::size_t i = 0; i < processes; ++i) selves.push_back(std::move(*board->join()));
  std::string wrong;
  std::vector<Thread> threads;
  for (std::size_t i = 0; i < processes; ++i) {
    threads.emplace_back([&, i] {
      if (i < 2) scheduler.may_die([&, i] { const shm::Participant ended = std::move(selves[i]); });
      count(**board, selves[i], wrong);
    });
  }
  scheduler.begin_deciding();
  for (Thread& each : threads) each.join();
  scheduler.end_deciding();
  if (!wrong.empty()) return wrong;
  const auto counted = (*board)->left.load();
  if (counted < processes - (scheduler.has_died() ? 1 : 0)) return "a count is missing";
  return "";
}

Explored explore_mutex(std::size_t processes, std::size_t preemptions, std::uint64_t schedules_max = 200'000) {
  return lab::explore([=](Scheduler& scheduler) { return take_in_turns(scheduler, processes); }, preemptions,
                      schedules_max);
}

TEST(RobustMutexSchedules, ExcludeAndRepairWhateverDies) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  const Explored two = explore_mutex(2, 3);
  EXPECT_EQ(two.wrong, "");
  EXPECT_TRUE(two.complete);
  EXPECT_GT(two.deaths, 100u);
  const Explored three = explore_mutex(3, 2);
  EXPECT_EQ(three.wrong, "");
  EXPECT_TRUE(three.complete);
  std::printf("schedules: %lu of two, %lu of three processes\n", two.schedules, three.schedules);
}

TEST(RobustMutexSchedules, ShowMutants) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  for (const Mutant mutant : {Mutant::living_owner_robbed, Mutant::dead_owner_kept, Mutant::repair_left_out}) {
    const WithMutant with(mutant);
    EXPECT_NE(explore_mutex(2, 2).wrong, "") << static_cast<int>(mutant);
  }
}

// ---- shared regions: clients move amounts between accounts, and the keeper commits

struct Table {
  std::int64_t account[4];
  std::uint64_t done[2];
};

StoreOptions small_options() {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 4096;
  options.log_bytes = 8 * 4096;
  options.log_max_bytes = 8 * 4096;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  return options;
}

std::unique_ptr<Session> open_session(SimVolume& volume) {
  auto session = Session::open({std::make_unique<VolumeDecorator>(volume), ""}, small_options());
  return session.ok() ? std::move(*session) : nullptr;
}

shared::Request table_request() {
  shared::Request request;
  std::string_view("table").copy(request.name.data(), request.name.size());
  request.bytes = 4096;
  request.creates = 1;
  return request;
}

// A store that has the region, as it is before each schedule.
const SimImage& prepared() {
  static const SimImage image = [] {
    SimVolume volume;
    auto session = open_session(volume);
    EXPECT_TRUE(KeptRegion::open(*session, table_request()).ok()) << last_error_text();
    EXPECT_TRUE(Session::close(std::move(session)).ok());
    return volume.image();
  }();
  return image;
}

// A process that has the region. What it asks of the keeper, it puts on the desk.
struct Client {
  std::uint32_t number = 0;
  Control control;
  shm::Mapping memory;
  std::uint64_t transactions = 0;
  [[nodiscard]] Table& table() const { return *reinterpret_cast<Table*>(memory.data()); }
};

class Case {
 public:
  explicit Case(Scheduler& scheduler) : scheduler_(scheduler), volume_(prepared()), session_(open_session(volume_)) {
    kept_ = std::move(*KeptRegion::open(*session_, table_request()));
    const auto [memory, control] = kept_->memories();
    for (std::uint32_t i = 0; i < 2; ++i) {
      clients_[i].number = i + 1;
      clients_[i].control = std::move(*Control::map(Descriptor(::fcntl(control, F_DUPFD_CLOEXEC, 3))));
      clients_[i].memory = std::move(*shm::Mapping::map(memory, 4096, {}));
    }
  }

  using Act = std::function<void(Case&, Client&)>;
  // The first client may die.
  std::string run(const Act& first, const Act& second) {
    scheduler_.let_others_run();
    Thread keeper([this] { keep(); });
    Thread one([&] {
      scheduler_.may_die([this] { bury(clients_[0]); });
      first(*this, clients_[0]);
    });
    Thread other([&] { second(*this, clients_[1]); });
    scheduler_.begin_deciding();
    one.join();
    other.join();
    ends_ = true;
    keeper.join();
    scheduler_.end_deciding();
    return complaint();
  }

  // As a transaction of SharedTransaction: takes the bytes of two accounts, in order, and of its counter.
  void move(Client& client, int from, int to, std::int64_t amount, bool aborts = false) {
    const Owner owner{client.number, ++client.transactions};
    Table& table = client.table();
    Table image{};
    if (!take(client, owner, &table.account[std::min(from, to)], true)) return;
    if (!take(client, owner, &table.account[std::max(from, to)], false)) return;
    std::uint64_t& done = table.done[client.number - 1];
    if (!take(client, owner, &done, false)) return;
    shm::copy_bytes(&image, &table, sizeof image);
    const auto put = [&](auto& place, auto value) { shm::copy_bytes(&place, &value, sizeof place); };
    put(table.account[from], table.account[from] - amount);
    put(table.account[to], table.account[to] + amount);
    put(done, done + 1);
    if (aborts) {
      put(done, image.done[client.number - 1]);
      put(table.account[to], image.account[to]);
      put(table.account[from], image.account[from]);
      return client.control.release(owner);
    }
    shm::step("send a packet");
    asked_.push_back(owner);
    controller->block("wait for an answer", nullptr, kForEver, [&] { return answered_[owner.client] == owner.tx; });
    ++acknowledged_[client.number - 1];
  }

 private:
  bool take(Client& client, Owner owner, const void* place, bool is_first) {
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(place) - client.memory.data());
    const Status taken =
        client.control.take(owner, {offset, 8}, SteadyClock::now() + std::chrono::hours(1000), is_first);
    if (!taken.ok()) wrong_ = std::string(last_error_text());
    return taken.ok();
  }

  // As Keeper::run: requests of a client count that it sent before it ended.
  void keep() {
    for (;;) {
      controller->block("wait for clients", nullptr, kForEver,
                        [&] { return ends_ || !asked_.empty() || buried_ != 0; });
      if (!asked_.empty()) {
        const Owner owner = asked_.front();
        asked_.erase(asked_.begin());
        const auto ticket = kept_->commit(owner, true);
        if (!ticket.ok() || !session_->store().wait(*ticket).ok()) wrong_ = std::string(last_error_text());
        shm::step("send a packet");
        answered_[owner.client] = owner.tx;
      } else if (buried_ != 0) {
        kept_->undo(std::exchange(buried_, 0));
      } else if (ends_) {
        return;
      }
    }
  }

  // The kernel's part.
  void bury(Client& client) {
    const Control gone = std::move(client.control);
    buried_ = client.number;
  }

  std::string complaint() {
    if (!wrong_.empty()) return wrong_;
    Client& other = clients_[1];
    // No range is left, and shared memory is as it was committed last.
    if (!other.control.take({9, 1}, {0, 4096}, SteadyClock::now(), true).ok()) return "a range was left behind";
    const Table& shared = other.table();
    if (std::memcmp(kept_->region().address(), &shared, sizeof shared) != 0) {
      return "memory has what was never committed";
    }
    std::int64_t sum = 0;
    for (const std::int64_t each : shared.account) sum += each;
    if (sum != 0) return "the sum is " + std::to_string(sum);
    for (int i = 0; i < 2; ++i) {
      const bool may_have_more = i == 0 && scheduler_.has_died();
      if (shared.done[i] < acknowledged_[i]) return "an acknowledged commit is gone";
      if (shared.done[i] > acknowledged_[i] + (may_have_more ? 1 : 0)) return "a commit that was not made";
    }
    return "";
  }

  Scheduler& scheduler_;
  SimVolume volume_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<KeptRegion> kept_;
  Client clients_[2];
  std::vector<Owner> asked_;
  std::map<std::uint32_t, std::uint64_t> answered_;
  std::uint32_t buried_ = 0;
  bool ends_ = false;
  std::uint64_t acknowledged_[2]{};
  std::string wrong_;
};

Explored explore_regions(const Case::Act& first, const Case::Act& second, std::size_t preemptions,
                         std::uint64_t schedules_max) {
  (void)prepared();
  return lab::explore([&](Scheduler& scheduler) { return Case(scheduler).run(first, second); }, preemptions,
                      schedules_max);
}

void move_up(Case& all, Client& client) { all.move(client, 0, 1, 5); }
void move_on(Case& all, Client& client) { all.move(client, 1, 2, 7); }
void abort_and_move(Case& all, Client& client) {
  all.move(client, 0, 1, 3, true);
  all.move(client, 1, 0, 5);
}

TEST(SharedSchedules, LeaveWholeCommitsWhereverAClientDies) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  for (const Case::Act& first : {Case::Act(move_up), Case::Act(abort_and_move)}) {
    const Explored explored = explore_regions(first, move_on, 1, 100'000);
    EXPECT_EQ(explored.wrong, "");
    EXPECT_TRUE(explored.complete);
    EXPECT_GT(explored.deaths, 50u);
    std::printf("schedules: %lu, with a death %lu\n", explored.schedules, explored.deaths);
  }
}

// Those that need two processes at one moment: SharedMutants of death_test.cpp.
TEST(SharedSchedules, ShowAnUndoThatIsLeftOut) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  const WithMutant with(Mutant::undo_left_out);
  EXPECT_NE(explore_regions(move_up, move_on, 1, 100'000).wrong, "");
}

}  // namespace
}  // namespace memlith::test::exploration_test
