#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "device/dax.hpp"
#include "device/direct_io.hpp"
#include "device/disk_facts.hpp"
#include "device/medium.hpp"
#include "device/posix_device.hpp"
#include "device/uring.hpp"

namespace memlith::core {

namespace {

// Changes the same descriptor, so that no name is looked up again; if the file system refuses, everything stays as it
// is.
bool make_direct(int fd, bool writable, DeviceCaps& caps) {
  if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) return false;
  const std::uint32_t block = direct_block_bytes(fd, writable);
  if (block == 0) {
    (void)::fcntl(fd, F_SETFL, 0);
    return false;
  }
  caps.block_bytes = block;
  return true;
}

bool is_block(int fd) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 && S_ISBLK(info.st_mode);
}

}  // namespace

Result<std::unique_ptr<Device>> DeviceMaker::make(std::shared_ptr<const Descriptor> descriptor, const std::string& path,
                                                  bool writable, Caching caching) {
  const int fd = descriptor->get();
  // NONBLOCK is cleared for transfers: on disks that cannot refuse to wait, such as dm-crypt's, transfers of a ring
  // would otherwise fail forever with EAGAIN (Linux before 6.4).
  (void)::fcntl(fd, F_SETFL, 0);
  DeviceCaps caps;
  caps.file_system = file_system_of(fd);
  caps.io = io_;
  if (io_ == IoBackend::dax && writable) return make_dax_device(std::move(descriptor), caps, path);
  const bool direct = caching == Caching::direct && !is_byte_addressable(fd) && make_direct(fd, writable, caps);
  // To a file system, a write of O_DSYNC is one command; to a block device, the kernel flushes behind it all the same.
  if (direct && writable && !is_block(fd)) caps.through_bytes_max = through_bytes_max(disk_under(fd));
  if (caps.block_bytes > caps.log_block_bytes) caps.log_block_bytes = 4096;  // some sectors have 1024 or 2048 bytes
  if (io_ != IoBackend::posix && io_ != IoBackend::dax && !has_uring()) {
    if (io_ == IoBackend::uring) {
      return fail(Errc::unsupported, Detail::open,
                  "{}: io_uring was requested, but this kernel or a sandbox refuses it; let memlith choose "
                  "(MEMLITH_IO_AUTO)",
                  path);
    }
    caps.io = IoBackend::posix;
  }
  return make_posix_device(std::move(descriptor), caps, path, direct);
}

// Determined when the first file is opened.
bool DeviceMaker::has_uring() {
  std::call_once(uring_asked_, [&] { has_uring_ = uring_works(); });
  return has_uring_;
}

}  // namespace memlith::core
