// The life of a database's logs: taken over, crashed, damaged, given back.
#include <rocksdb/convenience.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "rocksdb/src/give_back.hpp"
#include "words.hpp"

namespace memlith_rocksdb::test {

namespace fs = std::filesystem;

const Step write_100{"write_100", [](const std::string& folder) {
                       auto* db = open(folder + "/db", with_memlith()).release();
                       put(*db, 0, 100);
                     }};
const Step write_100_unsynced{"write_100_unsynced", [](const std::string& folder) {
                                auto* db = open(folder + "/db", with_memlith()).release();
                                put(*db, 0, 100, {});
                              }};
const Step fork_a_helper{"fork_a_helper", [](const std::string& folder) {
                           auto* db = open(folder + "/db", with_memlith()).release();
                           put(*db, 0, 100);
                           const pid_t helper = ::fork();
                           if (helper == 0) ::alarm(60);  // if the test ends without it
                           while (helper == 0) ::pause();
                           memlith::test::write_file(folder + "/helper", std::to_string(helper));
                         }};
rocksdb::Options small_checkpoints() {
  static rocksdb::Env* const env = memlith_env({.checkpoint_bytes = 4096});
  rocksdb::Options options = with_memlith();
  options.env = env;
  return options;
}
// Until the thread behind has flushed the file, and the journal claims its length and checksum.
const Step write_checkpointed{"write_checkpointed", [](const std::string& folder) {
                                auto* db = open(folder + "/db", small_checkpoints()).release();
                                put(*db, 0, 100);
                                ::usleep(1500000);
                                put(*db, 100, 101);
                                ::usleep(300000);
                              }};
const Step write_much{"write_much", [](const std::string& folder) {
                        auto* db = open(folder + "/db", with_memlith()).release();
                        rocksdb::WriteOptions unsynced;
                        for (int each = 0; each < 30; ++each) {
                          const std::string value(40000, static_cast<char>('a' + each % 26));
                          ASSERT_FINE(db->Put(each % 10 == 9 ? synced() : unsynced, key_of(each), value));
                        }
                        ASSERT_FINE(db->Put(synced(), key_of(30), "last"));
                      }};

TEST(RocksdbLife, AClosedDatabaseIsOrdinary) {
  const TempFolder folder;
  {
    auto db = open(folder / "db", with_memlith());
    put(*db, 0, 100);
    EXPECT_EQ(kept_logs(folder / "db").size(), 1U);
  }
  EXPECT_FALSE(fs::exists(memlith_folder(folder / "db")));
  EXPECT_EQ(count(*open(folder / "db", plain())), 100);
}

TEST(RocksdbLife, ADatabaseIsTakenOver) {
  const TempFolder folder;
  put(*open(folder / "db", plain()), 0, 50);
  {
    auto db = open(folder / "db", with_memlith());
    EXPECT_EQ(count(*db), 50);
    put(*db, 50, 90);
  }
  EXPECT_EQ(count(*open(folder / "db", with_memlith())), 90);
}

TEST(RocksdbLife, AKilledProcessLosesNothing) {
  for (const char* step : {"write_100", "write_100_unsynced", "write_checkpointed"}) {
    const TempFolder folder;
    run_step(step, folder);
    EXPECT_GE(count(*open(folder / "db", with_memlith())), 100) << step;
  }
}

TEST(RocksdbLife, AHelperOfAKilledProcessKeepsNoLock) {
  const TempFolder folder;
  run_step("fork_a_helper", folder);
  EXPECT_EQ(count(*open(folder / "db", with_memlith())), 100);
  ASSERT_EQ(::kill(std::stoi(memlith::test::read_file(folder / "helper")), SIGKILL), 0);
}

TEST(RocksdbLife, WithoutMemlithACrashedDatabaseIsRefused) {
  const TempFolder folder;
  run_step("write_100", folder);
  rocksdb::DB* db = nullptr;
  EXPECT_TRUE(rocksdb::DB::Open(plain(), folder / "db", &db).IsIOError());
  EXPECT_TRUE(rocksdb::DB::OpenForReadOnly(plain(), folder / "db", &db).IsIOError());
  const auto given = give_back(folder / "db");
  ASSERT_TRUE(given.ok()) << given.error().message();
  EXPECT_EQ(given->logs, 1U);
  EXPECT_EQ(count(*open(folder / "db", plain())), 100);
}

// As after a power cut: nothing has flushed the log's file.
TEST(RocksdbLife, WhatTheFileHasLostComesFromTheJournal) {
  for (const std::uint64_t left : {0, 100, 5000}) {
    const TempFolder folder;
    run_step("write_100", folder);
    const auto kept = kept_logs(folder / "db");
    ASSERT_EQ(kept.size(), 1U);
    fs::resize_file(kept_path(folder / "db", kept[0]), left);
    rocksdb::Options options = with_memlith();
    options.wal_recovery_mode = rocksdb::WALRecoveryMode::kAbsoluteConsistency;
    EXPECT_EQ(count(*open(folder / "db", options)), 100);
  }
}

TEST(RocksdbLife, ASyncOfMuchFlushesTheFile) {
  const TempFolder folder;
  run_step("write_much", folder);
  auto db = open(folder / "db", with_memlith());
  for (int each = 0; each < 30; ++each) {
    std::string value;
    ASSERT_FINE(db->Get({}, key_of(each), &value));
    EXPECT_EQ(value, std::string(40000, static_cast<char>('a' + each % 26)));
  }
  std::string value;
  ASSERT_FINE(db->Get({}, key_of(30), &value));
}

// The claims reach to the flushed bytes, so what the disk lost of them is missed.
TEST(RocksdbLife, LostFlushedBytesAreMissed) {
  const TempFolder folder;
  run_step("write_much", folder);
  fs::resize_file(kept_path(folder / "db", kept_logs(folder / "db").at(0)), 100000);
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(with_memlith(), folder / "db", &db);
  EXPECT_TRUE(status.IsCorruption()) << status.ToString();
}

void flip(const std::string& path, std::uint64_t offset) {
  std::string bytes = memlith::test::read_file(path);
  ASSERT_GT(bytes.size(), offset);
  bytes[offset] ^= 1;
  memlith::test::write_file(path, bytes);
}

TEST(RocksdbLife, DamageIsReportedWhereStockDropsWritesSilently) {
  const TempFolder folder;
  run_step("write_checkpointed", folder);
  const std::uint64_t log = kept_logs(folder / "db").at(0);
  flip(kept_path(folder / "db", log), 3000);
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(with_memlith(), folder / "db", &db);
  EXPECT_TRUE(status.IsCorruption()) << status.ToString();
  EXPECT_NE(status.ToString().find("is damaged"), std::string::npos) << status.ToString();
  // Stock takes it for the end of the log. So it is, once the damage is accepted.
  const auto given = give_back(folder / "db", Damage::accept);
  ASSERT_TRUE(given.ok()) << given.error().message();
  const int left = count(*open(folder / "db", plain()));
  EXPECT_LT(left, 100);
  EXPECT_GT(left, 0);
}

TEST(RocksdbLife, AMissingLogIsReported) {
  const TempFolder folder;
  run_step("write_checkpointed", folder);
  fs::remove(kept_path(folder / "db", kept_logs(folder / "db").at(0)));
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(with_memlith(), folder / "db", &db);
  EXPECT_TRUE(status.IsCorruption()) << status.ToString();
}

TEST(RocksdbLife, AMissingOrDamagedJournalIsReported) {
  for (const bool missing : {true, false}) {
    const TempFolder folder;
    run_step("write_100", folder);
    if (missing) {
      fs::remove_all(store_path(folder / "db"));
    } else {
      std::string log = memlith::test::read_file(store_path(folder / "db") + "/log");
      for (std::size_t at = 0; at < log.size(); at += 512) log[at] ^= 1;
      memlith::test::write_file(store_path(folder / "db") + "/log", log);
    }
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(with_memlith(), folder / "db", &db);
    EXPECT_TRUE(status.IsCorruption()) << status.ToString();
    const auto given = give_back(folder / "db", Damage::accept);
    ASSERT_TRUE(given.ok()) << given.error().message();
    EXPECT_EQ(count(*open(folder / "db", with_memlith())), 100);
  }
}

// Every moment of giving back: the folder as it is after the renaming of each name.
TEST(RocksdbLife, AnInterruptedGivingBackLosesNothing) {
  const TempFolder folder;
  run_step("write_100", folder);
  const std::uint64_t log = kept_logs(folder / "db").at(0);
  fs::rename(kept_path(folder / "db", log), plain_path(folder / "db", log));  // the journal still has its claims
  fs::resize_file(plain_path(folder / "db", log), 0);
  EXPECT_EQ(count(*open(folder / "db", with_memlith())), 100);
}

TEST(RocksdbLife, ADestroyedDatabaseLeavesNothing) {
  const TempFolder folder;
  run_step("write_100", folder);
  ASSERT_FINE(rocksdb::DestroyDB(folder / "db", with_memlith()));
  EXPECT_FALSE(fs::exists(folder / "db"));
}

TEST(RocksdbLife, ADatabaseIsMovedClosedOrCrashed) {
  const TempFolder folder;
  run_step("write_100", folder);
  fs::rename(folder / "db", folder / "moved");
  EXPECT_EQ(count(*open(folder / "moved", with_memlith())), 100);
}

TEST(RocksdbLife, RepairFindsTheLogs) {
  const TempFolder folder;
  run_step("write_100", folder);
  ASSERT_FINE(rocksdb::RepairDB(folder / "db", with_memlith()));
  EXPECT_EQ(count(*open(folder / "db", plain())), 100);
}

}  // namespace memlith_rocksdb::test
