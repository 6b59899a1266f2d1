#include "backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "private/options.h"

namespace memlith::tool {

Result<std::string> Backend::make_place(const std::string& folder) const {
  if (device.empty()) return folder;
  if (const std::int32_t code = memlith_device_format(device.c_str(), MEMLITH_FORMAT_FORCE); code != MEMLITH_OK) {
    return library_failure(code, "formatting the device");
  }
  return device;
}

Result<std::vector<Backend>> backends_of(const std::vector<std::string>& names, const BackendDevices& devices) {
  std::vector<Backend> backends;
  for (const std::string& name : names) {
    if (name == "file") {
      backends.push_back({name, Io::posix, {}});
    } else if (name == "file-uring") {
      backends.push_back({name, static_cast<Io>(MEMLITH_IO_URING), {}});
    } else if (name == "raw" && !devices.block.empty()) {
      backends.push_back({name, Io::automatic, devices.block});
    } else if (name == "nvme" && !devices.name_space.empty()) {
      backends.push_back({name, Io::automatic, devices.name_space});
    } else {
      const char* advice = "The backends are file, file-uring, raw and nvme.";
      if (name == "raw") advice = "Name a block device with --device; everything on it is lost.";
      if (name == "nvme") advice = "Name an NVMe namespace with --namespace; everything on it is lost.";
      return tool_failure(MEMLITH_INVALID, fmt::format("the backend {} cannot be measured", name), advice);
    }
  }
  return backends;
}

}  // namespace memlith::tool
