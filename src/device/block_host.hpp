// Block devices of the operating system as places of raw volumes. Floor: device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/raw_volume.hpp"

namespace memlith::core {

// True if there is a block device at the path.
bool is_block_device(const std::string& path);

// The device need not exist yet. Locks are on bytes of the device's name behind any content, so they do not disturb
// programs that lock the whole device for a moment (udev). A program that has the exclusive lock has also claimed the
// device (O_EXCL), so it can neither be mounted nor formatted meanwhile.
std::unique_ptr<RawHost> make_block_host(std::string path, IoBackend io);

}  // namespace memlith::core
