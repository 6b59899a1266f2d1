// Words that the sources of Images share.
#pragma once

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string>

#include "images.hpp"

namespace memlith::preload {

inline std::string why() {
  std::array<char, 1024> text{};
  memlith_last_error(text.data(), text.size());
  return text.data();
}

inline std::string link_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

inline std::string target_of(int fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink(link_of(fd).c_str(), path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return path;
}

inline memlith_store_options options_of_run() {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  if (settings().guard) options.flags |= MEMLITH_IMAGE_GUARD;
  options.window_ms = settings().weak_ms;
  return options;
}

inline int fail_with(std::int32_t code, const std::string& doing) {
  say(doing + ": " + why());
  errno = memlith_errno(code);
  return -1;
}

// Pipes, sockets, terminals and devices are the program's own. So are files without a name, beside which no log can
// lie, and files of the kernel (/proc, /sys), whose content is made when it is read.
inline bool may_be_kept(int fd, const struct stat& seen) {
  constexpr std::array<std::uint32_t, 10> kKernels{
      PROC_SUPER_MAGIC,   SYSFS_MAGIC,         DEBUGFS_MAGIC, TRACEFS_MAGIC,  SECURITYFS_MAGIC,
      CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, SELINUX_MAGIC, EFIVARFS_MAGIC, BPF_FS_MAGIC};
  if (!S_ISREG(seen.st_mode) || seen.st_nlink == 0) return false;
  struct statfs volume{};
  if (::fstatfs(fd, &volume) != 0) return true;
  return std::find(kKernels.begin(), kKernels.end(), static_cast<std::uint32_t>(volume.f_type)) == kKernels.end();
}

inline bool has_log(const std::string& path) { return ::access((path + ".memlith").c_str(), F_OK) == 0; }
}  // namespace memlith::preload
