// A file of the operating system as a device, and functions on files for the volume. Floor: device.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "base/descriptor.hpp"
#include "device/device.hpp"

namespace memlith::core {

inline FileIdentity identity_in(const struct stat& info) { return {info.st_dev, info.st_ino}; }

// Makes a device of the open file. `caps.io` selects how it transfers, and `direct` says whether its descriptor
// bypasses the page cache. Locks may share the descriptor.
std::unique_ptr<Device> make_posix_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                          std::string path, bool direct);

// Copies the permissions of the device's file to the file that is open as `other`. No effect if the device is not a
// file of the operating system.
Status match_permissions(Device& file, int other, const std::string& other_path);

}  // namespace memlith::core
