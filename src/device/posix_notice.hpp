// Notices as files of the operating system. Floor: device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "device/folder.hpp"
#include "device/volume.hpp"

namespace memlith::core {

// Makes a notice with these bytes of the new file `name`, which is open as `descriptor`. Null if that is impossible.
std::unique_ptr<Notice> make_posix_notice(Descriptor descriptor, std::shared_ptr<Folder> folder, std::string name,
                                          std::span<const std::byte> first);

// Reads the notice that is open as `fd`.
Result<SeenNotice> look_at_posix_notice(int fd, const std::string& path, std::uint64_t bytes);

}  // namespace memlith::core
