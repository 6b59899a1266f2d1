// A file of the operating system as a device, and functions on files for the volume. Floor: device.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/descriptor.hpp"
#include "device/device.hpp"
#include "device/volume.hpp"

namespace memlith::core {

inline FileIdentity identity_in(const struct stat& info) { return {info.st_dev, info.st_ino}; }
FileBirth birth_of(int fd);
Result<std::uint64_t> stamp_of(int fd, const std::string& path);  // Device::stamp

// Makes devices of open files and of open block devices. Locks may share the descriptors.
class DeviceMaker {
 public:
  explicit DeviceMaker(IoBackend io) : io_(io) {}
  // With Caching::direct the descriptor bypasses the page cache from now on, if the file system accepts it. Errors:
  // unsupported (io_uring, byte-addressable memory).
  Result<std::unique_ptr<Device>> make(std::shared_ptr<const Descriptor> descriptor, const std::string& path,
                                       bool writable, Caching caching);

 private:
  bool has_uring();

  const IoBackend io_;
  std::once_flag uring_asked_;
  bool has_uring_ = false;
};

// `caps.io` selects how the device transfers, and `direct` says whether its descriptor bypasses the page cache.
std::unique_ptr<Device> make_posix_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                          std::string path, bool direct);

// The same for a file that is written by lines (IoBackend::dax). Errors: unsupported, as DaxMapping::open().
Result<std::unique_ptr<Device>> make_dax_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                                std::string path);

// Copies the permissions of the device's file to the file that is open as `other`. No effect if the device is not a
// file of the operating system.
Status match_permissions(Device& file, int other, const std::string& other_path);

}  // namespace memlith::core
