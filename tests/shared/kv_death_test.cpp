// docs/several-processes.md, "Promises": a client of a kv store that several processes have open is killed at every
// step that it makes on what they share, and so is the keeper. Others go on, every commit is whole, and no snapshot is
// left behind. Mistakes in the keeper and in a client are noticed.
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "processes/client.hpp"
#include "processes/kept_kvs.hpp"
#include "world.hpp"

namespace memlith::test::kv_death_test {
namespace {

using core::Errc;
using core::kv::Durability;
using core::kv::MapNumber;
using core::kv::Transaction;
using core::processes::KvClient;

constexpr int kSteps = 4000;  // more than there are
constexpr const char* kCount = "count";

// A kv store with two maps, so two trees of pages. A transaction that counts changes both.
class Counts {
 public:
  explicit Counts(std::unique_ptr<KvClient> kv) : kv_(std::move(kv)) {}
  // False: the keeper has ended.
  [[nodiscard]] bool open_maps() {
    for (const int i : {0, 1}) {
      const auto map = kv_->open_map(i == 0 ? "left" : "right", true, false);
      if (!map.ok()) return false;
      maps_[i] = *map;
    }
    return true;
  }
  [[nodiscard]] KvClient& kv() const { return *kv_; }
  [[nodiscard]] MapNumber left() const { return maps_[0]; }
  [[nodiscard]] MapNumber right() const { return maps_[1]; }

  static int read(Transaction& transaction, MapNumber map) {
    const auto value = transaction.get(map, kCount);
    return value.ok() ? std::stoi(std::string(value->value_or("0"))) : -1;
  }
  // Both counts become the one after what the transaction reads.
  [[nodiscard]] core::Status count_in(Transaction& transaction) const {
    const int before = read(transaction, left());
    if (before < 0) return core::Status{Errc::poisoned, core::Detail::kv, 0, 0};
    const std::string next = std::to_string(before + 1);
    MEMLITH_TRY(transaction.put(left(), kCount, next));
    return transaction.put(right(), kCount, next);
  }
  // False: the keeper has ended.
  bool count(Durability durability) {
    Transaction transaction(*kv_, false);
    if (!transaction.begin().ok() || !count_in(transaction).ok()) return false;
    return transaction.commit(durability, nullptr).ok();
  }
  // The count, in one snapshot. -1: the keeper has ended; -2: the two are different ones. The map that is read first
  // alternates, as a commit changes one before the other.
  int counted() {
    right_first_ = !right_first_;
    Transaction transaction(*kv_, true);
    if (!transaction.begin().ok()) return -1;
    const int first = read(transaction, right_first_ ? right() : left());
    const int second = read(transaction, right_first_ ? left() : right());
    if (first < 0 || second < 0) return -1;
    return first == second ? first : -2;
  }
  // Commits until no copy of a page is kept for a snapshot. False: one has stayed.
  bool copies_go() {
    for (int i = 0; i < 400; ++i) {
      if (!count(Durability::weak)) return false;
      const auto info = kv_->info();
      if (!info.ok()) return false;
      if (info->snapshot_bytes == 0) return true;
      ::usleep(1000);  // the keeper looks for the end of a process when no request is there
    }
    return false;
  }

 private:
  std::unique_ptr<KvClient> kv_;
  MapNumber maps_[2] = {};
  bool right_first_ = false;
};

class KvWorld : public SharedWorld {
 protected:
  [[nodiscard]] Child start_kv_keeper(bool steps = false, Mutant mutant = Mutant::none) const {
    return start_keeper(steps, mutant,
                        [](core::Session& session) { return std::make_unique<core::processes::KeptKvs>(session); });
  }
  [[nodiscard]] core::Result<std::unique_ptr<KvClient>> open_kv() const {
    core::processes::KvClientOptions options;
    options.path = path();
    options.name = "kv";
    options.create = true;
    options.program = "/nowhere";  // the test starts keepers
    return KvClient::open(options);
  }
  // Null: there is no keeper any more.
  [[nodiscard]] std::unique_ptr<Counts> open_counts() const {
    auto kv = open_kv();
    if (!kv.ok()) return nullptr;
    auto counts = std::make_unique<Counts>(std::move(*kv));
    return counts->open_maps() ? std::move(counts) : nullptr;
  }
  void TearDown() override { core::active_mutant = Mutant::none; }
};

class KvDeath : public KvWorld {};

// Reads, goes through a map, and counts twice; once beside a snapshot, for which pages are copied.
void live(Counts& counts) {
  Transaction reader(counts.kv(), true);
  if (!reader.begin().ok()) return;
  core::kv::Cursor cursor(reader, counts.left());
  (void)cursor.first();
  if (counts.count(Durability::sync)) ++told->acknowledged[0];
  (void)cursor.current();
  (void)Counts::read(reader, counts.right());
  reader.abort();
  if (counts.count(Durability::sync)) ++told->acknowledged[0];
}

TEST_F(KvDeath, OfAClientAtEveryStep) {
  Child keeper = start_kv_keeper();
  const auto other = open_counts();
  ASSERT_NE(other, nullptr) << core::last_error_text();
  ASSERT_TRUE(other->count(Durability::sync));
  int deaths = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->die_at = static_cast<std::uint64_t>(at);
    told->acknowledged[0] = 0;
    const int before = other->counted();
    ASSERT_GT(before, 0);
    Child client([&] {
      core::shm::observer = step;
      const auto own = open_counts();
      if (own == nullptr) ::_exit(20);
      live(*own);
    });
    const int status = client.wait();
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "step " << at << ": " << WEXITSTATUS(status);
    const int after = other->counted();
    ASSERT_GE(after, before + static_cast<int>(told->acknowledged[0])) << "after a death at step " << at;
    ASSERT_LE(after, before + 2);
    ASSERT_TRUE(other->count(Durability::weak)) << "after a death at step " << at;
    if (!WIFSIGNALED(status)) break;
    ++deaths;
  }
  std::printf("%d deaths\n", deaths);
  EXPECT_GT(deaths, 20);
  EXPECT_TRUE(other->copies_go()) << "a snapshot of a dead process is there";
  EXPECT_TRUE(other->kv().verify().ok()) << core::last_error_text();
}

// Beside one client that counts, another one reads without end, so also in the middle of a change.
TEST_F(KvDeath, OfTheKeeperAtEveryStep) {
  int deaths = 0;
  int survivals = 0;  // the steps of a run depend on how its processes meet
  int newest = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->stage = 0;
    told->acknowledged[0] = 0;
    told->die_at = static_cast<std::uint64_t>(at);
    Child keeper = start_kv_keeper(true);
    Child reader([&] {
      const auto own = open_counts();
      if (own == nullptr) ::_exit(0);
      int seen = 0;
      for (int now = 0; (now = own->counted()) != -1; seen = now) {
        if (now < seen) ::_exit(21);
      }
    });
    Child client([&] {
      const auto own = open_counts();
      if (own == nullptr) ::_exit(0);
      live(*own);
      told->stage = 1;
    });
    EXPECT_EQ(client.wait(), 0);
    const bool is_last = told->stage == 1 && told->steps < static_cast<std::uint64_t>(at);
    keeper.kill();
    ASSERT_EQ(reader.wait(), 0) << "a reader found a part of a commit, or went back, at step " << at;
    told->die_at = 0;
    keeper = start_kv_keeper();
    const auto opened = open_counts();
    ASSERT_NE(opened, nullptr) << "after a death at step " << at << ": " << core::last_error_text();
    const int found = opened->counted();
    ASSERT_GE(found, newest + static_cast<int>(told->acknowledged[0])) << "after a death at step " << at;
    ASSERT_LE(found, newest + 2);
    newest = found;
    ASSERT_TRUE(opened->kv().verify().ok()) << "after a death at step " << at << ": " << core::last_error_text();
    if (is_last && ++survivals == 3) break;
    if (!is_last) ++deaths;
  }
  std::printf("%d deaths\n", deaths);
  EXPECT_GT(deaths, 40);
}

// The keeper rests while it takes copies of pages out: a reader that needs one waits for it.
TEST_F(KvWorld, ASnapshotIsReadWhileTheKeeperTakesCopiesOut) {
  const Child keeper = start_kv_keeper(true);
  const auto other = open_counts();
  ASSERT_NE(other, nullptr) << core::last_error_text();
  ASSERT_TRUE(other->count(Durability::weak));
  Transaction old(other->kv(), true);
  ASSERT_TRUE(old.begin().ok());
  const int before = Counts::read(old, other->left());
  // Each snapshot needs copies, so that soon there are enough for it to pay to take some out.
  const auto count_beside_snapshot = [](Counts& counts) {
    Transaction snapshot(counts.kv(), true);
    return snapshot.begin().ok() && counts.count(Durability::weak);
  };
  for (std::uint64_t copies = 0; copies < 240;) {
    ASSERT_TRUE(count_beside_snapshot(*other));
    const auto info = other->kv().info();
    ASSERT_TRUE(info.ok());
    copies = info->snapshot_bytes / core::kPageBytes;
  }
  Child client([&] {
    const auto own = open_counts();
    bool good = own != nullptr;
    told->pause_us = 2000;
    for (int i = 0; i < 16; ++i) good = good && count_beside_snapshot(*own);
    told->pause_us = 0;
    told->stage = 1;
    ::_exit(good ? 0 : 20);
  });
  while (told->stage == 0) {
    ASSERT_EQ(Counts::read(old, other->left()), before) << core::last_error_text();
    ASSERT_EQ(Counts::read(old, other->right()), before) << core::last_error_text();
  }
  EXPECT_EQ(client.wait(), 0);
}

// ---- removals

// A keeper that frees pages between requests only when it is told to, and counts in how many steps.
class HeldKvs final : public core::shared::Service {
 public:
  explicit HeldKvs(core::Session& session) : kvs_(session) {}
  core::Result<std::array<int, 2>> open(std::uint32_t client, const core::shared::Request& request,
                                        core::shared::Answer& answer) override {
    return kvs_.open(client, request, answer);
  }
  core::Result<std::optional<core::Lsn>> serve(std::uint32_t client, const core::shared::Request& request,
                                               std::string_view payload, core::shared::Answer& answer) override {
    return kvs_.serve(client, request, payload, answer);
  }
  bool work() override {
    if (told->stage == 0 || !kvs_.work()) return false;
    ++told->steps;
    return true;
  }
  void leave(std::uint32_t client) override { kvs_.leave(client); }
  void say_failed() override { kvs_.say_failed(); }

 private:
  core::processes::KeptKvs kvs_;
};

TEST_F(KvWorld, OthersCommitWhileAMapIsRemoved) {
  constexpr int kRecords = 20'000;
  const Child keeper =
      start_keeper(false, Mutant::none, [](core::Session& session) { return std::make_unique<HeldKvs>(session); });
  const auto other = open_counts();
  const auto remover = open_counts();
  ASSERT_TRUE(other != nullptr && remover != nullptr) << core::last_error_text();
  const auto large = remover->kv().open_map("large", true, false);
  ASSERT_TRUE(large.ok());
  int next = 0;
  std::string name;
  const std::string content(200, 'x');
  std::uint64_t appended = 0;
  const auto source = [&](std::string_view& key, std::string_view& value) {
    if (next == kRecords) return false;
    name = std::to_string(1'000'000 + next++);
    key = name;
    value = content;
    return true;
  };
  ASSERT_TRUE(remover->kv().append(*large, source, appended).ok()) << core::last_error_text();
  ASSERT_TRUE(remover->kv().remove_map("large").ok()) << core::last_error_text();
  // The map is gone, its pages are not free yet, and another process commits.
  EXPECT_EQ(other->kv().open_map("large", false, false).error().category, Errc::not_found);
  ASSERT_TRUE(other->count(Durability::sync));
  const auto before = other->kv().info();
  ASSERT_TRUE(before.ok());
  EXPECT_LT(before->free_pages, 300U);
  told->stage = 1;
  for (std::uint64_t free = 0; free < 900;) {
    ASSERT_TRUE(other->count(Durability::weak));
    const auto now = other->kv().info();
    ASSERT_TRUE(now.ok());
    free = now->free_pages;
  }
  EXPECT_GT(told->steps, 2U);
  EXPECT_TRUE(other->kv().verify().ok()) << core::last_error_text();
}

// ---- mutants: what the tests above rest on notices each

class KvMutants : public KvWorld {};

TEST_F(KvMutants, ASnapshotThatADeadProcessLeavesIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::kv_snapshots_of_dead_kept}) {
    const Child keeper = start_kv_keeper(false, mutant);
    const auto other = open_counts();
    ASSERT_NE(other, nullptr) << core::last_error_text();
    told->stage = 0;
    Child client([&] {
      const auto own = open_counts();
      if (own == nullptr) ::_exit(20);
      Transaction reader(own->kv(), true);
      or_leave(reader.begin(), 21);
      told->stage = 1;
      for (;;) ::pause();
    });
    await_stage(1);
    ASSERT_TRUE(other->count(Durability::weak));
    client.kill();
    EXPECT_EQ(other->copies_go(), mutant == Mutant::none);
  }
}

// The keeper rests at each step of a commit, so that a snapshot is taken within one.
TEST_F(KvMutants, ADirtyReadIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::kv_view_of_unfinished}) {
    told->pause_us = 0;
    const Child keeper = start_kv_keeper(true);
    const auto reader = open_counts();
    ASSERT_NE(reader, nullptr) << core::last_error_text();
    bool is_torn = false;
    for (int round = 0; round < 20 && !is_torn; ++round) {
      told->stage = 0;
      Child client([&] {
        const auto own = open_counts();
        told->pause_us = 2000;
        const bool counted = own != nullptr && own->count(Durability::weak);
        told->pause_us = 0;
        told->stage = 1;
        ::_exit(counted ? 0 : 20);
      });
      core::active_mutant = mutant;
      while (told->stage == 0) is_torn = reader->counted() == -2 || is_torn;
      core::active_mutant = Mutant::none;
      ASSERT_EQ(client.wait(), 0);
    }
    EXPECT_EQ(is_torn, mutant != Mutant::none);
  }
}

// Two have read the same, and both have written: the second one's commit is a conflict.
TEST_F(KvMutants, ALostUpdateIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::kv_reads_not_validated}) {
    const Child keeper = start_kv_keeper(false, mutant);
    const auto other = open_counts();
    ASSERT_NE(other, nullptr) << core::last_error_text();
    const int before = other->counted();
    told->stage = 0;
    Child client([&] {
      const auto own = open_counts();
      if (own == nullptr) ::_exit(20);
      Transaction transaction(own->kv(), false);
      or_leave(transaction.begin(), 21);
      or_leave(own->count_in(transaction), 22);
      told->stage = 1;
      while (told->stage < 2) ::usleep(1000);
      const core::Status committed = transaction.commit(Durability::sync, nullptr).status();
      ::_exit(committed.ok() ? 0 : committed.category == Errc::conflict ? 1 : 23);
    });
    await_stage(1);
    ASSERT_TRUE(other->count(Durability::sync));
    told->stage = 2;
    const int conflicts = WEXITSTATUS(client.wait());
    EXPECT_EQ(conflicts, mutant == Mutant::none ? 1 : 0);
    EXPECT_EQ(other->counted() - before, 1) << "two commits, of which one was lost with the mutant";
  }
}

// A transaction writes how many records there are, while another one adds one.
TEST_F(KvMutants, APhantomIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::kv_ranges_not_validated}) {
    const Child keeper = start_kv_keeper(false, mutant);
    const auto other = open_counts();
    ASSERT_NE(other, nullptr) << core::last_error_text();
    told->stage = 0;
    Child client([&] {
      const auto own = open_counts();
      if (own == nullptr) ::_exit(20);
      Transaction transaction(own->kv(), false);
      or_leave(transaction.begin(), 21);
      core::kv::Cursor cursor(transaction, own->left());
      int records = 0;
      for (bool more = or_leave(cursor.first(), 22); more; more = or_leave(cursor.next(), 22)) ++records;
      or_leave(transaction.put(own->right(), "records", std::to_string(records)), 23);
      told->stage = 1;
      while (told->stage < 2) ::usleep(1000);
      const core::Status committed = transaction.commit(Durability::sync, nullptr).status();
      ::_exit(committed.ok() ? 0 : committed.category == Errc::conflict ? 1 : 24);
    });
    await_stage(1);
    Transaction adding(other->kv(), false);
    ASSERT_TRUE(adding.begin().ok());
    ASSERT_TRUE(adding.put(other->left(), "another", "1").ok());
    ASSERT_TRUE(adding.commit(Durability::weak, nullptr).ok());
    told->stage = 2;
    EXPECT_EQ(WEXITSTATUS(client.wait()), mutant == Mutant::none ? 1 : 0);
  }
}

TEST_F(KvMutants, AnAnswerBeforeTheFlushIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::answer_before_durable}) {
    Child keeper = start_kv_keeper(false, mutant);
    int acknowledged = 0;
    {
      const auto client = open_counts();
      ASSERT_NE(client, nullptr) << core::last_error_text();
      ASSERT_TRUE(client->count(Durability::sync));
      acknowledged = client->counted();
      keeper.kill();
    }
    keeper = start_kv_keeper();
    const auto client = open_counts();
    ASSERT_NE(client, nullptr) << core::last_error_text();
    EXPECT_EQ(client->counted() >= acknowledged, mutant == Mutant::none);
  }
}

}  // namespace
}  // namespace memlith::test::kv_death_test
