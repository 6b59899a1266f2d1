// A database with memtables in a region, for tests.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memlith/rocksdb.hpp"

namespace memlith_rocksdb::test {

struct Families {
  rocksdb::Status status;
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;

  Families() = default;
  Families(Families&& other) noexcept
      : status(std::move(other.status)), db(std::exchange(other.db, nullptr)), handles(std::move(other.handles)) {}
  ~Families() { (void)close(); }
  rocksdb::Status close() {
    if (db == nullptr) return {};
    for (auto* each : handles) (void)db->DestroyColumnFamilyHandle(each);
    handles.clear();
    rocksdb::Status closed = db->Close();
    delete std::exchange(db, nullptr);
    return closed;
  }
};

inline std::vector<rocksdb::ColumnFamilyDescriptor> described(const rocksdb::Options& options,
                                                              const std::vector<std::string>& names) {
  std::vector<rocksdb::ColumnFamilyDescriptor> all;
  for (const std::string& name : names) all.emplace_back(name, options);
  return all;
}

inline Families open_memtables(const std::string& path, rocksdb::Options options = {},
                               const std::vector<std::string>& names = {"default", "second"},
                               std::uint64_t bytes_max = 0) {
  Families opened;
  options.create_if_missing = options.create_missing_column_families = true;
  opened.status = memlith::OpenRocksdbWithMemtables(options, path, described(options, names), {.bytes_max = bytes_max},
                                                    &opened.handles, &opened.db);
  return opened;
}

inline Families open_stock(const std::string& path, rocksdb::Options options = {},
                           const std::vector<std::string>& names = {"default", "second"}) {
  Families opened;
  options.create_if_missing = options.create_missing_column_families = true;
  opened.status = rocksdb::DB::Open(options, path, described(options, names), &opened.handles, &opened.db);
  return opened;
}

}  // namespace memlith_rocksdb::test
