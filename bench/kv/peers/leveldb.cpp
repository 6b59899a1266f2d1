// LevelDB, as it comes but for `sync`.
#include <fmt/format.h>
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include "lsm.hpp"

namespace memlith::tool {

namespace {

struct LeveldbTypes {
  using Db = leveldb::DB;
  using Slice = leveldb::Slice;
  using WriteBatch = leveldb::WriteBatch;
  using WriteOptions = leveldb::WriteOptions;
  using Iterator = leveldb::Iterator;
  static constexpr char kName[] = "leveldb";
};

struct LeveldbCache {
  std::unique_ptr<leveldb::Cache> cache;
};

// The cache outlives the database.
class LeveldbStore final : private LeveldbCache, public LsmStore<LeveldbTypes> {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    leveldb::Options settings;
    settings.create_if_missing = true;
    if (options.cache_bytes != 0) cache.reset(leveldb::NewLRUCache(options.cache_bytes));
    settings.block_cache = cache.get();
    return open_with(settings, options);
  }
};

}  // namespace

KvPeer leveldb_peer() {
  return {"leveldb", fmt::format("{}.{}", leveldb::kMajorVersion, leveldb::kMinorVersion),
          "WriteOptions::sync: the log is written and fdatasync called by each write",
          "WriteOptions::sync off: each write is a write to the log file, which is not flushed", open_as<LeveldbStore>};
}

}  // namespace memlith::tool
