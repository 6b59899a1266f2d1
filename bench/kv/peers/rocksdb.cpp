// RocksDB, as it comes but for `sync`.
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include "lsm.hpp"

namespace memlith::tool {

namespace {

struct RocksdbTypes {
  using Db = rocksdb::DB;
  using Slice = rocksdb::Slice;
  using WriteBatch = rocksdb::WriteBatch;
  using WriteOptions = rocksdb::WriteOptions;
  using Iterator = rocksdb::Iterator;
  static constexpr char kName[] = "rocksdb";
};

class RocksdbStore final : public LsmStore<RocksdbTypes> {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    rocksdb::Options settings;
    settings.create_if_missing = true;
    if (options.cache_bytes != 0) {
      rocksdb::BlockBasedTableOptions table;
      table.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
      // Memtables take their memory from the cache.
      settings.write_buffer_manager =
          std::make_shared<rocksdb::WriteBufferManager>(options.cache_bytes / 2, table.block_cache);
      settings.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    }
    return open_with(settings, options);
  }
};

}  // namespace

KvPeer rocksdb_peer() {
  return {"rocksdb", fmt::format("{}.{}.{}", ROCKSDB_MAJOR, ROCKSDB_MINOR, ROCKSDB_PATCH),
          "WriteOptions::sync: the log is written and fdatasync called by each write",
          "WriteOptions::sync off: each write is a write to the log file, which is not flushed", open_as<RocksdbStore>};
}

}  // namespace memlith::tool
