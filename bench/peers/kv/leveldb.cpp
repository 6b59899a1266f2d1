// LevelDB, as it comes but for `sync`.
#include <fmt/format.h>
#include <leveldb/cache.h>
#include <leveldb/db.h>

#include "kv.hpp"

namespace memlith::tool {

namespace {

MaybeFailure leveldb_result(const leveldb::Status& status, std::string_view doing) {
  if (status.ok()) return {};
  return peer_failure("leveldb", doing, status.ToString());
}

leveldb::Slice leveldb_slice(std::string_view text) { return {text.data(), text.size()}; }

class LeveldbSession final : public KvSession {
 public:
  LeveldbSession(leveldb::DB& db, bool sync) : db_(db) { write_.sync = sync; }

  MaybeFailure put(std::string_view key, std::string_view value) override {
    return leveldb_result(db_.Put(write_, leveldb_slice(key), leveldb_slice(value)), "Put");
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    const leveldb::Status status = db_.Get({}, leveldb_slice(key), &value);
    found = status.ok();
    return status.IsNotFound() ? MaybeFailure() : leveldb_result(status, "Get");
  }
  MaybeFailure remove(std::string_view key) override {
    return leveldb_result(db_.Delete(write_, leveldb_slice(key)), "Delete");
  }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    const std::unique_ptr<leveldb::Iterator> at(db_.NewIterator({}));
    for (at->Seek(leveldb_slice(from)); at->Valid() && count > 0; at->Next(), --count) {
      visit({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()});
    }
    return leveldb_result(at->status(), "iterating");
  }

 private:
  leveldb::DB& db_;
  leveldb::WriteOptions write_;
};

class LeveldbStore final : public KvStore {
 public:
  LeveldbStore(std::unique_ptr<leveldb::Cache> cache, std::unique_ptr<leveldb::DB> db, bool sync)
      : cache_(std::move(cache)), db_(std::move(db)), sync_(sync) {}
  Result<std::unique_ptr<KvSession>> session() override {
    return std::unique_ptr<KvSession>(std::make_unique<LeveldbSession>(*db_, sync_));
  }

 private:
  std::unique_ptr<leveldb::Cache> cache_;  // outlives the database
  std::unique_ptr<leveldb::DB> db_;
  bool sync_;
};

Result<std::unique_ptr<KvStore>> open_leveldb(const KvOptions& options) {
  leveldb::Options settings;
  settings.create_if_missing = true;
  std::unique_ptr<leveldb::Cache> cache;
  if (options.cache_bytes != 0) cache.reset(leveldb::NewLRUCache(options.cache_bytes));
  settings.block_cache = cache.get();
  leveldb::DB* db = nullptr;
  if (MaybeFailure failure = leveldb_result(leveldb::DB::Open(settings, options.folder, &db), "Open")) return *failure;
  return std::unique_ptr<KvStore>(std::make_unique<LeveldbStore>(std::move(cache), std::unique_ptr<leveldb::DB>(db),
                                                                 options.durability == KvDurability::sync));
}

}  // namespace

KvPeer leveldb_peer() {
  return {"leveldb", fmt::format("{}.{}", leveldb::kMajorVersion, leveldb::kMinorVersion),
          "WriteOptions::sync: the log is written and fdatasync called by each write",
          "WriteOptions::sync off: each write is a write to the log file, which is not flushed", open_leveldb};
}

}  // namespace memlith::tool
