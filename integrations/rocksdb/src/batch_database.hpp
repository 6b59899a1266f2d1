// A database over another, all of whose writes are batches for Write(). Floor: rocksdb.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/utilities/stackable_db.h>

namespace memlith_rocksdb {

class BatchDatabase : public rocksdb::StackableDB {
 public:
  using StackableDB::StackableDB;
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
};

}  // namespace memlith_rocksdb
