#include "journal.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "names.hpp"

namespace memlith_rocksdb {

namespace {

constexpr std::uint64_t kRoomForClaims = 1 << 20;
constexpr const char* kLogName = "rocksdb";
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(200);

bool lacks_room(const Error& error) {
  return error.category() == MEMLITH_FULL || error.category() == MEMLITH_NO_SPACE ||
         error.category() == MEMLITH_NO_MEMORY;
}

std::string empty_data_entry(std::uint64_t number) { return entry_of({.kind = Kind::data, .number = number}); }

}  // namespace

LogFile::LogFile(std::uint64_t number, File file)
    : number_(number), file_(std::move(file)), hash_(XXH3_createState()), entry_(empty_data_entry(number)) {
  XXH3_64bits_reset(hash_.get());
}

Journal::Journal(std::string folder, const RocksdbOptions& options, FolderLock lock, memlith::Store store,
                 memlith::AppLog log)
    : folder_(std::move(folder)),
      options_(options),
      folder_lock_(std::move(lock)),
      store_(std::move(store)),
      log_(std::move(log)),
      checkpointer_([this] { run_checkpointer(); }) {}

Result<std::shared_ptr<Journal>> Journal::open(const std::string& folder, const RocksdbOptions& options) {
  Result<FolderLock> lock = FolderLock::take(folder);
  if (!lock) return lock.error();
  if (::mkdir(memlith_folder(folder).c_str(), 0755) != 0 && errno != EEXIST) {
    return errno_error("cannot make the folder " + memlith_folder(folder));
  }
  // A redo log that is larger than what the journal can hold gains nothing.
  const memlith::StoreOptions about{.create = true, .exclusive = true, .log_max_bytes = 2 * options.journal_bytes};
  Result<memlith::Store> store = memlith::Store::open(store_path(folder), about);
  if (!store) return store.error();
  Result<memlith::AppLog> log =
      memlith::AppLog::open(*store, kLogName,
                            {.create = true, .when_full = memlith::WhenFull::fail, .size = options.journal_bytes});
  if (!log) return log.error();
  if (Result<void> durable = sync_folder(folder); !durable) return durable.error();
  return std::shared_ptr<Journal>(new Journal(folder, options, std::move(*lock), std::move(*store), std::move(*log)));
}

Journal::~Journal() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (checkpointer_.joinable()) checkpointer_.join();
}

Result<void> Journal::healthy() {
  if (!is_poisoned_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return Error(MEMLITH_POISONED, poison_);
}

Result<void> Journal::poison(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (poison_.empty()) {
    poison_ = "the logs of " + folder_ +
              " accept nothing any more; reopen the database. What failed first: " + error.message();
    is_poisoned_.store(true, std::memory_order_release);
  }
  return error;
}

Result<std::shared_ptr<LogFile>> Journal::add(std::uint64_t number) {
  if (Result<void> fine = healthy(); !fine) return fine.error();
  Result<File> file = File::open(kept_path(folder_, number), O_WRONLY);
  if (!file) return file.error();
  // ORDER rocksdb-names-first: a sync of the log flushes no name, so both names are durable before it is written. Also,
  // the link comes before the first byte that only memlith has, or a RocksDB without memlith would open the database
  // without that log. [test RocksdbOrders.NamesAreDurableBeforeALogIsWritten]
  if (Result<void> durable = sync_folder(memlith_folder(folder_)); !durable) return poison(durable.error()).error();
  if (Result<void> durable = sync_folder(folder_); !durable) return poison(durable.error()).error();
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
  const Result<std::uint64_t> number = log_.append(entry_of({*log.owed_}));
  if (!number) return number.error();
  log.owed_.reset();
  return {};
}

// Once it is flushed, what the journal has and what it lacks are no longer told apart: the next entry must find a claim
// that reaches to its offset, or recovery would see a hole.
Result<void> Journal::flush_file(LogFile& log) {
  const Claim claim = log.claim();
  if (Result<void> flushed = log.file_.sync_data(); !flushed) return poison(flushed.error());
  log.owed_ = claim;
  log.is_much_ = false;
  log.entry_.resize(sizeof(Head));
  const Result<void> claimed = append_claim(log);
  return claimed || lacks_room(claimed.error()) ? Result<void>() : poison(claimed.error());
}

Result<void> Journal::hand_over(LogFile& log) {
  const std::uint64_t content = log.entry_.size() - sizeof(Head);
  if (!log.is_much_ && content == 0) return {};
  if (log.is_much_ || since_checkpoint_.load(std::memory_order_relaxed) + kRoomForClaims > options_.journal_bytes) {
    return flush_file(log);
  }
  if (log.owed_ && !append_claim(log)) return flush_file(log);
  const Head head{.kind = Kind::data, .count = 0, .number = log.number_, .offset = log.bytes_ - content};
  std::memcpy(log.entry_.data(), &head, sizeof head);
  const Result<std::uint64_t> number = log_.append(log.entry_);
  if (!number) return lacks_room(number.error()) ? flush_file(log) : poison(number.error());
  since_checkpoint_.fetch_add(log.entry_.size() + sizeof(Head), std::memory_order_relaxed);
  log.entry_.resize(sizeof(Head));
  return {};
}

Result<void> Journal::write_or_flush(const std::vector<std::shared_ptr<LogFile>>& logs) {
  const Result<void> written = log_.write();
  if (!written && !lacks_room(written.error())) return poison(written.error());
  if (!written) {
    for (const auto& log : logs) {
      const std::lock_guard lock(log->mutex_);
      if (Result<void> flushed = flush_file(*log); !flushed) return flushed;
    }
  }
  if (since_checkpoint_.load(std::memory_order_relaxed) >= options_.checkpoint_bytes) changed_.notify_one();
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
    if (Result<void> flushed = log->file_.sync_data(); !flushed) return poison(flushed.error());
  }
  const std::string entry = entry_of({.kind = Kind::gone, .number = number});
  Result<std::uint64_t> told = log_.append(entry);
  if (!told && told.error().category() == MEMLITH_FULL && checkpoint().ok()) told = log_.append(entry);
  if (!told) return lacks_room(told.error()) ? told.error() : poison(told.error());
  const Result<void> written = log_.write();
  return written || lacks_room(written.error()) ? written : poison(written.error());
}

Result<void> Journal::flush(std::uint64_t number) {
  if (Result<void> fine = healthy(); !fine) return fine;
  std::shared_ptr<LogFile> log;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = logs_.find(number); found != logs_.end()) log = found->second;
  }
  if (log == nullptr) return Error(MEMLITH_NOT_FOUND, "no log " + plain_path(folder_, number) + " is open");
  const Result<void> flushed = log->file_.sync_data();
  return flushed ? flushed : poison(flushed.error());
}

Result<void> Journal::consume(std::uint64_t upto) {
  while (read_ < upto) {
    const Result<std::optional<memlith::LogEntry>> entry = log_.read();
    if (!entry) return entry.error();
    if (!entry->has_value()) return {};
    read_ = (*entry)->number;
  }
  return upto == 0 ? Result<void>() : log_.consume(upto);
}

Result<void> Journal::checkpoint() {
  const std::lock_guard lock(checkpoint_mutex_);
  if (Result<void> fine = healthy(); !fine) return fine;
  const std::uint64_t bytes = since_checkpoint_.load(std::memory_order_relaxed);
  const Result<memlith_applog_info> info = log_.info();
  if (!info) return info.error();
  // An entry up to here about a log that is not in the list is about one that is gone.
  const std::vector<std::shared_ptr<LogFile>> logs = all_logs();
  std::vector<Claim> claims;
  for (const auto& log : logs) {
    {
      const std::lock_guard each(log->mutex_);
      claims.push_back(log->claim());
    }
    if (Result<void> flushed = log->file_.sync_data(); !flushed) return poison(flushed.error());
  }
  const Result<std::uint64_t> number = log_.append(entry_of(claims));
  if (!number) return lacks_room(number.error()) ? number.error() : poison(number.error());
  // An entry is given up when the file has its bytes, and the claim tells so.
  if (const Result<void> written = log_.write(); !written) {
    return lacks_room(written.error()) ? written : poison(written.error());
  }
  if (const Result<void> consumed = consume(info->newest); !consumed) return poison(consumed.error());
  since_checkpoint_.fetch_sub(bytes, std::memory_order_relaxed);
  return {};
}

void Journal::run_checkpointer() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    changed_.wait_for(lock, std::chrono::seconds(1), [this] {
      return stops_ || since_checkpoint_.load(std::memory_order_relaxed) >= options_.checkpoint_bytes;
    });
    if (stops_ || since_checkpoint_.load(std::memory_order_relaxed) < options_.checkpoint_bytes) continue;
    lock.unlock();
    const Result<void> done = checkpoint();
    lock.lock();
    if (!done) changed_.wait_for(lock, kPauseAfterFailure, [this] { return stops_; });
  }
}

Result<void> Journal::finish() {
  if (Result<void> done = checkpoint(); !done) return done;
  const Result<std::uint64_t> number = log_.append(entry_of({.kind = Kind::released}));
  if (!number) return number.error();
  if (Result<void> written = log_.write(); !written) return poison(written.error());
  if (Result<void> closed = log_.close(); !closed) return closed;
  if (Result<void> closed = store_.close(); !closed) return closed;
  folder_lock_ = FolderLock();
  return {};
}

}  // namespace memlith_rocksdb
