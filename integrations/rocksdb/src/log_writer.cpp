#include "log_writer.hpp"

#include <utility>

#include "file_system.hpp"
#include "registry.hpp"

namespace memlith_rocksdb {

LogWriter::LogWriter(std::unique_ptr<rocksdb::FSWritableFile> file, std::shared_ptr<Journal> journal,
                     std::shared_ptr<LogFile> log)
    : FSWritableFileOwnerWrapper(std::move(file)), journal_(std::move(journal)), log_(std::move(log)) {}

LogWriter::~LogWriter() {
  if (!is_closed_) Close(Options(), nullptr).PermitUncheckedError();
}

// Behind a failed append the file and the journal would no longer agree about offsets.
LogWriter::Status LogWriter::note(const Status& appended, const rocksdb::Slice& data) {
  if (!appended.ok()) {
    is_broken_.store(true);
    return appended;
  }
  const Result<void> noted = journal_->append(*log_, {data.data(), data.size()});
  return noted ? appended : status_of(noted.error());
}

LogWriter::Status LogWriter::Append(const rocksdb::Slice& data, const Options& options, Context* context) {
  if (is_broken_.load()) return Status::IOError("an earlier append to this log failed");
  return note(FSWritableFileWrapper::Append(data, options, context), data);
}

LogWriter::Status LogWriter::Append(const rocksdb::Slice& data, const Options& options,
                                    const rocksdb::DataVerificationInfo& info, Context* context) {
  if (is_broken_.load()) return Status::IOError("an earlier append to this log failed");
  return note(FSWritableFileWrapper::Append(data, options, info, context), data);
}

LogWriter::Status LogWriter::PositionedAppend(const rocksdb::Slice&, uint64_t, const Options&, Context*) {
  return Status::NotSupported("PositionedAppend to a log");
}

LogWriter::Status LogWriter::PositionedAppend(const rocksdb::Slice&, uint64_t, const Options&,
                                              const rocksdb::DataVerificationInfo&, Context*) {
  return Status::NotSupported("PositionedAppend to a log");
}

LogWriter::Status LogWriter::Truncate(uint64_t bytes, const Options& options, Context* context) {
  if (bytes == GetFileSize(options, context)) return Status::OK();
  return Status::NotSupported("a log is not truncated while it is written");
}

LogWriter::Status LogWriter::Sync(const Options&, Context*) {
  if (is_broken_.load()) return Status::IOError("an earlier append to this log failed");
  const Result<void> done = journal_->sync(log_);
  return done ? Status::OK() : status_of(done.error());
}

LogWriter::Status LogWriter::Close(const Options& options, Context* context) {
  if (is_closed_) return Status::OK();
  is_closed_ = true;
  const Status closed = FSWritableFileWrapper::Close(options, context);
  const Result<void> ended = Registry::of_process().end_writer(journal_->folder());
  if (!closed.ok() || ended) return closed;
  return status_of(ended.error());
}

}  // namespace memlith_rocksdb
