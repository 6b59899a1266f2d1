// What a benchmark's store lies on: files with system calls, files with io_uring, or a raw block device. Floor: kit.
#pragma once

#include <string>
#include <vector>

#include "failure.hpp"
#include "memlith/memlith.hpp"

namespace memlith::tool {

struct Backend {
  std::string name = "file";
  Io io = Io::automatic;
  std::string device;  // empty: a folder

  // Where a new store is made: the device, formatted anew, or the folder.
  [[nodiscard]] Result<std::string> make_place(const std::string& folder) const;
};

// `file`, `file-uring` and `raw`, or some of them; without a device, `raw` is INVALID.
[[nodiscard]] Result<std::vector<Backend>> backends_of(const std::vector<std::string>& names,
                                                       const std::string& device);

// The options --backends and --device of a benchmark.
inline constexpr const char* kBackendsHelp =
    "What stores lie on: file (system calls), file-uring, raw (needs --device)";
inline constexpr const char* kDeviceHelp =
    "A block device for the backend raw. It is formatted for each store: everything on it is lost";

}  // namespace memlith::tool
