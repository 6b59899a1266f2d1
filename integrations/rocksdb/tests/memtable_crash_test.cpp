// Memtables in a region: transactions of threads come back whole after kills, as in MemSnap (ASPLOS 2024, section 7);
// and batches after power cuts at each operation of memlith on the disk, while a database that crashed is opened,
// written to, flushed and closed. RocksDB's own files are as a kill leaves them. Each database is opened in a child of
// its own: RocksDB's threads do not survive a fork.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "memtables.hpp"
#include "power_cut.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith_rocksdb::test {
namespace {

using memlith::test::KilledProcess;
using memlith::test::SharedWithChildren;
using memlith::test::TempFolder;
using rocksdb::DB;
using rocksdb::WriteBatch;

rocksdb::WriteOptions synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

void or_leave(const rocksdb::Status& status, int code) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  ::_exit(code);
}

std::uint64_t number_at(DB& db, rocksdb::ColumnFamilyHandle* family, const std::string& key) {
  std::string value;
  const rocksdb::Status got = db.Get({}, family, key, &value);
  if (!got.IsNotFound()) or_leave(got, 4);
  return got.ok() ? std::stoull(value) : 0;
}

// ---- threads, and kills --------------------------------------------------------------------------------------------

constexpr std::uint64_t kThreads = 20;
constexpr std::uint64_t kKeysPerTransaction = 100;
constexpr std::uint64_t kKeys = 20'000;

struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
  std::array<std::atomic<std::uint64_t>, kThreads> begun;
};

std::string done_key(std::uint64_t thread) { return "done " + std::to_string(thread); }

rocksdb::Options small() {
  rocksdb::Options options;
  options.write_buffer_size = 512 << 10;
  options.enable_pipelined_write = true;
  return options;
}

// Adds one to random keys, whose locks it holds, half of them in each family, and counts the transaction in it.
void count_for_ever(Families& opened, std::vector<std::mutex>& locks, Told& told, std::uint64_t thread,
                    std::uint64_t seed) {
  std::mt19937_64 random(seed + thread);
  for (;;) {
    std::set<std::uint64_t> keys;
    while (keys.size() < kKeysPerTransaction) keys.insert(random() % kKeys);
    std::vector<std::unique_lock<std::mutex>> held;
    for (const std::uint64_t key : keys) held.emplace_back(locks[key]);
    told.begun[thread].fetch_add(1);
    WriteBatch batch;
    for (const std::uint64_t key : keys) {
      auto* const family = opened.handles[key % 2];
      const std::string name = std::to_string(key);
      or_leave(batch.Put(family, name, std::to_string(number_at(*opened.db, family, name) + 1)), 5);
    }
    auto* const family = opened.handles[thread % 2];
    const std::uint64_t done = number_at(*opened.db, family, done_key(thread));
    or_leave(batch.Put(family, done_key(thread), std::to_string(done + 1)), 5);
    or_leave(opened.db->Write(synced(), &batch), 6);
    told.acknowledged[thread].fetch_add(1);
  }
}

void live(const std::string& path, Told& told, std::uint64_t seed) {
  Families opened = open_memtables(path, small());
  or_leave(opened.status, 3);
  std::vector<std::mutex> locks(kKeys);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { count_for_ever(opened, locks, told, thread, seed); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Sums {
  std::uint64_t keys;
  std::array<std::uint64_t, kThreads> done;
};

void sum_up(const std::string& path, Sums& sums) {
  Families opened = open_memtables(path, small());
  or_leave(opened.status, 3);
  sums.keys = 0;
  for (auto* family : opened.handles) {
    const std::unique_ptr<rocksdb::Iterator> at(opened.db->NewIterator({}, family));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      if (!at->key().starts_with("done ")) sums.keys += std::stoull(at->value().ToString());
    }
    or_leave(at->status(), 4);
  }
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    sums.done[thread] = number_at(*opened.db, opened.handles[thread % 2], done_key(thread));
  }
  or_leave(opened.close(), 5);
}

TEST(RocksdbMemtableCrash, TransactionsOfThreadsComeBackWhole) {
  const TempFolder folder;
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, kThreads> before{};
  std::uint64_t transactions = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    const SharedWithChildren<Told> shared;
    const std::uint64_t of_the_child = random();
    KilledProcess child;
    child.start([&] { live(folder / "db", *shared, of_the_child); },
                [&] { return shared->acknowledged[round % kThreads] != 0; });
    child.kill_working(random() % 400'000);
    ASSERT_FALSE(HasFailure());

    const SharedWithChildren<Sums> sums;
    child.start([&] { sum_up(folder / "db", *sums); });
    const int status = child.wait();
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    transactions = 0;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      const std::uint64_t since = sums->done[thread] - before[thread];
      EXPECT_GE(since, shared->acknowledged[thread].load()) << "an acknowledged transaction is lost: " << thread;
      EXPECT_LE(since, shared->begun[thread].load()) << thread;
      transactions += before[thread] = sums->done[thread];
    }
    EXPECT_EQ(sums->keys, transactions * kKeysPerTransaction) << "a transaction came back in part; round " << round;
    ASSERT_FALSE(HasFailure());
  }
  std::printf("transactions %llu\n", static_cast<unsigned long long>(transactions));
  EXPECT_GE(transactions, 5U);
}

// ---- power cuts ----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kBatchesBefore = 6;  // the database is killed after these
constexpr std::uint64_t kBatches = 14;
constexpr std::uint64_t kSlots = 4;

// Batch `number` sets a slot and the last number in each family, and deletes another slot.
void write_batch(Families& opened, std::uint64_t number, std::atomic<std::uint64_t>& told) {
  WriteBatch batch;
  for (auto* family : opened.handles) {
    or_leave(batch.Put(family, "slot " + std::to_string(number % kSlots), std::to_string(number)), 5);
    or_leave(batch.Delete(family, "slot " + std::to_string((number + 1) % kSlots)), 5);
    or_leave(batch.Put(family, "last", std::to_string(number)), 5);
  }
  or_leave(opened.db->Write(synced(), &batch), 6);
  told.store(number);
}

// The older memtable of a family is in a file, and none is given up yet: the next opening writes over the file what it
// has.
void crash_after_a_flush(const std::string& path, std::atomic<std::uint64_t>& told) {
  Families opened = open_memtables(path);
  or_leave(opened.status, 3);
  for (std::uint64_t number = 1; number <= kBatchesBefore; ++number) {
    write_batch(opened, number, told);
    if (number == kBatchesBefore / 2) or_leave(opened.db->Flush({}, opened.handles[0]), 11);
  }
  or_leave(opened.db->Flush({}, opened.handles[1]), 11);
  ::_exit(0);
}

void work_until_the_cut(const std::string& path, std::atomic<std::uint64_t>& told, int operations) {
  operations_left.store(operations);
  {
    Families opened = open_memtables(path);
    or_leave(opened.status, 3);
    for (std::uint64_t number = kBatchesBefore + 1; number <= kBatches; ++number) {
      write_batch(opened, number, told);
      if (number == kBatchesBefore + 3) or_leave(opened.db->Flush({}, opened.handles[0]), 11);
      if (number == kBatchesBefore + 5) or_leave(opened.db->Flush({}, opened.handles), 11);
    }
    or_leave(opened.close(), 12);
  }
  operations_left.store(-1);
}

// Ends with 13 if the families are not as one number of batches, which is in the result, leaves both.
void find_last(const std::string& path, std::atomic<std::uint64_t>& result) {
  Families opened = open_memtables(path);
  or_leave(opened.status, 3);
  const std::uint64_t last = number_at(*opened.db, opened.handles[0], "last");
  for (auto* family : opened.handles) {
    if (number_at(*opened.db, family, "last") != last) ::_exit(13);
    std::array<std::uint64_t, kSlots> slots{};
    for (std::uint64_t number = 1; number <= last; ++number) {
      slots[number % kSlots] = number;
      slots[(number + 1) % kSlots] = 0;
    }
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
      if (number_at(*opened.db, family, "slot " + std::to_string(slot)) != slots[slot]) ::_exit(13);
    }
  }
  result.store(last);
}

TEST(RocksdbMemtableCrash, PowerCutsLeaveWholeBatches) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  int cuts = 0;
  for (bool done = false; !done; ++cuts) {
    const TempFolder folder;
    const SharedWithChildren<std::atomic<std::uint64_t>> told;
    const SharedWithChildren<std::atomic<std::uint64_t>> found;
    KilledProcess child;
    child.start([&] { crash_after_a_flush(folder / "db", *told); });
    ASSERT_EQ(child.wait(), 0);
    cut_seed = seed + static_cast<std::uint64_t>(cuts);
    child.start([&] { work_until_the_cut(folder / "db", *told, cuts); });
    int status = child.wait();
    ASSERT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7)) << status;
    done = WEXITSTATUS(status) == 0;

    child.start([&] { find_last(folder / "db", *found); });
    status = child.wait();
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "cut " << cuts << ": " << status;
    ASSERT_GE(found->load(), told->load()) << "cut " << cuts;
    ASSERT_LE(found->load(), std::min(told->load() + 1, kBatches)) << "cut " << cuts;
  }
  std::printf("cuts %d\n", cuts);
  EXPECT_GE(cuts, static_cast<int>(kBatches));
}

}  // namespace
}  // namespace memlith_rocksdb::test
