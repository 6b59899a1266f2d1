// RocksDB, as it comes but for `sync`.
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include "kv.hpp"

namespace memlith::tool {

namespace {

MaybeFailure rocksdb_result(const rocksdb::Status& status, std::string_view doing) {
  if (status.ok()) return {};
  return peer_failure("rocksdb", doing, status.ToString());
}

rocksdb::Slice rocksdb_slice(std::string_view text) { return {text.data(), text.size()}; }

class RocksdbSession final : public KvSession {
 public:
  RocksdbSession(rocksdb::DB& db, bool sync) : db_(db) { write_.sync = sync; }

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return rocksdb_result(db_.Put(write_, rocksdb_slice(key), rocksdb_slice(value)), "Put");
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    const rocksdb::Status status = db_.Get({}, rocksdb_slice(key), &value);
    found = status.ok();
    return status.IsNotFound() ? MaybeFailure() : rocksdb_result(status, "Get");
  }
  MaybeFailure remove(std::string_view key) override {
    return rocksdb_result(db_.Delete(write_, rocksdb_slice(key)), "Delete");
  }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    const std::unique_ptr<rocksdb::Iterator> at(db_.NewIterator({}));
    for (at->Seek(rocksdb_slice(from)); at->Valid() && count > 0; at->Next(), --count) {
      visit({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()});
    }
    return rocksdb_result(at->status(), "iterating");
  }

 private:
  rocksdb::DB& db_;
  rocksdb::WriteOptions write_;
};

class RocksdbStore final : public KvStore {
 public:
  RocksdbStore(std::unique_ptr<rocksdb::DB> db, bool sync) : db_(std::move(db)), sync_(sync) {}
  Result<std::unique_ptr<KvSession>> session() override {
    return std::unique_ptr<KvSession>(std::make_unique<RocksdbSession>(*db_, sync_));
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  bool sync_;
};

Result<std::unique_ptr<KvStore>> open_rocksdb(const KvOptions& options) {
  rocksdb::Options settings;
  settings.create_if_missing = true;
  if (options.cache_bytes != 0) {
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
    settings.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  }
  rocksdb::DB* db = nullptr;
  if (MaybeFailure failure = rocksdb_result(rocksdb::DB::Open(settings, options.folder, &db), "Open")) return *failure;
  return std::unique_ptr<KvStore>(std::make_unique<RocksdbStore>(std::unique_ptr<rocksdb::DB>(db),
                                                                 options.durability == KvDurability::sync));
}

}  // namespace

KvPeer rocksdb_peer() {
  return {"rocksdb", fmt::format("{}.{}.{}", ROCKSDB_MAJOR, ROCKSDB_MINOR, ROCKSDB_PATCH),
          "WriteOptions::sync: the log is written and fdatasync called by each write",
          "WriteOptions::sync off: each write is a write to the log file, which is not flushed", open_rocksdb};
}

}  // namespace memlith::tool
