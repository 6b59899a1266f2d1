// The volume on a folder of the operating system. Its devices are in posix_device.cpp, its notices in posix_notice.cpp.
#include "device/posix.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/checksum.hpp"
#include "base/descriptor.hpp"
#include "base/not_for_children.hpp"
#include "base/sync.hpp"
#include "device/folder.hpp"
#include "device/posix_device.hpp"
#include "device/posix_notice.hpp"
#include "device/uring.hpp"

namespace memlith::core {

Result<std::uint64_t> stamp_of(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  // No program can set the time of the last change (ctim).
  const std::uint64_t said[6] = {word(info.st_ino),          word(info.st_size),        word(info.st_mtim.tv_sec),
                                 word(info.st_mtim.tv_nsec), word(info.st_ctim.tv_sec), word(info.st_ctim.tv_nsec)};
  return std::max<std::uint64_t>(1, checksum(std::as_bytes(std::span(said)), 0));
}

namespace {

// The absolute path, for messages, independent of later changes of the working directory; without redundant parts.
std::string absolute(const std::string& path) {
  std::error_code unknown;
  auto whole = std::filesystem::absolute(path, unknown);
  if (unknown) return path;
  // ".." after a symbolic link does not lead back.
  if (std::find(whole.begin(), whole.end(), "..") == whole.end()) whole = whole.lexically_normal();
  std::string text = whole.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

class PosixLock final : public VolumeLock {
 public:
  explicit PosixLock(std::shared_ptr<const Descriptor> descriptor)
      : descriptor_(std::move(descriptor)), not_for_children_(descriptor_->get()), process_(::getpid()) {}
  // A child that was made without the handlers of fork(2) shares the lock: the lock would outlive this process's
  // descriptor if it were not released explicitly, and the child must not release it.
  ~PosixLock() override {
    if (process_ == ::getpid()) (void)::flock(descriptor_->get(), LOCK_UN);
  }

 private:
  std::shared_ptr<const Descriptor> descriptor_;
  NotForChildren not_for_children_;
  pid_t process_;
};

class PosixVolume final : public Volume {
 public:
  PosixVolume(std::string root, IoBackend io) : root_(std::move(root)), devices_(io) {}

  std::string path_of(std::string_view name) const override {
    return name.empty() ? root_ : root_ + (root_.ends_with('/') ? "" : "/") + std::string(name);
  }

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override {
    const std::string path = path_of(name);
    // NONBLOCK: a named pipe in the place of a file must cause an error, not a wait for its other end.
    int flags = O_CLOEXEC | O_NONBLOCK | (mode == OpenMode::read_only ? O_RDONLY : O_RDWR);
    if (mode == OpenMode::create) flags |= O_CREAT | O_EXCL;
    auto descriptor = std::make_shared<const Descriptor>(open_in_folder(name, flags));
    if (descriptor->get() < 0) {
      return fail_errno(errno, Detail::open, "{}: cannot {} it", path, mode == OpenMode::create ? "create" : "open");
    }
    MEMLITH_TRY(check_ordinary(descriptor->get(), path));
    return devices_.make(std::move(descriptor), path, mode != OpenMode::read_only, caching);
  }

  Result<std::unique_ptr<OpenFile>> open_file(std::string_view name, bool writable) override {
    const std::string path = path_of(name);
    const int flags = O_CLOEXEC | O_NONBLOCK | (writable ? O_RDWR : O_RDONLY);
    auto descriptor = std::make_shared<const Descriptor>(open_in_folder(name, flags));
    if (descriptor->get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
    MEMLITH_TRY(check_ordinary(descriptor->get(), path));
    return std::unique_ptr<OpenFile>(std::make_unique<PosixFile>(*this, std::move(descriptor), std::string(name),
                                                                 writable));
  }

  Result<bool> exists(std::string_view name) override {
    MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> there, identity_of(name));
    return there.has_value();
  }

  Result<std::optional<FileIdentity>> identity_of(std::string_view name) override {
    struct stat info{};
    if (look(name, info) == 0) return std::optional(identity_in(info));
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<FileIdentity>();
    return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path_of(name));
  }

  Result<std::vector<std::string>> list(std::string_view folder) override {
    // A new descriptor, because the read position belongs to the descriptor.
    const int fd = open_in_folder(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const handle = fd < 0 ? nullptr : ::fdopendir(fd);
    if (handle == nullptr) {
      const Status status = fail_errno(errno, Detail::open, "{}: cannot list it", path_of(folder));
      if (fd >= 0) ::close(fd);
      return status;
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(handle)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(handle);
    if (error != 0) return fail_errno(error, Detail::read, "{}: cannot list it", path_of(folder));
    return names;
  }

  Status make_folder(std::string_view name) override {
    if (name.empty()) return make_own_folder();
    const std::string_view parent = name.substr(0, name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/'));
    if (in_folder([&](int at) { return ::mkdirat(at, std::string(name).c_str(), 0755); }) == 0)
      return sync_folder(parent);
    const int error = errno;
    // It exists already, but its creator may have been killed before the name was durable.
    struct stat info{};
    if (error == EEXIST && look(name, info) == 0 && S_ISDIR(info.st_mode)) return sync_folder(parent);
    return fail_errno(error, Detail::open, "{}: cannot make this folder", path_of(name));
  }

  Status rename(std::string_view from, std::string_view to) override {
    const auto call = [&](int at) { return ::renameat(at, std::string(from).c_str(), at, std::string(to).c_str()); };
    if (in_folder(call) == 0) return kOk;
    return fail_errno(errno, Detail::write, "{}: cannot be renamed to {}", path_of(from), path_of(to));
  }

  Status remove(std::string_view name) override {
    const auto call = [&](int at) { return ::unlinkat(at, std::string(name).c_str(), 0); };
    if (in_folder(call) == 0 || errno == ENOENT) return kOk;
    return fail_errno(errno, Detail::write, "{}: cannot be removed", path_of(name));
  }

  Status sync_folder(std::string_view name) override {
    if (name.empty()) {
      const std::shared_ptr<Folder> own = folder();
      if (own != nullptr && own->sync() == 0) return kOk;
      return fail_errno(errno, Detail::flush, "{}: flush of the folder failed", root_);
    }
    const Descriptor folder(open_in_folder(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return flush_folder(folder.get(), path_of(name));
  }

  Result<std::uint64_t> free_bytes() override {
    struct statvfs status{};
    if (in_folder([&](int at) { return ::fstatvfs(at, &status); }) == 0) {
      return std::uint64_t{status.f_bavail} * status.f_frsize;
    }
    return fail_errno(errno, Detail::open, "{}: cannot determine the free disk space", root_);
  }

  std::unique_ptr<Notice> make_notice(std::string_view name, std::span<const std::byte> first, Device* like) override {
    const std::string path = path_of(name);
    (void)remove(name);  // a process that reads the earlier notice keeps its own view
    Descriptor descriptor(open_in_folder(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC));
    if (descriptor.get() < 0) return nullptr;
    if (like != nullptr) (void)match_permissions(*like, descriptor.get(), path);
    auto notice = make_posix_notice(std::move(descriptor), folder(), std::string(name), first);
    if (notice == nullptr) (void)remove(name);
    return notice;
  }

  Result<SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes) override {
    const std::string path = path_of(name);
    const Descriptor descriptor(open_in_folder(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (descriptor.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
    MEMLITH_TRY(check_ordinary(descriptor.get(), path));
    return look_at_posix_notice(descriptor.get(), path, bytes);
  }

 private:
  class PosixFile final : public OpenFile {
   public:
    PosixFile(PosixVolume& volume, std::shared_ptr<const Descriptor> descriptor, std::string name, bool writable)
        : volume_(volume), descriptor_(std::move(descriptor)), name_(std::move(name)), writable_(writable) {}

    Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
      const int fd = descriptor_->get();
      const std::string path = volume_.path_of(name_);
      int result = 0;
      do {
        result = ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
      } while (result != 0 && errno == EINTR);
      if (result != 0 && errno == EWOULDBLOCK) {
        return fail(Errc::busy, Detail::lock, "{}: cannot lock it: another process or store holds the lock", path);
      }
      if (result != 0) return fail_errno(errno, Detail::lock, "{}: cannot lock it", path);
      auto lock = std::make_unique<PosixLock>(descriptor_);
      // The file may have been removed or replaced since it was opened; a lock on a file without a name excludes no
      // other process.
      struct stat locked{};
      struct stat named{};
      if (::fstat(fd, &locked) != 0 || volume_.look(name_, named) != 0) {
        return fail_errno(errno, Detail::lock, "{}: cannot read its attributes", path);
      }
      if (identity_in(locked) != identity_in(named)) {
        return fail(Errc::not_found, Detail::lock, "{}: was replaced while it was being locked", path);
      }
      if (exclusive) MEMLITH_TRY(RingFile::wait_for_transfers(fd, path));
      return std::unique_ptr<VolumeLock>(std::move(lock));
    }

    Result<std::unique_ptr<Device>> device(std::string_view name, Caching caching) override {
      return volume_.devices_.make(descriptor_, volume_.path_of(name), writable_, caching);
    }

   private:
    PosixVolume& volume_;
    std::shared_ptr<const Descriptor> descriptor_;
    std::string name_;
    bool writable_;
  };

  // Null, with errno, if the folder cannot be opened. Once it is open, it is never looked up again.
  std::shared_ptr<Folder> folder() {
    const LockGuard lock(folder_mutex_);
    if (folder_ == nullptr) folder_ = Folder::open(root_);
    return folder_;
  }

  // The result of the call with the folder's descriptor; -1, with errno, if there is no folder.
  template <class Call>
  int in_folder(const Call& call) {
    const std::shared_ptr<Folder> own = folder();
    return own == nullptr ? -1 : call(own->fd());
  }
  int open_in_folder(std::string_view name, int flags) {
    const std::string path(name.empty() ? "." : name);
    return above_standard(in_folder([&](int at) { return ::openat(at, path.c_str(), flags, 0644); }));
  }
  int look(std::string_view name, struct stat& info) {
    const std::string path(name.empty() ? "." : name);
    return in_folder([&](int at) { return ::fstatat(at, path.c_str(), &info, 0); });
  }

  Status make_own_folder() {
    std::shared_ptr<Folder> own;
    {
      const LockGuard lock(folder_mutex_);
      if (folder_ == nullptr) {
        if (::mkdir(root_.c_str(), 0755) != 0 && errno != EEXIST) {
          return fail_errno(errno, Detail::open, "{}: cannot make this folder", root_);
        }
        folder_ = Folder::open(root_);
        if (folder_ == nullptr) {
          return fail_errno(errno == ENOTDIR ? EEXIST : errno, Detail::open, "{}: cannot make this folder", root_);
        }
      }
      own = folder_;
    }
    // Also if the folder existed already: its creator may have been killed before the name was durable.
    const Descriptor parent(::openat(own->fd(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return flush_folder(parent.get(), path_of(".."));
  }

  static Status flush_folder(int fd, const std::string& path) {
    if (fd < 0) return fail_errno(errno, Detail::flush, "{}: cannot open the folder to flush it", path);
    if (::fsync(fd) != 0) return fail_errno(errno, Detail::flush, "{}: flush of the folder failed", path);
    return kOk;
  }

  static Status check_ordinary(int fd, const std::string& path) {
    struct stat info{};
    if (::fstat(fd, &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
    if (S_ISREG(info.st_mode)) return kOk;
    return fail(Errc::invalid, Detail::open, "{}: is not an ordinary file", path);
  }

  const std::string root_;
  DeviceMaker devices_;
  Mutex folder_mutex_;
  std::shared_ptr<Folder> folder_ MEMLITH_GUARDED_BY(folder_mutex_);  // constant once it is not null
};

}  // namespace

std::unique_ptr<Volume> make_posix_volume(std::string path, IoBackend io) {
  return std::make_unique<PosixVolume>(absolute(path), io);
}

}  // namespace memlith::core
