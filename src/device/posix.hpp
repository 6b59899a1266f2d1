// Files of the operating system as devices. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "device/volume.hpp"

namespace memlith::core {

// The folder at `path`, relative to the program's working directory at the time of the call. The folder need not exist
// yet (make_folder("") creates it), and is opened at its first use. If `io` is uring and the kernel refuses io_uring,
// opening a device fails (unsupported).
std::unique_ptr<Volume> make_posix_volume(std::string path, IoBackend io = IoBackend::automatic);

}  // namespace memlith::core
