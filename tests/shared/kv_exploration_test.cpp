// Clients of a kv store that several processes have open, beside its keeper, under the laboratory's scheduler: every
// order of their steps within a bound of preemptions, with the death of a client at each step. docs/testing.md,
// "Schedules".
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "in_schedule.hpp"
#include "processes/asks.hpp"
#include "processes/client.hpp"
#include "processes/kept_kvs.hpp"

namespace memlith::test::kv_exploration_test {
namespace {

using namespace core;
using core::processes::KeptKvs;
using core::processes::KvClient;
using lab::Explored;
using lab::Scheduler;

constexpr std::uint64_t kBytes = 256 * kKiB;

shared::Request open_request() {
  shared::Request request;
  request.ask = processes::shared_ask(processes::Ask::open);
  std::memcpy(request.name.data(), "kv", 2);
  request.creates = processes::kCreate;
  request.bytes = kBytes;
  return request;
}

// A store whose kv store has two maps, as it is before each schedule.
const SimImage& prepared() {
  static const SimImage image = [] {
    SimVolume volume;
    auto session = open_simulated(volume);
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

struct Counting {
  KvClient* kv = nullptr;
  std::array<kv::MapNumber, 2> maps{};
  std::uint64_t acknowledged = 0;
};

class Case : KeptCase<KeptKvs, KvClient> {
 public:
  explicit Case(Scheduler& scheduler) : KeptCase(scheduler, prepared()) {}

  using Act = void (*)(Case&, Counting&);
  // The first client may die.
  std::string run(Act first, Act second) {
    const auto join = [](shared::Joined joined) { return KvClient::join("kv", std::move(joined)); };
    const auto begin = [this] {
      for (std::size_t i = 0; i < 2; ++i) {
        KvClient& kv = client(i);
        counting_[i] = {&kv, {must(kv.open_map("left", false, false)), must(kv.open_map("right", false, false))}};
      }
    };
    return KeptCase::run(
        open_request(), join, begin, [&] { first(*this, counting_[0]); }, [&] { second(*this, counting_[1]); },
        [this] { return judge(); });
  }

  // ---- acts

  // One transaction, in which both counts become the one after what it read; again, while another one is faster.
  void count(Counting& client) {
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
  void look(Counting& client) {
    kv::Transaction transaction(*client.kv, true);
    if (!told(transaction.begin())) return;
    const int right = read(transaction, client.maps[1]);
    const int left = read(transaction, client.maps[0]);
    if (left != right) complain("a snapshot has a part of a commit");
  }
  // Puts one record more than there are, with a name of its own: what was counted is what the name says.
  void add(Counting& client, const char* name) {
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
  int read(kv::Transaction& transaction, kv::MapNumber map) {
    const auto value = transaction.get(map, "n");
    return told(value.status()) ? std::stoi(std::string(value->value_or("0"))) : -1;
  }
  std::string judge() {
    Counting& other = counting_[1];
    kv::Transaction transaction(*other.kv, true);
    if (!told(transaction.begin())) return wrong();
    const int left = read(transaction, other.maps[0]);
    if (left != read(transaction, other.maps[1])) return "a part of a commit is there";
    const auto acknowledged = static_cast<int>(counting_[0].acknowledged + other.acknowledged);
    if (left < acknowledged) return "an update was lost";
    if (left > acknowledged + (has_died() ? 1 : 0)) return "there is an update that no client made";
    const auto first = transaction.get(other.maps[0], "first");
    const auto second = transaction.get(other.maps[0], "second");
    if (first.ok() && second.ok() && first->has_value() && *first == *second) return "two transactions saw no other";
    transaction.abort();
    // No snapshot of a dead client keeps copies of pages.
    for (int tries = 0;; ++tries) {
      count(other);
      const auto info = other.kv->info();
      if (!told(info.status())) return wrong();
      if (info->snapshot_bytes == 0) break;
      if (tries == 3) return "a snapshot was left behind";
    }
    if (!told(other.kv->verify().status())) return wrong();
    return "";
  }

  std::array<Counting, 2> counting_;
};

void count(Case& all, Counting& client) { all.count(client); }
void look(Case& all, Counting& client) { all.look(client); }
void look_and_count(Case& all, Counting& client) {
  all.look(client);
  all.count(client);
}
void add_first(Case& all, Counting& client) { all.add(client, "first"); }
void add_second(Case& all, Counting& client) { all.add(client, "second"); }

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
