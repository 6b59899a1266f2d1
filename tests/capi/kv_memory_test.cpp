// docs/kv.md, "Memory": a kv store keeps to the store's limit of memory, whatever reads and writes it meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "memlith/kv.hpp"
#include "support/process_memory.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::kv_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLimit = 16 * kMiB;
constexpr int kRecords = 40'000;  // 40 MiB of values
constexpr int kThreads = 2;
constexpr int kParts = 40;

std::string key_of(int number) { return "key" + std::to_string(number); }
std::string value_of(int number, int round) {
  std::string value(1000, static_cast<char>('a' + (number + round) % 26));
  return value + std::to_string(number) + "/" + std::to_string(round);
}

class KvMemory : public ::testing::TestWithParam<Durability> {
 protected:
  void open(std::uint64_t limit) {
    auto store = Store::open(folder_ / "store", {.create = true, .memory_max_bytes = limit});
    ASSERT_TRUE(store) << store.error().message();
    store_.emplace(std::move(*store));
    auto opened = Kv::open(*store_, "kv", {.create = true});
    ASSERT_TRUE(opened) << opened.error().message();
    kv_.emplace(std::move(*opened));
    auto found = kv_->map("map", {.create = true});
    ASSERT_TRUE(found);
    map_ = *found;
  }
  void close() {
    ASSERT_TRUE(kv_->close());
    ASSERT_TRUE(store_->close());
    kv_.reset();
    store_.reset();
  }
  void put_all(int round, int first, int step) {
    for (int at = first; at < kRecords; at += 50 * step) {
      auto done = kv_->transact(
          [&](KvTransaction& txn) -> Result<void> {
            for (int i = at; i < std::min(at + 50 * step, kRecords); i += step) {
              auto put = txn.put(map_, key_of(i), value_of(i, round));
              if (!put) return put;
            }
            return {};
          },
          GetParam());
      ASSERT_TRUE(done) << done.error().message();
    }
  }
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_below(folder_ / "store"); }
  void expect_all(int round) {
    auto reader = kv_->begin({.read_only = true});
    ASSERT_TRUE(reader);
    for (int i = 0; i < kRecords; ++i) {
      auto found = reader->find(map_, key_of(i));
      ASSERT_TRUE(found) << found.error().message();
      ASSERT_TRUE(*found) << i;
      ASSERT_EQ(std::string(**found), value_of(i, round));
    }
  }

  TempFolder folder_;
  std::optional<Store> store_;
  std::optional<Kv> kv_;
  KvMap map_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Of, KvMemory, ::testing::Values(Durability::weak, Durability::sync), [](const auto& given) {
  return given.param == Durability::weak ? "WeakCommits" : "SyncCommits";
});

TEST_P(KvMemory, KeepsToItsLimit) {
  open(0);
  put_all(0, 0, 1);
  ASSERT_GT(copied_bytes(), 2 * kLimit) << "the test does not need so much memory as it should";
  close();
  open(kLimit);
  std::uint64_t most = 0;
  for (int round = 1; round <= 3; ++round) {
    for (int part = 0; part < kParts; ++part) {
      put_all(round, part, kParts);
      most = std::max(most, copied_bytes());
    }
  }
  EXPECT_EQ(store_->info().memory_error, 0);
  EXPECT_GT(most, kLimit / 4) << "nothing was measured";
  EXPECT_LE(most, kLimit);
  expect_all(3);
  close();
  open(kLimit);
  expect_all(3);
  close();
}

// One call that puts, and one that removes, more than the limit.
TEST_P(KvMemory, LongCallsKeepToItsLimit) {
  open(kLimit);
  std::uint64_t most = 0;
  int number = 0;
  std::string key;
  std::string value;
  EXPECT_EQ(*kv_->append(map_,
                         [&]() -> std::optional<KvRecord> {
                           if (number == kRecords) return std::nullopt;
                           if (number % 2000 == 0) most = std::max(most, copied_bytes());
                           key = std::to_string(1'000'000 + number);
                           value = value_of(number++, 0);
                           return KvRecord{key, value};
                         }),
            std::uint64_t{kRecords});
  EXPECT_GT(most, kLimit / 4) << "nothing was measured";
  EXPECT_LE(most, kLimit);
  EXPECT_TRUE(kv_->remove_map("map"));
  EXPECT_LE(copied_bytes(), kLimit);
  EXPECT_EQ(store_->info().memory_error, 0);
  EXPECT_TRUE(kv_->verify());
  close();
}

// Readers see the state of their snapshots, and writers go on, while pages are released.
TEST_P(KvMemory, ReleasesBesideReadersAndWriters) {
  open(kLimit / 4);
  put_all(0, 0, 1);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      auto txn = kv_->begin({.read_only = true});
      ASSERT_TRUE(txn);
      for (int i = 0; i < kRecords; i += 997) {
        auto found = txn->find(map_, key_of(i));
        ASSERT_TRUE(found) << found.error().message();
        ASSERT_TRUE(*found);
        const std::string value(**found);
        ASSERT_TRUE(value == value_of(i, 0) || value == value_of(i, 1)) << i << ": " << value.substr(990);
      }
    }
  });
  std::vector<std::thread> writers;
  for (int thread = 0; thread < kThreads; ++thread) writers.emplace_back([&, thread] { put_all(1, thread, kThreads); });
  for (std::thread& each : writers) each.join();
  done = true;
  reader.join();
  EXPECT_EQ(store_->info().memory_error, 0);
  expect_all(1);
  ASSERT_TRUE(kv_->verify());
  close();
  open(0);
  expect_all(1);
  close();
}

}  // namespace
}  // namespace memlith::test::kv_memory_test
