// RocksDB's features around its log work as before.
#include <rocksdb/convenience.h>
#include <rocksdb/env_encryption.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>

#include <filesystem>
#include <thread>

#include "words.hpp"

namespace memlith_rocksdb::test {

namespace fs = std::filesystem;
using rocksdb::Options;

// Opens, writes in two steps with a change of the log between, closes, and opens with and without memlith.
void write_and_reopen(const Options& options, bool unordered = false) {
  const TempFolder folder;
  {
    auto db = open(folder / "db", options);
    ASSERT_NE(db, nullptr);
    put(*db, 0, 50);
    put(*db, 50, 100, {});
    ASSERT_FINE(db->Flush({}));
    put(*db, 100, 150, {});
    ASSERT_FINE(db->FlushWAL(true));
    if (!unordered) put(*db, 150, 200);
  }
  EXPECT_EQ(count(*open(folder / "db", options)), unordered ? 150 : 200);
  Options without = options;
  without.env = rocksdb::Env::Default();
  EXPECT_EQ(count(*open(folder / "db", without)), unordered ? 150 : 200);
}

TEST(RocksdbFeatures, WaysToWrite) {
  Options options = with_memlith();
  options.enable_pipelined_write = true;
  write_and_reopen(options);
  options = with_memlith();
  options.two_write_queues = true;
  write_and_reopen(options);
  options = with_memlith();
  options.unordered_write = true;
  options.allow_concurrent_memtable_write = true;
  write_and_reopen(options, true);
  options = with_memlith();
  options.manual_wal_flush = true;
  write_and_reopen(options);
  options = with_memlith();
  options.use_fsync = true;
  options.wal_bytes_per_sync = 4096;
  options.avoid_flush_during_recovery = true;
  write_and_reopen(options);
  options = with_memlith();
  options.recycle_log_file_num = 2;
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  write_and_reopen(options);
  options = with_memlith();
  options.track_and_verify_wals_in_manifest = true;
  write_and_reopen(options);
  options = with_memlith();
  options.wal_compression = rocksdb::kZSTD;
  write_and_reopen(options);
}

const Step manual{"manual", [](const std::string& folder) {
                    Options options = with_memlith();
                    options.manual_wal_flush = true;
                    auto* db = open(folder + "/db", options).release();
                    put(*db, 0, 100, {});
                    ASSERT_FINE(db->FlushWAL(true));
                    put(*db, 100, 200, {});  // in RocksDB's memory only
                  }};

TEST(RocksdbFeatures, ManualFlushesKeepWhatTheyFlush) {
  const TempFolder folder;
  run_step("manual", folder);
  EXPECT_EQ(count(*open(folder / "db", with_memlith())), 100);
}

TEST(RocksdbFeatures, ColumnFamiliesAndTotalSize) {
  const TempFolder folder;
  Options options = with_memlith();
  options.max_total_wal_size = 64 << 10;
  options.create_missing_column_families = true;
  const std::vector<rocksdb::ColumnFamilyDescriptor> families{{"default", options}, {"second", options}};
  for (int round = 0; round < 3; ++round) {
    rocksdb::DB* db = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    ASSERT_FINE(rocksdb::DB::Open(options, folder / "db", families, &handles, &db));
    ASSERT_FINE(db->Put(synced(), handles[1], "round", std::to_string(round)));
    for (int each = 0; each < 200; ++each) {
      ASSERT_FINE(db->Put(each % 10 == 0 ? synced() : rocksdb::WriteOptions(), handles[0], key_of(each),
                          std::string(1000, 'x')));
    }
    std::string value;
    ASSERT_FINE(db->Get({}, handles[1], "round", &value));
    EXPECT_EQ(value, std::to_string(round));
    EXPECT_LE(kept_logs(folder / "db").size(), 6U);
    for (auto* handle : handles) ASSERT_FINE(db->DestroyColumnFamilyHandle(handle));
    ASSERT_FINE(db->Close());
    delete db;
  }
}

const Step separate{"separate", [](const std::string& folder) {
                      Options options = with_memlith();
                      options.wal_dir = folder + "/wal";
                      auto* db = open(folder + "/db", options).release();
                      put(*db, 0, 100);
                    }};

TEST(RocksdbFeatures, AFolderOfItsOwnForLogs) {
  const TempFolder folder;
  Options options = with_memlith();
  options.wal_dir = folder / "wal";
  write_and_reopen(with_memlith());
  run_step("separate", folder);
  EXPECT_EQ(kept_logs(folder / "wal").size(), 1U);
  EXPECT_FALSE(fs::exists(memlith_folder(folder / "db")));
  EXPECT_EQ(count(*open(folder / "db", options)), 100);
  EXPECT_FALSE(fs::exists(memlith_folder(folder / "wal")));
}

// Each sequence number from 1 on, from archived logs and the live one.
int updates_of(rocksdb::DB& db) {
  std::unique_ptr<rocksdb::TransactionLogIterator> at;
  if (!db.GetUpdatesSince(1, &at).ok()) return -1;
  int next = 1;
  for (; at->Valid(); at->Next()) {
    const rocksdb::BatchResult batch = at->GetBatch();
    if (batch.sequence != static_cast<std::uint64_t>(next)) return -1;
    next += static_cast<int>(batch.writeBatchPtr->Count());
  }
  return at->status().ok() ? next - 1 : -1;
}

TEST(RocksdbFeatures, ArchivedLogsAndUpdates) {
  const TempFolder folder;
  Options options = with_memlith();
  options.WAL_ttl_seconds = 3600;
  options.WAL_size_limit_MB = 100;
  for (int round = 0; round < 3; ++round) {
    auto db = open(folder / "db", options);
    put(*db, 100 * round, 100 * round + 50);
    ASSERT_FINE(db->Flush({}));
    put(*db, 100 * round + 50, 100 * round + 100, {});
    EXPECT_EQ(updates_of(*db), 100 * round + 100);
    rocksdb::VectorLogPtr logs;
    ASSERT_FINE(db->GetSortedWalFiles(logs));
    ASSERT_FALSE(logs.empty());
    std::uint64_t bytes = 0;
    for (const auto& log : logs) bytes += log->SizeFileBytes();
    EXPECT_GT(bytes, 1000U);
    std::unique_ptr<rocksdb::LogFile> current;
    ASSERT_FINE(db->GetCurrentWalFile(&current));
    EXPECT_GT(current->SizeFileBytes(), 0U);
  }
  EXPECT_FALSE(fs::is_empty(folder / "db/archive"));
  auto db = open(folder / "db", options);
  EXPECT_EQ(count(*db), 300);
}

TEST(RocksdbFeatures, CheckpointsAndBackupsAreOrdinary) {
  const TempFolder folder;
  Options options = with_memlith();
  auto db = open(folder / "db", options);
  put(*db, 0, 100);
  ASSERT_FINE(db->Flush({}));
  put(*db, 100, 150, {});
  rocksdb::Checkpoint* raw = nullptr;
  ASSERT_FINE(rocksdb::Checkpoint::Create(db.get(), &raw));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(raw);
  ASSERT_FINE(checkpoint->CreateCheckpoint(folder / "checkpoint", 1 << 30));
  EXPECT_EQ(count(*open(folder / "checkpoint", plain())), 150);
  put(*db, 150, 200);

  rocksdb::BackupEngine* engine = nullptr;
  rocksdb::BackupEngineOptions where(folder / "backup");
  ASSERT_FINE(rocksdb::BackupEngine::Open(options.env, where, &engine));
  const std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_FINE(backup->CreateNewBackup(db.get()));
  ASSERT_FINE(backup->RestoreDBFromLatestBackup(folder / "restored", folder / "restored"));
  EXPECT_FALSE(fs::exists(memlith_folder(folder / "restored")));
  EXPECT_EQ(count(*open(folder / "restored", plain())), 200);
}

const Step prepare{"prepare", [](const std::string& folder) {
                     rocksdb::TransactionDB* db = nullptr;
                     ASSERT_FINE(rocksdb::TransactionDB::Open(with_memlith(), {}, folder + "/db", &db));
                     auto* transaction = db->BeginTransaction(synced());
                     ASSERT_FINE(transaction->SetName("pending"));
                     ASSERT_FINE(transaction->Put(key_of(0), value_of(0)));
                     ASSERT_FINE(transaction->Prepare());
                     put(*db, 1, 50);
                     ASSERT_FINE(db->Flush({}));
                     put(*db, 50, 100);
                   }};

TEST(RocksdbFeatures, APreparedTransactionSurvives) {
  const TempFolder folder;
  run_step("prepare", folder);
  rocksdb::TransactionDB* raw = nullptr;
  ASSERT_FINE(rocksdb::TransactionDB::Open(with_memlith(), {}, folder / "db", &raw));
  std::unique_ptr<rocksdb::TransactionDB> db(raw);
  std::vector<rocksdb::Transaction*> prepared;
  db->GetAllPreparedTransactions(&prepared);
  ASSERT_EQ(prepared.size(), 1U);
  EXPECT_EQ(prepared[0]->GetName(), "pending");
  ASSERT_FINE(prepared[0]->Commit());
  delete prepared[0];
  EXPECT_EQ(count(*db), 100);
}

void transactions(rocksdb::TxnDBWritePolicy policy) {
  const TempFolder folder;
  rocksdb::TransactionDBOptions about;
  about.write_policy = policy;
  about.default_write_batch_flush_threshold = policy == rocksdb::WRITE_UNPREPARED ? 100 : 0;
  Options options = with_memlith();
  options.two_write_queues = policy != rocksdb::WRITE_COMMITTED;
  for (int round = 0; round < 2; ++round) {
    rocksdb::TransactionDB* raw = nullptr;
    ASSERT_FINE(rocksdb::TransactionDB::Open(options, about, folder / "db", &raw));
    const std::unique_ptr<rocksdb::TransactionDB> db(raw);
    EXPECT_EQ(count(*db), 50 * round);
    const std::unique_ptr<rocksdb::Transaction> kept(db->BeginTransaction(synced()));
    ASSERT_FINE(kept->SetName("kept"));
    for (int each = 0; each < 50; ++each)
      ASSERT_FINE(kept->Put(key_of(50 * round + each), value_of(50 * round + each)));
    ASSERT_FINE(kept->Prepare());
    ASSERT_FINE(kept->Commit());
    const std::unique_ptr<rocksdb::Transaction> dropped(db->BeginTransaction(synced()));
    ASSERT_FINE(dropped->SetName("dropped"));
    for (int each = 0; each < 50; ++each) ASSERT_FINE(dropped->Put("x" + key_of(each), "y"));
    ASSERT_FINE(dropped->Prepare());
    ASSERT_FINE(dropped->Rollback());
    EXPECT_EQ(count(*db), 50 * round + 50);
  }
}

TEST(RocksdbFeatures, TransactionsWritten) {
  transactions(rocksdb::WRITE_COMMITTED);
  transactions(rocksdb::WRITE_PREPARED);
  transactions(rocksdb::WRITE_UNPREPARED);
}

TEST(RocksdbFeatures, OptimisticTransactions) {
  const TempFolder folder;
  rocksdb::OptimisticTransactionDB* raw = nullptr;
  ASSERT_FINE(rocksdb::OptimisticTransactionDB::Open(with_memlith(), folder / "db", &raw));
  const std::unique_ptr<rocksdb::OptimisticTransactionDB> db(raw);
  const std::unique_ptr<rocksdb::Transaction> first(db->BeginTransaction(synced()));
  ASSERT_FINE(first->Put(key_of(0), value_of(0)));
  const std::unique_ptr<rocksdb::Transaction> second(db->BeginTransaction(synced()));
  ASSERT_FINE(second->Put(key_of(0), "other"));
  ASSERT_FINE(first->Commit());
  EXPECT_TRUE(second->Commit().IsBusy());
  EXPECT_EQ(count(*db), 1);
}

const Step look{"look", [](const std::string& folder) {
                  rocksdb::DB* db = nullptr;
                  ASSERT_FINE(rocksdb::DB::OpenForReadOnly(with_memlith(), folder + "/db", &db));
                  EXPECT_EQ(count(*db), 100);
                  rocksdb::Options options = with_memlith();
                  options.max_open_files = -1;
                  ASSERT_FINE(rocksdb::DB::OpenAsSecondary(options, folder + "/db", folder + "/second", &db));
                  EXPECT_EQ(count(*db), 100);
                }};

TEST(RocksdbFeatures, ReadersBesideTheWriter) {
  const TempFolder folder;
  auto db = open(folder / "db", with_memlith());
  put(*db, 0, 50);
  put(*db, 50, 100, {});
  run_step("look", folder);
  rocksdb::DB* raw = nullptr;
  rocksdb::Options options = with_memlith();
  options.max_open_files = -1;
  ASSERT_FINE(rocksdb::DB::OpenAsSecondary(options, folder / "db", folder / "second", &raw));
  const std::unique_ptr<rocksdb::DB> second(raw);
  EXPECT_EQ(count(*second), 100);
  put(*db, 100, 150);
  ASSERT_FINE(second->TryCatchUpWithPrimary());
  EXPECT_EQ(count(*second), 150);
  ASSERT_FINE(db->Flush({}));
  put(*db, 150, 160, {});
  ASSERT_FINE(second->TryCatchUpWithPrimary());
  EXPECT_EQ(count(*second), 160);
}

TEST(RocksdbFeatures, AReaderOfACrashedDatabaseRecovers) {
  const TempFolder folder;
  run_step("write_100", folder);
  rocksdb::DB* raw = nullptr;
  ASSERT_FINE(rocksdb::DB::OpenForReadOnly(with_memlith(), folder / "db", &raw));
  const std::unique_ptr<rocksdb::DB> db(raw);
  EXPECT_EQ(count(*db), 100);
}

const Step late{"late", [](const std::string& folder) {
                  auto* db = memlith::WaitOutsideWriteQueue(open(folder + "/db", with_memlith()).release());
                  ASSERT_NE(db, nullptr);
                  std::vector<std::thread> threads;
                  for (int thread = 0; thread < 4; ++thread) {
                    threads.emplace_back([=] {
                      for (int each = thread; each < 100; each += 4) {
                        ASSERT_FINE(db->Put(synced(), key_of(each), value_of(each)));
                      }
                    });
                  }
                  for (auto& each : threads) each.join();
                }};

TEST(RocksdbFeatures, WaitingOutsideTheQueueKeepsWhatIsAcknowledged) {
  const TempFolder folder;
  run_step("late", folder);
  fs::resize_file(kept_path(folder / "db", kept_logs(folder / "db").at(0)), 0);
  EXPECT_EQ(count(*open(folder / "db", with_memlith())), 100);
}

TEST(RocksdbFeatures, WaitingOutsideTheQueueTakesMemlithsLog) {
  const TempFolder folder;
  auto stock = open(folder / "stock", plain());
  EXPECT_EQ(memlith::WaitOutsideWriteQueue(stock.get()), nullptr);
  Options options = with_memlith();
  options.manual_wal_flush = true;
  auto buffered = open(folder / "manual", options);
  EXPECT_EQ(memlith::WaitOutsideWriteQueue(buffered.get()), nullptr);
  const std::unique_ptr<rocksdb::DB> late_db(memlith::WaitOutsideWriteQueue(open(folder / "db", with_memlith())
                                                                                .release()));
  rocksdb::WriteOptions contrary = synced();
  contrary.disableWAL = true;
  EXPECT_TRUE(late_db->Put(contrary, "a", "b").IsInvalidArgument());
  put(*late_db, 0, 10);
  ASSERT_FINE(late_db->Flush({}));
  put(*late_db, 10, 20);
  EXPECT_EQ(count(*late_db), 20);
}

TEST(RocksdbFeatures, FromAnOptionsString) {
  const rocksdb::ConfigOptions config;
  std::shared_ptr<rocksdb::FileSystem> file_system;
  ASSERT_FINE(rocksdb::FileSystem::CreateFromString(config, "memlith://", &file_system));
  EXPECT_STREQ(file_system->Name(), "memlith");
  ASSERT_FINE(rocksdb::FileSystem::CreateFromString(config, "id=memlith;checkpoint_bytes=65536", &file_system));
  const auto* options = file_system->GetOptions<memlith::RocksdbOptions>("MemlithOptions");
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->checkpoint_bytes, 65536U);
  EXPECT_TRUE(rocksdb::FileSystem::CreateFromString(config, "id=memlith;journal_bytes=5", &file_system)
                  .IsInvalidArgument());
}

TEST(RocksdbFeatures, OtherFileSystemsBelowAreRefused) {
  std::shared_ptr<rocksdb::EncryptionProvider> provider;
  ASSERT_FINE(rocksdb::EncryptionProvider::CreateFromString({}, "CTR://test", &provider));
  std::shared_ptr<rocksdb::FileSystem> encrypted = rocksdb::NewEncryptedFS(rocksdb::FileSystem::Default(), provider);
  std::shared_ptr<rocksdb::FileSystem> file_system;
  EXPECT_TRUE(memlith::NewRocksdbFileSystem(encrypted, {}, &file_system).IsNotSupported());
}

TEST(RocksdbFeatures, ManyDatabasesOfOneProcess) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string path = folder / ("db" + std::to_string(thread));
      for (int round = 0; round < 3; ++round) {
        auto db = open(path, with_memlith());
        EXPECT_EQ(count(*db), 20 * round);
        put(*db, 20 * round, 20 * round + 20);
      }
    });
  }
  for (auto& each : threads) each.join();
}

}  // namespace memlith_rocksdb::test
