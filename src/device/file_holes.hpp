// The holes of a file, as the file system tells them. Floor: device.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "device/device.hpp"

namespace memlith::core {

// See Device::skip_hole().
inline std::uint64_t skip_hole_of(int fd, std::uint64_t offset) {
  const off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data >= 0) return static_cast<std::uint64_t>(data);
  struct stat info{};
  if (errno == ENXIO && ::fstat(fd, &info) == 0) return static_cast<std::uint64_t>(info.st_size);
  return offset;
}

// See Device::next_hole(). The end of the file is found as a hole without bytes.
inline std::optional<Device::Hole> next_hole_of(int fd, std::uint64_t offset) {
  const off_t hole = ::lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
  const auto begin = static_cast<std::uint64_t>(hole);
  const std::uint64_t end = hole < 0 ? begin : skip_hole_of(fd, begin);
  return begin < end ? std::optional(Device::Hole{begin, end}) : std::nullopt;
}

}  // namespace memlith::core
