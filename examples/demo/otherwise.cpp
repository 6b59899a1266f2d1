// Measuring what one would do otherwise. See otherwise.hpp.
#include "otherwise.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include <fmt/core.h>

#include "builder.hpp"
#include "disk_file.hpp"

namespace demo {
namespace {

constexpr std::size_t kTimes = 200;
constexpr std::size_t kTimesMin = 3;
constexpr std::uint64_t kMeasuringNsMax = 2'000'000'000;  // of each of the three

// True if the measurement is to be made once more.
bool goes_on(std::size_t times, std::uint64_t begin_ns) {
  return times < kTimesMin || (times < kTimes && now_ns() - begin_ns < kMeasuringNsMax);
}

// ---- msync --------------------------------------------------------------------------------------------------------

Result<void> measure_msync(const std::string& folder, std::uint64_t file_bytes, std::uint64_t pages,
                           std::vector<std::uint64_t>& nanoseconds) {
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t pages_all = std::max(file_bytes / kPage, std::max<std::uint64_t>(pages, 1));
  const Removal file_goes(folder + "/otherwise.msync");
  const DiskFile file(::open(file_goes.path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return error_of_errno(file_goes.path);
  const std::string zeros(kMiB, '\0');  // written, because a page of a hole would pay for being allocated
  for (std::uint64_t at = 0; at < pages_all * kPage; at += zeros.size()) {
    if (!write_all(file.get(), zeros.data(), std::min<std::uint64_t>(zeros.size(), pages_all * kPage - at), at)) {
      return error_of_errno(file_goes.path);
    }
  }
  if (::fsync(file.get()) != 0) return error_of_errno(file_goes.path);
  void* const memory = ::mmap(nullptr, pages_all * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return error_of_errno(file_goes.path);
  const std::unique_ptr<char, Unmap> mapped(static_cast<char*>(memory), Unmap{pages_all * kPage});

  std::mt19937_64 random(1);
  std::vector<std::uint64_t> order(pages_all);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  const std::uint64_t begin_ns = now_ns();
  while (goes_on(nanoseconds.size(), begin_ns)) {
    for (std::uint64_t i = 0; i < pages; ++i) {  // each page once
      std::swap(order[i], order[i + random() % (pages_all - i)]);
      ++mapped.get()[order[i] * kPage];
    }
    const std::uint64_t from_ns = now_ns();
    if (::msync(memory, pages_all * kPage, MS_SYNC) != 0) return error_of_errno(file_goes.path);
    nanoseconds.push_back(now_ns() - from_ns);
  }
  return {};
}

// ---- a file -------------------------------------------------------------------------------------------------------

void append_number(std::string& to, std::uint64_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string serialised(const MemoryIndex& index) {
  std::string bytes;
  append_number(bytes, index.documents().size());
  for (const auto& document : index.documents()) {
    append_number(bytes, document.path.size());
    bytes += document.path;
    append_number(bytes, document.text_bytes);
    append_number(bytes, document.words);
  }
  append_number(bytes, index.terms().size());
  for (const auto& [word, postings] : index.terms()) {
    append_number(bytes, word.size());
    bytes += word;
    append_number(bytes, postings.size());
    bytes.append(reinterpret_cast<const char*>(postings.data()), postings.size() * sizeof(Posting));
  }
  return bytes;
}

Result<void> measure_file(const std::string& folder, const MemoryIndex& index, Otherwise& otherwise) {
  const Removal old_goes(folder + "/otherwise.index");
  const Removal new_goes(old_goes.path + ".new");
  const DiskFile in_folder(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (in_folder.get() < 0) return error_of_errno(folder);
  const std::uint64_t begin_ns = now_ns();
  while (goes_on(otherwise.file_ns.size(), begin_ns)) {
    const std::uint64_t from_ns = now_ns();
    const std::string bytes = serialised(index);
    const DiskFile file(::open(new_goes.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0 || !write_all(file.get(), bytes.data(), bytes.size(), 0) || ::fsync(file.get()) != 0 ||
        ::rename(new_goes.path.c_str(), old_goes.path.c_str()) != 0 || ::fsync(in_folder.get()) != 0) {
      return error_of_errno(new_goes.path);
    }
    otherwise.file_ns.push_back(now_ns() - from_ns);
    otherwise.file_bytes = bytes.size();
  }
  return {};
}

// ---- SQLite -------------------------------------------------------------------------------------------------------

// A database with one table of postings; the first failure is kept.
class Table {
 public:
  explicit Table(const std::string& path) {
    if (::sqlite3_open(path.c_str(), &database_) != SQLITE_OK) keep();
    run("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
        "CREATE TABLE posting(word TEXT, document INTEGER, count INTEGER, PRIMARY KEY(word, document)) WITHOUT ROWID");
    if (failure_.empty() && ::sqlite3_prepare_v2(database_,
                                                 "INSERT INTO posting VALUES(?1, ?2, ?3) ON CONFLICT(word, document) "
                                                 "DO UPDATE SET count = count + excluded.count",
                                                 -1, &add_, nullptr) != SQLITE_OK) {
      keep();
    }
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    ::sqlite3_finalize(add_);
    ::sqlite3_close(database_);
  }
  void run(const char* statements) {
    if (failure_.empty() && ::sqlite3_exec(database_, statements, nullptr, nullptr, nullptr) != SQLITE_OK) keep();
  }
  void add(std::string_view word, std::uint64_t document, std::uint32_t count) {
    if (!failure_.empty()) return;
    ::sqlite3_bind_text(add_, 1, word.data(), static_cast<int>(word.size()), SQLITE_STATIC);
    ::sqlite3_bind_int64(add_, 2, static_cast<sqlite3_int64>(document));
    ::sqlite3_bind_int64(add_, 3, count);
    if (::sqlite3_step(add_) != SQLITE_DONE) keep();
    ::sqlite3_reset(add_);
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  void keep() { failure_ = std::string("SQLite: ") + ::sqlite3_errmsg(database_); }

  sqlite3* database_ = nullptr;
  sqlite3_stmt* add_ = nullptr;
  std::string failure_;
};

Result<void> measure_sqlite(const std::string& folder, const Corpus& corpus, const MemoryIndex& index,
                            std::uint64_t batch_bytes, Otherwise& otherwise) {
  const Removal database_goes(folder + "/otherwise.db");
  const Removal log_goes(database_goes.path + "-wal");
  const Removal index_of_log_goes(database_goes.path + "-shm");
  Table table(database_goes.path);
  // The first half, not timed and not durable one by one.
  const std::uint64_t half = corpus.files.size() / 2;
  table.run("BEGIN");
  for (const auto& [word, postings] : index.terms()) {
    for (const Posting& posting : postings) {
      if (posting.document >= half) break;
      table.add(word, posting.document, posting.count);
      ++otherwise.sqlite_rows;
    }
  }
  table.run("COMMIT; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA synchronous=FULL");

  // Then the text behind it, a batch a transaction.
  TextReader reader(corpus);
  Position position;
  position.file = half;
  const std::uint64_t begin_ns = now_ns();
  while (position.file < corpus.files.size() && goes_on(otherwise.sqlite_ns.size(), begin_ns)) {
    MemoryIndex batch;
    batch.position = position;
    if (position.offset > 0) batch.begin_document(corpus.files[position.file].path);
    if (auto indexed = index_batch(batch, corpus, reader, batch_bytes); !indexed) return indexed;
    const std::uint64_t from_ns = now_ns();
    table.run("BEGIN");
    for (const auto& [word, postings] : batch.terms()) {
      for (const Posting& posting : postings) table.add(word, position.file + posting.document, posting.count);
    }
    const std::uint64_t commit_ns = now_ns();
    table.run("COMMIT");
    const std::uint64_t end_ns = now_ns();
    otherwise.sqlite_ns.push_back(end_ns - from_ns);
    otherwise.sqlite_commit_ns.push_back(end_ns - commit_ns);
    position = batch.position;
  }
  if (!table.failure().empty()) return error_saying(table.failure());
  return {};
}

}  // namespace

Result<Otherwise> measure_otherwise(const std::string& folder, const Corpus& corpus, const MemoryIndex& index,
                                    std::uint64_t index_bytes, const Commit& commit) {
  Otherwise otherwise;
  if (auto done = measure_msync(folder, index_bytes, commit.pages, otherwise.msync_ns); !done) return done.error();
  if (auto done = measure_file(folder, index, otherwise); !done) return done.error();
  if (auto done = measure_sqlite(folder, corpus, index, std::max<std::uint64_t>(commit.text_bytes, 1), otherwise);
      !done) {
    return done.error();
  }
  return otherwise;
}

}  // namespace demo
