// RocksDB's FileSystem over the journal. Floor: rocksdb.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

#include "memlith/memlith.hpp"
#include "memlith/rocksdb.hpp"

namespace memlith_rocksdb {

// Only a log that DBImpl makes to write to goes through the journal: it alone asks OptimizeForLogWrite for its options,
// which puts a mark into them. Logs in backups and checkpoints are copies, and ordinary files.
class FileSystem final : public rocksdb::FileSystemWrapper {
 public:
  FileSystem(const std::shared_ptr<rocksdb::FileSystem>& base, const memlith::RocksdbOptions& options);
  static const char* kClassName() { return "memlith"; }
  const char* Name() const override { return kClassName(); }
  rocksdb::Status PrepareOptions(const rocksdb::ConfigOptions& options) override;

  using Options = rocksdb::IOOptions;
  using Context = rocksdb::IODebugContext;
  using Status = rocksdb::IOStatus;
  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& options,
                                           const rocksdb::DBOptions& of_database) const override;
  Status LockFile(const std::string& path, const Options& options, rocksdb::FileLock** lock, Context* context) override;
  Status GetChildren(const std::string& folder, const Options& options, std::vector<std::string>* names,
                     Context* context) override;
  Status GetChildrenFileAttributes(const std::string& folder, const Options& options,
                                   std::vector<rocksdb::FileAttributes>* attributes, Context* context) override;
  Status NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                         std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) override;
  Status ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                            std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) override;
  Status ReuseWritableFile(const std::string& path, const std::string& old_path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) override;
  Status NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSSequentialFile>* result, Context* context) override;
  Status NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSRandomAccessFile>* result, Context* context) override;
  Status NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                         std::unique_ptr<rocksdb::FSRandomRWFile>* result, Context* context) override;
  Status FileExists(const std::string& path, const Options& options, Context* context) override;
  Status GetFileSize(const std::string& path, const Options& options, uint64_t* bytes, Context* context) override;
  Status GetFileModificationTime(const std::string& path, const Options& options, uint64_t* time,
                                 Context* context) override;
  Status IsDirectory(const std::string& path, const Options& options, bool* is_folder, Context* context) override;
  Status NumFileLinks(const std::string& path, const Options& options, uint64_t* count, Context* context) override;
  Status AreFilesSame(const std::string& first, const std::string& second, const Options& options, bool* same,
                      Context* context) override;
  Status DeleteFile(const std::string& path, const Options& options, Context* context) override;
  Status RenameFile(const std::string& from, const std::string& to, const Options& options, Context* context) override;
  Status LinkFile(const std::string& from, const std::string& to, const Options& options, Context* context) override;
  Status Truncate(const std::string& path, size_t bytes, const Options& options, Context* context) override;

 private:
  memlith::RocksdbOptions options_;
};

rocksdb::IOStatus status_of(const memlith::Error& error);

}  // namespace memlith_rocksdb
