#include "model_disk.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::test::exploration {

// sqlite3_io_methods.
struct Methods {
  static OpenFile& of(sqlite3_file* file) { return *reinterpret_cast<OpenFile*>(file); }
  static Inode& inode(sqlite3_file* file) { return **of(file).inode; }
  static ModelDisk& disk() { return ModelDisk::get(); }
  static void point(const char* what) {
    if (disk().hooks.point) disk().hooks.point(what);
  }
  static bool is_log(const Inode& inode) { return inode.name.ends_with("-wal"); }

  static void forget(Inode& inode, const OpenFile* file) {
    inode.levels.erase(file);
    for (int i = 0; i < kShmLocks; ++i) {
      if (inode.exclusive[static_cast<std::size_t>(i)] == file) inode.exclusive[static_cast<std::size_t>(i)] = nullptr;
      inode.shared[static_cast<std::size_t>(i)].erase(file);
    }
    inode.index_users.erase(file);
  }

  static int close(sqlite3_file* file) {
    if (file->pMethods == nullptr) return SQLITE_OK;
    forget(inode(file), &of(file));
    disk().open_.erase(&of(file));
    delete of(file).inode;
    file->pMethods = nullptr;
    return SQLITE_OK;
  }
  static int read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
    const std::string& from = inode(file).bytes;
    const auto at = std::min(static_cast<std::size_t>(offset), from.size());
    const auto count = std::min(static_cast<std::size_t>(bytes), from.size() - at);
    std::memcpy(target, from.data() + at, count);
    std::memset(static_cast<char*>(target) + count, 0, static_cast<std::size_t>(bytes) - count);
    return count == static_cast<std::size_t>(bytes) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }
  static int write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
    Inode& to = inode(file);
    // Plain SQLite writes a frame's page by itself; one point for a frame is enough.
    if (!is_log(to) || static_cast<std::size_t>(bytes) != kKernelPageBytes)
      point(is_log(to) ? "write to the log" : "write to the database");
    const auto at = static_cast<std::size_t>(offset);
    const auto end = at + static_cast<std::size_t>(bytes);
    if (to.bytes.size() < end) to.bytes.resize(end);
    std::memcpy(to.bytes.data() + at, source, static_cast<std::size_t>(bytes));
    for (std::size_t page = at / kKernelPageBytes; page * kKernelPageBytes < end; ++page) to.dirty.insert(page);
    if (!is_log(to)) ++disk().changes;
    if (!is_log(to) && disk().hooks.wrote) disk().hooks.wrote(to.name);
    if (is_log(to) && disk().hooks.wrote_log) disk().hooks.wrote_log();
    return SQLITE_OK;
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 bytes) {
    Inode& to = inode(file);
    to.bytes.resize(static_cast<std::size_t>(bytes));
    ++disk().changes;
    for (auto each = to.dirty.begin(); each != to.dirty.end();) {
      each = *each * kKernelPageBytes >= to.bytes.size() ? to.dirty.erase(each) : std::next(each);
    }
    return SQLITE_OK;
  }
  // The pages that a flush, and those that began before it, took.
  static void make_durable(Inode& to, int flush) {
    const auto end = to.inside.upper_bound(flush);
    ++disk().changes;
    for (auto each = to.inside.begin(); each != end; each = to.inside.erase(each)) {
      for (const auto& [page, bytes] : each->second) {
        const std::size_t at = page * kKernelPageBytes;
        if (to.durable.size() < at + bytes.size()) to.durable.resize(at + bytes.size());
        to.durable.replace(at, bytes.size(), bytes);
      }
    }
    if (to.durable.size() > to.bytes.size()) to.durable.resize(to.bytes.size());  // the length is flushed, too
  }
  static int sync(sqlite3_file* file, int) {
    Inode& to = inode(file);
    point("flush");
    const int flush = ++to.flushes;
    for (const std::size_t page : to.dirty) {
      to.inside[flush][page] = to.bytes.substr(page * kKernelPageBytes, kKernelPageBytes);
    }
    to.dirty.clear();
    if (disk().hooks.sleep) disk().hooks.sleep(disk().flush_ns);
    if (is_log(to) && disk().hooks.point && disk().log_flushes++ == disk().failing_log_flush) {
      to.inside.erase(to.inside.begin(), to.inside.upper_bound(flush));
      ++to.errors;
      to.error_was_told = false;
    }
    int code = SQLITE_OK;
    if (of(file).errors_told != to.errors) {
      of(file).errors_told = to.errors;
      to.error_was_told = true;
      code = SQLITE_IOERR_FSYNC;
    } else {
      make_durable(to, flush);
      if (disk().hooks.wrote) disk().hooks.wrote(to.name);
    }
    return code;
  }
  static int size(sqlite3_file* file, sqlite3_int64* bytes) {
    *bytes = static_cast<sqlite3_int64>(inode(file).bytes.size());
    return SQLITE_OK;
  }

  static int lock(sqlite3_file* file, int level) {
    Inode& of_file = inode(file);
    int& mine = of_file.levels[&of(file)];
    if (mine >= level) return SQLITE_OK;
    for (const auto& [other, others] : of_file.levels) {
      if (other == &of(file)) continue;
      if (level == SQLITE_LOCK_SHARED && others >= SQLITE_LOCK_PENDING) return SQLITE_BUSY;
      if (level >= SQLITE_LOCK_RESERVED && others >= SQLITE_LOCK_RESERVED) return SQLITE_BUSY;
      if (level == SQLITE_LOCK_EXCLUSIVE && others >= SQLITE_LOCK_SHARED) return SQLITE_BUSY;
    }
    mine = level;
    return SQLITE_OK;
  }
  static int unlock(sqlite3_file* file, int level) {
    int& mine = inode(file).levels[&of(file)];
    mine = std::min(mine, level);
    return SQLITE_OK;
  }
  static int check_reserved(sqlite3_file* file, int* result) {
    *result = 0;
    for (const auto& [other, others] : inode(file).levels) *result |= others >= SQLITE_LOCK_RESERVED ? 1 : 0;
    return SQLITE_OK;
  }
  static int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int sector_size(sqlite3_file*) { return 4096; }
  static int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static int map_index(sqlite3_file* file, int region, int, int extend, void volatile** result) {
    Inode& of_file = inode(file);
    if (of_file.index_users.empty()) of_file.index.clear();
    of_file.index_users.insert(&of(file));
    const auto wanted = static_cast<std::size_t>(region) + 1;
    while (extend != 0 && of_file.index.size() < wanted) {
      of_file.index.push_back(std::make_unique<std::array<unsigned char, 32768>>());
    }
    *result = of_file.index.size() < wanted ? nullptr : of_file.index[wanted - 1]->data();
    return SQLITE_OK;
  }
  static int lock_index(sqlite3_file* file, int first, int count, int flags) {
    point("lock of the index");
    Inode& of_file = inode(file);
    const OpenFile* const me = &of(file);
    bool granted = true;
    for (int i = first; i < first + count; ++i) {
      auto& exclusive = of_file.exclusive[static_cast<std::size_t>(i)];
      auto& shared = of_file.shared[static_cast<std::size_t>(i)];
      if ((flags & SQLITE_SHM_UNLOCK) != 0) {
        if (exclusive == me) exclusive = nullptr;
        shared.erase(me);
        continue;
      }
      const bool others_share = std::any_of(shared.begin(), shared.end(), [&](const auto* each) { return each != me; });
      const bool is_free = exclusive == nullptr || exclusive == me;
      granted = granted && is_free && ((flags & SQLITE_SHM_SHARED) != 0 || !others_share);
    }
    const bool is_write_lock = first == 0 && (flags & SQLITE_SHM_LOCK) != 0;
    if (is_write_lock && disk().hooks.asked_for_write_lock) disk().hooks.asked_for_write_lock(granted);
    if ((flags & SQLITE_SHM_UNLOCK) != 0) return SQLITE_OK;
    if (!granted) return SQLITE_BUSY;
    for (int i = first; i < first + count; ++i) {
      if ((flags & SQLITE_SHM_SHARED) != 0) {
        of_file.shared[static_cast<std::size_t>(i)].insert(me);
      } else {
        of_file.exclusive[static_cast<std::size_t>(i)] = me;
      }
    }
    return SQLITE_OK;
  }
  static void barrier(sqlite3_file*) { point("barrier"); }
  static int unmap_index(sqlite3_file* file, int remove) {
    Inode& of_file = inode(file);
    of_file.index_users.erase(&of(file));
    if (remove != 0 && of_file.index_users.empty()) of_file.index.clear();
    return SQLITE_OK;
  }
  static int fetch(sqlite3_file*, sqlite3_int64, int, void** result) {
    *result = nullptr;
    return SQLITE_OK;
  }
  static int unfetch(sqlite3_file*, sqlite3_int64, void*) { return SQLITE_OK; }

  static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    static const sqlite3_io_methods methods = {
        3,           close,          read,    write,       truncate,        sync,      size,       lock,
        unlock,      check_reserved, control, sector_size, characteristics, map_index, lock_index, barrier,
        unmap_index, fetch,          unfetch};
    const std::string wanted = name != nullptr ? name : "";
    file->pMethods = nullptr;
    if ((flags & SQLITE_OPEN_CREATE) == 0 && !disk().files_.contains(wanted)) return SQLITE_CANTOPEN;
    auto found = wanted.empty() ? std::make_shared<Inode>() : disk().find(wanted);
    of(file).process = disk().hooks.process ? disk().hooks.process() : -1;
    of(file).errors_told = found->error_was_told || found->errors == 0 ? found->errors : found->errors - 1;
    of(file).inode = new std::shared_ptr<Inode>(std::move(found));
    disk().open_.insert(&of(file));
    if (out_flags != nullptr) *out_flags = flags;
    file->pMethods = &methods;
    return SQLITE_OK;
  }
  static int remove(sqlite3_vfs*, const char* name, int) {
    ++disk().changes;
    return disk().files_.erase(name) > 0 ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
  }
  // An empty file counts as missing, as in SQLite's own VFS.
  static int access(sqlite3_vfs*, const char* name, int, int* result) {
    const auto found = disk().files_.find(name);
    *result = found != disk().files_.end() && !found->second->bytes.empty() ? 1 : 0;
    return SQLITE_OK;
  }
  static int full_pathname(sqlite3_vfs*, const char* name, int bytes, char* out) {
    sqlite3_snprintf(bytes, out, "%s", name);
    return SQLITE_OK;
  }
  static int randomness(sqlite3_vfs*, int bytes, char* out) {
    std::memset(out, 7, static_cast<std::size_t>(bytes));
    return bytes;
  }
  static int sleep(sqlite3_vfs*, int microseconds) {
    if (disk().hooks.sleep) disk().hooks.sleep(static_cast<std::uint64_t>(microseconds) * 1000);
    return microseconds;
  }
  static int current_time(sqlite3_vfs*, double* out) {
    *out = 2460000.5;
    return SQLITE_OK;
  }
  static int current_time_int64(sqlite3_vfs*, sqlite3_int64* out) {
    *out = 212544000000000;
    return SQLITE_OK;
  }
};

ModelDisk& ModelDisk::get() {
  static auto* const disk = new ModelDisk;
  return *disk;
}

void ModelDisk::install() {
  if (vfs_.zName != nullptr) return;
  vfs_.iVersion = 2;
  vfs_.szOsFile = sizeof(OpenFile);
  vfs_.mxPathname = 512;
  vfs_.zName = "model";
  vfs_.xOpen = Methods::open;
  vfs_.xDelete = Methods::remove;
  vfs_.xAccess = Methods::access;
  vfs_.xFullPathname = Methods::full_pathname;
  vfs_.xRandomness = Methods::randomness;
  vfs_.xSleep = Methods::sleep;
  vfs_.xCurrentTime = Methods::current_time;
  vfs_.xCurrentTimeInt64 = Methods::current_time_int64;
  sqlite3_vfs_register(&vfs_, 1);
}

std::shared_ptr<Inode> ModelDisk::find(const std::string& name) {
  auto& found = files_[name];
  if (found == nullptr) found = std::make_shared<Inode>();
  found->name = name;
  return found;
}

ModelDisk::Image ModelDisk::image() const {
  Image image;
  for (const auto& [name, inode] : files_) image[name] = inode->bytes;
  return image;
}

void ModelDisk::restore(const Image& image) {
  files_.clear();
  for (const auto& [name, bytes] : image) put(name, bytes);
  log_flushes = 0;
}

void ModelDisk::put(const std::string& name, std::string bytes) {
  files_.erase(name);
  const auto inode = find(name);
  inode->bytes = bytes;
  inode->durable = std::move(bytes);
  ++changes;
}

std::pair<std::string, std::string> ModelDisk::after_cut(const std::string& database, bool database_is_newest) {
  const auto inode = find(database);
  const auto log = files_.find(database + "-wal");
  return {database_is_newest ? inode->bytes : inode->durable, log != files_.end() ? log->second->durable : ""};
}

void ModelDisk::kill(int process) {
  for (auto each = open_.begin(); each != open_.end();) {
    OpenFile* const file = *each;
    if (file->process != process) {
      ++each;
      continue;
    }
    Methods::forget(**file->inode, file);
    each = open_.erase(each);  // its memory stays: no destructor runs in a killed process
  }
}

}  // namespace memlith::test::exploration
