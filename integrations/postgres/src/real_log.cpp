#include "real_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "files.hpp"

namespace memlith_postgres {

namespace {

constexpr const char* kLogName = "pages";
constexpr std::uint64_t kEntryOverhead = 64;  // of an application log, more than enough

class RealHome final : public HomeFile {
 public:
  RealHome(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::uint64_t> blocks() override {
    struct stat status{};
    if (::fstat(file_.get(), &status) != 0) return errno_error("cannot examine " + path_);
    return static_cast<std::uint64_t>(status.st_size) / kPageBytes;
  }
  Result<void> read(std::uint32_t block, std::byte* page) override {
    for (std::size_t done = 0; done < kPageBytes;) {
      const ssize_t bytes = ::pread(file_.get(), page + done, kPageBytes - done, place_of(block, done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return errno_error("cannot read " + path_);
      if (bytes == 0) return Error(MEMLITH_IO, path_ + " is shorter than it was");
      done += static_cast<std::size_t>(bytes);
    }
    return {};
  }
  Result<void> write(std::uint32_t block, const std::byte* page) override {
    for (std::size_t done = 0; done < kPageBytes;) {
      const ssize_t bytes = ::pwrite(file_.get(), page + done, kPageBytes - done, place_of(block, done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return errno_error("cannot write " + path_);
      done += static_cast<std::size_t>(bytes);
    }
    return {};
  }
  Result<void> cut(std::uint32_t blocks) override {
    if (::ftruncate(file_.get(), place_of(blocks, 0)) != 0) return errno_error("cannot cut " + path_);
    return {};
  }
  Result<void> flush() override { return flush_file(file_, path_); }

 private:
  static off_t place_of(std::uint32_t block, std::size_t offset) {
    return static_cast<off_t>(block) * static_cast<off_t>(kPageBytes) + static_cast<off_t>(offset);
  }
  const Descriptor file_;
  const std::string path_;
};

}  // namespace

Result<std::unique_ptr<StoredLog>> StoredLog::open(const std::string& path, std::uint64_t bytes) {
  // Room for all that the application log can hold: what it has consumed need not go home, and checkpoints come when
  // everything is consumed. The size is given, so the log is filled with zeros once, when it is made.
  Result<memlith::Store> store =
      memlith::Store::open(path,
                           {.create = true, .manual_checkpoint = true, .log_bytes = bytes, .log_max_bytes = 2 * bytes});
  if (!store) return store.error();
  Result<memlith::AppLog> log =
      memlith::AppLog::open(*store, kLogName, {.create = true, .when_full = memlith::WhenFull::fail, .size = bytes});
  if (!log) return log.error();
  const Result<memlith_applog_info> info = log->info();
  if (!info) return info.error();
  return std::unique_ptr<StoredLog>(new StoredLog(std::move(*store), std::move(*log), info->size));
}

bool StoredLog::is_empty() const {
  const Result<memlith_applog_info> info = log_.info();
  return info && info->newest == info->consumed;
}

Result<void> StoredLog::close() {
  if (Result<void> closed = log_.close(); !closed) return closed;
  return store_.close();
}

bool StoredLog::has_room(std::uint64_t bytes) const {
  const Result<memlith_applog_info> info = log_.info();
  return info && info->room >= bytes + kEntryOverhead;
}

Result<void> StoredLog::append(std::string_view batch) {
  if (const Result<std::uint64_t> number = log_.append(batch); !number) return number.error();
  return log_.write();
}

Result<std::optional<std::string_view>> StoredLog::next() {
  const Result<std::optional<memlith::LogEntry>> entry = log_.read();
  if (!entry) return entry.error();
  if (!entry->has_value()) return std::optional<std::string_view>();
  read_ = (*entry)->number;
  return std::optional((*entry)->content);
}

Result<void> StoredLog::consume() {
  if (read_ == 0) return {};
  if (Result<void> consumed = log_.consume(read_); !consumed) return consumed;
  if (Result<void> written = log_.write(); !written) return written;
  // One that fails for lack of memory comes when the redo log is full; other failures the next append tells.
  (void)store_.checkpoint();
  return {};
}

Result<std::unique_ptr<HomeFile>> FileHomes::open(const std::string& path) {
  const std::string whole = data_ + "/" + path;
  Result<Descriptor> file = open_file(whole, O_RDWR);
  if (!file && file.error().category() == MEMLITH_NOT_FOUND) return std::unique_ptr<HomeFile>();
  if (!file) return file.error();
  return std::unique_ptr<HomeFile>(std::make_unique<RealHome>(std::move(*file), whole));
}

Result<void> FileHomes::flush_folder_of(const std::string& path) {
  Result<void> flushed = flush_folder(folder_of(data_ + "/" + path));
  if (!flushed && flushed.error().category() == MEMLITH_NOT_FOUND) return {};
  return flushed;
}

}  // namespace memlith_postgres
