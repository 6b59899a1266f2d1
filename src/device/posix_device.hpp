// One file of the operating system as a device, and what the volume has to know of files. Floor: device.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "base/descriptor.hpp"
#include "device/device.hpp"

namespace memlith::core {

inline FileIdentity identity_in(const struct stat& info) { return {info.st_dev, info.st_ino}; }

// The open file as a device. `caps.io` says how it transfers, and `direct` whether its descriptor is past the page cache. Locks may share
// the descriptor.
std::unique_ptr<Device> make_posix_device(std::shared_ptr<const Descriptor> descriptor, DeviceCaps caps,
                                          std::string path, bool direct);

// Gives the file that is open as `other` the permissions of the device's. Of no effect where the device is not one of these.
Status match_permissions(Device& file, int other, const std::string& other_path);

}  // namespace memlith::core
