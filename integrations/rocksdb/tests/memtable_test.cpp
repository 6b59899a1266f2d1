// Memtables in a region (docs/rocksdb.md): the database answers as a stock one; what the last opening left comes back;
// what is not supported is refused.
#include "memtables.hpp"

#include <rocksdb/comparator.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>
#include <functional>
#include <random>

#include "rocksdb/src/node_store.hpp"
#include "words.hpp"

namespace memlith_rocksdb::test {
namespace {

using rocksdb::DB;
using rocksdb::Options;
using rocksdb::Status;
using rocksdb::WriteBatch;

constexpr const char* kNodes = "db/memlith-memtables";

Options small() {
  Options options;
  options.write_buffer_size = 64 << 10;
  return options;
}

// Everything that an iterator finds, forwards and backwards.
std::string dump(DB& db, rocksdb::ColumnFamilyHandle* family, const rocksdb::Snapshot* snapshot = nullptr) {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  const std::unique_ptr<rocksdb::Iterator> at(db.NewIterator(options, family));
  std::string forwards;
  std::string backwards;
  for (at->SeekToFirst(); at->Valid(); at->Next())
    forwards += at->key().ToString() + "=" + at->value().ToString() + ";";
  for (at->SeekToLast(); at->Valid(); at->Prev()) {
    backwards.insert(0, at->key().ToString() + "=" + at->value().ToString() + ";");
  }
  EXPECT_EQ(forwards, backwards);
  return forwards;
}

// Two databases of which each gets the same calls.
class Pair {
 public:
  Pair(const TempFolder& folder, std::uint64_t seed) : folder_(folder), random_(seed) { open(); }
  void open() {
    ours_.reset();
    stock_.reset();
    ours_ = std::make_unique<Families>(open_memtables(folder_ / "ours", small()));
    stock_ = std::make_unique<Families>(open_stock(folder_ / "stock", small()));
    ASSERT_FINE(ours_->status);
    ASSERT_FINE(stock_->status);
  }
  void write() {
    WriteBatch batches[2];
    for (std::uint64_t i = 1 + random_() % 6; i-- > 0;) {
      const std::string key = key_of(static_cast<int>(random_() % 200));
      const std::string value(random_() % (random_() % 20 == 0 ? 20'000 : 100),
                              static_cast<char>('a' + random_() % 26));
      const std::size_t family = random_() % 2;
      const bool deletes = random_() % 4 == 0;
      for (std::size_t which = 0; which < 2; ++which) {
        auto* const handle = side(which).handles[family];
        ASSERT_FINE(deletes ? batches[which].Delete(handle, key) : batches[which].Put(handle, key, value));
      }
    }
    rocksdb::WriteOptions options;
    options.sync = random_() % 8 == 0;
    for (std::size_t which = 0; which < 2; ++which) ASSERT_FINE(side(which).db->Write(options, &batches[which]));
  }
  void compare() {
    const std::string key = key_of(static_cast<int>(random_() % 200));
    for (std::size_t family = 0; family < 2; ++family) {
      std::string found[2];
      for (std::size_t which = 0; which < 2; ++which) {
        auto& [status, db, handles] = side(which);
        std::string value;
        const Status got = db->Get({}, handles[family], key, &value);
        found[which] = got.ToString() + value;
        const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator({}, handles[family]));
        at->Seek(key);
        found[which] += at->Valid() ? at->key().ToString() : "none";
        at->SeekForPrev(key + "x");
        found[which] += at->Valid() ? at->key().ToString() : "none";
      }
      ASSERT_EQ(found[0], found[1]);
    }
  }
  void compare_all(const rocksdb::Snapshot* ours = nullptr, const rocksdb::Snapshot* stock = nullptr) {
    for (std::size_t family = 0; family < 2; ++family) {
      ASSERT_EQ(dump(*ours_->db, ours_->handles[family], ours), dump(*stock_->db, stock_->handles[family], stock));
    }
  }
  Families& side(std::size_t which) { return which == 0 ? *ours_ : *stock_; }

 private:
  const TempFolder& folder_;
  std::mt19937_64 random_;
  std::unique_ptr<Families> ours_;
  std::unique_ptr<Families> stock_;
};

TEST(RocksdbMemtable, AnswersAsAStockDatabase) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const TempFolder folder;
  Pair pair(folder, seed);
  for (int opening = 0; opening < 3 && !HasFatalFailure(); ++opening) {
    pair.compare_all();
    const rocksdb::Snapshot* snapshots[2] = {};
    for (int i = 0; i < 1500 && !HasFatalFailure(); ++i) {
      pair.write();
      if (i % 10 == 0) pair.compare();
      if (i == 500) {
        for (std::size_t which = 0; which < 2; ++which) snapshots[which] = pair.side(which).db->GetSnapshot();
      }
      if (i % 500 == 499) {
        pair.compare_all(snapshots[0], snapshots[1]);
        pair.compare_all();
      }
    }
    for (std::size_t which = 0; which < 2; ++which) pair.side(which).db->ReleaseSnapshot(snapshots[which]);
    if (!HasFatalFailure()) pair.open();
  }
}

// ---- what an opening finds -----------------------------------------------------------------------------------------

const Step synced_and_killed{"memtable-synced", [](const std::string& folder) {
                               auto* opened = new Families(open_memtables(folder + "/db"));
                               ASSERT_FINE(opened->status);
                               auto& [status, db, handles] = *opened;
                               rocksdb::ColumnFamilyHandle* dropped = nullptr;
                               ASSERT_FINE(db->CreateColumnFamily({}, "dropped", &dropped));
                               ASSERT_FINE(db->CreateColumnFamily({}, "third", &handles.emplace_back()));
                               for (int each = 0; each < 300; ++each) {
                                 WriteBatch batch;
                                 for (auto* family : handles) {
                                   ASSERT_FINE(batch.Put(family, key_of(each), value_of(each)));
                                   ASSERT_FINE(batch.Put(family, key_of(each + 1), "overwritten"));
                                   ASSERT_FINE(batch.Delete(family, key_of(each + 1)));
                                 }
                                 ASSERT_FINE(batch.Put(dropped, key_of(each), value_of(each)));
                                 ASSERT_FINE(db->Write({}, &batch));
                                 if (each == 100) ASSERT_FINE(db->Flush({}, handles[1]));
                               }
                               ASSERT_FINE(db->SyncWAL());
                               ASSERT_FINE(db->DropColumnFamily(dropped));
                             }};

int count_in(Families& opened, std::size_t family) {
  int found = 0;
  const std::unique_ptr<rocksdb::Iterator> at(opened.db->NewIterator({}, opened.handles[family]));
  for (at->SeekToFirst(); at->Valid(); at->Next(), ++found) {
    if (at->key() != key_of(found) || at->value() != value_of(found)) return -1;
  }
  return found;
}

TEST(RocksdbMemtable, FamiliesComeBackAfterAKill) {
  const TempFolder folder;
  run_step("memtable-synced", folder);
  const std::vector<std::string> names{"default", "second", "third"};
  for (const bool flushes : {false, true}) {  // at the end
    Options options;
    options.avoid_flush_during_shutdown = !flushes;
    Families opened = open_memtables(folder / "db", options, names);
    ASSERT_FINE(opened.status);
    for (std::size_t family = 0; family < 3; ++family) EXPECT_EQ(count_in(opened, family), 300);
    ASSERT_FINE(opened.close());
  }
  Families stock = open_stock(folder / "db", {}, names);
  ASSERT_FINE(stock.status);
  for (std::size_t family = 0; family < 3; ++family) EXPECT_EQ(count_in(stock, family), 300);
}

// A flush takes one half of an unsynced batch into a file. The other half must not be lost with its memtable.
const Step torn{"memtable-torn", [](const std::string& folder) {
                  auto* opened = new Families(open_memtables(folder + "/db"));
                  ASSERT_FINE(opened->status);
                  WriteBatch batch;
                  for (auto* family : opened->handles) ASSERT_FINE(batch.Put(family, key_of(0), value_of(0)));
                  ASSERT_FINE(opened->db->Write({}, &batch));
                  ASSERT_FINE(opened->db->Flush({}, opened->handles[0]));
                }};

TEST(RocksdbMemtable, AFlushTearsNoBatch) {
  const TempFolder folder;
  run_step("memtable-torn", folder);
  Families opened = open_memtables(folder / "db");
  ASSERT_FINE(opened.status);
  EXPECT_EQ(count_in(opened, 0), 1);
  EXPECT_EQ(count_in(opened, 1), 1);
}

const Step stock_killed{"memtable-stock", [](const std::string& folder) {
                          auto* opened = new Families(open_stock(folder + "/db"));
                          ASSERT_FINE(opened->status);
                          put(*opened->db, 0, 100);
                        }};

TEST(RocksdbMemtable, TakesOverTheLogOfAStockDatabase) {
  const TempFolder folder;
  run_step("memtable-stock", folder);
  Families opened = open_memtables(folder / "db");
  ASSERT_FINE(opened.status);
  EXPECT_EQ(count_in(opened, 0), 100);
}

// A RocksDB without the memtables may have written what is newer than their entries.
TEST(RocksdbMemtable, RefusesADatabaseThatAnotherRocksdbHasOpenedSince) {
  const TempFolder folder;
  run_step("memtable-torn", folder);
  {
    ASSERT_FINE(open_stock(folder / "db").status);
  }
  const Status refused = open_memtables(folder / "db").status;
  EXPECT_TRUE(refused.IsNotSupported()) << refused.ToString();
  EXPECT_NE(refused.ToString().find("Remove that folder"), std::string::npos) << refused.ToString();
  std::filesystem::remove_all(folder / kNodes);
  EXPECT_TRUE(open_memtables(folder / "db").status.ok());
}

TEST(RocksdbMemtable, DamageIsAnError) {
  // The length of the first entry, of its key, and of the first block.
  for (const std::uint64_t offset : {16, 20, 12}) {
    const TempFolder folder;
    run_step("memtable-torn", folder);
    {
      auto store = memlith::Store::open(folder / kNodes);
      ASSERT_TRUE(store) << store.error().message();
      auto region = store->region("memtables", {.tracker = memlith::Tracker::touched});
      ASSERT_TRUE(region) << region.error().message();
      int damaged = 0;
      for (std::uint64_t block = 4096; block < region->size(); block += NodeStore::kBlockBytes) {
        char* const header = static_cast<char*>(region->address()) + block;
        if (*header == 0) continue;
        std::memset(header + offset, 0x7f, 4);
        ASSERT_TRUE(region->touch(header, 64));
        ++damaged;
      }
      EXPECT_GE(damaged, 1);
      ASSERT_TRUE(region->persist());
    }
    const Status status = open_memtables(folder / "db").status;
    EXPECT_TRUE(status.IsCorruption()) << offset << ": " << status.ToString();
  }
}

// ---- room ----------------------------------------------------------------------------------------------------------

TEST(RocksdbMemtable, FullMemtablesAreAnErrorUntilTheyAreGivenBack) {
  const TempFolder folder;
  Options options = small();
  options.write_buffer_size = 1 << 20;
  Families opened = open_memtables(folder / "db", options, {"default"}, 16 << 20);
  ASSERT_FINE(opened.status);
  rocksdb::DB& db = *opened.db;
  const std::string value(100'000, 'v');
  std::vector<std::unique_ptr<rocksdb::Iterator>> readers;  // of memtables that were flushed
  Status status;
  for (int each = 0; each < 400 && status.ok(); ++each) {
    status = db.Put({}, key_of(each), value);
    readers.emplace_back(db.NewIterator({}));
  }
  EXPECT_TRUE(status.IsNoSpace()) << status.ToString();
  std::string found;
  ASSERT_FINE(db.Get({}, key_of(0), &found));
  readers.clear();
  ASSERT_FINE(db.Flush({}));
  for (int each = 0; each < 400; ++each) ASSERT_FINE(db.Put({}, key_of(each), value));
}

TEST(RocksdbMemtable, AnEntryFillsABlock) {
  const TempFolder folder;
  Families opened = open_memtables(folder / "db");
  ASSERT_FINE(opened.status);
  const std::string largest(NodeStore::kEntryBytesMax - 200, 'v');
  for (const int each : {0, 1, 2}) ASSERT_FINE(opened.db->Put(synced(), key_of(each), largest));
  EXPECT_TRUE(opened.db->Put({}, key_of(3), std::string(NodeStore::kBlockBytes, 'v')).IsNotSupported());
  std::string found;
  ASSERT_FINE(opened.db->Get({}, key_of(1), &found));
  EXPECT_EQ(found, largest);
}

// ---- backups, and what is refused ----------------------------------------------------------------------------------

TEST(RocksdbMemtable, BackupsHaveTheMemtables) {
  const TempFolder folder;
  Families opened = open_memtables(folder / "db");
  ASSERT_FINE(opened.status);
  put(*opened.db, 0, 100, {});
  rocksdb::Checkpoint* checkpoint = nullptr;
  ASSERT_FINE(rocksdb::Checkpoint::Create(opened.db, &checkpoint));
  ASSERT_FINE(checkpoint->CreateCheckpoint(folder / "checkpoint"));
  delete checkpoint;
  put(*opened.db, 100, 200, {});
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_FINE(rocksdb::BackupEngine::Open(rocksdb::BackupEngineOptions(folder / "backups"), rocksdb::Env::Default(),
                                          &engine));
  ASSERT_FINE(engine->CreateNewBackup(opened.db));
  ASSERT_FINE(engine->RestoreDBFromLatestBackup(folder / "restored", folder / "restored"));
  delete engine;
  Families first = open_stock(folder / "checkpoint");
  Families second = open_stock(folder / "restored");
  ASSERT_FINE(first.status);
  ASSERT_FINE(second.status);
  EXPECT_EQ(count_in(first, 0), 100);
  EXPECT_EQ(count_in(second, 0), 200);
}

class Timed final : public rocksdb::Comparator {
 public:
  Timed() : Comparator(8) {}
  const char* Name() const override { return "timed"; }
  int Compare(const rocksdb::Slice& one, const rocksdb::Slice& other) const override { return one.compare(other); }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

TEST(RocksdbMemtable, OptionsThatAreRefused) {
  static const Timed timed;
  const std::vector<std::function<void(Options&)>> all{
      [](Options& options) { options.unordered_write = true; },
      [](Options& options) { options.two_write_queues = true; },
      [](Options& options) { options.allow_2pc = true; },
      [](Options& options) { options.persist_stats_to_disk = true; },
      [](Options& options) { options.inplace_update_support = true; },
      [](Options& options) { options.experimental_mempurge_threshold = 1; },
      [](Options& options) { options.comparator = &timed; }};
  const TempFolder folder;
  for (const auto& change : all) {
    Options options;
    change(options);
    const Status status = open_memtables(folder / "db", options).status;
    EXPECT_TRUE(status.IsNotSupported()) << status.ToString();
    EXPECT_FALSE(std::filesystem::exists(folder / "db"));
  }
}

TEST(RocksdbMemtable, CallsThatAreRefusedChangeNothing) {
  const TempFolder folder;
  Families opened = open_memtables(folder / "db");
  ASSERT_FINE(opened.status);
  auto& [unused, db, handles] = opened;
  rocksdb::ColumnFamilyHandle* const family = handles[1];
  std::vector<Status> all{db->SingleDelete({}, family, "k"),
                          db->Merge({}, family, "k", "v"),
                          db->DeleteRange({}, family, "a", "b"),
                          db->PutEntity({}, family, "k", {{"column", "v"}}),
                          db->IngestExternalFile(family, {"file"}, {}),
                          db->SetOptions(family, {{"experimental_mempurge_threshold", "1"}}),
                          db->SetDBOptions({{"avoid_flush_during_shutdown", "false"}})};
  WriteBatch batch;
  ASSERT_FINE(batch.Put("k", "v"));
  ASSERT_FINE(batch.Merge("k", "v"));
  all.push_back(db->Write({}, &batch));
  for (std::size_t each = 0; each < all.size(); ++each) {
    EXPECT_TRUE(all[each].IsNotSupported()) << each << ": " << all[each].ToString();
  }
  rocksdb::WriteOptions neither = synced();
  neither.disableWAL = true;
  EXPECT_TRUE(db->Put(neither, "k", "v").IsInvalidArgument());
  rocksdb::ColumnFamilyHandle* dropped = nullptr;
  ASSERT_FINE(db->CreateColumnFamily({}, "dropped", &dropped));
  ASSERT_FINE(db->DropColumnFamily(dropped));
  WriteBatch half;
  ASSERT_FINE(half.Put("k", "v"));
  ASSERT_FINE(half.Put(dropped, "k", "v"));
  EXPECT_TRUE(db->Write({}, &half).IsInvalidArgument());
  ASSERT_FINE(db->DestroyColumnFamilyHandle(dropped));
  EXPECT_EQ(count_in(opened, 0), 0);
  EXPECT_EQ(count_in(opened, 1), 0);
  put(*db, 0, 10);
  EXPECT_EQ(count_in(opened, 0), 10);
}

// As RocksDB encodes a put: the key with sequence number and type, and the value, each behind its length.
void put_entry(NodeStore::List& list, std::uint64_t sequence) {
  const std::uint64_t tag = sequence << 8 | 1;
  std::string entry = "\x09k";
  entry.append(reinterpret_cast<const char*>(&tag), sizeof tag);
  entry += "\x01v";
  char* const place = list.take(static_cast<std::uint32_t>(entry.size()));
  ASSERT_NE(place, nullptr);
  entry.copy(place, entry.size());
  list.add(place);
}

// An opening takes nothing of a batch that was in the memtables in part when they were made durable.
TEST(RocksdbMemtable, EntriesBehindTheNumberOfAPersistAreNotTaken) {
  const TempFolder folder;
  const auto open = [&] { return std::move(*NodeStore::open(folder / "nodes", 4 * NodeStore::kBlockBytes)); };
  {
    const auto nodes = open();
    ASSERT_TRUE(nodes->begin(0));
    NodeStore::List list(*nodes, 0);
    for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) put_entry(list, sequence);
    ASSERT_TRUE(nodes->persist(2, true));
    nodes->stop();
  }
  const auto nodes = open();
  ASSERT_EQ(nodes->left().size(), 2u);
  EXPECT_EQ(nodes->left()[1].sequence, 2u);
}

}  // namespace
}  // namespace memlith_rocksdb::test
