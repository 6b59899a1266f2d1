// Preloaded into db_bench: the call with which it opens a database opens one with memtables in a region.
#include <rocksdb/db.h>

#include <vector>

#include "memlith/rocksdb.hpp"

__attribute__((visibility("default"))) rocksdb::Status rocksdb::DB::Open(const Options& options,
                                                                         const std::string& path, DB** db) {
  std::vector<ColumnFamilyHandle*> handles;
  const Status opened =
      memlith::OpenRocksdbWithMemtables(options, path, {{kDefaultColumnFamilyName, options}}, {}, &handles, db);
  return opened.ok() ? (*db)->DestroyColumnFamilyHandle(handles.front()) : opened;
}
