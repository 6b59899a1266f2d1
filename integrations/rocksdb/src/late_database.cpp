// A database whose synced writes wait for the journal outside of RocksDB's write queue. Floor: rocksdb.
#include <memory>
#include <utility>

#include "batch_database.hpp"
#include "file_system.hpp"
#include "memlith/rocksdb.hpp"
#include "registry.hpp"

namespace memlith_rocksdb {

namespace {

// Sound because a log's bytes are appended in the order of RocksDB's sequence numbers, and a journal's entries keep the
// order of a log: what sync_all() makes durable has the write and every earlier one.
class LateDatabase final : public BatchDatabase {
 public:
  LateDatabase(rocksdb::DB* db, std::shared_ptr<Journal> journal) : BatchDatabase(db), journal_(std::move(journal)) {}
  // Before the logs are closed, and given back.
  ~LateDatabase() override { journal_.reset(); }

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
