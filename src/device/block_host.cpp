// Sections: locks, notices, BlockHost.
#include "device/block_host.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/not_for_children.hpp"
#include "device/posix_device.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// Behind any content; the lock of RingFile is on the byte before.
constexpr off_t kStoreByte = (off_t{1} << 62) + 1;
constexpr off_t kNoticeByte = kStoreByte + 1;

struct flock lock_of(short type, off_t byte) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

Result<Descriptor> open_block(const std::string& path, int flags) {
  Descriptor descriptor(above_standard(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK)));
  if (descriptor.get() < 0) return fail_errno(errno, Detail::open, "{}: cannot open it", path);
  struct stat info{};
  if (::fstat(descriptor.get(), &info) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
  }
  if (!S_ISBLK(info.st_mode)) return fail(Errc::invalid, Detail::open, "{}: is not a block device", path);
  return descriptor;
}

// Claims the device: neither a mount nor another claim can have it.
Result<Descriptor> claim_block(const std::string& path) {
  auto claimed = open_block(path, O_RDONLY | O_EXCL);
  if (claimed.ok() || claimed.status().os_errno != EBUSY) return claimed;
  return fail(Errc::busy, Detail::lock,
              "{}: the device is in use: it is mounted, or a program or another device (RAID, LVM, dm-crypt, swap) has "
              "claimed it. `lsblk {}` and `fuser -v {}` tell",
              path, path, path);
}

// ---- locks -----------------------------------------------------------------------------------------------------

class BlockLock final : public VolumeLock {
 public:
  BlockLock(Descriptor locked, Descriptor claimed)
      : locked_(std::move(locked)),
        claimed_(std::move(claimed)),
        lock_not_for_children_(locked_.get()),
        claim_not_for_children_(claimed_.get()),
        process_(::getpid()) {}
  // As PosixLock: a child may share the lock, and must not release it.
  ~BlockLock() override {
    if (process_ != ::getpid()) return;
    struct flock lock = lock_of(F_UNLCK, kStoreByte);
    (void)::fcntl(locked_.get(), F_OFD_SETLK, &lock);
  }

 private:
  Descriptor locked_;
  Descriptor claimed_;  // none for a shared lock
  NotForChildren lock_not_for_children_;
  NotForChildren claim_not_for_children_;
  pid_t process_;
};

class BlockFile final : public OpenFile {
 public:
  BlockFile(DeviceMaker& devices, std::shared_ptr<const Descriptor> descriptor, std::string path, bool writable)
      : devices_(devices), descriptor_(std::move(descriptor)), path_(std::move(path)), writable_(writable) {}

  // On a descriptor of its own, because the lock belongs to the open file.
  Result<std::unique_ptr<VolumeLock>> lock(bool exclusive) override {
    MEMLITH_TRY_ASSIGN(Descriptor own, open_block(path_, exclusive ? O_RDWR : O_RDONLY));
    struct flock lock = lock_of(exclusive ? F_WRLCK : F_RDLCK, kStoreByte);
    if (::fcntl(own.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) {
        return fail(Errc::busy, Detail::lock, "{}: cannot lock it: another process or store holds the lock", path_);
      }
      return fail_errno(errno, Detail::lock, "{}: cannot lock it", path_);
    }
    Descriptor claimed;
    if (exclusive) {
      MEMLITH_TRY_ASSIGN(claimed, claim_block(path_));
      MEMLITH_TRY(RingFile::wait_for_transfers(own.get(), path_));
    }
    return std::unique_ptr<VolumeLock>(std::make_unique<BlockLock>(std::move(own), std::move(claimed)));
  }
  Result<std::unique_ptr<Device>> device(std::string_view, Caching caching) override {
    return devices_.make(descriptor_, path_, writable_, caching);
  }

 private:
  DeviceMaker& devices_;
  std::shared_ptr<const Descriptor> descriptor_;
  const std::string path_;
  const bool writable_;
};

// ---- notices ---------------------------------------------------------------------------------------------------

// Content in the page cache of the device, which all processes share.
class BlockNotice final : public Notice {
 public:
  BlockNotice(Descriptor descriptor, std::uint64_t offset)
      : descriptor_(std::move(descriptor)), not_for_children_(descriptor_.get()), offset_(static_cast<off_t>(offset)) {}
  void show(std::span<const std::byte> bytes) override {
    if (::pwrite(descriptor_.get(), bytes.data(), bytes.size(), offset_) != static_cast<ssize_t>(bytes.size()))
      remove();
  }
  void remove() override {
    const std::uint64_t nothing = 0;
    (void)::pwrite(descriptor_.get(), &nothing, sizeof nothing, offset_);
  }

 private:
  Descriptor descriptor_;
  NotForChildren not_for_children_;
  off_t offset_;
};

// ---- BlockHost -------------------------------------------------------------------------------------------------

class BlockHost final : public RawHost {
 public:
  BlockHost(std::string path, IoBackend io) : path_(std::move(path)), devices_(io) {}

  std::string path() const override { return path_; }

  Result<std::unique_ptr<OpenFile>> open(bool writable) override {
    MEMLITH_TRY_ASSIGN(Descriptor opened, open_block(path_, writable ? O_RDWR : O_RDONLY));
    auto descriptor = std::make_shared<const Descriptor>(std::move(opened));
    return std::unique_ptr<OpenFile>(std::make_unique<BlockFile>(devices_, std::move(descriptor), path_, writable));
  }

  std::unique_ptr<Notice> make_notice(std::uint64_t offset, std::span<const std::byte> first) override {
    auto descriptor = open_block(path_, O_RDWR);
    if (!descriptor.ok()) return nullptr;
    struct flock held = lock_of(F_WRLCK, kNoticeByte);
    if (::fcntl(descriptor->get(), F_OFD_SETLK, &held) != 0) return nullptr;
    auto notice = std::make_unique<BlockNotice>(std::move(*descriptor), offset);
    notice->show(first);
    return notice;
  }

  Result<SeenNotice> look_at_notice(std::uint64_t offset, std::uint64_t bytes) override {
    MEMLITH_TRY_ASSIGN(const Descriptor descriptor, open_block(path_, O_RDONLY));
    SeenNotice seen{std::vector<std::byte>(bytes)};
    if (::pread(descriptor.get(), seen.bytes.data(), bytes, static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(bytes)) {
      return fail_errno(errno, Detail::read, "{}: cannot read its counters", path_);
    }
    std::uint64_t begin = 0;
    std::memcpy(&begin, seen.bytes.data(), sizeof begin);
    if (begin == 0) return fail(Errc::not_found, Detail::open, "{}: there are no counters", path_);
    struct flock asked = lock_of(F_WRLCK, kNoticeByte);
    seen.held = ::fcntl(descriptor.get(), F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
    return seen;
  }

 private:
  const std::string path_;
  DeviceMaker devices_;
};

}  // namespace

bool is_block_device(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISBLK(info.st_mode);
}

std::unique_ptr<RawHost> make_block_host(std::string path, IoBackend io) {
  std::error_code unknown;  // later changes of the working directory do not count
  const auto whole = std::filesystem::absolute(path, unknown);
  return std::make_unique<BlockHost>(unknown ? std::move(path) : whole.string(), io);
}

}  // namespace memlith::core
