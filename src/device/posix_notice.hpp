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

// The new file `name`, which is open as `descriptor`, as a notice that shows these bytes. Null where that cannot be.
std::unique_ptr<Notice> make_posix_notice(Descriptor descriptor, std::shared_ptr<Folder> folder, std::string name,
                                          std::span<const std::byte> first);

// What the notice shows that is open as `fd`.
Result<SeenNotice> look_at_posix_notice(int fd, const std::string& path, std::uint64_t bytes);

}  // namespace memlith::core
