// RocksDB memtables whose entries lie in a region. Floor: rocksdb.
#pragma once

#include <rocksdb/memtablerep.h>

#include <memory>

#include "node_store.hpp"

namespace memlith_rocksdb {

// Entries are inserted by one thread at a time.
class RegionMemtables final : public rocksdb::MemTableRepFactory {
 public:
  explicit RegionMemtables(std::shared_ptr<NodeStore> nodes) : nodes_(std::move(nodes)) {}
  static const char* kClassName() { return "MemlithMemtables"; }
  const char* Name() const override { return kClassName(); }
  using Rep = rocksdb::MemTableRep;
  Rep* CreateMemTableRep(const Rep::KeyComparator& order, rocksdb::Allocator* memory,
                         const rocksdb::SliceTransform* prefix, rocksdb::Logger* logger) override {
    return CreateMemTableRep(order, memory, prefix, logger, 0);
  }
  Rep* CreateMemTableRep(const Rep::KeyComparator& order, rocksdb::Allocator* memory,
                         const rocksdb::SliceTransform* prefix, rocksdb::Logger* logger, std::uint32_t family) override;

 private:
  const std::shared_ptr<NodeStore> nodes_;
};

}  // namespace memlith_rocksdb
