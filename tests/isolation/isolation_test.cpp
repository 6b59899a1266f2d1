// docs/kv.md, "Isolation" and "What survives": random histories of concurrent transactions are strictly serialisable in
// the order of their numbers, also together with what a crash leaves. Planted faults of each kind show that the checker
// would see it, if they were not.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "isolation/client.hpp"
#include "mutants/mutants.hpp"
#include "support/crash_world.hpp"
#include "unit/kv/kv_world.hpp"

namespace memlith::test {
namespace {

using namespace core;

// ---- the checker itself, on written histories ------------------------------------------------------------------

// Transactions that run beside each other unless later() stands between them.
class Written {
 public:
  Written(std::vector<std::string> keys, std::map<std::string, std::string> before) {
    history_.keys = std::move(keys);
    history_.before = std::move(before);
  }
  Written& commit(std::uint64_t number, std::vector<Action> actions) {
    Recorded each = recorded(std::move(actions));
    each.committed = each.wrote = true;
    each.number = number;
    each.from = each.to = number - 1;
    history_.transactions.push_back(std::move(each));
    return *this;
  }
  Written& reads(std::uint64_t after, std::vector<Action> actions) {
    Recorded each = recorded(std::move(actions));
    each.committed = true;
    each.from = each.to = after;
    history_.transactions.push_back(std::move(each));
    return *this;
  }
  Written& aborts(std::vector<Action> actions) {
    history_.transactions.push_back(recorded(std::move(actions)));
    return *this;
  }
  // From here on transactions begin after those before have ended.
  Written& later() {
    moment_ += 10;
    return *this;
  }
  [[nodiscard]] std::string kind() const {
    const auto found = find_anomaly(history_);
    return found ? found->kind : "";
  }

 private:
  Recorded recorded(std::vector<Action> actions) const {
    Recorded each;
    each.actions = std::move(actions);
    each.began = moment_;
    each.ended = moment_ + 5;
    return each;
  }
  History history_;
  std::uint64_t moment_ = 1;
};

Action read(const char* key, Seen value) { return {Action::Kind::read, key, std::move(value), {}, {}}; }
Action write(const char* key, Seen value) { return {Action::Kind::write, key, std::move(value), {}, {}}; }
Action scan(const char* from, const char* end, std::map<std::string, std::string> found) {
  return {Action::Kind::scan, from, std::nullopt, end, std::move(found)};
}
Action differs(const char* key, Seen value) { return {Action::Kind::differs, key, std::move(value), {}, {}}; }
Action removal(const char* from, const char* end, std::uint64_t count) {
  return {Action::Kind::removal, from, std::nullopt, end, {}, count};
}
Written history() { return Written({"x", "y", "z"}, {{"x", "x0"}, {"y", "y0"}}); }

TEST(Checker, AcceptsSerialHistories) {
  EXPECT_EQ(history().commit(1, {read("x", "x0"), write("x", "x1")}).commit(2, {read("x", "x1")}).kind(), "");
  // Beside each other, without meeting.
  EXPECT_EQ(history().commit(2, {read("x", "x0"), write("x", "x1")}).commit(1, {write("y", "y1")}).kind(), "");
  // A record that comes and goes, seen by readers of each state.
  EXPECT_EQ(history()
                .commit(1, {write("z", "z1")})
                .commit(2, {write("z", std::nullopt)})
                .commit(3, {write("z", "z3")})
                .reads(0, {scan("x", "z", {{"x", "x0"}, {"y", "y0"}})})
                .reads(2, {scan("y", "z", {{"y", "y0"}})})
                .reads(3, {read("z", "z3")})
                .kind(),
            "");
  EXPECT_EQ(history().aborts({write("x", "x1")}).commit(1, {read("x", "x0"), write("y", "y1")}).kind(), "");
}

TEST(Checker, KnowsSwapsThatWereRefused) {
  EXPECT_EQ(history().commit(1, {differs("x", "x7"), write("y", "y1")}).reads(0, {differs("z", "z1")}).kind(), "");
  EXPECT_EQ(history().commit(1, {write("x", "x1"), differs("x", "x0")}).kind(), "");
  EXPECT_EQ(history().commit(1, {write("x", "x1"), differs("x", "x1")}).kind(), "own");
  EXPECT_EQ(history().commit(1, {write("x", "x1")}).later().reads(1, {differs("x", "x1")}).kind(), "strictness");
  // Both were refused because of what the other one then changed.
  EXPECT_EQ(history()
                .commit(1, {differs("x", "x7"), write("y", "y1")})
                .commit(2, {differs("y", "y7"), write("x", "x2")})
                .kind(),
            "");
  EXPECT_EQ(history()
                .commit(1, {differs("x", std::nullopt), write("y", "y1")})
                .commit(2, {read("y", "y0"), write("x", "x2")})
                .kind(),
            "G2-item");
}

TEST(Checker, KnowsRemovedRanges) {
  EXPECT_EQ(history()
                .commit(1, {write("z", "z1")})
                .commit(2, {removal("x", "z", 3), write("y", "y2")})
                .reads(2, {scan("x", "z", {{"y", "y2"}})})
                .kind(),
            "");
  EXPECT_EQ(history().commit(1, {write("z", "z1"), removal("y", "z", 2), read("y", std::nullopt)}).kind(), "");
  EXPECT_EQ(history().commit(1, {removal("x", "y", 2), removal("x", "z", 0), read("x", "x0")}).kind(), "own");
  // A record that came into the range before the removal's number, and was not seen; and one that it left.
  EXPECT_EQ(history().commit(1, {write("z", "z1")}).commit(2, {removal("y", "z", 1)}).kind(), "count");
  EXPECT_EQ(history().commit(1, {removal("x", "y", 2)}).later().reads(1, {read("y", "y0")}).kind(), "strictness");
}

TEST(Checker, NamesEachAnomaly) {
  EXPECT_EQ(history().aborts({write("x", "x1")}).reads(0, {read("x", "x1")}).kind(), "G1a");
  EXPECT_EQ(history().commit(1, {write("x", "x1"), write("x", "x2")}).reads(1, {read("x", "x1")}).kind(), "G1b");
  EXPECT_EQ(history().reads(0, {read("x", "x7")}).kind(), "nobody");
  EXPECT_EQ(history().commit(1, {write("x", "x1"), read("x", "x0")}).kind(), "own");
  EXPECT_EQ(history()
                .commit(1, {write("x", "x1"), read("y", "y2")})
                .commit(2, {write("y", "y2"), read("x", "x1")})
                .kind(),
            "G1c");
  // Lost update; write skew; a reader between two halves of a commit.
  EXPECT_EQ(history()
                .commit(1, {read("x", "x0"), write("x", "x1")})
                .commit(2, {read("x", "x0"), write("x", "x2")})
                .kind(),
            "G2-item");
  EXPECT_EQ(history()
                .commit(1, {read("x", "x0"), write("y", "y1")})
                .commit(2, {read("y", "y0"), write("x", "x2")})
                .kind(),
            "G2-item");
  EXPECT_EQ(history()
                .commit(1, {write("x", "x1"), write("y", "y1")})
                .reads(1, {read("x", "x1"), read("y", "y0")})
                .kind(),
            "G2-item");
  // Phantoms: both count, and then add; and a scan that misses one of two that came together.
  EXPECT_EQ(history()
                .commit(1, {scan("x", "z", {{"x", "x0"}, {"y", "y0"}}), write("z", "z1")})
                .commit(2, {scan("z", "z", {}), write("x", "x2")})
                .kind(),
            "G2");
  EXPECT_EQ(history()
                .commit(1, {write("x", "x1"), write("z", "z1")})
                .reads(1, {read("x", "x1"), scan("y", "z", {{"y", "y0"}})})
                .kind(),
            "G2");
  // A reader that begins after a commit has returned, and does not see it.
  EXPECT_EQ(history().commit(1, {write("x", "x1")}).later().reads(0, {read("x", "x0")}).kind(), "strictness");
  // Serial, but not in the order in which a crash would cut.
  EXPECT_EQ(history()
                .commit(2, {write("x", "x1"), read("y", "y0")})
                .commit(1, {write("y", "y1"), write("z", "z1")})
                .kind(),
            "order");
}

// The numbers are the order of each record's versions, so a dirty write (G0) shows in what is read afterwards: of two
// transactions that wrote the same two records, each is the last in one.
TEST(Checker, SeesDirtyWrites) {
  Written both({"x", "y"}, {});
  both.commit(1, {write("x", "x1"), write("y", "y1")}).commit(2, {write("x", "x2"), write("y", "y2")});
  EXPECT_EQ(both.kind(), "");
  both.later().reads(2, {read("x", "x2"), read("y", "y1")});
  EXPECT_EQ(both.kind(), "G2-item");
}

// ---- the kv store ----------------------------------------------------------------------------------------------

struct Played {
  std::optional<Anomaly> anomaly;
  std::size_t committed = 0;
  std::size_t aborted = 0;
  Client::Counts counts{};
};

void add_counts(Client::Counts& to, const Client::Counts& from) {
  to.swaps += from.swaps;
  to.refused_swaps += from.refused_swaps;
  to.removed_ranges += from.removed_ranges;
  to.appends += from.appends;
}

Played judge(const History& history) {
  Played played{find_anomaly(history), 0, 0};
  for (const Recorded& each : history.transactions) ++(each.committed ? played.committed : played.aborted);
  return played;
}

// Some transactions at once, whose steps a seed mixes, in one thread.
Played play_mixed(std::uint64_t seed, int steps) {
  KvWorld world;
  Journal journal;
  Random random(seed);
  Client::Counts counts;
  {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(std::make_unique<Client>(world.kv(), journal, random.next()));
      clients.back()->set_appends();
    }
    for (int i = 0; i < steps; ++i) clients[random.below(clients.size())]->step();
    for (const auto& each : clients) each->end();
    for (const auto& each : clients) add_counts(counts, each->counts());
  }
  EXPECT_OK(world.kv().verify().status());
  Played played = judge(journal.history());
  played.counts = counts;
  return played;
}

Played play_threads(std::uint64_t seed, int steps) {
  KvWorld world;
  Journal journal;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Client client(world.kv(), journal, seed * 8 + t);
      Random random(seed * 8 + t);
      for (int i = 0; i < steps; ++i) {
        client.step();
        if (random.one_in(3)) std::this_thread::yield();
      }
      client.end();
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_OK(world.kv().verify().status());
  return judge(journal.history());
}

std::string told(const std::optional<Anomaly>& anomaly) { return anomaly ? anomaly->kind + ": " + anomaly->text : ""; }

TEST(Isolation, MixedStepsAreSerialisable) {
  const std::uint64_t seed = seed_for_this_run();
  std::size_t committed = 0;
  std::size_t aborted = 0;
  Client::Counts counts;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const Played played = play_mixed(seed + i, 1200);
    ASSERT_FALSE(played.anomaly) << "seed " << seed + i << ": " << told(played.anomaly);
    committed += played.committed;
    aborted += played.aborted;
    add_counts(counts, played.counts);
  }
  EXPECT_GT(counts.swaps, 300u);
  EXPECT_GT(counts.refused_swaps, 300u);
  EXPECT_GT(counts.removed_ranges, 150u);
  EXPECT_GT(counts.appends, 30u);
  EXPECT_GT(committed, 1500u);
  EXPECT_GT(aborted, 500u) << "they hardly met";
}

TEST(Isolation, ThreadsAreSerialisable) {
  const std::uint64_t seed = seed_for_this_run();
  std::size_t committed = 0;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Played played = play_threads(seed + i, 600);
    ASSERT_FALSE(played.anomaly) << "seed " << seed + i << ": " << told(played.anomaly);
    committed += played.committed;
  }
  EXPECT_GT(committed, 150u);
}

std::map<std::string, std::string> content_of(KvWorld& world) {
  std::map<std::string, std::string> content;
  for (int i = 0; i < Journal::kMaps; ++i) {
    const std::string name = Journal::map_of(i);
    for (const auto& [key, value] : world.content(world.map(name))) content[name + "/" + key] = value;
  }
  return content;
}

// Kills at any moment: what is left is the state after the commit that the store names, which is not before the newest
// acknowledged one; and histories go on from there.
TEST(Isolation, CrashesLeaveAPrefixOfTheTickets) {
  const std::uint64_t seed = seed_for_this_run();
  Random random(seed);
  KvWorld world;
  Journal journal;
  std::uint64_t lost = 0;
  for (int life = 0; life < 40; ++life) {
    std::uint64_t acknowledged = 0;
    const std::uint64_t base = world.kv().newest();
    {
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 4; ++i) {
        clients.push_back(std::make_unique<Client>(world.kv(), journal, random.next()));
        clients.back()->set_sync_one_in(life % 2 == 0 ? 30 : 3);
        clients.back()->set_appends();
      }
      for (std::uint64_t left = random.below(500); left > 0; --left) {
        clients[random.below(clients.size())]->step();
        // Some weak commits reach the log without a flush.
        if (!random.one_in(50)) continue;
        ASSERT_OK(world.kv().weak_commits().hand_over(~std::uint64_t{0}, false).status());
      }
      for (const auto& each : clients) acknowledged = std::max(acknowledged, each->acknowledged());
      for (const auto& each : clients) each->end();
    }
    const std::uint64_t newest = world.kv().newest();
    const auto anomaly = find_anomaly(journal.history());
    ASSERT_FALSE(anomaly) << "seed " << seed << ", life " << life << ": " << told(anomaly);
    world.crash();
    const std::uint64_t left = world.kv().newest();
    ASSERT_GE(left, std::max(acknowledged, base)) << "seed " << seed << ", life " << life;
    ASSERT_LE(left, newest);
    lost += newest - left;
    auto content = content_of(world);
    ASSERT_EQ(content, content_after(journal.history(), left)) << "seed " << seed << ", life " << life;
    ASSERT_OK(world.kv().verify().status());
    journal.go_on_from(std::move(content));
  }
  EXPECT_GT(lost, 0u) << "no crash has lost a weak commit";
}

// True if another transaction could put that record now.
bool is_free(KvWorld& world, const std::string& key) {
  kv::Transaction other(world.kv(), false);
  EXPECT_OK(other.begin());
  const Status put = other.put(world.map(), key, "another's");
  EXPECT_TRUE(put.ok() || put.category == Errc::conflict);
  return put.ok();
}

// No phantoms: no transaction puts a record into a range from which another one removes all, nor into one that a cursor
// is kept to; outside of the two all do. Without locks of gaps it would be seen.
TEST(Isolation, RangesKeepPhantomsOut) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  {
    kv::Transaction first(world.kv(), false);
    ASSERT_OK(first.begin());
    for (const char* key : {"a", "b", "d", "f"}) ASSERT_OK(first.put(map, key, "1"));
    ASSERT_OK(first.commit(kv::Durability::weak, nullptr).status());
  }
  for (const bool planted : {false, true}) {
    for (const bool removal : {true, false}) {
      kv::Transaction user(world.kv(), false);
      ASSERT_OK(user.begin());
      active_mutant = planted ? Mutant::kv_gaps_not_locked : Mutant::none;
      std::uint64_t count = 0;
      if (removal) {
        ASSERT_OK(user.remove_range(map, "b", "e", count));
      } else {
        kv::Cursor cursor(user, map);
        ASSERT_OK(cursor.set_bounds("b", "e"));
        while (must(cursor.next())) ++count;
      }
      EXPECT_EQ(count, 2u);
      EXPECT_EQ(is_free(world, "c"), planted);
      EXPECT_EQ(is_free(world, "dd"), planted);
      for (const char* outside : {"a", "aa", "f", "g"}) EXPECT_TRUE(is_free(world, outside)) << outside;
      active_mutant = Mutant::none;
    }
  }
}

// A swap has read the record, whatever came of it.
TEST(Isolation, SwapsKeepTheirRecord) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  kv::Transaction user(world.kv(), false);
  ASSERT_OK(user.begin());
  EXPECT_FALSE(must(user.put_if(map, "refused", "1", "2")));
  EXPECT_TRUE(must(user.put_if(map, "absent", std::nullopt, std::nullopt)));
  EXPECT_TRUE(must(user.put_if(map, "done", std::nullopt, "2")));
  for (const char* key : {"refused", "absent", "done"}) EXPECT_FALSE(is_free(world, key)) << key;
  EXPECT_TRUE(is_free(world, "other"));
  ASSERT_OK(user.commit(kv::Durability::weak, nullptr).status());
  for (const char* key : {"refused", "absent", "done"}) EXPECT_TRUE(is_free(world, key)) << key;
}

// ---- planted faults --------------------------------------------------------------------------------------------

struct Planted {
  Mutant mutant;
  const char* name;
  std::vector<std::string> kinds;  // how it may show first
};

class PlantedFault : public ::testing::TestWithParam<Planted> {
 protected:
  ~PlantedFault() override { active_mutant = Mutant::none; }
};

TEST_P(PlantedFault, IsFound) {
  active_mutant = GetParam().mutant;
  std::set<std::string> found;
  for (std::uint64_t seed = 1; seed <= 30 && found.empty(); ++seed) {
    const Played played = play_mixed(seed, 1200);
    if (played.anomaly) found.insert(played.anomaly->kind);
  }
  ASSERT_FALSE(found.empty()) << "nothing was found";
  const auto& kinds = GetParam().kinds;
  EXPECT_NE(std::find(kinds.begin(), kinds.end(), *found.begin()), kinds.end()) << *found.begin();
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedFault,
                         ::testing::Values(Planted{Mutant::kv_gaps_not_locked, "NoGapLock", {"G2", "order"}},
                                           Planted{Mutant::kv_read_locks_released_early,
                                                   "EarlyRelease",
                                                   {"G2-item", "G2", "order"}},
                                           Planted{
                                               Mutant::kv_dirty_read, "DirtyRead", {"G1a", "G1b", "G1c", "G2-item"}},
                                           Planted{Mutant::kv_lost_update, "LostUpdate", {"G2-item", "G2", "order"}},
                                           Planted{Mutant::kv_snapshot_moves, "SnapshotThatMoves", {"G2-item", "G2"}}),
                         [](const auto& given) { return given.param.name; });

// Ranges that are removed: mutants of the way in which their pages go, and of the lock.
class PlantedRemoval : public ::testing::TestWithParam<Mutant> {
 protected:
  ~PlantedRemoval() override { active_mutant = Mutant::none; }
};

// A range is removed, the process is killed between two steps, and the store is opened again. True if what is there is
// sound, and no page is lost.
bool removal_is_whole() {
  KvWorld world;
  kv::MapNumber map = world.map();
  const auto key = [](int number) { return std::to_string(10'000 + number); };
  for (int i = 0; i < 4000; i += 200) {
    kv::Transaction filling(world.kv(), false);
    EXPECT_OK(filling.begin());
    for (int j = i; j < i + 200; ++j) EXPECT_OK(filling.put(map, key(j), std::string(j % 50 == 7 ? 9000 : 300, 'v')));
    EXPECT_OK(filling.commit(kv::Durability::weak, nullptr).status());
  }
  EXPECT_OK(world.kv().persist());
  int steps = 0;
  world.kv().watch_removals(4, [&] {
    if (++steps == 5) {
      EXPECT_OK(world.kv().persist());
    }
  });
  kv::Transaction remover(world.kv(), false);
  EXPECT_OK(remover.begin());
  std::uint64_t removed = 0;
  EXPECT_OK(remover.remove_range(map, key(100), key(3900), removed));
  if (!remover.commit(kv::Durability::weak, nullptr).ok()) return false;
  EXPECT_GT(steps, 10);
  world.crash();
  const auto report = world.kv().verify();
  if (!report.ok() || report->records != 200 || world.kv().header().removing != 0) return false;
  map = world.map();
  return world.content(map).size() == 200;
}

TEST(PlantedRemoval, WithoutAMutantItIsWhole) { EXPECT_TRUE(removal_is_whole()); }

TEST_P(PlantedRemoval, IsFound) {
  active_mutant = GetParam();
  EXPECT_FALSE(removal_is_whole());
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedRemoval,
                         ::testing::Values(Mutant::kv_subtree_too_many, Mutant::kv_removed_list_not_logged,
                                           Mutant::kv_removed_list_forgotten));

// A commit writes where its transaction has read only if the leaf is as it was: another one has put a record there.
TEST(Isolation, PlacesOfRecordsAreLookedAtAgain) {
  for (const bool planted : {false, true}) {
    KvWorld world;
    const kv::MapNumber map = world.map();
    const auto put = [&](kv::Transaction& transaction, const char* key, const char* value) {
      EXPECT_OK(transaction.put(map, key, value));
      EXPECT_OK(transaction.commit(kv::Durability::weak, nullptr).status());
    };
    kv::Transaction reader(world.kv(), false);
    kv::Transaction other(world.kv(), false);
    ASSERT_OK(other.begin());
    put(other, "b", "1");
    ASSERT_OK(reader.begin());
    EXPECT_EQ(must(reader.get(map, "b")), "1");
    ASSERT_OK(other.begin());
    put(other, "a", "2");
    active_mutant = planted ? Mutant::kv_place_not_looked_at : Mutant::none;
    put(reader, "b", "3");
    active_mutant = Mutant::none;
    const Records right{{"a", "2"}, {"b", "3"}};
    EXPECT_EQ(world.content(map) == right, !planted);
  }
}

// A range goes only where no other transaction has read.
TEST(Isolation, RemovedRangesAreNotReadByOthers) {
  KvWorld world;
  const kv::MapNumber map = world.map();
  for (const bool planted : {false, true}) {
    active_mutant = planted ? Mutant::kv_removal_beside_readers : Mutant::none;
    kv::Transaction reader(world.kv(), false);
    ASSERT_OK(reader.begin());
    ASSERT_OK(reader.get(map, "b").status());
    kv::Transaction remover(world.kv(), false);
    ASSERT_OK(remover.begin());
    std::uint64_t count = 0;
    EXPECT_EQ(remover.remove_range(map, "a", "c", count).ok(), planted);
    active_mutant = Mutant::none;
  }
}

}  // namespace
}  // namespace memlith::test
