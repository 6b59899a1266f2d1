// NVMe namespaces that are used by commands (/dev/ngXnY) as places of raw volumes. Floor: device.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/nvme.hpp"
#include "device/raw_volume.hpp"

namespace memlith::core {

// The parts of a host.
struct NvmeParts {
  std::string path;  // for messages
  // Locks and notices: those of the same namespace as a block device.
  std::unique_ptr<RawHost> claims;
  std::function<Result<std::unique_ptr<NvmeCommands>>(bool writable)> commands;
  // Called under a new lock: nothing is on its way to the namespace any more that another program has written.
  std::function<Status(bool exclusive)> flush_others;
};
std::unique_ptr<RawHost> make_nvme_host(NvmeParts parts);

// True if the path leads to the character device of a namespace.
bool is_nvme_namespace(const std::string& path);

// Takes its locks on the block device of the same namespace, which an exclusive lock also claims (O_EXCL): a store is
// not open by both ways at once, and no program mounts it. Errors: unsupported: there is no such block device;
// not_found.
Result<std::unique_ptr<RawHost>> make_nvme_host(std::string path, IoBackend io);

}  // namespace memlith::core
