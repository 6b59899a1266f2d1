// A database whose synced writes wait for the journal outside of RocksDB's write queue. Floor: rocksdb.
#include <rocksdb/db.h>
#include <rocksdb/utilities/stackable_db.h>

#include <memory>
#include <utility>

#include "file_system.hpp"
#include "memlith/rocksdb.hpp"
#include "registry.hpp"

namespace memlith_rocksdb {

namespace {

// Sound because a log's bytes are appended in the order of RocksDB's sequence numbers, and a journal's entries keep the
// order of a log: what sync_all() makes durable has the write and every earlier one.
class LateDatabase final : public rocksdb::StackableDB {
 public:
  LateDatabase(rocksdb::DB* db, std::shared_ptr<Journal> journal) : StackableDB(db), journal_(std::move(journal)) {}
  // Before the logs are closed, and given back.
  ~LateDatabase() override { journal_.reset(); }

  using Status = rocksdb::Status;
  using Handle = rocksdb::ColumnFamilyHandle*;
  using Options = rocksdb::WriteOptions;
  using Slice = rocksdb::Slice;
  using StackableDB::Delete;
  using StackableDB::DeleteRange;
  using StackableDB::Merge;
  using StackableDB::Put;
  using StackableDB::SingleDelete;
  // DB's own make a batch of it and call Write().
  Status Put(const Options& options, Handle family, const Slice& key, const Slice& value) override {
    return DB::Put(options, family, key, value);
  }
  Status Put(const Options& options, Handle family, const Slice& key, const Slice& timestamp,
             const Slice& value) override {
    return DB::Put(options, family, key, timestamp, value);
  }
  Status PutEntity(const Options& options, Handle family, const Slice& key,
                   const rocksdb::WideColumns& columns) override {
    return DB::PutEntity(options, family, key, columns);
  }
  Status Delete(const Options& options, Handle family, const Slice& key) override {
    return DB::Delete(options, family, key);
  }
  Status Delete(const Options& options, Handle family, const Slice& key, const Slice& timestamp) override {
    return DB::Delete(options, family, key, timestamp);
  }
  Status SingleDelete(const Options& options, Handle family, const Slice& key) override {
    return DB::SingleDelete(options, family, key);
  }
  Status SingleDelete(const Options& options, Handle family, const Slice& key, const Slice& timestamp) override {
    return DB::SingleDelete(options, family, key, timestamp);
  }
  Status DeleteRange(const Options& options, Handle family, const Slice& begin, const Slice& end) override {
    return DB::DeleteRange(options, family, begin, end);
  }
  Status Merge(const Options& options, Handle family, const Slice& key, const Slice& value) override {
    return DB::Merge(options, family, key, value);
  }
  Status Write(const Options& options, rocksdb::WriteBatch* batch) override {
    if (!options.sync || options.disableWAL) return db_->Write(options, batch);
    Options unsynced = options;
    unsynced.sync = false;
    const Status written = db_->Write(unsynced, batch);
    if (!written.ok()) return written;
    const Result<void> durable = journal_->sync_all();
    return durable ? written : Status(status_of(durable.error()));
  }

 private:
  std::shared_ptr<Journal> journal_;
};

}  // namespace

}  // namespace memlith_rocksdb

rocksdb::DB* memlith::WaitOutsideWriteQueue(rocksdb::DB* db) {
  const rocksdb::DBOptions options = db->GetDBOptions();
  const std::string folder = options.wal_dir.empty() ? db->GetName() : options.wal_dir;
  auto journal = memlith_rocksdb::Registry::of_process().find(folder);
  if (journal == nullptr || options.manual_wal_flush) return nullptr;
  return new memlith_rocksdb::LateDatabase(db, std::move(journal));
}
