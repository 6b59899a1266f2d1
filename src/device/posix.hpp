// Files of the operating system as devices. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "device/volume.hpp"

namespace memlith::core {

// The folder at `path`, which need not exist yet (make_folder("") makes it). Where `io` is uring and the kernel refuses it, opening
// a device fails (unsupported).
std::unique_ptr<Volume> make_posix_volume(std::string path, IoBackend io = IoBackend::automatic);

// Gives `other` the permissions of `file`, and for root its owner: what a log holds is as secret as the file that it belongs to.
Status match_permissions(const std::string& file, const std::string& other);

}  // namespace memlith::core
