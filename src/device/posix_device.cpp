// Transfers by pwritev + fdatasync, past the page cache where the file is opened so; io_uring where several transfers
// are in flight, or for all of them; or by stores to a mapping. Sections: PosixDevice, UringDevice, DaxDevice.
#include "device/posix_device.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/buffer.hpp"
#include "base/sync.hpp"
#include "base/units.hpp"
#include "device/dax.hpp"
#include "device/file_holes.hpp"
#include "device/lines.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// ---- PosixDevice -----------------------------------------------------------------------------------------------

// An NVMe command of this kind has at most 65,536 blocks, 32 MiB of the smallest. Linux 6.1 gives a longer one to a
// controller that names no limit (NVMe over TCP), which then zeroes what is left of the length in 16 bits, and says ok.
constexpr std::uint64_t kDiscardBytesMax = 16 * kMiB;

class PosixDevice : public Device {
 public:
  PosixDevice(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps, std::string path, bool direct,
              std::weak_ptr<RingFile> rings = {})
      : Device(caps, std::move(path), direct), descriptor_(std::move(descriptor)), rings_(std::move(rings)) {
    struct stat info{};
    const bool known = ::fstat(fd(), &info) == 0;
    counts_names_ = known && info.st_nlink > 0;
    if (!known || !S_ISBLK(info.st_mode) || !direct) return;
    void* const page = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd(), 0);
    first_page_ = page == MAP_FAILED ? nullptr : page;
  }
  ~PosixDevice() override {
    if (first_page_ != nullptr) ::munmap(first_page_, kPageBytes);
  }

  Result<std::uint64_t> size() override {
    struct stat info{};
    std::uint64_t bytes = 0;
    if (::fstat(fd(), &info) != 0 || (S_ISBLK(info.st_mode) && ::ioctl(fd(), BLKGETSIZE64, &bytes) != 0)) {
      return fail_errno(errno, Detail::read, "{}: cannot determine its size", path_);
    }
    return S_ISBLK(info.st_mode) ? bytes : static_cast<std::uint64_t>(info.st_size);
  }

  Result<FileIdentity> identity() override {
    struct stat info{};
    if (::fstat(fd(), &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path_);
    return identity_in(info);
  }

  FileBirth birth() override { return birth_of(fd()); }
  Result<std::uint64_t> stamp() override { return stamp_of(fd(), path_); }
  std::optional<DiskFacts> disk() override { return disk_under(fd()); }
  Status wait_for_transfers() override {
    const std::shared_ptr<RingFile> rings = ring_file();  // their own lock is not in their way
    return rings != nullptr ? RingFile::wait_for_transfers(rings->fd(), path()) : kOk;
  }
  Result<bool> removed() override {
    struct stat info{};
    if (::fstat(fd(), &info) != 0) return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path_);
    return info.st_nlink == 0 && counts_names_;
  }

  Status match_permissions(Device& file) override { return core::match_permissions(file, fd(), path_); }
  Result<Mappable> mappable(std::uint64_t offset, std::uint64_t) override {
    MEMLITH_ASSERT(!direct());
    return Mappable{fd(), offset};
  }

  std::uint64_t skip_hole(std::uint64_t offset) override { return skip_hole_of(fd(), offset); }
  std::optional<Hole> next_hole(std::uint64_t offset) override { return next_hole_of(fd(), offset); }

  [[nodiscard]] int descriptor() const { return fd(); }

  Result<bool> clone(Device& source) override {
    const auto* const file = dynamic_cast<const PosixDevice*>(&source);
    if (file == nullptr) return false;
    MEMLITH_TRY(check_latch());
    if (::ioctl(fd(), FICLONE, file->fd()) == 0) return true;
    const bool failed = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return failed ? Result<bool>(fail_errno(errno, Detail::write, "{}: cannot share the blocks of {}", path_,
                                            source.path()))
                  : Result<bool>(false);
  }

  bool begin_direct_write() override {
    const SharedLock lock(direct_mutex_);
    if (!direct()) return false;
    queued_writes_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void end_direct_write() override { queued_writes_.fetch_sub(1, std::memory_order_relaxed); }

  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override {
    if (caps_.io != IoBackend::posix && caps_.io != IoBackend::dax) {
      if (auto rings = ring_file(); rings != nullptr) {
        if (auto queue = make_uring_queue(*this, std::move(rings), depth)) return queue;
      }
    }
    return Device::make_queue(depth);
  }

  [[nodiscard]] bool writes_whole_blocks() const override { return !direct(); }
  bool read_cached(std::uint64_t offset, std::span<std::byte> target) override {
    if (direct()) return false;
    const iovec piece{target.data(), target.size()};
    return ::preadv2(fd(), &piece, 1, static_cast<off_t>(offset), RWF_NOWAIT) == static_cast<ssize_t>(target.size());
  }

 protected:
  [[nodiscard]] int fd() const { return descriptor_->get(); }

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
    // Nearly always the kernel writes everything in one call; the rest handles the other cases.
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

  // Whatever is not written as a whole is written anew, and flushed.
  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    std::uint64_t bytes = 0;
    for (const iovec& piece : pieces) bytes += piece.iov_len;
    const SharedLock lock(direct_mutex_);
    if (!direct() || pieces.size() > IOV_MAX) return false;
    const ssize_t done = write_some_through(pieces, offset);
    if (done >= 0) return static_cast<std::uint64_t>(done) == bytes;
    if (errno == EINTR || errno == EINVAL || errno == EOPNOTSUPP) return false;
    return fail_errno(errno, Detail::write, "{}: write at offset {} failed{}", path_, offset, advice(errno));
  }

  // Some file systems accept O_DIRECT when a file is opened, and small transfers, and refuse others. From the first
  // refusal on, transfers go through the page cache; the refused transfer wrote nothing. False if that is impossible.
  //
  // No direct write may be in flight at that time: it might change a sector on the medium while the page cache holds
  // the page, which the kernel would later write back with the sector's old content.
  bool leave_direct() {
    const ExclusiveLock lock(direct_mutex_);
    if (!direct()) return true;
    const std::shared_ptr<RingFile> rings = rings_.lock();
    if (queued_writes_.load(std::memory_order_relaxed) != 0 || ::fcntl(fd(), F_SETFL, 0) != 0 ||
        (rings != nullptr && ::fcntl(rings->fd(), F_SETFL, 0) != 0)) {
      errno = EINVAL;
      return false;
    }
    direct_.store(false, std::memory_order_relaxed);
    return true;
  }
  ssize_t write_once(std::span<const iovec> pieces, std::uint64_t offset) {
    if (!direct()) return write_some(pieces, offset);
    const SharedLock lock(direct_mutex_);
    return write_some(pieces, offset);
  }
  [[nodiscard]] const char* advice(int error) const {
    return error == EINVAL && direct() ? " with direct I/O (O_DIRECT)" : "";
  }

  // As pread(2) and pwritev(2), which may transfer a part.
  virtual ssize_t read_some(std::span<std::byte> target, std::uint64_t offset) {
    return ::pread(fd(), target.data(), target.size(), static_cast<off_t>(offset));
  }
  virtual ssize_t write_some(std::span<const iovec> pieces, std::uint64_t offset) {
    return ::pwritev(fd(), pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset));
  }

  virtual ssize_t write_some_through(std::span<const iovec> pieces, std::uint64_t offset) {
    return ::pwritev2(fd(), pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset), RWF_DSYNC);
  }

  Status do_flush() override {
    // fdatasync of a block device also writes and awaits whatever else its page cache holds, such as the homes of the
    // checkpoint that runs. Direct writes only need the cache of the disk to be flushed, which the flush of any range
    // ends with.
    const bool some = first_page_ != nullptr && direct();
    if ((some ? ::msync(first_page_, kPageBytes, MS_SYNC) : ::fdatasync(fd())) != 0)
      return fail_errno(errno, Detail::flush, "{}: flush failed", path_);
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
      (void)::ftruncate(fd(), static_cast<off_t>(present));  // some file systems keep what they have reserved so far
      return status;
    }
    return reserve_by_writing(present, bytes);
  }

  // Space that is reserved and was never written also looks like a hole; reserving it again costs little.
  Status do_fill_holes() override {
    struct stat found{};
    if (::fstat(fd(), &found) != 0) return fail_errno(errno, Detail::resize, "{}: cannot read its attributes", path_);
    const off_t hole = ::lseek(fd(), 0, SEEK_HOLE);
    if (hole < 0 || hole >= found.st_size) return kOk;  // no hole, or a file system that does not report holes
    const auto size = static_cast<std::uint64_t>(found.st_size);
    const std::uint64_t held = std::min(size, static_cast<std::uint64_t>(found.st_blocks) * 512);
    const auto full = [&](int error) {
      return fail_errno(error, Detail::resize,
                        "{}: the file has holes, and the disk has no space for them: they need about {} bytes. Free "
                        "disk space, and open the file again. The file's content was not changed",
                        path_, size - held);
    };
    // A file system that fails half-way may keep what it has reserved so far and leave the disk full. So the free space
    // is checked first.
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

  Status do_discard(std::uint64_t offset, std::uint64_t bytes) override {
    for (std::uint64_t part = 0; bytes > 0; offset += part, bytes -= part) {
      part = std::min(bytes, kDiscardBytesMax);
      const auto begin = static_cast<off_t>(offset);
      while (::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, static_cast<off_t>(part)) != 0) {
        if (errno == EINTR) continue;
        // EBUSY: a block device that another descriptor has claimed.
        const bool unable = errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM || errno == EBUSY;
        if (unable) return Device::do_discard(offset, bytes);
        return fail_errno(errno, Detail::resize, "{}: cannot give {} bytes of disk space back", path_, bytes);
      }
    }
    return kOk;
  }

  Status do_undiscard(std::uint64_t offset, std::uint64_t bytes) override {
    int result = 0;
    do {
      result = ::fallocate(fd(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return kOk;
    return fail_errno(errno, Detail::resize, "{}: {} bytes were discarded, and the disk has no space for new content",
                      path_, bytes);
  }

  Status do_truncate(std::uint64_t bytes) override {
    if (::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
      return fail_errno(errno, Detail::resize, "{}: cannot set its size to {} bytes", path_, bytes);
    }
    return kOk;
  }

 private:
  // For file systems without fallocate. Writes back the bytes that were read, because some file systems report holes
  // where there are bytes.
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

  // For file systems without fallocate: writes zeros.
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

  // One for all rings, as long as there are any.
  std::shared_ptr<RingFile> ring_file() {
    const ExclusiveLock lock(direct_mutex_);  // as leave_direct()
    std::shared_ptr<RingFile> rings = rings_.lock();
    if (rings == nullptr) rings_ = rings = RingFile::open(fd(), direct());
    return rings;
  }

  std::shared_ptr<const Descriptor> descriptor_;
  // Shared while a call writes past the page cache; exclusive while direct_, which any thread may read, becomes false.
  SharedMutex direct_mutex_;
  // Writes of queues that bypass the page cache; raised under direct_mutex_.
  std::atomic<std::uint32_t> queued_writes_{0};
  std::weak_ptr<RingFile> rings_ MEMLITH_GUARDED_BY(direct_mutex_);  // null: there are no rings
  void* first_page_ = nullptr;  // of a block device that is written past the page cache
  bool counts_names_ = false;   // some file systems report a link count of 0 for every file
};

// ---- UringDevice -----------------------------------------------------------------------------------------------

// Reads and writes with io_uring. Flushes remain fdatasync calls: the kernel hands a flush in a ring to a thread of its
// own, and waking that thread takes longer than the call.
class UringDevice final : public PosixDevice {
 public:
  UringDevice(std::shared_ptr<const Descriptor> descriptor, std::shared_ptr<RingFile> rings, DeviceCaps caps,
              std::string path, bool direct)
      : PosixDevice(std::move(descriptor), caps, std::move(path), direct, rings), calls_(std::move(rings)) {}

 protected:
  ssize_t read_some(std::span<std::byte> target, std::uint64_t offset) override { return calls_.read(target, offset); }
  ssize_t write_some(std::span<const iovec> pieces, std::uint64_t offset) override {
    return calls_.write(pieces, offset, 0);
  }
  ssize_t write_some_through(std::span<const iovec> pieces, std::uint64_t offset) override {
    return calls_.write(pieces, offset, RWF_DSYNC);
  }

 private:
  UringCalls calls_;
};

// ---- DaxDevice -------------------------------------------------------------------------------------------------

// Writes lines to a mapping, durable at once; so a flush has only lengths and space of the file to make durable. Reads
// are system calls, because the kernel reports a damaged line of the medium as an error there, and with a signal in a
// mapping.
class DaxDevice final : public PosixDevice {
 public:
  DaxDevice(std::shared_ptr<const Descriptor> descriptor, std::unique_ptr<DaxMapping> mapping, std::uint64_t size,
            DeviceCaps caps, std::string path)
      : PosixDevice(std::move(descriptor), caps, std::move(path), false), mapping_(std::move(mapping)), size_(size) {}

  std::unique_ptr<IoQueue> make_queue(std::uint32_t depth) override { return Device::make_queue(depth); }

 protected:
  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    std::uint64_t end = offset;
    for (const iovec& piece : pieces) end += piece.iov_len;
    if (end > size_.load(std::memory_order_relaxed)) MEMLITH_TRY(do_truncate(end));
    return mapping_->write(offset, pieces);
  }

  // The first flush is a call in any case: the program that had the file before may have been killed before its flush.
  Status do_flush() override {
    return metadata_changed_.exchange(false, std::memory_order_relaxed) ? PosixDevice::do_flush() : kOk;
  }

  Status do_reserve(std::uint64_t bytes) override { return change(PosixDevice::do_reserve(bytes), 0, 0); }
  Status do_fill_holes() override { return change(PosixDevice::do_fill_holes(), 0, 0); }
  Status do_truncate(std::uint64_t bytes) override {
    return change(PosixDevice::do_truncate(bytes), bytes, ~std::uint64_t{0});
  }
  Status do_discard(std::uint64_t offset, std::uint64_t bytes) override {
    return change(PosixDevice::do_discard(offset, bytes), offset, offset + bytes);
  }
  Status do_undiscard(std::uint64_t offset, std::uint64_t bytes) override {
    return change(PosixDevice::do_undiscard(offset, bytes), 0, 0);
  }

 private:
  // Called after a change of the file's length or space. Pages [begin, end) may have lost theirs.
  Status change(Status status, std::uint64_t begin, std::uint64_t end) {
    metadata_changed_.store(true, std::memory_order_relaxed);
    if (begin < end) mapping_->forget(begin, end);
    MEMLITH_TRY(status);
    MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, size());
    size_.store(bytes, std::memory_order_relaxed);
    return kOk;
  }

  std::unique_ptr<DaxMapping> mapping_;
  std::atomic<std::uint64_t> size_;
  std::atomic<bool> metadata_changed_{true};
};

}  // namespace

std::unique_ptr<Device> make_posix_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                          std::string path, bool direct) {
  if (caps.io == IoBackend::uring) {
    if (std::shared_ptr<RingFile> rings = RingFile::open(descriptor->get(), direct); rings != nullptr) {
      return std::make_unique<UringDevice>(std::move(descriptor), std::move(rings), caps, std::move(path), direct);
    }
  }
  return std::make_unique<PosixDevice>(std::move(descriptor), caps, std::move(path), direct);
}

Result<std::unique_ptr<Device>> make_dax_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                                std::string path) {
  MEMLITH_TRY_ASSIGN(std::unique_ptr<DaxMapping> mapping, DaxMapping::open(descriptor->get(), path));
  struct stat info{};
  if (::fstat(descriptor->get(), &info) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot read its attributes", path);
  }
  caps.block_bytes = 1;
  caps.atomic_bytes = kWordBytes;
  caps.log_block_bytes = kLineBytes;
  return std::unique_ptr<Device>(std::make_unique<DaxDevice>(std::move(descriptor), std::move(mapping),
                                                             static_cast<std::uint64_t>(info.st_size), caps,
                                                             std::move(path)));
}

Status match_permissions(Device& file, int other, const std::string& other_path) {
  auto* const device = dynamic_cast<PosixDevice*>(&file);
  if (device == nullptr) return kOk;
  struct stat wanted{};
  struct stat found{};
  if (::fstat(device->descriptor(), &wanted) != 0 || ::fstat(other, &found) != 0) return kOk;
  if ((wanted.st_mode & 0777) != (found.st_mode & 0777) && ::fchmod(other, wanted.st_mode & 0777) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot give it the permissions of {}", other_path, file.path());
  }
  // Only root can do this, and only root has to: the log of another user's file must belong to that user.
  const bool other_owner = wanted.st_uid != found.st_uid || wanted.st_gid != found.st_gid;
  if (::geteuid() == 0 && other_owner && ::fchown(other, wanted.st_uid, wanted.st_gid) != 0) {
    return fail_errno(errno, Detail::open, "{}: cannot give it the owner of {}", other_path, file.path());
  }
  return kOk;
}

}  // namespace memlith::core
