// docs/applog.md, "Log and store agree": threads append, a thread behind consumes with commits of a kv store, and the
// process is killed again and again. Each time every acknowledged operation is in the kv store or in the log, exactly
// once and in order, and the entries begin where the kv store ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "support/backends.hpp"
#include "support/child.hpp"

namespace memlith::test::applog_kill_test {
namespace {

constexpr int kWriters = 3;
// The acknowledged operations of each writer; read by the parent after the kill.
using Acknowledged = std::array<std::atomic<std::uint64_t>, kWriters>;

std::uint64_t sum_of(const Acknowledged& acknowledged) {
  std::uint64_t sum = 0;
  for (const auto& each : acknowledged) sum += each;
  return sum;
}

struct Opened {
  Store store;
  AppLog log;
  Kv kv;
  KvMap map;
};

Opened open(const Backend& backend, WhenFull when_full) {
  Store store =
      or_leave(Store::open(backend.path(), {.create = true, .log_bytes = 1 << 20, .io = static_cast<Io>(backend.io())}),
               3);
  AppLog log = or_leave(AppLog::open(store, "log",
                                     {.create = true, .when_full = when_full, .size = 16 << 10, .max_size = 1 << 20}),
                        4);
  Kv kv = or_leave(Kv::open(store, "kv", {.create = true, .window_ms = 5}), 5);
  const KvMap map = or_leave(kv.map("map", {.create = true}), 6);
  return {std::move(store), std::move(log), std::move(kv), map};
}

// Operation number `count` of a writer: it makes the writer's count one more, and is not idempotent.
std::string entry_of(int writer, std::uint64_t count) {
  return std::to_string(writer) + " " + std::to_string(count) + " " +
         std::string((count * 61 + static_cast<std::uint64_t>(writer)) % 700, 'x');
}

struct Operation {
  int writer = 0;
  std::uint64_t count = 0;
};
Operation operation_of(std::string_view entry) {
  const std::string text(entry);
  std::size_t used = 0;
  Operation operation;
  operation.writer = std::stoi(text, &used);
  operation.count = std::stoull(text.substr(used));
  return entry == entry_of(operation.writer, operation.count) ? operation : Operation{-1, 0};
}

std::uint64_t number_in(KvTransaction& txn, KvMap map, const std::string& key) {
  const auto found = or_leave(txn.find(map, key), 7);
  return found ? std::stoull(std::string(*found)) : 0;
}

void live(const Backend& backend, WhenFull when_full, const std::vector<std::uint64_t>& done,
          Acknowledged& acknowledged) {
  Opened opened = open(backend, when_full);
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (std::uint64_t count = done[static_cast<std::size_t>(w)] + 1;; ++count) {
        (void)or_leave(opened.log.append(entry_of(w, count)), 8);
        if (count % 3 == 0) {
          or_leave(opened.store.wait(or_leave(opened.log.write_weak(), 9)), 9);
        } else {
          or_leave(opened.log.write(), 9);
        }
        acknowledged[static_cast<std::size_t>(w)] = count;
      }
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 draw(done[0]);
    for (;;) {
      auto txn = or_leave(opened.kv.begin(), 10);
      std::uint64_t newest = 0;
      for (std::uint64_t left = 1 + draw() % 6; left > 0; --left) {
        const auto entry = or_leave(opened.log.read(newest == 0 ? 1000 : 0), 11);
        if (!entry) break;
        newest = entry->number;
        const int writer = operation_of(entry->content).writer;
        const std::string key = "count" + std::to_string(writer);
        or_leave(txn.put(opened.map, key, std::to_string(number_in(txn, opened.map, key) + 1)), 12);
      }
      if (newest == 0) continue;
      or_leave(txn.put(opened.map, "consumed", std::to_string(newest)), 13);
      auto both = or_leave(opened.store.begin(), 14);
      or_leave(txn.join(both), 14);
      or_leave(opened.log.consume_in(both, newest), 14);
      if (draw() % 4 == 0) {
        or_leave(both.commit(), 14);
      } else {
        (void)or_leave(both.commit_weak(), 14);
      }
    }
  });
  for (std::thread& each : threads) each.join();
}

class AppLogKill : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(On, AppLogKill, ::testing::ValuesIn(Backend::kNames),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(AppLogKill, EveryOperationIsThereExactlyOnce) {
  const Backend backend(GetParam());
  if (!backend.lacks().empty()) GTEST_SKIP() << backend.lacks();
  const SharedWithChildren<Acknowledged> acknowledged;
  std::mt19937_64 random(std::random_device{}());
  std::vector<std::uint64_t> counts(kWriters);
  for (int kill = 0; kill < 17; ++kill) {
    const WhenFull when_full = kill < 12 ? WhenFull::block : WhenFull::grow;
    // At any moment, also of opening; and, every other time, when some operations were acknowledged.
    const std::uint64_t enough = kill % 2 == 0 ? 0 : sum_of(*acknowledged) + 20;
    KilledProcess child;
    child.start([&] { live(backend, when_full, counts, *acknowledged); },
                [&] { return sum_of(*acknowledged) >= enough; });
    child.kill_working(random() % 100'000);
    ASSERT_FALSE(HasFailure());

    Opened opened = open(backend, when_full);
    auto reader = opened.kv.begin({.read_only = true});
    for (int w = 0; w < kWriters; ++w) {
      counts[static_cast<std::size_t>(w)] = number_in(*reader, opened.map, "count" + std::to_string(w));
    }
    const std::uint64_t consumed = number_in(*reader, opened.map, "consumed");
    ASSERT_EQ(opened.log.info()->consumed, consumed) << "log and kv store disagree, after kill " << kill;
    std::uint64_t number = consumed;
    for (auto entry = opened.log.read(); *entry; entry = opened.log.read()) {
      ASSERT_EQ((*entry)->number, ++number);
      const Operation operation = operation_of((*entry)->content);
      ASSERT_GE(operation.writer, 0) << "entry " << number << " has other bytes";
      ASSERT_EQ(operation.count, ++counts[static_cast<std::size_t>(operation.writer)]) << "after kill " << kill;
    }
    for (std::size_t w = 0; w < kWriters; ++w) {
      ASSERT_GE(counts[w], (*acknowledged)[w].load()) << "an acknowledged operation is gone, after kill " << kill;
    }
  }
  EXPECT_GE(counts[0] + counts[1] + counts[2], 200u);
}

}  // namespace
}  // namespace memlith::test::applog_kill_test
