#include "files.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

namespace memlith_rocksdb {

Error errno_error(const std::string& what) {
  const int why = errno;
  return Error(why == ENOSPC || why == EDQUOT ? MEMLITH_NO_SPACE : MEMLITH_IO,
               what + ": " + std::generic_category().message(why));
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> File::open(const std::string& path, int flags) {
  File file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (file.descriptor_ < 0) return errno_error("cannot open " + path);
  return file;
}

Result<void> File::write_at(std::uint64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return errno_error("cannot write to " + path_);
    bytes.remove_prefix(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

void File::read_ahead(std::uint64_t bytes) const {
  (void)::posix_fadvise(descriptor_, 0, static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

Result<std::string_view> File::read_at(std::uint64_t offset, char* buffer, std::uint64_t bytes) const {
  while (true) {
    const ssize_t done = ::pread(descriptor_, buffer, bytes, static_cast<off_t>(offset));
    if (done >= 0) return std::string_view(buffer, static_cast<std::size_t>(done));
    if (errno != EINTR) return errno_error("cannot read " + path_);
  }
}

Result<std::uint64_t> File::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return errno_error("cannot examine " + path_);
  return static_cast<std::uint64_t>(status.st_size);
}

Result<void> File::sync_data() const {
  if (::fdatasync(descriptor_) != 0) return errno_error("cannot flush " + path_);
  return {};
}

// The locks of this process. No thread holds the mutex at a fork, so the child may use it.
struct FolderLock::LockedFolder {
  explicit LockedFolder(const std::string& folder) {
    static std::once_flag handlers;
    std::call_once(handlers,
                   [] { (void)::pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, &give_up_in_child); });
    const std::lock_guard guard(mutex());
    descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    all().insert(this);
  }
  ~LockedFolder() {
    const std::lock_guard guard(mutex());
    all().erase(this);
    if (descriptor >= 0) ::close(descriptor);
  }
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

  int descriptor = -1;  // also in a child

 private:
  // Never destroyed, because a program may fork at its end.
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static std::set<LockedFolder*>& all() {
    static auto* const one = new std::set<LockedFolder*>;
    return *one;
  }
  static void give_up_in_child() {
    for (LockedFolder* each : all()) {
      if (each->descriptor >= 0) ::close(std::exchange(each->descriptor, -1));
    }
    mutex().unlock();
  }
};

FolderLock::FolderLock() = default;
FolderLock::FolderLock(FolderLock&& other) noexcept = default;
FolderLock& FolderLock::operator=(FolderLock&& other) noexcept = default;
FolderLock::~FolderLock() = default;

Result<FolderLock> FolderLock::take(const std::string& folder) {
  FolderLock lock;
  lock.held_ = std::make_unique<LockedFolder>(folder);
  if (lock.held_->descriptor < 0) return errno_error("cannot open the folder " + folder);
  if (::flock(lock.held_->descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return errno_error("cannot lock the folder " + folder);
  return Error(MEMLITH_BUSY, "a process has the logs in " + folder + " open with memlith");
}

Result<void> sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno_error("cannot open the folder " + path);
  const bool flushed = ::fsync(descriptor) == 0;
  const Result<void> result = flushed ? Result<void>() : errno_error("cannot flush the folder " + path);
  ::close(descriptor);
  return result;
}

Result<void> rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_error("cannot rename " + from + " to " + to);
  return {};
}

Result<void> remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("cannot remove " + path);
  return {};
}

Result<void> remove_folder_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return {};
  errno = error.value();
  return errno_error("cannot remove " + path);
}

Result<std::string> real_folder(const std::string& path) {
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return errno_error("cannot find the folder " + path);
  std::string result = real;
  std::free(real);
  return result;
}

}  // namespace memlith_rocksdb
