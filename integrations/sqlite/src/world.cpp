#include "world.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/not_for_children.hpp"
#include "store/names.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::fail_errno;
using core::kOk;
using core::Result;
using core::Status;

namespace {

// The places of SQLite's locks: the byte PENDING, the byte RESERVED, and 510 bytes on which readers hold a shared lock.
constexpr off_t kPendingByte = 0x40000000;
constexpr off_t kSharedFirst = kPendingByte + 2;
constexpr off_t kSharedBytes = 510;
// memlith's lock lies behind them, in the page that SQLite never uses.
constexpr off_t kClaimByte = kPendingByte + 576;

// The descriptors of databases, for a child. The list does not change while the process forks.
struct Kept {
  std::mutex mutex;
  std::map<int, std::string> paths;  // by descriptor
};
Kept& kept() {
  static Kept* const instance = [] {
    ::pthread_atfork([] { kept().mutex.lock(); }, [] { kept().mutex.unlock(); }, [] { kept().mutex.unlock(); });
    return new Kept;
  }();
  return *instance;
}

// Locks of the open file description, not of the process: a process's locks on a file are lost when any of its
// descriptors of the file is closed.
class RealLock final : public HostLock {
 public:
  static Result<std::unique_ptr<RealLock>> open(core::Volume& volume, const std::string& name, bool writable) {
    MEMLITH_TRY_ASSIGN(std::shared_ptr<core::OpenFile> file, volume.open_file(name, writable));
    MEMLITH_TRY_ASSIGN(auto device, file->device(name, core::Caching::buffered));
    MEMLITH_TRY_ASSIGN(const core::Mappable content, device->mappable(0, core::kPageBytes));
    return std::make_unique<RealLock>(std::move(file), std::move(device), content.descriptor);
  }
  RealLock(std::shared_ptr<core::OpenFile> file, std::unique_ptr<core::Device> device, int fd)
      : file_(std::move(file)), device_(std::move(device)), fd_(fd) {
    const std::lock_guard lock(kept().mutex);
    kept().paths[fd_] = device_->path();
  }
  // A child that was made without the handlers of fork(2) has the descriptor, too, and would keep the locks.
  ~RealLock() override {
    {
      const std::lock_guard lock(kept().mutex);
      kept().paths.erase(fd_);
    }
    if (::getpid() == process_) (void)set(F_UNLCK, kPendingByte, kClaimByte + 1 - kPendingByte);
  }
  RealLock(const RealLock&) = delete;
  RealLock& operator=(const RealLock&) = delete;

  Status share() override {
    // A writer that waits or works holds PENDING; a reader asks for it in passing, as SQLite's own do.
    MEMLITH_TRY(lock_for_sqlite(F_RDLCK, kPendingByte, 1));
    const Status status = lock_for_sqlite(F_RDLCK, kSharedFirst, kSharedBytes);
    MEMLITH_TRY(lock_for_sqlite(F_UNLCK, kPendingByte, 2));
    return status;
  }
  Status make_exclusive() override { return lock_for_sqlite(F_WRLCK, kPendingByte, 2 + kSharedBytes); }
  [[nodiscard]] std::shared_ptr<core::OpenFile> file() const override { return file_; }
  [[nodiscard]] bool removed() const override {
    const auto removed = device_->removed();
    return removed.ok() && *removed;
  }

  Result<bool> claim(bool shared) override {
    const int error = set(shared ? F_RDLCK : F_WRLCK, kClaimByte, 1);
    if (error == 0) return true;
    if (error == EAGAIN || error == EACCES) return false;
    return fail_errno(error, Detail::lock, "{}: cannot lock it", device_->path());
  }

 private:
  // 0, or errno.
  [[nodiscard]] int set(int type, off_t begin, off_t bytes) const {
    struct flock lock{};
    lock.l_type = static_cast<short>(type);
    lock.l_whence = SEEK_SET;
    lock.l_start = begin;
    lock.l_len = bytes;
    return ::fcntl(fd_, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  }
  Status lock_for_sqlite(int type, off_t begin, off_t bytes) {
    const int error = set(type, begin, bytes);
    if (error == 0) return kOk;
    if (error != EAGAIN && error != EACCES) {
      return fail_errno(error, Detail::lock, "{}: cannot lock it", device_->path());
    }
    struct flock holder{};
    holder.l_type = static_cast<short>(type);
    holder.l_whence = SEEK_SET;
    holder.l_start = begin;
    holder.l_len = bytes;
    const bool told = ::fcntl(fd_, F_OFD_GETLK, &holder) == 0 && holder.l_type != F_UNLCK && holder.l_pid > 0;
    return fail(Errc::busy, Detail::lock, "{}: the database is in use by {}; close it there, or wait", device_->path(),
                told ? fmt::format("process {}, which opened it as plain SQLite does", holder.l_pid)
                     : "another connection that does not share memory with this one");
  }

  std::shared_ptr<core::OpenFile> file_;
  std::unique_ptr<core::Device> device_;
  int fd_;  // the device's
  core::NotForChildren not_for_children_{fd_};
  pid_t process_ = ::getpid();
};

class RealWorld final : public World {
 public:
  Result<Place> place_of(const std::string& path) override { return core::place_of_name(path); }

  Result<std::string> identity_of(const std::string& path) override {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) return std::string();
      return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
    }
    if (!S_ISREG(info.st_mode)) return fail(Errc::invalid, Detail::open, "{}: is not an ordinary file", path);
    return fmt::format("{}:{}", info.st_dev, info.st_ino);
  }

  Status create(const std::string& path) override {
    MEMLITH_TRY(check_descriptors(path));
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0) return fail_errno(errno, Detail::open, "{}: cannot create it", path);
    ::close(fd);
    return kOk;
  }

  // A file that cannot be opened has to be removed again, which also needs descriptors: without enough of them nothing
  // is created.
  static Status check_descriptors(const std::string& path) {
    std::array<int, 4> spare{};
    std::size_t count = 0;
    while (count < spare.size() && (spare[count] = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) ++count;
    const int error = errno;
    const bool enough = count == spare.size();
    while (count > 0) ::close(spare[--count]);
    return enough ? kOk : fail_errno(error, Detail::open, "{}: cannot create it", path);
  }

  bool may_write(const std::string& path) override {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return ::access(path.c_str(), R_OK | W_OK) == 0 &&
           ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
  }

  Result<std::unique_ptr<HostLock>> host(core::Volume& volume, const std::string& name, bool writable) override {
    MEMLITH_TRY_ASSIGN(const auto wanted, volume.identity_of(name));
    if (wanted.has_value()) MEMLITH_TRY(check_not_open_here(volume.path_of(name), *wanted));
    MEMLITH_TRY_ASSIGN(auto lock, RealLock::open(volume, name, writable));
    return std::unique_ptr<HostLock>(std::move(lock));
  }

  [[nodiscard]] bool is_tended() const override { return true; }

  // A lock stays as long as any process has its open file, so a child that lives on would keep the locks of a parent
  // that was killed. The numbers stay taken, by a file without content, because objects of the parent still hold them.
  void leave_parent() override {
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0) return;
    const auto let_go = [nothing](int descriptor) { (void)::dup3(nothing, descriptor, O_CLOEXEC); };
    const std::lock_guard lock(kept().mutex);
    std::set<std::string> logs;
    for (const auto& [descriptor, path] : kept().paths) {
      let_go(descriptor);
      logs.insert(std::filesystem::absolute(core::file_log_name(path)).string());
    }
    kept().paths.clear();
    std::error_code error;
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
      const auto target = std::filesystem::read_symlink(entry.path(), error);
      int descriptor = -1;
      const std::string number = entry.path().filename().string();
      std::from_chars(number.data(), number.data() + number.size(), descriptor);
      if (!error && logs.contains(target.string())) found.push_back(descriptor);
    }
    for (const int descriptor : found) let_go(descriptor);
    ::close(nothing);
  }

  // Plain SQLite's locks belong to the process, and all of them on a file are lost when the process closes any
  // descriptor of the file. So the process's descriptors are checked before a descriptor is opened.
  static Status check_not_open_here(const std::string& path, const core::FileIdentity& wanted) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
      struct stat found{};
      if (::stat(entry.path().c_str(), &found) != 0) continue;
      if (core::FileIdentity{found.st_dev, found.st_ino} != wanted) continue;
      return fail(Errc::busy, Detail::open,
                  "{}: this process has the file open already, by plain SQLite or otherwise (descriptor {}); close it "
                  "first",
                  path, entry.path().filename().string());
    }
    return kOk;
  }
};

}  // namespace

World& real_world() {
  static RealWorld* const world = new RealWorld;  // never destroyed: connections may outlive the end of main()
  return *world;
}

}  // namespace memlith::sqlite
