#include "journal.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "names.hpp"

namespace memlith_rocksdb {

using memlith_settled::is_refusal;

namespace {

constexpr std::uint64_t kRoomForClaims = 1 << 20;
constexpr const char* kLogName = "rocksdb";

std::string empty_data_entry(std::uint64_t number) { return entry_of({.kind = Kind::data, .number = number}); }

}  // namespace

LogFile::LogFile(std::uint64_t number, File file)
    : number_(number), file_(std::move(file)), hash_(XXH3_createState()), entry_(empty_data_entry(number)) {
  XXH3_64bits_reset(hash_.get());
}

Journal::Journal(std::string folder, const RocksdbOptions& options, FolderLock lock, std::unique_ptr<StoredLog> log)
    : folder_(std::move(folder)),
      options_(options),
      folder_lock_(std::move(lock)),
      stored_(std::move(log)),
      log_(*stored_, options.checkpoint_bytes),
      checkpointer_([this] { log_.settle_behind([this] { return checkpoint(); }); }) {}

Result<std::shared_ptr<Journal>> Journal::open(const std::string& folder, const RocksdbOptions& options) {
  Result<FolderLock> lock = FolderLock::take(folder);
  if (!lock) return lock.error();
  if (::mkdir(memlith_folder(folder).c_str(), 0755) != 0 && errno != EEXIST) {
    return errno_error("cannot make the folder " + memlith_folder(folder));
  }
  // The redo log has room for what comes while a checkpoint flushes the files.
  const std::uint64_t redo_bytes = 2 * (options.checkpoint_bytes + options.entry_bytes_max);
  Result<std::unique_ptr<StoredLog>> log =
      StoredLog::open(store_path(folder),
                      {.name = kLogName, .exclusive = true, .bytes = options.journal_bytes, .redo_bytes = redo_bytes});
  if (!log) return log.error();
  if (Result<void> durable = sync_folder(folder); !durable) return durable.error();
  return std::shared_ptr<Journal>(new Journal(folder, options, std::move(*lock), std::move(*log)));
}

Journal::~Journal() { end_checkpointer(); }

void Journal::end_checkpointer() {
  log_.behind().end();
  if (checkpointer_.joinable()) checkpointer_.join();
}

Result<void> Journal::healthy() {
  if (!log_.behind().failed()) return {};
  return Error(MEMLITH_POISONED,
               "the logs of " + folder_ +
                   " accept nothing any more; reopen the database. What failed first: " + log_.behind().failure());
}

Result<std::shared_ptr<LogFile>> Journal::add(std::uint64_t number) {
  if (Result<void> fine = healthy(); !fine) return fine.error();
  Result<File> file = File::open(kept_path(folder_, number), O_WRONLY);
  if (!file) return file.error();
  // ORDER rocksdb-names-first: a sync of the log flushes no name, so both names are durable before it is written. Also,
  // the link comes before the first byte that only memlith has, or a RocksDB without memlith would open the database
  // without that log. [test RocksdbOrders.NamesAreDurableBeforeALogIsWritten]
  if (Result<void> durable = sync_folder(memlith_folder(folder_)); !durable) return log_.behind().fail(durable.error());
  if (Result<void> durable = sync_folder(folder_); !durable) return log_.behind().fail(durable.error());
  auto log = std::make_shared<LogFile>(number, std::move(*file));
  const std::lock_guard lock(mutex_);
  logs_[number] = log;
  return log;
}

Result<void> Journal::append(LogFile& log, std::string_view bytes) {
  if (Result<void> fine = healthy(); !fine) return fine;
  const std::lock_guard lock(log.mutex_);
  XXH3_64bits_update(log.hash_.get(), bytes.data(), bytes.size());
  log.bytes_ += bytes.size();
  if (!log.is_much_ && log.entry_.size() + bytes.size() > options_.entry_bytes_max) {
    log.is_much_ = true;
    log.entry_.resize(sizeof(Head));
  }
  if (!log.is_much_) log.entry_ += bytes;
  return {};
}

Result<void> Journal::append_claim(LogFile& log) {
  Result<void> appended = log_.append(entry_of({*log.owed_}));
  if (appended) log.owed_.reset();
  return appended;
}

// Once it is flushed, what the journal has and what it lacks are no longer told apart: the next entry must find a claim
// that reaches to its offset, or recovery would see a hole.
Result<void> Journal::flush_file(LogFile& log) {
  const Claim claim = log.claim();
  if (Result<void> flushed = log.file_.sync_data(); !flushed) return log_.behind().fail(flushed.error());
  log.owed_ = claim;
  log.is_much_ = false;
  log.entry_.resize(sizeof(Head));
  Result<void> claimed = append_claim(log);
  return claimed || is_refusal(claimed.error()) ? Result<void>() : claimed;
}

Result<void> Journal::hand_over(LogFile& log) {
  const std::uint64_t content = log.entry_.size() - sizeof(Head);
  if (!log.is_much_ && content == 0) return {};
  if (log.is_much_ || !log_.has_room(log.entry_.size() + kRoomForClaims)) return flush_file(log);
  if (log.owed_ && !append_claim(log)) return flush_file(log);
  const Head head{.kind = Kind::data, .count = 0, .number = log.number_, .offset = log.bytes_ - content};
  std::memcpy(log.entry_.data(), &head, sizeof head);
  if (Result<void> appended = log_.append(log.entry_); !appended) {
    return is_refusal(appended.error()) ? flush_file(log) : appended;
  }
  log.entry_.resize(sizeof(Head));
  return {};
}

Result<void> Journal::write_or_flush(const std::vector<std::shared_ptr<LogFile>>& logs) {
  const Result<void> written = log_.write();
  if (!written && !is_refusal(written.error())) return written;
  if (!written) {
    for (const auto& log : logs) {
      const std::lock_guard lock(log->mutex_);
      if (Result<void> flushed = flush_file(*log); !flushed) return flushed;
    }
  }
  if (log_.wants_settling()) log_.behind().wake();
  return {};
}

Result<void> Journal::sync(const std::shared_ptr<LogFile>& log) {
  if (Result<void> fine = healthy(); !fine) return fine;
  {
    const std::lock_guard lock(log->mutex_);
    if (Result<void> handed = hand_over(*log); !handed) return handed;
  }
  return write_or_flush({log});
}

std::vector<std::shared_ptr<LogFile>> Journal::all_logs() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<LogFile>> logs;
  for (const auto& [number, log] : logs_) logs.push_back(log);
  return logs;
}

Result<void> Journal::sync_all() {
  if (Result<void> fine = healthy(); !fine) return fine;
  const std::vector<std::shared_ptr<LogFile>> logs = all_logs();
  for (const auto& log : logs) {
    const std::lock_guard lock(log->mutex_);
    if (Result<void> handed = hand_over(*log); !handed) return handed;
  }
  return write_or_flush(logs);
}

Result<void> Journal::forget(std::uint64_t number, bool flush) {
  if (Result<void> fine = healthy(); !fine) return fine;
  std::shared_ptr<LogFile> log;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = logs_.find(number); found != logs_.end()) {
      log = found->second;
      logs_.erase(found);
    }
  }
  if (flush && log != nullptr) {
    if (Result<void> flushed = log->file_.sync_data(); !flushed) return log_.behind().fail(flushed.error());
  }
  const std::string entry = entry_of({.kind = Kind::gone, .number = number});
  Result<void> told = log_.append(entry);
  if (!told && told.error().category() == MEMLITH_FULL && checkpoint().ok()) told = log_.append(entry);
  return told ? log_.write() : told;
}

Result<void> Journal::flush(std::uint64_t number) {
  if (Result<void> fine = healthy(); !fine) return fine;
  std::shared_ptr<LogFile> log;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = logs_.find(number); found != logs_.end()) log = found->second;
  }
  if (log == nullptr) return Error(MEMLITH_NOT_FOUND, "no log " + plain_path(folder_, number) + " is open");
  Result<void> flushed = log->file_.sync_data();
  return flushed ? flushed : log_.behind().fail(flushed.error());
}

Result<void> Journal::checkpoint() {
  return log_.settle([this] { return bring_home(); });
}

Result<void> Journal::bring_home() {
  // An entry of before about a log that is not in the list is about one that is gone.
  const std::vector<std::shared_ptr<LogFile>> logs = all_logs();
  std::vector<Claim> claims;
  for (const auto& log : logs) {
    {
      const std::lock_guard each(log->mutex_);
      claims.push_back(log->claim());
    }
    if (Result<void> flushed = log->file_.sync_data(); !flushed) return log_.behind().fail(flushed.error());
  }
  // An entry is given up when the file has its bytes, and the claim tells so.
  Result<void> told = log_.append(entry_of(claims));
  return told ? log_.write() : told;
}

Result<void> Journal::finish() {
  if (Result<void> fine = healthy(); !fine) return fine;
  if (Result<void> done = checkpoint(); !done) return done;
  end_checkpointer();
  if (Result<void> told = log_.append(entry_of({.kind = Kind::released})); !told) return told;
  if (Result<void> written = log_.write(); !written) return written;
  if (Result<void> closed = stored_->close(); !closed) return closed;
  folder_lock_ = FolderLock();
  return {};
}

}  // namespace memlith_rocksdb
