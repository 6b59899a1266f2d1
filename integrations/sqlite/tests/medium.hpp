// A VFS between mode shared and SQLite's own that knows what is on the medium: the bytes of each file as of its last
// flush that succeeded. A power cut leaves these, or, of a file that the kernel wrote by itself, the newest ones.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "support/temp_folder.hpp"

namespace memlith::test {

class Medium {
 public:
  static Medium& get() {
    static auto* const medium = new Medium;
    return *medium;
  }
  // The default VFS from now on.
  void install() {
    if (vfs_.zName != nullptr) return;
    below_ = sqlite3_vfs_find("unix");
    vfs_ = *below_;
    vfs_.pNext = nullptr;
    vfs_.zName = "medium";
    vfs_.szOsFile += static_cast<int>(sizeof(File));
    vfs_.xOpen = open;
    sqlite3_vfs_register(&vfs_, 1);
  }
  void clear() {
    const std::lock_guard guard(mutex_);
    flushed_.clear();
    during_flush = nullptr;
    before_write = nullptr;
    at_lock = nullptr;
    reads_fail = false;
    flushes_fail = false;
    forgotten_.clear();
    written_.clear();
  }
  // The kernel could not write what was written to this file so far, and will not write it any more; whom it told is
  // gone.
  void forget(const std::string& name) {
    const std::lock_guard guard(mutex_);
    forgotten_[name] = read_file(name);
    written_[name].clear();
  }
  // Makes `to` the database that a power cut now leaves of `from`. `database_is_newest`: the kernel wrote
  // the pages of the database by itself.
  void cut(const std::string& from, const std::string& to, bool database_is_newest) {
    const std::lock_guard guard(mutex_);
    write_file(to, database_is_newest ? read_file(from) : flushed_[from]);
    write_file(to + "-wal", flushed_[from + "-wal"]);
    std::filesystem::remove(to + "-shm");
  }

  std::function<void(const std::string& path)> during_flush;  // what it writes is durable
  std::function<void(const std::string& path)> before_write;
  std::function<int(int first, int flags)> at_lock;  // of the index; a code that is not SQLITE_OK is the answer
  std::atomic<bool> reads_fail{false};               // of the write-ahead log
  std::atomic<bool> flushes_fail{false};

 private:
  struct File {
    sqlite3_file base;
    const char* name;
    sqlite3_io_methods methods;
  };
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  static sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<sqlite3_file*>(&of(file) + 1); }

  template <auto Method, class... Arguments>
  static auto pass(sqlite3_file* file, Arguments... arguments) {
    return (real(file)->pMethods->*Method)(real(file), arguments...);
  }
  static int sync(sqlite3_file* file, int flags) {
    Medium& medium = get();
    const std::string name = of(file).name != nullptr ? of(file).name : "";
    const std::uint64_t number = ++medium.begun_;
    const std::string bytes = name.empty() ? "" : read_file(name);
    if (medium.during_flush) medium.during_flush(name);
    if (medium.flushes_fail && name.ends_with("-wal")) return SQLITE_IOERR_FSYNC;
    const int code = real(file)->pMethods->xSync(real(file), flags);
    const std::lock_guard guard(medium.mutex_);
    // The first of two flushes in flight may end last; what the other one kept includes its bytes.
    if (code == SQLITE_OK && number > medium.kept_[name]) {
      medium.keep(name, bytes);
      medium.kept_[name] = number;
    }
    return code;
  }
  // Pages that the kernel has forgotten are as on the medium, unless they were written again.
  void keep(const std::string& name, std::string bytes) {
    const std::string& forgotten = forgotten_[name];
    const std::string& written = written_[name];
    const std::string& old = flushed_[name];
    for (std::size_t i = 0; i < std::min(bytes.size(), forgotten.size()); ++i) {
      if (i >= written.size() || written[i] == 0) bytes[i] = i < old.size() ? old[i] : '\0';
    }
    flushed_[name] = std::move(bytes);
  }
  static int read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
    const bool fails = get().reads_fail && of(file).name != nullptr && std::string(of(file).name).ends_with("-wal");
    return fails ? SQLITE_IOERR_READ : real(file)->pMethods->xRead(real(file), target, bytes, offset);
  }
  static int lock_index(sqlite3_file* file, int first, int count, int flags) {
    const int code = get().at_lock ? get().at_lock(first, flags) : SQLITE_OK;
    return code != SQLITE_OK ? code : real(file)->pMethods->xShmLock(real(file), first, count, flags);
  }
  static int write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
    Medium& medium = get();
    if (medium.before_write && of(file).name != nullptr) medium.before_write(of(file).name);
    if (of(file).name != nullptr) {
      const std::lock_guard guard(medium.mutex_);
      std::string& written = medium.written_[of(file).name];
      const std::size_t end = static_cast<std::size_t>(offset) + static_cast<std::size_t>(bytes);
      if (medium.forgotten_.contains(of(file).name)) {
        if (written.size() < end) written.resize(end);
        std::fill(written.begin() + offset, written.begin() + static_cast<std::ptrdiff_t>(end), '\1');
      }
    }
    return real(file)->pMethods->xWrite(real(file), source, bytes, offset);
  }
  static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    file->pMethods = nullptr;
    const int code = get().below_->xOpen(get().below_, name, real(file), flags, out_flags);
    if (real(file)->pMethods == nullptr) return code;
    using M = sqlite3_io_methods;
    of(file).name = name;
    of(file).methods = {3,
                        pass<&M::xClose>,
                        read,
                        write,
                        pass<&M::xTruncate, sqlite3_int64>,
                        sync,
                        pass<&M::xFileSize, sqlite3_int64*>,
                        pass<&M::xLock, int>,
                        pass<&M::xUnlock, int>,
                        pass<&M::xCheckReservedLock, int*>,
                        pass<&M::xFileControl, int, void*>,
                        pass<&M::xSectorSize>,
                        pass<&M::xDeviceCharacteristics>,
                        pass<&M::xShmMap, int, int, int, void volatile**>,
                        lock_index,
                        [](sqlite3_file* each) { real(each)->pMethods->xShmBarrier(real(each)); },
                        pass<&M::xShmUnmap, int>,
                        pass<&M::xFetch, sqlite3_int64, int, void**>,
                        pass<&M::xUnfetch, sqlite3_int64, void*>};
    file->pMethods = &of(file).methods;
    return code;
  }

  sqlite3_vfs* below_ = nullptr;
  sqlite3_vfs vfs_{};
  std::mutex mutex_;
  std::map<std::string, std::string> flushed_;
  std::atomic<std::uint64_t> begun_{0};           // flushes
  std::map<std::string, std::uint64_t> kept_;     // the number of the newest flush of which the bytes are in flushed_
  std::map<std::string, std::string> forgotten_;  // the bytes when the kernel forgot them
  std::map<std::string, std::string> written_;    // a byte that is not 0 for each that was written since
};

}  // namespace memlith::test
