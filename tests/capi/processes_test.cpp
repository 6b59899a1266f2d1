// docs/guarantees.md, "Kv store of several processes": what a transaction has read of another client is durable when
// its commit returns. And a kv store that several processes have open: every call, through C++, with the program
// `memlith` as the keeper.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memlith/kv.hpp"
#include "private/inside.h"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::processes_capi_test {
namespace {

#define ASSERT_OK(result) ASSERT_TRUE(result) << (result).error().message()
#define EXPECT_OK(result) EXPECT_TRUE(result) << (result).error().message()

class Processes : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_ / "store"; }
  [[nodiscard]] Result<Kv> open() const { return Kv::open_shared(path(), "kv", {.create = true}); }
  [[nodiscard]] pid_t keeper() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    return memlith_stat(path().c_str(), &stats) == 0 && stats.alive != 0 ? static_cast<pid_t>(stats.process) : 0;
  }
  // When the keeper has ended.
  [[nodiscard]] Result<Store> open_alone() const {
    for (int i = 0;; ++i) {
      auto store = Store::open(path());
      if (store || store.error().category() != MEMLITH_BUSY || i == 1000) return store;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  TempFolder folder_;
};

void put(const Kv& kv, KvMap map, const std::string& key, const std::string& value) {
  auto done = kv.transact([&](KvTransaction& txn) { return txn.put(map, key, value); });
  ASSERT_OK(done);
}

std::string get(const Kv& kv, KvMap map, const std::string& key) {
  auto txn = kv.begin({.read_only = true});
  if (!txn) return "! " + txn.error().message();
  auto value = txn->find(map, key);
  if (!value) return "! " + value.error().message();
  return value->has_value() ? std::string(**value) : "-";
}

TEST_F(Processes, SeeWhatEachCommits) {
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("stock", {.create = true});
  ASSERT_OK(map);
  put(*kv, *map, "marble", "12");
  EXPECT_IN_CHILD([&]() -> std::string {
    auto own = open();
    if (!own) return own.error().message();
    auto there = own->map("stock");
    if (!there) return there.error().message();
    if (get(*own, *there, "marble") != "12") return "the child sees " + get(*own, *there, "marble");
    auto done = own->transact([&](KvTransaction& txn) -> Result<void> {
      if (auto removed = txn.remove(*there, "marble"); !removed) return removed;
      return txn.put(*there, "granite", std::string(100'000, 'g'));
    });
    return done ? "" : done.error().message();
  });
  EXPECT_EQ(get(*kv, *map, "marble"), "-");
  EXPECT_EQ(get(*kv, *map, "granite"), std::string(100'000, 'g'));
  EXPECT_OK(kv->verify());
  auto info = kv->info();
  ASSERT_OK(info);
  EXPECT_EQ(info->records, 1U);
  EXPECT_EQ(info->maps, 1U);
  EXPECT_OK(kv->close());
  // An ordinary store is left.
  auto store = open_alone();
  ASSERT_OK(store);
  auto alone = Kv::open(*store);
  ASSERT_OK(alone);
  auto again = alone->map("stock");
  ASSERT_OK(again);
  EXPECT_EQ(get(*alone, *again, "granite"), std::string(100'000, 'g'));
}

TEST_F(Processes, FindWhatIsThere) {
  {
    auto store = Store::open(path(), {.create = true});
    ASSERT_OK(store);
    auto kv = Kv::open(*store, "kv", {.create = true});
    ASSERT_OK(kv);
    auto map = kv->map("many", {.create = true});
    ASSERT_OK(map);
    auto done = kv->transact([&](KvTransaction& txn) -> Result<void> {
      for (int i = 0; i < 3000; ++i) {
        if (auto put = txn.put(*map, IntegerKey(i), std::to_string(i * i)); !put) return put;
      }
      return {};
    });
    ASSERT_OK(done);
  }
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("many");
  ASSERT_OK(map);
  for (const bool read_only : {true, false}) {
    auto txn = kv->begin({.read_only = read_only});
    ASSERT_OK(txn);
    int count = 0;
    ASSERT_OK(txn->get_range(*map, IntegerKey(10), IntegerKey(2990), [&](std::string_view key, std::string_view value) {
      const int number = integer_of_key<int>(key.size() == 8 ? key : std::string_view("12345678"));
      count += value == std::to_string(number * number) ? 1 : 0;
      return true;
    }));
    EXPECT_EQ(count, 2980);
    auto cursor = txn->cursor(*map);
    ASSERT_OK(cursor);
    auto last = cursor->last();
    ASSERT_OK(last);
    ASSERT_TRUE(*last);
    EXPECT_EQ(cursor->current()->value, std::to_string(2999 * 2999));
    auto estimate = txn->estimate(*map, {}, {});
    ASSERT_OK(estimate);
    EXPECT_NEAR(static_cast<double>(estimate->records), 3000, 1500);
    EXPECT_OK(txn->commit());
  }
  EXPECT_OK(kv->verify());
}

// The cases of docs/several-processes.md, "Transactions".
TEST_F(Processes, ConflictWhereWhatWasReadHasChanged) {
  auto kv = open();
  auto other = open();
  ASSERT_OK(kv);
  ASSERT_OK(other);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  auto same = other->map("m");
  ASSERT_OK(same);
  put(*kv, *map, "b", "1");
  struct Case {
    const char* name;
    std::function<bool(KvTransaction& txn)> read;
    const char* changed;  // by the other one
    bool conflicts;
  };
  const std::vector<Case> cases = {
      {"a record", [&](KvTransaction& txn) { return txn.get(*map, "b").ok(); }, "b", true},
      {"another record", [&](KvTransaction& txn) { return txn.get(*map, "b").ok(); }, "c", false},
      {"one that is not there", [&](KvTransaction& txn) { return txn.find(*map, "new").ok(); }, "new", true},
      {"a swap that was refused", [&](KvTransaction& txn) { return txn.put_if(*map, "b", "x", "y").ok(); }, "b", true},
      {"a phantom",
       [&](KvTransaction& txn) {
         return txn.get_range(*map, "b", "bz", [](std::string_view, std::string_view) { return true; }).ok();
       },
       "bb", true},
      {"outside of the range",
       [&](KvTransaction& txn) {
         return txn.get_range(*map, "b", "bz", [](std::string_view, std::string_view) { return true; }).ok();
       },
       "d", false},
      {"a write alone", [&](KvTransaction&) { return true; }, "w", false},
  };
  int round = 0;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    auto txn = kv->begin();
    ASSERT_OK(txn);
    ASSERT_TRUE(each.read(*txn));
    ASSERT_OK(txn->put(*map, "w", "mine"));
    put(*other, *same, each.changed, "changed " + std::to_string(++round));
    auto done = txn->commit();
    EXPECT_EQ(done.ok(), !each.conflicts);
    if (!done) {
      EXPECT_EQ(done.error().category(), MEMLITH_CONFLICT);
    }
    EXPECT_FALSE(txn->active());
    if (each.conflicts) {
      ASSERT_OK(txn->renew());
      EXPECT_OK(txn->put(*map, "w", "again"));
      EXPECT_OK(txn->commit());
    }
  }
}

TEST_F(Processes, ReadSnapshots) {
  auto kv = open();
  auto other = open();
  ASSERT_OK(kv);
  ASSERT_OK(other);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  auto same = other->map("m");
  ASSERT_OK(same);
  for (int i = 0; i < 200; ++i) put(*other, *same, "key " + std::to_string(i), "old");
  auto reader = kv->begin({.read_only = true});
  ASSERT_OK(reader);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) put(*other, *same, "key " + std::to_string(i), std::string(700, 'n'));
  }
  int old_values = 0;
  ASSERT_OK(reader->get_range(*map, {}, {}, [&](std::string_view, std::string_view value) {
    old_values += value == "old" ? 1 : 0;
    return true;
  }));
  EXPECT_EQ(old_values, 200);
  auto info = kv->info();
  ASSERT_OK(info);
  EXPECT_GT(info->snapshot_bytes, 0U);
  ASSERT_OK(reader->abort());
  put(*kv, *map, "key", "1");
  info = kv->info();
  ASSERT_OK(info);
  EXPECT_EQ(info->snapshot_bytes, 0U) << "copies stay though no snapshot is active";
}

TEST_F(Processes, ReadWhatIsDurableWhenTheirCommitReturns) {
  auto writer = open();
  ASSERT_OK(writer);
  auto map = writer->map("m", {.create = true});
  ASSERT_OK(map);
  auto reader = open();
  ASSERT_OK(reader);
  auto readers_map = reader->map("m");
  ASSERT_OK(readers_map);
  ASSERT_OK(writer->set_window(600'000));
  for (const bool read_only : {true, false}) {
    auto put = writer->begin();
    ASSERT_OK(put);
    ASSERT_OK(put->put(*map, "key", read_only ? "first" : "second"));
    auto ticket = put->commit(Durability::weak);
    ASSERT_OK(ticket);
    EXPECT_LT(writer->durable(), *ticket);
    auto txn = reader->begin({.read_only = read_only});
    ASSERT_OK(txn);
    auto value = txn->get(*readers_map, "key");
    ASSERT_OK(value);
    EXPECT_EQ(*value, read_only ? "first" : "second");
    ASSERT_OK(txn->commit());
    EXPECT_GE(reader->durable(), *ticket);
  }
}

TEST_F(Processes, HaveSavepointsWindowsAndAppends) {
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  auto txn = kv->begin();
  ASSERT_OK(txn);
  ASSERT_OK(txn->put(*map, "a", "1"));
  auto point = txn->savepoint();
  ASSERT_OK(point);
  ASSERT_OK(txn->put(*map, "b", "2"));
  ASSERT_OK(txn->undo_to(*point));
  ASSERT_OK(kv->set_window(60'000));
  auto ticket = txn->commit(Durability::weak);
  ASSERT_OK(ticket);
  EXPECT_OK(kv->wait(*ticket));
  EXPECT_OK(kv->persist());
  EXPECT_GE(kv->durable(), *ticket);
  EXPECT_EQ(get(*kv, *map, "a"), "1");
  EXPECT_EQ(get(*kv, *map, "b"), "-");
  int next = 0;
  std::string key;
  const auto appended = kv->append(*map, [&]() -> std::optional<KvRecord> {
    if (next == 5000) return std::nullopt;
    key = "z" + std::to_string(10'000 + next++);
    return KvRecord{key, "value of some length, so that there are several commits"};
  });
  ASSERT_OK(appended);
  EXPECT_EQ(*appended, 5000U);
  const auto refused = kv->append(*map, [&, first = true]() mutable -> std::optional<KvRecord> {
    return std::exchange(first, false) ? std::optional(KvRecord{"a", "1"}) : std::nullopt;
  });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), MEMLITH_INVALID);
  // A map that another handle removes is gone here, and its number is no other's.
  auto other = open();
  ASSERT_OK(other);
  ASSERT_OK(other->remove_map("m"));
  auto anew = other->map("m", {.create = true});
  ASSERT_OK(anew);
  EXPECT_NE(*anew, *map);
  EXPECT_NE(get(*kv, *map, "a").find("no map"), std::string::npos);
  EXPECT_EQ(get(*kv, *anew, "a"), "-");
  auto names = kv->maps();
  ASSERT_OK(names);
  EXPECT_EQ(*names, std::vector<std::string>{"m"});
  EXPECT_OK(kv->verify());
}

// A transaction that used a map that was removed, and whose root is another map's by now, conflicts.
TEST_F(Processes, ConflictWhereTheMapWasRemoved) {
  auto kv = open();
  auto other = open();
  ASSERT_OK(kv);
  ASSERT_OK(other);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  auto txn = kv->begin();
  ASSERT_OK(txn);
  ASSERT_OK(txn->put(*map, "a", "1"));
  ASSERT_OK(other->remove_map("m"));
  ASSERT_OK(other->map("another", {.create = true}));
  auto done = txn->commit();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().category(), MEMLITH_CONFLICT);
}

TEST_F(Processes, RefuseWhatIsForOneProcess) {
  auto kv = open();
  ASSERT_OK(kv);
  EXPECT_EQ(kv->set_eventfd(1).error().category(), MEMLITH_UNSUPPORTED);
  EXPECT_EQ(kv->on_durable(1, [](std::int32_t) {}).error().category(), MEMLITH_UNSUPPORTED);
  EXPECT_NE(kv->set_eventfd(1).error().message().find("several processes"), std::string::npos);
  // The store is the keeper's.
  EXPECT_EQ(Store::open(path()).error().category(), MEMLITH_BUSY);
  auto follower = Store::open(path(), {.follow = true});
  EXPECT_OK(follower);
  const auto exclusive = Kv::open_shared(path(), "kv", {.create = true, .exclusive = true});
  EXPECT_EQ(exclusive.error().category(), MEMLITH_EXISTS);
  EXPECT_EQ(Kv::open_shared(path(), "absent").error().category(), MEMLITH_NOT_FOUND);
  std::vector<KvTransaction> many;
  for (;;) {
    auto txn = kv->begin({.read_only = true});
    if (!txn) {
      EXPECT_EQ(txn.error().category(), MEMLITH_BUSY);
      break;
    }
    many.push_back(std::move(*txn));
    ASSERT_LE(many.size(), 128U);
  }
  EXPECT_EQ(many.size(), 128U);
}

TEST_F(Processes, DieWithTheirSnapshots) {
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  put(*kv, *map, "key", "0");
  KilledProcess reader;
  SharedWithChildren<std::atomic<int>> ready;
  reader.start(
      [&] {
        const auto own = or_leave(open(), 3);
        const auto txn = or_leave(own.begin({.read_only = true}), 4);
        *ready = 1;
        ::pause();
      },
      [&] { return *ready != 0; });
  for (int i = 0; i < 20; ++i) put(*kv, *map, "key", std::string(500, 'x'));
  auto info = kv->info();
  ASSERT_OK(info);
  EXPECT_GT(info->snapshot_bytes, 0U);
  reader.kill_working();
  do {
    put(*kv, *map, "key", "1");
    info = kv->info();
    ASSERT_OK(info);
  } while (info->snapshot_bytes > 0);
}

TEST_F(Processes, AreToldOfTheEndOfTheKeeper) {
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  put(*kv, *map, "key", "durable");
  auto reader = kv->begin({.read_only = true});
  auto writer = kv->begin();
  ASSERT_OK(reader);
  ASSERT_OK(writer);
  ASSERT_OK(writer->put(*map, "key", "lost"));
  const pid_t process = keeper();
  ASSERT_GT(process, 0);
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  while (kv->begin({.read_only = true})) ::usleep(1000);
  auto done = writer->commit();
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error().category() == MEMLITH_POISONED || done.error().category() == MEMLITH_IO);
  EXPECT_EQ(kv->begin({.read_only = true}).error().category(), MEMLITH_POISONED);
  EXPECT_EQ(kv->map("m").error().category(), MEMLITH_POISONED);
  {
    const auto freed = std::move(*reader);
    const auto freed_too = std::move(*writer);
  }
  EXPECT_EQ(kv->close().error().category(), MEMLITH_POISONED);
  auto again = open();
  ASSERT_OK(again);
  auto there = again->map("m");
  ASSERT_OK(there);
  EXPECT_EQ(get(*again, *there, "key"), "durable");
}

TEST_F(Processes, LeaveNothingToTheirChildren) {
  auto kv = open();
  ASSERT_OK(kv);
  auto map = kv->map("m", {.create = true});
  ASSERT_OK(map);
  EXPECT_IN_CHILD([&]() -> std::string {
    const auto txn = kv->begin();
    if (txn || txn.error().category() != MEMLITH_INVALID) return "a child uses its parent's handle";
    auto own = open();
    if (!own) return own.error().message();
    put(*own, *map, "key", "the child's");
    return "";
  });
  EXPECT_EQ(get(*kv, *map, "key"), "the child's");
}

}  // namespace
}  // namespace memlith::test::processes_capi_test
