// Clients of a kv store that several processes have open, beside its keeper, under the laboratory's scheduler: every
// order of their steps within a bound of preemptions, with the death of a client at each step. docs/testing.md,
// "Schedules".
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lab/exploration.hpp"
#include "mutants/mutants.hpp"
#include "processes/asks.hpp"
#include "processes/client.hpp"
#include "processes/kept_kvs.hpp"
#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "support/expect.hpp"

namespace memlith::test::kv_exploration_test {
namespace {

using namespace core;
using core::processes::KeptKvs;
using core::processes::KvClient;
using lab::Explored;
using lab::Scheduler;

constexpr std::uint64_t kBytes = 256 * kKiB;

class WithMutant {
 public:
  explicit WithMutant(Mutant mutant) { active_mutant = mutant; }
  ~WithMutant() { active_mutant = Mutant::none; }
};

std::unique_ptr<Session> open_session(SimVolume& volume) {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 16 * kKiB;
  options.log_bytes = 8 * options.slot_bytes;
  options.log_max_bytes = 8 * options.slot_bytes;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  auto session = Session::open({std::make_unique<VolumeDecorator>(volume), ""}, std::move(options));
  EXPECT_TRUE(session.ok()) << last_error_text();
  return session.ok() ? std::move(*session) : nullptr;
}

shared::Request open_request() {
  shared::Request request;
  request.ask = processes::shared_ask(processes::Ask::open);
  std::memcpy(request.name.data(), "kv", 2);
  request.creates = processes::kCreate;
  request.bytes = kBytes;
  return request;
}

// The keeper's end of a connection, and the client's handle.
struct Connected {
  Descriptor socket;
  std::unique_ptr<KvClient> kv;
  std::array<kv::MapNumber, 2> maps{};
  int clients_socket = -1;
  std::uint64_t acknowledged = 0;
};

// A store whose kv store has two maps, as it is before each schedule.
const SimImage& prepared() {
  static const SimImage image = [] {
    SimVolume volume;
    auto session = open_session(volume);
    {
      KeptKvs kept(*session);
      shared::Answer answer;
      EXPECT_TRUE(kept.open(1, open_request(), answer).ok()) << last_error_text();
      for (const std::string_view name : {"left", "right"}) {
        shared::Request request;
        request.ask = processes::shared_ask(processes::Ask::open_map);
        request.creates = processes::kCreate;
        EXPECT_TRUE(kept.serve(1, request, name, answer).ok()) << last_error_text();
      }
    }
    EXPECT_TRUE(Session::close(std::move(session)).ok());
    return volume.image();
  }();
  return image;
}

class Case {
 public:
  explicit Case(Scheduler& scheduler)
      : scheduler_(scheduler), volume_(prepared()), session_(open_session(volume_)), kept_(*session_) {}

  using Act = void (*)(Case&, Connected&);
  // The first client may die.
  std::string run(Act first, Act second) {
    for (std::uint32_t i = 0; i < 2; ++i) connect(i);
    Thread keeper([this] { keep(); });
    for (Connected& each : clients_) open_maps(each);
    scheduler_.let_others_run();
    Thread one([&] {
      scheduler_.may_die([this] { ::shutdown(clients_[0].clients_socket, SHUT_RDWR); });
      first(*this, clients_[0]);
    });
    Thread other([&] { second(*this, clients_[1]); });
    scheduler_.begin_deciding();
    one.join();
    other.join();
    scheduler_.end_deciding();
    std::string complaint = judge();
    for (Connected& each : clients_) each.kv = nullptr;
    ends_ = true;
    keeper.join();
    return complaint;
  }

  // ---- acts

  // One transaction, in which both counts become the one after what it read; again, while another one is faster.
  void count(Connected& client) {
    for (;;) {
      kv::Transaction transaction(*client.kv, false);
      if (!told(transaction.begin())) return;
      const std::string next = std::to_string(read(transaction, client.maps[0]) + 1);
      for (const kv::MapNumber map : client.maps) told(transaction.put(map, "n", next));
      const Status committed = transaction.commit(kv::Durability::sync, nullptr).status();
      if (committed.category == Errc::conflict) continue;
      if (told(committed)) ++client.acknowledged;
      return;
    }
  }
  // The two counts are the same one in a snapshot, whichever is read first.
  void look(Connected& client) {
    kv::Transaction transaction(*client.kv, true);
    if (!told(transaction.begin())) return;
    const int right = read(transaction, client.maps[1]);
    const int left = read(transaction, client.maps[0]);
    if (left != right) wrong_ = "a snapshot has a part of a commit";
  }
  // Puts one record more than there are, with a name of its own: what was counted is what the name says.
  void add(Connected& client, const char* name) {
    for (;;) {
      kv::Transaction transaction(*client.kv, false);
      if (!told(transaction.begin())) return;
      kv::Cursor cursor(transaction, client.maps[0]);
      int records = 0;
      for (;; ++records) {
        const auto more = cursor.next();
        if (!told(more.status())) return;
        if (!*more) break;
      }
      told(transaction.put(client.maps[0], name, std::to_string(records)));
      const Status committed = transaction.commit(kv::Durability::sync, nullptr).status();
      if (committed.category == Errc::conflict) continue;
      told(committed);
      return;
    }
  }

 private:
  bool told(const Status& status) {
    if (!status.ok()) wrong_ = std::string(last_error_text());
    return status.ok();
  }
  int read(kv::Transaction& transaction, kv::MapNumber map) {
    const auto value = transaction.get(map, "n");
    return told(value.status()) ? std::stoi(std::string(value->value_or("0"))) : -1;
  }
  void connect(std::uint32_t i) {
    std::array<int, 2> ends{};
    MEMLITH_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    clients_[i].socket = Descriptor(ends[0]);
    clients_[i].clients_socket = ends[1];
    shared::Joined joined;
    const auto memories = must(kept_.open(i + 1, open_request(), joined.answer));
    joined.socket = Descriptor(ends[1]);
    joined.memories.region = Descriptor(::fcntl(memories[0], F_DUPFD_CLOEXEC, 3));
    joined.memories.control = Descriptor(::fcntl(memories[1], F_DUPFD_CLOEXEC, 3));
    clients_[i].kv = must(KvClient::join("kv", std::move(joined)));
  }
  static void open_maps(Connected& client) {
    client.maps = {must(client.kv->open_map("left", false, false)), must(client.kv->open_map("right", false, false))};
  }

  // As Keeper::run: what a client sent before it ended counts.
  void keep() {
    const auto speaks = [this](Connected& each) {
      pollfd packet{each.socket.get(), POLLIN, 0};
      return each.socket.get() >= 0 && ::poll(&packet, 1, 0) > 0;
    };
    for (;;) {
      controller->block("wait for clients", nullptr, false,
                        [&] { return ends_ || speaks(clients_[0]) || speaks(clients_[1]); });
      for (std::uint32_t i = 0; i < 2; ++i) {
        if (speaks(clients_[i]) && !serve(i + 1, clients_[i])) {
          kept_.leave(i + 1);
          clients_[i].socket = Descriptor();
        }
      }
      if (ends_ && clients_[0].socket.get() < 0 && clients_[1].socket.get() < 0) return;
    }
  }
  bool serve(std::uint32_t number, Connected& client) {
    shared::Request request;
    std::string payload;
    Descriptor life;
    if (shared::receive_request(client.socket.get(), request, payload, life) != shared::Received::message) return false;
    shared::Answer answer;
    answer.number = request.number;
    auto served = kept_.serve(number, request, payload, answer);
    Status done = served.status();
    if (served.ok() && served->has_value()) done = session_->store().wait(**served);
    answer.set(done);
    (void)shared::send_answer(client.socket.get(), answer);
    return true;
  }

  std::string judge() {
    if (!wrong_.empty()) return wrong_;
    Connected& other = clients_[1];
    kv::Transaction transaction(*other.kv, true);
    if (!told(transaction.begin())) return wrong_;
    const int left = read(transaction, other.maps[0]);
    if (left != read(transaction, other.maps[1])) return "a part of a commit is there";
    const auto acknowledged = static_cast<int>(clients_[0].acknowledged + other.acknowledged);
    if (left < acknowledged) return "an update was lost";
    if (left > acknowledged + (scheduler_.has_died() ? 1 : 0)) return "there is an update that no client made";
    const auto first = transaction.get(other.maps[0], "first");
    const auto second = transaction.get(other.maps[0], "second");
    if (first.ok() && second.ok() && first->has_value() && *first == *second) return "two transactions saw no other";
    transaction.abort();
    // No snapshot of a dead client keeps copies of pages.
    for (int tries = 0;; ++tries) {
      count(other);
      const auto info = other.kv->info();
      if (!told(info.status())) return wrong_;
      if (info->snapshot_bytes == 0) break;
      if (tries == 3) return "a snapshot was left behind";
    }
    if (!told(other.kv->verify().status())) return wrong_;
    return "";
  }

  Scheduler& scheduler_;
  SimVolume volume_;
  std::unique_ptr<Session> session_;
  KeptKvs kept_;
  std::array<Connected, 2> clients_;
  bool ends_ = false;
  std::string wrong_;
};

void count(Case& all, Connected& client) { all.count(client); }
void look(Case& all, Connected& client) { all.look(client); }
void look_and_count(Case& all, Connected& client) {
  all.look(client);
  all.count(client);
}
void add_first(Case& all, Connected& client) { all.add(client, "first"); }
void add_second(Case& all, Connected& client) { all.add(client, "second"); }

Explored explore(Case::Act first, Case::Act second, std::size_t preemptions, std::uint64_t schedules_max) {
  (void)prepared();
  return lab::explore([&](Scheduler& scheduler) { return Case(scheduler).run(first, second); }, preemptions,
                      schedules_max);
}

TEST(KvSchedules, LeaveWholeCommitsWhereverAClientDies) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  using Acts = std::pair<Case::Act, Case::Act>;
  for (const auto& [first, second] : {Acts(look_and_count, count), Acts(add_first, add_second)}) {
    const Explored explored = explore(first, second, 1, 100'000);
    EXPECT_EQ(explored.wrong, "");
    EXPECT_TRUE(explored.complete);
    EXPECT_GT(explored.deaths, 20u);
    std::printf("schedules: %lu, with a death %lu\n", explored.schedules, explored.deaths);
  }
}

struct Planted {
  Mutant mutant;
  Case::Act first;
  Case::Act second;
  std::size_t preemptions;
};

TEST(KvSchedules, ShowMutants) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  for (const Planted& each : {Planted{Mutant::kv_reads_not_validated, count, count, 1},
                              Planted{Mutant::kv_ranges_not_validated, add_first, add_second, 1},
                              Planted{Mutant::kv_view_of_unfinished, count, look, 2},
                              Planted{Mutant::kv_snapshots_of_dead_kept, look, count, 1}}) {
    const WithMutant with(each.mutant);
    EXPECT_NE(explore(each.first, each.second, each.preemptions, 100'000).wrong, "") << static_cast<int>(each.mutant);
  }
}

}  // namespace
}  // namespace memlith::test::kv_exploration_test
