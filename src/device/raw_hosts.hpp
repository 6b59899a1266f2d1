// The hosts of raw volumes in this system: a block device, or an NVMe namespace. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "device/raw_volume.hpp"

namespace memlith::core {

// True if the path leads to such a device.
bool is_raw_device(const std::string& path);

// Makes the host of the device at the path. Errors: those of make_nvme_host().
Result<std::unique_ptr<RawHost>> make_raw_host(std::string path, IoBackend io);

// Makes an empty raw volume of the device. Errors: invalid (no such device, or too small), busy (mounted, or in use),
// exists (the device holds something; only without `overwrite`), permission, unsupported, io.
Status format_raw_device(const std::string& path, bool overwrite);

}  // namespace memlith::core
