#include "file_system.hpp"

#include <rocksdb/utilities/options_type.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>
#include <utility>

#include "log_writer.hpp"
#include "names.hpp"
#include "registry.hpp"

namespace memlith_rocksdb {

namespace {

constexpr const char* kMark = "memlith.log";

Registry& registry() { return Registry::of_process(); }

bool is_marked(const rocksdb::FileOptions& options) { return options.io_options.property_bag.contains(kMark); }

// Nothing: the path is of no log, or of one that is an ordinary file.
std::optional<LogName> kept_log(const std::string& path) {
  std::optional<LogName> name = log_name_of(path);
  if (name && !is_there(kept_path(name->folder, name->number))) name.reset();
  return name;
}

// Where the bytes are.
std::string bytes_of(const std::string& path) {
  const std::optional<LogName> name = kept_log(path);
  return name ? kept_path(name->folder, name->number) : path;
}

// A process that gives the logs back may rename the file meanwhile.
template <class Call>
rocksdb::IOStatus with_bytes_of(const std::string& path, Call&& call) {
  const std::string at = bytes_of(path);
  const rocksdb::IOStatus status = call(at);
  return status.IsPathNotFound() && at != path && bytes_of(path) != at ? call(path) : status;
}

rocksdb::IOStatus being_written(const std::string& path) {
  return rocksdb::IOStatus::NotSupported(path, "a log that is open with memlith is only appended to");
}

const std::unordered_map<std::string, rocksdb::OptionTypeInfo>& option_types() {
  using rocksdb::OptionType;
  using rocksdb::OptionTypeFlags;
  using rocksdb::OptionTypeInfo;
  using rocksdb::OptionVerificationType;
  static const auto* const types = new std::unordered_map<std::string, OptionTypeInfo>{
      {"entry_bytes_max",
       {offsetof(memlith::RocksdbOptions, entry_bytes_max), OptionType::kUInt64T, OptionVerificationType::kNormal,
        OptionTypeFlags::kNone}},
      {"checkpoint_bytes",
       {offsetof(memlith::RocksdbOptions, checkpoint_bytes), OptionType::kUInt64T, OptionVerificationType::kNormal,
        OptionTypeFlags::kNone}},
      {"journal_bytes",
       {offsetof(memlith::RocksdbOptions, journal_bytes), OptionType::kUInt64T, OptionVerificationType::kNormal,
        OptionTypeFlags::kNone}}};
  return *types;
}

}  // namespace

rocksdb::IOStatus status_of(const memlith::Error& error) {
  using rocksdb::IOStatus;
  switch (error.category()) {
    case MEMLITH_NO_SPACE:
    case MEMLITH_FULL: return IOStatus::NoSpace("memlith", error.message());
    case MEMLITH_CORRUPT:
    case MEMLITH_INCOMPATIBLE: return IOStatus::Corruption("memlith", error.message());
    case MEMLITH_BUSY: return IOStatus::Busy("memlith", error.message());
    default: return IOStatus::IOError("memlith", error.message());
  }
}

FileSystem::FileSystem(const std::shared_ptr<rocksdb::FileSystem>& base, const memlith::RocksdbOptions& options)
    : FileSystemWrapper(base), options_(options) {
  RegisterOptions("MemlithOptions", &options_, &option_types());
}

rocksdb::Status FileSystem::PrepareOptions(const rocksdb::ConfigOptions& options) {
  if (target_ == nullptr) target_ = rocksdb::FileSystem::Default();
  // The bytes of another one's files are not ours to know: an encrypted log would lie in the journal in the clear.
  if (!target_->IsInstanceOf(rocksdb::FileSystem::kDefaultName())) {
    return rocksdb::Status::NotSupported("memlith stands on RocksDB's POSIX file system only, not on", target_->Name());
  }
  constexpr std::uint64_t kLeast = 4096;
  if (options_.entry_bytes_max < kLeast || options_.checkpoint_bytes < kLeast ||
      options_.journal_bytes < 2 * (options_.checkpoint_bytes + options_.entry_bytes_max) + (2 << 20)) {
    return rocksdb::Status::InvalidArgument(
        "memlith: entry_bytes_max and checkpoint_bytes are at least 4096, and journal_bytes twice their sum and 2 MiB");
  }
  return FileSystemWrapper::PrepareOptions(options);
}

rocksdb::FileOptions FileSystem::OptimizeForLogWrite(const rocksdb::FileOptions& options,
                                                     const rocksdb::DBOptions& of_database) const {
  rocksdb::FileOptions marked = target_->OptimizeForLogWrite(options, of_database);
  marked.io_options.property_bag.emplace(kMark, std::string());
  return marked;
}

FileSystem::Status FileSystem::LockFile(const std::string& path, const Options& options, rocksdb::FileLock** lock,
                                        Context* context) {
  const Status locked = target_->LockFile(path, options, lock, context);
  if (!locked.ok()) return locked;
  const Result<void> attended = registry().attend(folder_of(path), Registry::As::writer);
  if (attended) return locked;
  target_->UnlockFile(*lock, options, context).PermitUncheckedError();
  *lock = nullptr;
  return status_of(attended.error());
}

FileSystem::Status FileSystem::GetChildren(const std::string& folder, const Options& options,
                                           std::vector<std::string>* names, Context* context) {
  const Result<void> attended = registry().attend(folder, Registry::As::reader);
  return attended ? target_->GetChildren(folder, options, names, context) : status_of(attended.error());
}

// By GetChildren() and GetFileSize() of this file system.
FileSystem::Status FileSystem::GetChildrenFileAttributes(const std::string& folder, const Options& options,
                                                         std::vector<rocksdb::FileAttributes>* attributes,
                                                         Context* context) {
  return rocksdb::FileSystem::GetChildrenFileAttributes(folder, options, attributes, context);
}

FileSystem::Status FileSystem::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                               std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) {
  const std::optional<LogName> name = log_name_of(path);
  if (!name || !is_marked(options)) {
    return kept_log(path) ? being_written(path) : target_->NewWritableFile(path, options, result, context);
  }
  const Result<std::shared_ptr<Journal>> journal = registry().begin_writer(name->folder, options_);
  if (!journal) return status_of(journal.error());
  const std::string kept = kept_path((*journal)->folder(), name->number);
  const std::string plain = plain_path((*journal)->folder(), name->number);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  Status status = target_->NewWritableFile(kept, options, &file, context);
  if (status.ok() && (::unlink(plain.c_str()) != 0 && errno != ENOENT))
    status = status_of(errno_error("cannot remove " + plain));
  if (status.ok() && ::symlink(kLinkText, plain.c_str()) != 0)
    status = status_of(errno_error("cannot make the link " + plain));
  if (status.ok()) {
    const Result<std::shared_ptr<LogFile>> log = (*journal)->add(name->number);
    if (log) {
      *result = std::make_unique<LogWriter>(std::move(file), *journal, *log);
      return status;
    }
    status = status_of(log.error());
  }
  ::unlink(plain.c_str());
  ::unlink(kept.c_str());
  (void)registry().end_writer((*journal)->folder());  // what failed before matters more
  return status;
}

// RocksDB reopens a log only to cut its end off while it recovers, when it is an ordinary file.
FileSystem::Status FileSystem::ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                                  std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) {
  return kept_log(path) ? being_written(path) : target_->ReopenWritableFile(path, options, result, context);
}

// A log that is recycled costs nothing less here, and its old bytes would have to be told from the new ones.
FileSystem::Status FileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                                 const rocksdb::FileOptions& options,
                                                 std::unique_ptr<rocksdb::FSWritableFile>* result, Context* context) {
  if (!log_name_of(path) || !is_marked(options)) {
    return target_->ReuseWritableFile(path, old_path, options, result, context);
  }
  const Status removed = DeleteFile(old_path, options.io_options, context);
  return removed.ok() ? NewWritableFile(path, options, result, context) : removed;
}

FileSystem::Status FileSystem::NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                                 std::unique_ptr<rocksdb::FSSequentialFile>* result, Context* context) {
  return with_bytes_of(path,
                       [&](const std::string& at) { return target_->NewSequentialFile(at, options, result, context); });
}

FileSystem::Status FileSystem::NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                                                   std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                                   Context* context) {
  return with_bytes_of(path, [&](const std::string& at) {
    return target_->NewRandomAccessFile(at, options, result, context);
  });
}

FileSystem::Status FileSystem::NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                                               std::unique_ptr<rocksdb::FSRandomRWFile>* result, Context* context) {
  return kept_log(path) ? being_written(path) : target_->NewRandomRWFile(path, options, result, context);
}

FileSystem::Status FileSystem::FileExists(const std::string& path, const Options& options, Context* context) {
  return with_bytes_of(path, [&](const std::string& at) { return target_->FileExists(at, options, context); });
}

FileSystem::Status FileSystem::GetFileSize(const std::string& path, const Options& options, uint64_t* bytes,
                                           Context* context) {
  return with_bytes_of(path, [&](const std::string& at) { return target_->GetFileSize(at, options, bytes, context); });
}

FileSystem::Status FileSystem::GetFileModificationTime(const std::string& path, const Options& options, uint64_t* time,
                                                       Context* context) {
  return with_bytes_of(path, [&](const std::string& at) {
    return target_->GetFileModificationTime(at, options, time, context);
  });
}

FileSystem::Status FileSystem::IsDirectory(const std::string& path, const Options& options, bool* is_folder,
                                           Context* context) {
  return with_bytes_of(path,
                       [&](const std::string& at) { return target_->IsDirectory(at, options, is_folder, context); });
}

FileSystem::Status FileSystem::NumFileLinks(const std::string& path, const Options& options, uint64_t* count,
                                            Context* context) {
  return with_bytes_of(path, [&](const std::string& at) { return target_->NumFileLinks(at, options, count, context); });
}

FileSystem::Status FileSystem::AreFilesSame(const std::string& first, const std::string& second, const Options& options,
                                            bool* same, Context* context) {
  return target_->AreFilesSame(bytes_of(first), bytes_of(second), options, same, context);
}

FileSystem::Status FileSystem::DeleteFile(const std::string& path, const Options& options, Context* context) {
  const std::optional<LogName> name = kept_log(path);
  if (!name) return target_->DeleteFile(path, options, context);
  const std::shared_ptr<Journal> journal = registry().find(name->folder);
  if (journal == nullptr) return Status::Busy(path, "another process has this log open with memlith");
  if (const Result<void> forgotten = journal->forget(name->number, false); !forgotten) {
    return status_of(forgotten.error());
  }
  const Status removed = target_->DeleteFile(kept_path(name->folder, name->number), options, context);
  return removed.ok() ? target_->DeleteFile(path, options, context) : removed;
}

FileSystem::Status FileSystem::RenameFile(const std::string& from, const std::string& to, const Options& options,
                                          Context* context) {
  const std::optional<LogName> name = kept_log(from);
  if (!name) return target_->RenameFile(from, to, options, context);
  const std::shared_ptr<Journal> journal = registry().find(name->folder);
  if (journal == nullptr) return Status::Busy(from, "another process has this log open with memlith");
  if (const Result<void> forgotten = journal->forget(name->number, true); !forgotten) {
    return status_of(forgotten.error());
  }
  const Status renamed = target_->RenameFile(kept_path(name->folder, name->number), to, options, context);
  return renamed.ok() ? target_->DeleteFile(from, options, context) : renamed;
}

FileSystem::Status FileSystem::LinkFile(const std::string& from, const std::string& to, const Options& options,
                                        Context* context) {
  const std::optional<LogName> name = kept_log(from);
  if (!name) return target_->LinkFile(from, to, options, context);
  const std::shared_ptr<Journal> journal = registry().find(name->folder);
  if (journal == nullptr) return Status::Busy(from, "another process has this log open with memlith");
  if (const Result<void> flushed = journal->flush(name->number); !flushed) return status_of(flushed.error());
  return target_->LinkFile(kept_path(name->folder, name->number), to, options, context);
}

FileSystem::Status FileSystem::Truncate(const std::string& path, size_t bytes, const Options& options,
                                        Context* context) {
  return kept_log(path) ? being_written(path) : target_->Truncate(path, bytes, options, context);
}

}  // namespace memlith_rocksdb
