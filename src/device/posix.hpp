// Files of the operating system as devices. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "device/volume.hpp"

namespace memlith::core {

// The folder at `path`, seen from the program's current folder as it is now; the folder need not exist yet (make_folder("") makes
// it), and is opened when it is needed first. Where `io` is uring and the kernel refuses it, opening a device fails (unsupported).
std::unique_ptr<Volume> make_posix_volume(std::string path, IoBackend io = IoBackend::automatic);

}  // namespace memlith::core
