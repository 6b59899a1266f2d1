// memlith load: a new store of a text that `memlith dump` wrote.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "dump.hpp"
#include "dump_heap.hpp"
#include "dump_text.hpp"
#include "kv.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kTransactionBytes = 1 << 20;  // of records in one transaction
constexpr std::uint64_t kPersistBytes = 16 << 20;     // of a region in one persist

// A folder beside the place of the store, in which a load makes it. The lock of a file in the folder says that the load
// lives: what a load that was killed has left there, the next one removes.
class LoadFolder {
 public:
  static Result<LoadFolder> take(const std::string& target) {
    LoadFolder made(target + ".memlith-load");
    while (!made.lock_.ok()) {
      if (::mkdir(made.path_.c_str(), 0777) != 0 && errno != EEXIST) {
        return errno_failure(errno, "making " + made.path_);
      }
      if (MaybeFailure failure = made.try_lock()) return std::move(*failure);
    }
    // Killed between the two names of publish(): the log has no file, and is nothing.
    struct stat ignored{};
    const auto exists = [&ignored](const std::string& path) { return ::lstat(path.c_str(), &ignored) == 0; };
    if (exists(made.store()) && S_ISREG(ignored.st_mode) && !exists(made.store() + ".memlith") && !exists(target)) {
      (void)::unlink((target + ".memlith").c_str());
    }
    made.remove_store();
    return made;
  }
  LoadFolder(LoadFolder&& other) noexcept : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  LoadFolder& operator=(LoadFolder&&) = delete;
  ~LoadFolder() {
    if (path_.empty() || !lock_.ok()) return;
    remove_store();
    (void)::unlink(lock_path().c_str());
    (void)::rmdir(path_.c_str());
  }
  [[nodiscard]] std::string store() const { return path_ + "/store"; }

 private:
  explicit LoadFolder(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] std::string lock_path() const { return path_ + "/lock"; }
  // Without a lock and without a failure: another load has removed the folder meanwhile.
  [[nodiscard]] MaybeFailure try_lock() {
    Descriptor file(::open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file.ok()) return errno == ENOENT ? MaybeFailure() : errno_failure(errno, "opening " + lock_path());
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return errno_failure(errno, "locking " + lock_path());
      return tool_failure(MEMLITH_BUSY, fmt::format("another load is making a store in {}", path_),
                          "Wait for its end, or load into another path.");
    }
    struct stat locked{};
    struct stat there{};
    const bool same = ::fstat(file.get(), &locked) == 0 && ::stat(lock_path().c_str(), &there) == 0 &&
                      locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
    if (same) lock_ = std::move(file);
    return {};
  }
  void remove_store() const {
    std::error_code ignored;
    std::filesystem::remove_all(store(), ignored);
    std::filesystem::remove(store() + ".memlith", ignored);
  }

  std::string path_;
  Descriptor lock_;
};

// A store in a folder of its own, which gets its place when it is complete. On every way out before that, it is
// removed.
class NewStore {
 public:
  static Result<NewStore> create(const std::string& target, StoreKind kind) {
    Result<LoadFolder> folder = LoadFolder::take(target);
    if (!folder.ok()) return std::move(folder.failure());
    NewStore made(target, kind, std::move(*folder));
    if (struct stat ignored{}; ::lstat((target + ".memlith").c_str(), &ignored) == 0) {
      return exists_failure(target + ".memlith");
    }
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE | MEMLITH_OPEN_EXCLUSIVE;
    Result<StoreHandle> store = open_store({made.folder_.store(), kind, true}, options);
    if (!store.ok()) return std::move(store.failure());
    made.store_ = std::move(*store);
    return made;
  }
  static Failure exists_failure(const std::string& path) {
    return tool_failure(MEMLITH_EXISTS, fmt::format("{} exists already", path),
                        "Load into a new store: name a path at which there is nothing. `memlith copy` brings a store "
                        "to a block device.");
  }
  [[nodiscard]] memlith_store* get() const { return store_.get(); }

  [[nodiscard]] MaybeFailure publish() {
    // ORDER content-before-name: closed and flushed, or a power cut could leave the name without the content.
    if (MaybeFailure failure = close_store(std::move(store_))) return failure;
    const std::filesystem::path parent = std::filesystem::absolute(target_).parent_path();
    const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.ok() || ::fsync(folder.get()) != 0)
      return errno_failure(errno, fmt::format("flushing {}", parent.string()));
    // ORDER log-before-file: a file without its log is refused; a log that was closed, without a file, is nothing.
    if (kind_ == StoreKind::one_file) {
      if (MaybeFailure failure = give_name(".memlith")) return failure;
      if (::fsync(folder.get()) != 0) return errno_failure(errno, fmt::format("flushing {}", parent.string()));
    }
    if (MaybeFailure failure = give_name("")) {
      if (kind_ == StoreKind::one_file) (void)::unlink((target_ + ".memlith").c_str());
      return failure;
    }
    if (::fsync(folder.get()) == 0) return {};
    return errno_failure(errno, fmt::format("{} is complete, but its name may not survive a power cut: flushing {}",
                                            target_, parent.string()));
  }

 private:
  NewStore(std::string target, StoreKind kind, LoadFolder folder)
      : target_(std::move(target)), kind_(kind), folder_(std::move(folder)) {}

  [[nodiscard]] MaybeFailure give_name(const char* suffix) const {
    const std::string from = folder_.store() + suffix;
    const std::string to = target_ + suffix;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
    return errno_failure(errno, fmt::format("cannot give {} its name", to));
  }

  std::string target_;
  StoreKind kind_;
  LoadFolder folder_;
  StoreHandle store_;  // closes before the folder goes
};

class StoreLoader {
 public:
  StoreLoader(DumpReader& reader, const LoadArguments& arguments) : reader_(reader), arguments_(arguments) {}

  [[nodiscard]] MaybeFailure run() {
    if (MaybeFailure failure = reader_.next()) return failure;
    const bool is_dump = reader_.text().starts_with(kDumpFirstWords);
    const std::string_view kind = is_dump ? reader_.text().substr(kDumpFirstWords.size()) : std::string_view();
    one_file_ = kind == name_of(StoreKind::one_file);
    if (!one_file_ && kind != name_of(StoreKind::folder)) {
      return reader_.wrong(fmt::format("\"{}folder\" or \"{}file\" was expected", kDumpFirstWords, kDumpFirstWords));
    }
    Result<NewStore> store = NewStore::create(arguments_.path, one_file_ ? StoreKind::one_file : StoreKind::folder);
    if (!store.ok()) return std::move(store.failure());
    for (;; ++objects_) {
      if (MaybeFailure failure = reader_.next()) return failure;
      if (reader_.text().starts_with("end of dump ")) break;
      if (MaybeFailure failure = load_object(store->get())) return failure;
    }
    if (MaybeFailure failure = reader_.check_end(objects_)) return failure;
    if (interrupted()) return interrupted_failure();
    return store->publish();
  }
  [[nodiscard]] std::uint64_t objects() const { return objects_; }

 private:
  [[nodiscard]] MaybeFailure load_object(memlith_store* store) {
    Result<DumpHead> head = read_head(reader_);
    if (!head.ok()) return std::move(head.failure());
    if (head->kind == "kv") return load_kv(store, *head);
    if (head->kind == "log") return load_log(store, *head);
    if (head->kind == "heap") return load_heap(store, *head);
    if (head->kind == "region") return load_region(store, *head);
    return reader_.wrong(fmt::format("\"{}\" is no kind of object: kv, log, heap or region", printable(head->kind)));
  }
  [[nodiscard]] Failure library(std::int32_t code, std::string_view doing) const {
    return reader_.wrong(library_failure(code, doing));
  }
  // The next line, and false at the end of the object.
  Result<bool> next() {
    if (interrupted()) return interrupted_failure();
    if (MaybeFailure failure = reader_.next()) return std::move(*failure);
    ProgressBar::update(&bar_, reader_.lines().bytes, reader_.lines().total_bytes);
    return reader_.text() != "end";
  }

  [[nodiscard]] MaybeFailure load_kv(memlith_store* store, const DumpHead& head) {
    memlith_kv_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
    options.max_size = head.number("max_size");
    memlith_kv* opened = nullptr;
    std::int32_t code = memlith_kv_open(store, head.name.c_str(), &options, &opened);
    KvHandle kv(opened);
    memlith_kv_txn* begun = nullptr;
    if (code == MEMLITH_OK) code = memlith_kv_begin(kv.get(), 0, &begun);
    TxnHandle txn(begun);
    if (code != MEMLITH_OK) return library(code, "making a kv store");
    memlith_kv_map map = 0;
    bool has_map = false;
    std::uint64_t waiting_bytes = 0;
    const auto commit = [&] {
      const std::int32_t committed = memlith_kv_commit(txn.get(), MEMLITH_COMMIT_WEAK, nullptr);
      waiting_bytes = 0;
      return committed != MEMLITH_OK ? committed : memlith_kv_renew(txn.get());
    };
    for (;;) {
      Result<bool> more = next();
      if (!more.ok()) return std::move(more.failure());
      if (!*more) break;
      if (reader_.text().starts_with("map ")) {
        const auto name = name_in(reader_.text().substr(4));
        if (!name) return reader_.wrong("the name of the map has a backslash that does not begin \\xNN, or a zero");
        code = commit();  // a map is made in a transaction of its own
        if (code == MEMLITH_OK) {
          code = memlith_kv_map_open(kv.get(), name->c_str(), MEMLITH_CREATE | MEMLITH_EXCLUSIVE, &map);
        }
        if (code != MEMLITH_OK) return library(code, "making a map");
        has_map = true;
        continue;
      }
      const auto key = reader_.field();
      if (!has_map || !key) return reader_.wrong("a map, a key behind a blank, or \"end\" was expected");
      more = next();
      if (!more.ok()) return std::move(more.failure());
      const auto value = reader_.field();
      if (!value) return reader_.wrong("a value was expected, behind a blank");
      code = memlith_kv_put(txn.get(), map, key->data(), key->size(), value->data(), value->size());
      waiting_bytes += key->size() + value->size() + 64;
      if (code == MEMLITH_OK && waiting_bytes >= kTransactionBytes) code = commit();
      if (code != MEMLITH_OK) return library(code, "loading a record");
    }
    code = memlith_kv_commit(txn.get(), MEMLITH_COMMIT_SYNC, nullptr);
    txn.reset();
    if (code == MEMLITH_OK) code = memlith_kv_close(kv.release());
    if (code != MEMLITH_OK) return library(code, "making the kv store durable");
    return {};
  }

  [[nodiscard]] MaybeFailure load_log(memlith_store* store, const DumpHead& head) {
    if (head.number("first") >> 63 != 0) return reader_.wrong("a log has no entries with such numbers");
    memlith_applog_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
    options.when_full = MEMLITH_APPLOG_FAIL;
    options.size = head.number("size");
    options.max_size = head.number("max_size");
    memlith_applog* opened = nullptr;
    std::int32_t code = memlith_applog_open(store, head.name.c_str(), &options, &opened);
    LogHandle log(opened);
    if (code == MEMLITH_OK) code = memlith_applog_restart(log.get(), head.number("first"));
    if (code != MEMLITH_OK) return library(code, "making an application log");
    for (std::uint64_t expected = head.number("first");; ++expected) {
      Result<bool> more = next();
      if (!more.ok()) return std::move(more.failure());
      if (!*more) break;
      const std::string begin = fmt::format(" {} ", expected);
      const auto content =
          reader_.text().starts_with(begin) ? unescaped(reader_.text().substr(begin.size())) : std::nullopt;
      if (!content) {
        return reader_
            .wrong(fmt::format("entry {} or \"end\" was expected: a blank, the number, a blank, and the "
                               "bytes",
                               expected));
      }
      const memlith_bytes entry{content->data(), content->size()};
      code = memlith_applog_append(log.get(), &entry, 1, nullptr);
      if (code != MEMLITH_OK) return library(code, "loading an entry");
    }
    code = memlith_applog_write(log.get(), MEMLITH_COMMIT_SYNC, nullptr);
    if (code == MEMLITH_OK) code = memlith_applog_close(log.release());
    if (code != MEMLITH_OK) return library(code, "making the application log durable");
    return {};
  }

  [[nodiscard]] MaybeFailure load_region(memlith_store* store, const DumpHead& head) {
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
    options.tracker = MEMLITH_TRACKER_EXPLICIT;
    options.size = head.number("size");
    options.max_size = head.number("max_size");
    if (!arguments_.anywhere) options.address = head.number("address");
    memlith_region* opened = nullptr;
    std::int32_t code = memlith_region_open(store, head.name.c_str(), &options, &opened);
    RegionHandle region(opened);
    if (memlith_category(code) == MEMLITH_ADDRESS_TAKEN) {
      Failure failure = library(code, "making a region where it was");
      failure.advice = "If it holds no pointers, as arrays of Python do, --anywhere gives it another address.";
      return failure;
    }
    if (code != MEMLITH_OK) return library(code, "making a region");
    auto* const base = static_cast<char*>(memlith_region_address(region.get()));
    const std::uint64_t size = memlith_region_size(region.get());
    std::uint64_t at = 0;
    std::uint64_t waiting_bytes = 0;
    const auto persist = [&] {
      waiting_bytes = 0;
      memlith_region* const one = region.get();
      const std::int32_t persisted = memlith_persist(&one, 1, MEMLITH_SCOPE_PROCESS);
      return persisted != MEMLITH_OK ? persisted : memlith_region_release(one);
    };
    for (;;) {
      Result<bool> more = next();
      if (!more.ok()) return std::move(more.failure());
      if (!*more) break;
      if (reader_.text().starts_with("at ")) {
        const auto place = number_in(reader_.text().substr(3));
        if (!place || *place > size) return reader_.wrong(fmt::format("a place in the {} bytes was expected", size));
        at = *place;
        continue;
      }
      const auto bytes = reader_.text().starts_with(' ') ? bytes_of_base64(reader_.text().substr(1)) : std::nullopt;
      if (!bytes) return reader_.wrong("base64 behind a blank, \"at PLACE\" or \"end\" was expected");
      if (bytes->size() > size - at) {
        return reader_.wrong(fmt::format("{} bytes at {} run over the {} of the region", bytes->size(), at, size));
      }
      if (!bytes->empty()) std::memcpy(base + at, bytes->data(), bytes->size());
      code = memlith_touch(region.get(), base + at, bytes->size());
      at += bytes->size();
      waiting_bytes += bytes->size();
      if (code == MEMLITH_OK && waiting_bytes >= kPersistBytes) code = persist();
      if (code != MEMLITH_OK) return library(code, "loading bytes");
    }
    code = persist();
    if (code == MEMLITH_OK) code = memlith_region_close(region.release());
    if (code != MEMLITH_OK) return library(code, "making the region durable");
    return {};
  }

  [[nodiscard]] MaybeFailure load_heap(memlith_store* store, const DumpHead& head) {
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE | MEMLITH_EXCLUSIVE;
    options.max_size = head.number("max_size");
    memlith_heap* opened = nullptr;
    std::int32_t code = memlith_heap_open(store, head.name.c_str(), &options, &opened);
    HeapHandle heap(opened);
    if (code != MEMLITH_OK) return library(code, "making a heap");
    for (;;) {
      Result<bool> more = next();
      if (!more.ok()) return std::move(more.failure());
      if (!*more) break;
      if (!reader_.text().starts_with(' ')) return reader_.wrong("an object behind a blank, or \"end\" was expected");
      if (MaybeFailure failure = load_named_object(heap.get(), reader_.text().substr(1))) {
        return reader_.wrong(std::move(*failure));
      }
    }
    code = memlith_heap_persist(heap.get());
    if (code == MEMLITH_OK) code = memlith_heap_close(heap.release());
    if (code != MEMLITH_OK) return library(code, "making the heap durable");
    return {};
  }

  DumpReader& reader_;
  const LoadArguments& arguments_;
  bool one_file_ = false;
  std::uint64_t objects_ = 0;
  ProgressBar bar_{"loading"};
};

struct StdioCloser {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

}  // namespace

MaybeFailure run_load(const LoadArguments& arguments) {
  catch_interrupts();
  if (struct stat ignored{}; ::lstat(arguments.path.c_str(), &ignored) == 0) {
    return NewStore::exists_failure(arguments.path);
  }
  std::unique_ptr<std::FILE, StdioCloser> file;
  if (!arguments.file.empty()) {
    file.reset(std::fopen(arguments.file.c_str(), "re"));
    if (file == nullptr) return errno_failure(errno, "opening " + arguments.file);
  }
  DumpReader reader(file != nullptr ? file.get() : stdin);
  StoreLoader loader(reader, arguments);
  if (MaybeFailure failure = loader.run()) return failure;
  if (arguments.format == Format::json) {
    write_json({{"path", arguments.path}, {"objects", loader.objects()}});
  } else {
    write_line(fmt::format("{}: made of {} objects", printable(arguments.path), loader.objects()));
  }
  return {};
}

}  // namespace memlith::tool
