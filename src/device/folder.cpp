#include "device/folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>

#include "base/descriptor.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"

namespace memlith::core {

// The kernel may reuse the number of a removed folder, but not while a descriptor holds that folder.
struct Folder::Registry {
  std::uint64_t process = process_mark();
  Mutex mutex;
  std::map<Key, std::weak_ptr<Folder>> folders MEMLITH_GUARDED_BY(mutex);
};

// A child of fork() starts a registry of its own, because a thread of its parent may have held the mutex. A registry is
// never destroyed, because stores may outlive main().
Folder::Registry& Folder::registry() {
  static std::atomic<Registry*> current{nullptr};
  Registry* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->process == process_mark()) return *found;
  auto made = std::make_unique<Registry>();
  // Acquire and release: if two threads race, both use the registry of the faster one, completely initialised.
  if (current.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *found;
}

std::shared_ptr<Folder> Folder::open(const std::string& path) {
  bool readable = true;
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == EACCES) {
    readable = false;
    fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  fd = above_standard(fd);
  if (fd < 0) return nullptr;
  std::shared_ptr<Folder> folder(new Folder(fd));
  struct statx info{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &info) != 0) return folder;  // not shared
  folder->key_ = {(info.stx_mask & STATX_MNT_ID) != 0 ? info.stx_mnt_id : 0,
                  ::makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino, readable};
  Registry& known = registry();
  const LockGuard lock(known.mutex);
  std::weak_ptr<Folder>& entry = known.folders[folder->key_];
  if (auto shared = entry.lock()) return shared;
  entry = folder;
  return folder;
}

Folder::~Folder() {
  {
    Registry& known = registry();
    const LockGuard lock(known.mutex);
    // Another descriptor of the folder may have been registered since the last user of this one released it.
    const auto entry = known.folders.find(key_);
    if (entry != known.folders.end() && entry->second.expired()) known.folders.erase(entry);
  }
  ::close(fd_);
}

int Folder::sync() const {
  if (key_.readable) return ::fsync(fd_);
  const int readable = ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (readable < 0) return -1;
  const int result = ::fsync(readable);
  const int error = errno;
  ::close(readable);
  errno = error;
  return result;
}

}  // namespace memlith::core
