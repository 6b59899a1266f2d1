// docs/kv.md, "What survives": threads that commit to three maps are killed again and again. Each time the kv store is
// exactly as some commit left it, all maps together, and that commit is not before the newest acknowledged one.
//
// Each transaction takes the next number from a record, so that the numbers are the order of the commits, and writes as
// its number says. So the content after a kill has to be that of a model after as many transactions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::kv_kill_test {
namespace {

constexpr int kThreads = 3;
constexpr int kMaps = 3;
constexpr std::uint64_t kKeys = 400;
constexpr const char* kNumberKey = "number";

struct Change {
  int map = 0;
  std::string key;
  std::optional<std::string> value;  // none: removed, if it is there
};

// The changes of transaction number n.
std::vector<Change> changes_of(std::uint64_t n) {
  std::mt19937_64 draw(n);
  std::vector<Change> changes;
  for (std::uint64_t left = 1 + draw() % 5; left > 0; --left) {
    Change change{static_cast<int>(draw() % kMaps), "key" + std::to_string(draw() % kKeys), std::nullopt};
    const std::uint64_t bytes = draw() % 40 == 0 ? draw() % 9000 : draw() % 200;
    if (draw() % 4 > 0) change.value = std::string(bytes, static_cast<char>('a' + n % 26));
    changes.push_back(std::move(change));
  }
  return changes;
}

struct Opened {
  Store store;
  Kv kv;
  KvMap maps[kMaps];
};

Opened open(const std::string& path) {
  Store store = or_leave(Store::open(path, {.create = true, .log_bytes = 1 << 20}), 3);
  Kv kv = or_leave(Kv::open(store, "kv", {.create = true, .window_ms = 5}), 4);
  Opened opened{std::move(store), std::move(kv), {}};
  for (int i = 0; i < kMaps; ++i)
    opened.maps[i] = or_leave(opened.kv.map("map" + std::to_string(i), {.create = true}), 5);
  return opened;
}

// Seen by the parent after the kill: numbers of transactions that were acknowledged as durable.
using Acknowledged = std::atomic<std::uint64_t>;

void acknowledge(Acknowledged& newest, std::uint64_t number) {
  for (std::uint64_t known = newest; known < number && !newest.compare_exchange_weak(known, number);) {
  }
}

void live(const std::string& path, Acknowledged& acknowledged) {
  Opened opened = open(path);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 draw(static_cast<std::uint64_t>(t));
      for (;;) {
        const bool sync = draw() % 8 == 0;
        std::uint64_t number = 0;
        auto ticket = opened.kv.transact(
            [&](KvTransaction& txn) -> memlith::Result<void> {
              auto last = txn.find(opened.maps[0], kNumberKey);
              if (!last) return last.error();
              number = 1 + (*last ? std::stoull(std::string(**last)) : 0);
              if (auto put = txn.put(opened.maps[0], kNumberKey, std::to_string(number)); !put) return put;
              for (const Change& change : changes_of(number)) {
                const KvMap map = opened.maps[change.map];
                auto done = change.value ? txn.put(map, change.key, *change.value) : txn.remove(map, change.key);
                if (!done && done.error().category() != MEMLITH_NOT_FOUND) return done;
              }
              return {};
            },
            sync ? Durability::sync : Durability::weak);
        const std::uint64_t commit = or_leave(std::move(ticket), 6);
        if (sync) acknowledge(acknowledged, number);
        if (draw() % 16 != 0) continue;
        if (!opened.store.wait(commit)) ::_exit(7);
        acknowledge(acknowledged, number);
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST(KvKill, LeavesAPrefixInAllMaps) {
  const TempFolder folder;
  const std::string path = folder / "store";
  const SharedWithChildren<Acknowledged> acknowledged;
  std::mt19937_64 random(std::random_device{}());
  std::map<std::string, std::string> model[kMaps];
  std::uint64_t modelled = 0;
  for (int kill = 0; kill < 25; ++kill) {
    KilledProcess child;
    child.start([&] { live(path, *acknowledged); });
    child.kill_working(random() % 120'000);
    ASSERT_FALSE(HasFailure());

    Opened opened = open(path);
    const auto report = opened.kv.verify();
    ASSERT_TRUE(report) << report.error().message();
    auto reader = opened.kv.begin({.read_only = true});
    auto last = reader->find(opened.maps[0], kNumberKey);
    const std::uint64_t number = *last ? std::stoull(std::string(**last)) : 0;
    ASSERT_GE(number, acknowledged->load()) << "an acknowledged transaction is gone, after kill " << kill;
    ASSERT_GE(number, modelled);
    while (modelled < number) {
      for (const Change& change : changes_of(++modelled)) {
        if (change.value) {
          model[change.map][change.key] = *change.value;
        } else {
          model[change.map].erase(change.key);
        }
      }
      model[0][kNumberKey] = std::to_string(modelled);
    }
    for (int i = 0; i < kMaps; ++i) {
      auto expected = model[i].begin();
      EXPECT_TRUE(reader->get_range(opened.maps[i], {}, {}, [&](std::string_view key, std::string_view value) {
        const bool same = expected != model[i].end() && expected->first == key && expected->second == value;
        EXPECT_TRUE(same) << "map " << i << ", key " << key << ", after kill " << kill << ", transaction " << number;
        ++expected;
        return same;
      }));
      ASSERT_TRUE(expected == model[i].end()) << "records are missing in map " << i << ", after kill " << kill;
    }
    acknowledged->store(number);  // opening has made it durable
  }
  EXPECT_GT(modelled, 100u) << "the children did not get far";
}

}  // namespace
}  // namespace memlith::test::kv_kill_test
