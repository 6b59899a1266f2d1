// The backend under a benchmark's store: files with system calls, files with io_uring, a raw block device, or an NVMe
// namespace by its own commands. Floor: kit.
#pragma once

#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "memlith/memlith.hpp"

namespace memlith::tool {

struct Backend {
  std::string name = "file";
  Io io = Io::automatic;
  std::string device;  // empty: a folder

  // Where a new store is made: the device, formatted anew, or the folder.
  [[nodiscard]] Result<std::string> make_place(const std::string& folder) const;
};

struct BackendDevices {
  std::string block;
  std::string name_space;
};

// `file`, `file-uring`, `raw` and `nvme`, or some of them; `raw` and `nvme` are INVALID without their device.
[[nodiscard]] Result<std::vector<Backend>> backends_of(const std::vector<std::string>& names,
                                                       const BackendDevices& devices);

// The options --backends, --device and --namespace of a benchmark.
inline constexpr const char* kBackendsHelp =
    "What stores lie on: file (system calls), file-uring, raw (needs --device), nvme (needs --namespace)";
inline constexpr const char* kDeviceHelp =
    "A block device for the backend raw. It is formatted for each store: everything on it is lost";
inline constexpr const char* kNamespaceHelp =
    "An NVMe namespace (/dev/ng0n1) for the backend nvme. It is formatted for each store: everything on it is lost";

}  // namespace memlith::tool
