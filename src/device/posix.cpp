// PosixVolume and its devices: pwritev + fdatasync, O_DIRECT where the file system has it, io_uring where several transfers are
// in flight, or for all of them. Sections: helpers, PosixDevice, UringDevice, PosixVolume.
#include "device/posix.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <shared_mutex>

#include "base/buffer.hpp"
#include "base/descriptor.hpp"
#include "base/units.hpp"
#include "device/folder.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// ---- helpers ---------------------------------------------------------------------------------------------------

FileIdentity identity_in(const struct stat& info) { return {info.st_dev, info.st_ino}; }

Status match_permissions(int file, const std::string& path, int other, const std::string& other_path) {
  struct stat wanted{};
  struct stat found{};
  if (::fstat(file, &wanted) != 0 || ::fstat(other, &found) != 0) return kOk;
  if ((wanted.st_mode & 0777) != (found.st_mode & 0777) && ::fchmod(other, wanted.st_mode & 0777) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot give it the permissions of {}", other_path, path);
  }
  // Only root may, and only root has to: the log of another user's file belongs to that user.
  const bool other_owner = wanted.st_uid != found.st_uid || wanted.st_gid != found.st_gid;
  if (::geteuid() == 0 && other_owner && ::fchown(other, wanted.st_uid, wanted.st_gid) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot give it the owner of {}", other_path, path);
  }
  return kOk;
}

// Where the path leads now, whatever the program's current folder becomes; without what says nothing, for messages.
std::string absolute(const std::string& path) {
  std::error_code unknown;
  auto whole = std::filesystem::absolute(path, unknown);
  if (unknown) return path;
  // ".." behind a link does not lead back.
  if (std::find(whole.begin(), whole.end(), "..") == whole.end()) whole = whole.lexically_normal();
  std::string text = whole.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

// Whether the file system lies in memory.
bool is_memory(int fd) {
  struct statfs info{};
  return ::fstatfs(fd, &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

// What a log is read and written in, beside blocks: both superblocks, and a large commit.
constexpr std::uint64_t kSuperblocksBytes = 8 * kKiB;
constexpr std::uint64_t kLargeBytes = 1 * kMiB;

bool refused(ssize_t done) { return done < 0 && errno == EINVAL; }

// Whether the file system takes direct transfers in these blocks. The file is empty, and is left so.
bool takes_writes(int fd, std::byte* memory, std::uint32_t block) {
  bool taken = !refused(::pwrite(fd, memory, block, 0));
  for (const std::uint64_t bytes : {kSuperblocksBytes, kLargeBytes}) {
    taken = taken && !refused(::pwrite(fd, memory, bytes, block)) && !refused(::pread(fd, memory, bytes, block));
  }
  return ::ftruncate(fd, 0) == 0 && taken;
}

bool takes_reads(int fd, std::byte* memory, std::uint32_t block) {
  // Behind the end some kernels answer before they look at the alignment: in an empty file only the larger one is sure.
  const ssize_t got = ::pread(fd, memory, block, 0);
  return (got > 0 || (got == 0 && block == kPageBytes)) && !refused(::pread(fd, memory, kSuperblocksBytes, 0));
}

// The alignment that O_DIRECT needs here, or 0 where it does not work. Asks by transferring, because some file systems accept the flag
// and then refuse transfers: by writing where the file is empty, else by reading. What neither finds the device finds later.
std::uint32_t direct_block_bytes(int fd, bool writable) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return 0;
  const bool by_writing = writable && info.st_size == 0;
  std::uint32_t least = 512;
#ifdef STATX_DIOALIGN
  struct statx extended{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 && (extended.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t block = extended.stx_dio_offset_align;
    if (!is_power_of_two(block) || block > kPageBytes || extended.stx_dio_mem_align > kPageBytes) return 0;
    least = std::max(block, least);
    if (!by_writing) return least;
  }
#endif
  auto buffer = AlignedBuffer::allocate(by_writing ? kLargeBytes : kSuperblocksBytes);
  if (!buffer.ok()) return 0;
  std::memset(buffer->data(), 0, buffer->size());
  for (std::uint32_t block = least; block <= kPageBytes; block *= 8) {
    if (by_writing ? takes_writes(fd, buffer->data(), block) : takes_reads(fd, buffer->data(), block)) return block;
  }
  return 0;
}

// ---- PosixDevice -----------------------------------------------------------------------------------------------

class PosixDevice : public Device {
 public:
  PosixDevice(Descriptor descriptor, DeviceCaps caps, std::string path, bool direct)
      : Device(caps, std::move(path), direct), descriptor_(std::move(descriptor)) {
    struct stat info{};
    counts_names_ = ::fstat(fd(), &info) == 0 && info.st_nlink > 0;
  }

  Result<std::uint64_t> size() override {
    struct stat info{};
    if (::fstat(fd(), &info) != 0) return fail_errno(errno, Detail::read, "{}: cannot tell its size", path_);
    return static_cast<std::uint64_t>(info.st_size);
  }

  Result<FileIdentity> identity() override {
    struct stat info{};
    if (::fstat(fd(), &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot look at it", path_);
    return identity_in(info);
  }

  Result<bool> removed() override {
    struct stat info{};
    if (::fstat(fd(), &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot look at it", path_);
    return info.st_nlink == 0 && counts_names_;
  }

  Status match_permissions(Device& file) override {
    auto* const other = dynamic_cast<PosixDevice*>(&file);
    return other == nullptr ? kOk : core::match_permissions(other->fd(), other->path(), fd(), path_);
  }

  Result<int> mapping_descriptor() override {
    MEMLITH_ASSERT(!direct());
    return fd();
  }

  std::uint64_t skip_hole(std::uint64_t offset) override {
    const off_t data = ::lseek(fd(), static_cast<off_t>(offset), SEEK_DATA);
    if (data >= 0) return static_cast<std::uint64_t>(data);
    struct stat info{};
    if (errno == ENXIO && ::fstat(fd(), &info) == 0) return static_cast<std::uint64_t>(info.st_size);
    return offset;
  }

  [[nodiscard]] int descriptor() const { return fd(); }

  bool begin_direct_write() override {
    const std::shared_lock lock(direct_mutex_);
    if (!direct()) return false;
    queued_writes_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void end_direct_write() override { queued_writes_.fetch_sub(1, std::memory_order_relaxed); }

  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override {
    if (caps_.io != IoBackend::posix) {
      if (auto queue = make_uring_queue(*this, fd(), depth)) return queue;
    }
    return Device::make_queue(depth);
  }

 protected:
  [[nodiscard]] int fd() const { return descriptor_.get(); }

  Status do_read(std::uint64_t offset, std::span<std::byte> target) override {
    std::uint64_t done = 0;
    while (done < target.size()) {
      const bool was_direct = direct();
      const ssize_t got = read_some(target.subspan(done), offset + done);
      if (got < 0) {
        if (errno == EINTR || (errno == EINVAL && was_direct && leave_direct())) continue;
        return fail_errno(errno, Detail::read, "{}: cannot read {} bytes at offset {}{}", path_, target.size(), offset,
                          advice(errno));
      }
      if (got == 0) return cut_short(path_, offset, target.size(), done);
      done += static_cast<std::uint64_t>(got);
    }
    return kOk;
  }

  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    // The kernel takes everything in one call nearly always; the rest of this is for when it does not.
    std::uint64_t skip = 0;
    while (!pieces.empty()) {
      if (pieces.front().iov_len == skip) {
        pieces = pieces.subspan(1);
        skip = 0;
        continue;
      }
      const bool was_direct = direct();
      ssize_t done = 0;
      if (skip == 0) {
        done = write_once(pieces.first(std::min<std::size_t>(pieces.size(), IOV_MAX)), offset);
      } else {
        const iovec rest{static_cast<std::byte*>(pieces.front().iov_base) + skip, pieces.front().iov_len - skip};
        done = write_once({&rest, 1}, offset);
      }
      if (done < 0 && (errno == EINTR || (errno == EINVAL && was_direct && leave_direct()))) continue;
      if (done <= 0) {
        const int error = done == 0 ? EIO : errno;
        return fail_errno(error, Detail::write, "{}: write at offset {} failed{}", path_, offset, advice(error));
      }
      offset += static_cast<std::uint64_t>(done);
      auto left = static_cast<std::uint64_t>(done);
      while (left > 0) {
        const std::uint64_t here = pieces.front().iov_len - skip;
        if (left < here) {
          skip += left;
          break;
        }
        left -= here;
        skip = 0;
        pieces = pieces.subspan(1);
      }
    }
    return kOk;
  }

  // Some file systems take O_DIRECT when a file is opened, and small transfers, and refuse others. From the first refusal on the file is
  // transferred through the page cache; nothing was written by what was refused. False where that cannot be.
  //
  // No direct write is under way then: one to a neighbouring sector might reach the medium behind the page cache, which writes the whole
  // page back later, with that sector as it was before.
  bool leave_direct() {
    const std::unique_lock lock(direct_mutex_);
    if (!direct()) return true;
    if (queued_writes_.load(std::memory_order_relaxed) != 0 || ::fcntl(fd(), F_SETFL, 0) != 0) {
      errno = EINVAL;
      return false;
    }
    direct_.store(false, std::memory_order_relaxed);
    return true;
  }
  ssize_t write_once(std::span<const iovec> pieces, std::uint64_t offset) {
    std::shared_lock lock(direct_mutex_, std::defer_lock);
    if (direct()) lock.lock();
    return write_some(pieces, offset);
  }
  [[nodiscard]] const char* advice(int error) const {
    return error == EINVAL && direct() ? " with direct I/O (O_DIRECT), which MEMLITH_OPEN_BUFFERED does without" : "";
  }

  // As pread(2) and pwritev(2), which may do a part.
  virtual ssize_t read_some(std::span<std::byte> target, std::uint64_t offset) {
    return ::pread(fd(), target.data(), target.size(), static_cast<off_t>(offset));
  }
  virtual ssize_t write_some(std::span<const iovec> pieces, std::uint64_t offset) {
    return ::pwritev(fd(), pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset));
  }

  Status do_flush() override {
    if (::fdatasync(fd()) != 0) return fail_errno(errno, Detail::flush, "{}: flush failed", path_);
    return kOk;
  }

  Status do_reserve(std::uint64_t bytes) override {
    MEMLITH_TRY_ASSIGN(const std::uint64_t present, size());
    if (bytes <= present) return kOk;
    int result = 0;
    do {
      result = ::fallocate(fd(), 0, static_cast<off_t>(present), static_cast<off_t>(bytes - present));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return kOk;
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      const Status status = fail_errno(errno, Detail::resize, "{}: cannot reserve {} bytes", path_, bytes);
      (void)::ftruncate(fd(), static_cast<off_t>(present));  // some file systems keep what they had found by then
      return status;
    }
    return reserve_by_writing(present, bytes);
  }

  // Space that is set aside already, and never written, reads as a hole too: to set it aside once more costs little.
  Status do_fill_holes() override {
    struct stat found{};
    if (::fstat(fd(), &found) != 0) return fail_errno(errno, Detail::resize, "{}: cannot be looked at", path_);
    const off_t hole = ::lseek(fd(), 0, SEEK_HOLE);
    if (hole < 0 || hole >= found.st_size) return kOk;  // none, or a file system that does not tell
    const auto size = static_cast<std::uint64_t>(found.st_size);
    const std::uint64_t held = std::min(size, static_cast<std::uint64_t>(found.st_blocks) * 512);
    const auto full = [&](int error) {
      return fail_errno(error, Detail::resize,
                        "{}: the file has holes, and the disk no room for them: they need about {} bytes. Make room, "
                        "and open it again. The file's content was not changed",
                        path_, size - held);
    };
    // A file system that gives up half-way may keep what it had found by then, and leave the disk full: it is asked first.
    struct statvfs disk{};
    if (::fstatvfs(fd(), &disk) == 0) {
      const std::uint64_t room = (::geteuid() == 0 ? disk.f_bfree : disk.f_bavail) * disk.f_frsize;
      if (disk.f_blocks > 0 && size - held > room) return full(ENOSPC);
    }
    int result = 0;
    do {
      result = ::fallocate(fd(), FALLOC_FL_KEEP_SIZE, 0, found.st_size);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return kOk;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return full(errno);
    return fill_by_writing(static_cast<std::uint64_t>(hole), size, full);
  }

  Status do_truncate(std::uint64_t bytes) override {
    if (::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
      return fail_errno(errno, Detail::resize, "{}: cannot set its size to {} bytes", path_, bytes);
    }
    return kOk;
  }

 private:
  // For file systems without fallocate. What is written is what was read: some have called holes what had bytes.
  template <class Full>
  Status fill_by_writing(std::uint64_t hole, std::uint64_t size, const Full& full) {
    MEMLITH_TRY_ASSIGN(AlignedBuffer bytes, AlignedBuffer::allocate(64 * kKiB));
    while (hole < size) {
      const off_t data = ::lseek(fd(), static_cast<off_t>(hole), SEEK_DATA);
      const std::uint64_t end = data < 0 ? size : std::min(size, static_cast<std::uint64_t>(data));
      for (std::uint64_t offset = hole; offset < end;) {
        const iovec piece{bytes.data(), std::min<std::uint64_t>(bytes.size(), end - offset)};
        MEMLITH_TRY(do_read(offset, {bytes.data(), piece.iov_len}));
        const Status written = do_write(offset, {&piece, 1});
        if (written.category == Errc::no_space) return full(written.os_errno);
        MEMLITH_TRY(written);
        offset += piece.iov_len;
      }
      const off_t next = end < size ? ::lseek(fd(), static_cast<off_t>(end), SEEK_HOLE) : -1;
      if (next < 0) return kOk;
      hole = static_cast<std::uint64_t>(next);
    }
    return kOk;
  }

  // For file systems without fallocate: zeros, written.
  Status reserve_by_writing(std::uint64_t present, std::uint64_t bytes) {
    MEMLITH_TRY_ASSIGN(AlignedBuffer zeros, AlignedBuffer::allocate(1 * kMiB));
    std::memset(zeros.data(), 0, zeros.size());
    Status status = kOk;
    for (std::uint64_t offset = present; status.ok() && offset < bytes;) {
      const iovec piece{zeros.data(), std::min(zeros.size(), bytes - offset)};
      status = do_write(offset, {&piece, 1});
      offset += piece.iov_len;
    }
    if (!status.ok()) (void)::ftruncate(fd(), static_cast<off_t>(present));
    return status;
  }

  Descriptor descriptor_;
  std::shared_mutex direct_mutex_;               // shared while a call writes past the page cache
  std::atomic<std::uint32_t> queued_writes_{0};  // by queues, past the page cache; raised under direct_mutex_
  bool counts_names_ = false;                    // some file systems say of every file that it has no name
};

// ---- UringDevice -----------------------------------------------------------------------------------------------

// Reads and writes through io_uring. Flushes stay fdatasync: the kernel hands a flush in a ring to a thread of its own, and waking
// that takes longer than the call.
class UringDevice final : public PosixDevice {
 public:
  UringDevice(Descriptor descriptor, DeviceCaps caps, std::string path, bool direct)
      : PosixDevice(std::move(descriptor), caps, std::move(path), direct), calls_(fd()) {}

 protected:
  ssize_t read_some(std::span<std::byte> target, std::uint64_t offset) override { return calls_.read(target, offset); }
  ssize_t write_some(std::span<const iovec> pieces, std::uint64_t offset) override {
    return calls_.write(pieces, offset);
  }

 private:
  UringCalls calls_;
};

// ---- PosixVolume -----------------------------------------------------------------------------------------------

class PosixLock final : public VolumeLock {
 public:
  explicit PosixLock(Descriptor descriptor) : descriptor_(std::move(descriptor)), process_(::getpid()) {}
  // A forked child shares the lock: it outlives our descriptor if we do not drop it, and must not be dropped by the child.
  ~PosixLock() override {
    if (process_ == ::getpid()) (void)::flock(descriptor_.get(), LOCK_UN);
  }

 private:
  Descriptor descriptor_;
  pid_t process_;
};

// Written, and not mapped: a store to a mapped page for which the file system has no room any more, or that it has given up, would
// be a SIGBUS. Its maker has a lock on it, of the open file description (fcntl(2)): one that others can ask for without taking it,
// whatever numbers processes have where they look from.
class PosixNotice final : public Notice {
 public:
  PosixNotice(Descriptor descriptor, std::shared_ptr<Folder> folder, std::string name)
      : descriptor_(std::move(descriptor)), folder_(std::move(folder)), name_(std::move(name)) {}
  void show(std::span<const std::byte> bytes) override {
    (void)::pwrite(descriptor_.get(), bytes.data(), bytes.size(), 0);
  }
  void remove() override {
    struct stat own{};
    struct stat named{};
    if (::fstat(descriptor_.get(), &own) != 0) return;
    if (::fstatat(folder_->fd(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (identity_in(own) == identity_in(named)) (void)::unlinkat(folder_->fd(), name_.c_str(), 0);
  }
  static struct flock whole_file() {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return lock;
  }

 private:
  Descriptor descriptor_;
  std::shared_ptr<Folder> folder_;
  std::string name_;
};

class PosixVolume final : public Volume {
 public:
  PosixVolume(std::string root, IoBackend io) : root_(std::move(root)), io_(io) {}

  std::string path_of(std::string_view name) const override {
    return name.empty() ? root_ : root_ + (root_.ends_with('/') ? "" : "/") + std::string(name);
  }

  Result<std::unique_ptr<Device>> open(std::string_view name, OpenMode mode, Caching caching) override {
    const std::string path = path_of(name);
    // NONBLOCK: a named pipe in the place of a file must give an error, not a wait for the other end.
    int flags = O_CLOEXEC | O_NONBLOCK | (mode == OpenMode::read_only ? O_RDONLY : O_RDWR);
    if (mode == OpenMode::create) flags |= O_CREAT | O_EXCL;
    Descriptor descriptor(open_in_folder(name, flags));
    if (descriptor.get() < 0) {
      return fail_errno(errno, Detail::open, "{}: cannot {} it", path, mode == OpenMode::create ? "create" : "open");
    }
    MEMLITH_TRY(check_ordinary(descriptor.get(), path));
    // Without NONBLOCK, which is not for transfers: on disks that cannot refuse to wait, dm-crypt's for one, Linux before 6.4 lets a
    // ring's fail for ever with EAGAIN then.
    (void)::fcntl(descriptor.get(), F_SETFL, 0);
    DeviceCaps caps;
    const bool direct = caching == Caching::direct && make_direct(descriptor.get(), mode, caps);
    caps.forgets = is_memory(descriptor.get());
    caps.io = io_;
    if (io_ != IoBackend::posix && !has_uring()) {
      if (io_ == IoBackend::uring) {
        return fail(Errc::unsupported, Detail::open,
                    "{}: io_uring was asked for, but this kernel or its sandbox refuses it; leave the choice to "
                    "memlith",
                    path);
      }
      caps.io = IoBackend::posix;
    }
    if (io_ == IoBackend::uring) {
      return std::unique_ptr<Device>(std::make_unique<UringDevice>(std::move(descriptor), caps, path, direct));
    }
    return std::unique_ptr<Device>(std::make_unique<PosixDevice>(std::move(descriptor), caps, path, direct));
  }

  Result<bool> exists(std::string_view name) override {
    MEMLITH_TRY_ASSIGN(const std::optional<FileIdentity> there, identity_of(name));
    return there.has_value();
  }

  Result<std::optional<FileIdentity>> identity_of(std::string_view name) override {
    struct stat info{};
    if (look(name, info) == 0) return std::optional(identity_in(info));
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<FileIdentity>();
    return fail_errno(errno, Detail::open, "{}: cannot look at it", path_of(name));
  }

  Result<std::vector<std::string>> list(std::string_view folder) override {
    // A descriptor of its own, because the place to read on is the descriptor's.
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
    // There already: but whoever made it may have been killed before its name was durable.
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
    return fail_errno(errno, Detail::open, "{}: cannot tell how much is free", root_);
  }

  std::unique_ptr<Notice> make_notice(std::string_view name, std::span<const std::byte> first, Device* like) override {
    constexpr std::size_t kBegin = sizeof(std::uint64_t);
    const std::string path = path_of(name);
    (void)remove(name);  // whoever still looks at an earlier one keeps it
    Descriptor descriptor(open_in_folder(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC));
    if (descriptor.get() < 0) return nullptr;
    if (auto* const file = dynamic_cast<PosixDevice*>(like); file != nullptr) {
      (void)match_permissions(file->descriptor(), file->path(), descriptor.get(), path);
    }
    struct flock held = PosixNotice::whole_file();
    const auto rest = first.subspan(kBegin);
    // Its beginning last: who reads zeros there knows that it is being made.
    if (::fcntl(descriptor.get(), F_OFD_SETLK, &held) == 0 &&
        ::pwrite(descriptor.get(), rest.data(), rest.size(), kBegin) == static_cast<ssize_t>(rest.size()) &&
        ::pwrite(descriptor.get(), first.data(), kBegin, 0) == static_cast<ssize_t>(kBegin)) {
      return std::make_unique<PosixNotice>(std::move(descriptor), folder(), std::string(name));
    }
    (void)remove(name);
    return nullptr;
  }

  Result<SeenNotice> look_at_notice(std::string_view name, std::uint64_t bytes) override {
    const std::string path = path_of(name);
    const Descriptor descriptor(open_in_folder(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (descriptor.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
    MEMLITH_TRY(check_ordinary(descriptor.get(), path));
    SeenNotice seen{std::vector<std::byte>(bytes)};
    ssize_t got = ::pread(descriptor.get(), seen.bytes.data(), bytes, 0);
    // It grows while it is being made.
    if (got >= 0 && static_cast<std::uint64_t>(got) < bytes)
      got = ::pread(descriptor.get(), seen.bytes.data(), bytes, 0);
    if (got < 0) return fail_errno(errno, Detail::read, "{}: cannot read it", path);
    std::uint64_t begin = 0;
    std::memcpy(&begin, seen.bytes.data(), sizeof begin);
    if (begin == 0) return fail(Errc::not_found, Detail::open, "{}: it is being made", path);
    if (static_cast<std::uint64_t>(got) < bytes) {
      return fail(Errc::incompatible, Detail::open, "{}: {} bytes are too few", path, got);
    }
    struct flock asked = PosixNotice::whole_file();
    seen.held = ::fcntl(descriptor.get(), F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
    return seen;
  }

  Result<std::unique_ptr<VolumeLock>> lock(std::string_view name, bool exclusive) override {
    const std::string path = path_of(name);
    Descriptor descriptor(open_in_folder(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (descriptor.get() < 0) return fail_errno(errno, Detail::lock, "{}: cannot open it to lock it", path);
    MEMLITH_TRY(check_ordinary(descriptor.get(), path));
    int result = 0;
    do {
      result = ::flock(descriptor.get(), (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) {
      return fail(Errc::busy, Detail::lock, "{}: cannot lock it: somebody else has", path);
    }
    if (result != 0) return fail_errno(errno, Detail::lock, "{}: cannot lock it", path);
    // Somebody may have removed or replaced it since it was opened; a lock on a file that has lost its name keeps nobody out.
    struct stat locked{};
    struct stat named{};
    if (::fstat(descriptor.get(), &locked) != 0 || look(name, named) != 0) {
      return fail_errno(errno, Detail::lock, "{}: cannot look at it", path);
    }
    if (identity_in(locked) != identity_in(named)) {
      return fail(Errc::not_found, Detail::lock, "{}: was replaced while it was being locked", path);
    }
    return std::unique_ptr<VolumeLock>(std::make_unique<PosixLock>(std::move(descriptor)));
  }

 private:
  // Null, with errno, where it cannot be opened. Once it is open, it is never looked for again.
  std::shared_ptr<Folder> folder() {
    const std::lock_guard lock(folder_mutex_);
    if (folder_ == nullptr) folder_ = Folder::open(root_);
    return folder_;
  }

  // What the call says that is given the folder's descriptor; -1, with errno, without the folder.
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
      const std::lock_guard lock(folder_mutex_);
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
    // Also where it was there already: whoever made it may have been killed before its name was durable.
    const Descriptor parent(::openat(own->fd(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return flush_folder(parent.get(), path_of(".."));
  }

  static Status flush_folder(int fd, const std::string& path) {
    if (fd < 0) return fail_errno(errno, Detail::flush, "{}: cannot open the folder to flush it", path);
    if (::fsync(fd) != 0) return fail_errno(errno, Detail::flush, "{}: flush of the folder failed", path);
    return kOk;
  }

  // Asked when the first file is opened.
  bool has_uring() {
    std::call_once(uring_asked_, [&] { has_uring_ = uring_works(); });
    return has_uring_;
  }

  static Status check_ordinary(int fd, const std::string& path) {
    struct stat info{};
    if (::fstat(fd, &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot look at it", path);
    if (S_ISREG(info.st_mode)) return kOk;
    return fail(Errc::invalid, Detail::open, "{}: is not an ordinary file", path);
  }

  // The same descriptor, so that nothing is looked up again; leaves everything as it is where the file system refuses.
  static bool make_direct(int fd, OpenMode mode, DeviceCaps& caps) {
    if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) return false;
    const std::uint32_t block = direct_block_bytes(fd, mode != OpenMode::read_only);
    if (block == 0) {
      (void)::fcntl(fd, F_SETFL, 0);
      return false;
    }
    caps.block_bytes = block;
    return true;
  }

  const std::string root_;
  const IoBackend io_;
  std::mutex folder_mutex_;
  std::shared_ptr<Folder> folder_;  // under folder_mutex_ while it is null, constant from then on
  std::once_flag uring_asked_;
  bool has_uring_ = false;
};

}  // namespace

std::unique_ptr<Volume> make_posix_volume(std::string path, IoBackend io) {
  return std::make_unique<PosixVolume>(absolute(path), io);
}

}  // namespace memlith::core
