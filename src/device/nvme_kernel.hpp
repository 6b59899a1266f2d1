// Commands to an NVMe namespace by the kernel's passthrough: io_uring's URING_CMD on /dev/ngXnY, or an ioctl for each
// where `io` is posix or the kernel has no such rings. Floor: device.
#pragma once

#include <memory>
#include <string>

#include "device/nvme.hpp"

namespace memlith::core {

// `name` is that of the namespace, `block` the path of its block device, of which the limits of a command are read.
// Errors: unsupported: `io` is what the namespace or the kernel does not have, or blocks that memlith cannot use;
// permission, not_found, io.
Result<std::unique_ptr<NvmeCommands>> open_nvme(const std::string& path, const std::string& name,
                                                const std::string& block, IoBackend io, bool writable);

}  // namespace memlith::core
