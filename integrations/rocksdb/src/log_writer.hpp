// A log that RocksDB writes: an ordinary file, whose syncs go through the journal. Floor: rocksdb.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <mutex>

#include "journal.hpp"

namespace memlith_rocksdb {

class LogWriter final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  LogWriter(std::unique_ptr<rocksdb::FSWritableFile> file, std::shared_ptr<Journal> journal,
            std::shared_ptr<LogFile> log);
  ~LogWriter() override;

  using Options = rocksdb::IOOptions;
  using Context = rocksdb::IODebugContext;
  using Status = rocksdb::IOStatus;
  Status Append(const rocksdb::Slice& data, const Options& options, Context* context) override;
  Status Append(const rocksdb::Slice& data, const Options& options, const rocksdb::DataVerificationInfo& info,
                Context* context) override;
  Status PositionedAppend(const rocksdb::Slice& data, uint64_t offset, const Options& options,
                          Context* context) override;
  Status PositionedAppend(const rocksdb::Slice& data, uint64_t offset, const Options& options,
                          const rocksdb::DataVerificationInfo& info, Context* context) override;
  Status Truncate(uint64_t bytes, const Options& options, Context* context) override;
  Status Sync(const Options& options, Context* context) override;
  Status Fsync(const Options& options, Context* context) override { return Sync(options, context); }
  bool IsSyncThreadSafe() const override { return true; }
  Status Close(const Options& options, Context* context) override;

 private:
  Status note(const Status& appended, const rocksdb::Slice& data);

  const std::shared_ptr<Journal> journal_;
  const std::shared_ptr<LogFile> log_;
  std::atomic<bool> is_broken_{false};  // an append failed: the file may have a part of it
  bool is_closed_ = false;
};

}  // namespace memlith_rocksdb
