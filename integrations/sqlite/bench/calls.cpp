#include "calls.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <map>
#include <new>
#include <string>

#include "cli/clock.hpp"
#include "memlith/memlith.h"

namespace memlith::sqlite_bench {

namespace {

CallCounts g_counts;

class Timed {
 public:
  explicit Timed(Call call, std::uint64_t calls = 1) : count_(g_counts[static_cast<std::size_t>(call)]) {
    count_.calls += calls;
  }
  ~Timed() { count_.ns += tool::now_ns() - begin_ns_; }
  Timed(const Timed&) = delete;

 private:
  CallCount& count_;
  std::uint64_t begin_ns_ = tool::now_ns();
};

// In front of the real VFS's own file, in the memory that SQLite gives.
struct File {
  sqlite3_file base;
  sqlite3_io_methods methods;
};
constexpr std::size_t kFileBytes = (sizeof(File) + 15) / 16 * 16;

sqlite3_file* real(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<std::byte*>(file) + kFileBytes);
}

// Hands `Method` on to the real file, timed.
template <Call call, auto Method, class... Arguments>
int hand_on(sqlite3_file* file, Arguments... arguments) {
  const Timed timed(call);
  sqlite3_file* const to = real(file);
  return (to->pMethods->*Method)(to, arguments...);
}
template <auto Method, class... Arguments>
auto pass(sqlite3_file* file, Arguments... arguments) {
  sqlite3_file* const to = real(file);
  return (to->pMethods->*Method)(to, arguments...);
}

int close_file(sqlite3_file* file) {
  const Timed timed(Call::name);
  const int code = pass<&sqlite3_io_methods::xClose>(file);
  file->pMethods = nullptr;
  return code;
}

int file_control(sqlite3_file* file, int what, void* argument) {
  if (what != SQLITE_FCNTL_SYNC) return pass<&sqlite3_io_methods::xFileControl>(file, what, argument);
  const Timed timed(Call::durable, 0);
  return pass<&sqlite3_io_methods::xFileControl>(file, what, argument);
}

void barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }

using Methods = sqlite3_io_methods;

// Methods of the real file's version: SQLite must find none here that the real file lacks.
Methods methods_before(const Methods& real) {
  Methods methods{};
  methods.iVersion = real.iVersion < 3 ? real.iVersion : 3;
  methods.xClose = close_file;
  methods.xRead = hand_on<Call::read, &Methods::xRead, void*, int, sqlite3_int64>;
  methods.xWrite = hand_on<Call::write, &Methods::xWrite, const void*, int, sqlite3_int64>;
  methods.xTruncate = hand_on<Call::write, &Methods::xTruncate, sqlite3_int64>;
  methods.xSync = hand_on<Call::durable, &Methods::xSync, int>;
  methods.xFileSize = pass<&Methods::xFileSize, sqlite3_int64*>;
  methods.xLock = hand_on<Call::lock, &Methods::xLock, int>;
  methods.xUnlock = hand_on<Call::lock, &Methods::xUnlock, int>;
  methods.xCheckReservedLock = hand_on<Call::lock, &Methods::xCheckReservedLock, int*>;
  methods.xFileControl = file_control;
  methods.xSectorSize = pass<&Methods::xSectorSize>;
  methods.xDeviceCharacteristics = pass<&Methods::xDeviceCharacteristics>;
  if (real.iVersion >= 2 && real.xShmMap != nullptr) {
    methods.xShmMap = hand_on<Call::lock, &Methods::xShmMap, int, int, int, void volatile**>;
    methods.xShmLock = hand_on<Call::lock, &Methods::xShmLock, int, int, int>;
    methods.xShmBarrier = barrier;
    methods.xShmUnmap = hand_on<Call::lock, &Methods::xShmUnmap, int>;
  }
  if (real.iVersion >= 3 && real.xFetch != nullptr) {
    methods.xFetch = hand_on<Call::read, &Methods::xFetch, sqlite3_int64, int, void**>;
    methods.xUnfetch = pass<&Methods::xUnfetch, sqlite3_int64, void*>;
  }
  return methods;
}

sqlite3_vfs* real(sqlite3_vfs* vfs) { return static_cast<sqlite3_vfs*>(vfs->pAppData); }

template <auto Method, class... Arguments>
auto pass(sqlite3_vfs* vfs, Arguments... arguments) {
  return (real(vfs)->*Method)(real(vfs), arguments...);
}

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  const Timed timed(Call::name);
  auto* const mine = new (file) File{};
  const int code = real(vfs)->xOpen(real(vfs), name, real(file), flags, flags_out);
  if (real(file)->pMethods == nullptr) return code;
  mine->methods = methods_before(*real(file)->pMethods);
  mine->base.pMethods = &mine->methods;
  return code;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  const Timed timed(Call::name);
  return real(vfs)->xDelete(real(vfs), name, sync_folder);
}

int access_file(sqlite3_vfs* vfs, const char* name, int flags, int* result) {
  const Timed timed(Call::name);
  return real(vfs)->xAccess(real(vfs), name, flags, result);
}

sqlite3_vfs vfs_before(sqlite3_vfs& under) {
  sqlite3_vfs vfs{};
  vfs.iVersion = 2;
  vfs.szOsFile = static_cast<int>(kFileBytes) + under.szOsFile;
  vfs.mxPathname = under.mxPathname;
  vfs.pAppData = &under;
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  vfs.xAccess = access_file;
  vfs.xFullPathname = pass<&sqlite3_vfs::xFullPathname, const char*, int, char*>;
  vfs.xRandomness = pass<&sqlite3_vfs::xRandomness, int, char*>;
  vfs.xSleep = pass<&sqlite3_vfs::xSleep, int>;
  vfs.xCurrentTime = pass<&sqlite3_vfs::xCurrentTime, double*>;
  vfs.xGetLastError = pass<&sqlite3_vfs::xGetLastError, int, char*>;
  vfs.xCurrentTimeInt64 = pass<&sqlite3_vfs::xCurrentTimeInt64, sqlite3_int64*>;
  return vfs;  // no extension is loaded through it
}

}  // namespace

std::string_view name_of(Call call) {
  constexpr std::string_view kNames[kCalls] = {"read", "write", "durable", "name", "lock"};
  return kNames[static_cast<std::size_t>(call)];
}

Result<const char*> counted_vfs(const char* vfs) {
  struct Counted {
    std::string name;
    sqlite3_vfs vfs{};
  };
  static std::map<std::string, Counted> registered;  // SQLite keeps pointers to them
  const auto known = registered.find(vfs);
  if (known != registered.end()) return known->second.name.c_str();
  sqlite3_vfs* const under = sqlite3_vfs_find(vfs);
  if (under == nullptr) return tool::tool_failure(MEMLITH_NOT_FOUND, fmt::format("SQLite has no VFS \"{}\"", vfs));
  Counted& counted = registered[vfs];
  counted.name = fmt::format("counted-{}", vfs);
  counted.vfs = vfs_before(*under);
  counted.vfs.zName = counted.name.c_str();
  sqlite3_vfs_register(&counted.vfs, 0);
  return counted.name.c_str();
}

const CallCounts& calls_so_far() { return g_counts; }

}  // namespace memlith::sqlite_bench
