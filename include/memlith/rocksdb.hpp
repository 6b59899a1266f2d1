// memlith: RocksDB, unmodified, whose write-ahead log costs one write and one flush a sync. Guide: docs/rocksdb.md.
//
//   std::shared_ptr<rocksdb::FileSystem> memlith;
//   rocksdb::Status status = memlith::NewRocksdbFileSystem(rocksdb::FileSystem::Default(), {}, &memlith);
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(memlith);  // outlives the database
//   options.env = env.get();
//
// Link memlith_rocksdb.so. A program that cannot be changed, but takes --fs_uri or --env_uri, such as db_bench and ldb,
// gets it by LD_PRELOAD and the URI memlith://.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class FileSystem;
class Status;
struct ColumnFamilyDescriptor;
struct DBOptions;
}  // namespace rocksdb

namespace memlith {

// In an options string by the same names: "id=memlith://;checkpoint_bytes=16777216".
struct RocksdbOptions {
  std::uint64_t entry_bytes_max = 256 << 10;  // a sync of more bytes flushes the log's file itself
  std::uint64_t checkpoint_bytes = 8 << 20;   // of the redo log, before a thread flushes the logs' files behind
  std::uint64_t journal_bytes = 32 << 20;     // room of the journal; at least 4 times checkpoint_bytes is sensible
};

// A file system that keeps the write-ahead logs of each database opened with it durable through a journal in
// DB/memlith, and leaves all other files to `base`. A database that a crash left is recovered when it is opened.
// Errors: NotSupported - `base` is another than RocksDB's own for POSIX; InvalidArgument - an option.
__attribute__((visibility("default"))) rocksdb::Status
NewRocksdbFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base, const RocksdbOptions& options,
                     std::shared_ptr<rocksdb::FileSystem>* result);

// A database over `db`, which it owns, whose writes with `sync` wait outside of RocksDB's write queue: more of them
// share a flush. DURABLE, when a write has returned without an error: it and every write before it, as before. But
// VISIBLE earlier: another thread may read it before it is durable, and a power cut may take back what was read. A
// write whose wait fails stays visible until the database is reopened.
// Null, if `db` was not opened with memlith, or with manual_wal_flush: then `db` is still the caller's.
__attribute__((visibility("default"))) rocksdb::DB* WaitOutsideWriteQueue(rocksdb::DB* db);

struct RocksdbMemtableOptions {
  std::uint64_t bytes_max = 0;  // of all memtables; 0: enough for the memtables that the families' options allow
};

// Opens a database without a log, whose memtables lie in a store in PATH/memlith-memtables and are durable themselves.
// DURABLE, when a write with `sync`, SyncWAL() or FlushWAL(true) has returned without an error: it and every write
// before it. A write without `sync` may be lost by a crash of the process, too. Each batch comes back whole or not at
// all. After a persist that failed, nothing is written any more until the database is reopened.
// The memtable_factory and allow_concurrent_memtable_write of the options are replaced. `handles` are as those of
// DB::Open. What it does not support is refused: docs/rocksdb.md, "Memtables in a region".
// Errors: NotSupported - an option, or a RocksDB without memlith has opened the database after a crash. NoSpace, of a
// write - the memtables are full, and nothing was written. Those of DB::Open.
__attribute__((visibility("default"))) rocksdb::Status
OpenRocksdbWithMemtables(const rocksdb::DBOptions& options, const std::string& path,
                         const std::vector<rocksdb::ColumnFamilyDescriptor>& families,
                         const RocksdbMemtableOptions& own, std::vector<rocksdb::ColumnFamilyHandle*>* handles,
                         rocksdb::DB** db);

}  // namespace memlith
