// The file system below a file, as far as locks and flushes depend on it. Floor: device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memlith::core {

enum class Medium : std::uint8_t {
  disk,     // a file system of this machine on its disks, or a block device
  memory,   // tmpfs, ramfs: keeps nothing without power
  program,  // another program, or the host of a virtual machine, decides what a flush does: FUSE, virtiofs, 9P
  network,  // another machine has the files: locks and flushes may promise nothing
};

struct FileSystem {
  Medium medium = Medium::disk;
  std::string name;  // as in /proc/self/mountinfo: "ext4", "fuse.sshfs"; empty: only the kernel's number is known
};

// The kernel's number of a FUSE says nothing about its program, so the name of the mount decides.
FileSystem file_system_of(int fd);
FileSystem file_system_at(const std::string& path);  // of the file of this name, if there is one
// The same by the text of a mountinfo and the number of the mount in it. For tests: any text.
FileSystem file_system_in(std::string_view mountinfo, std::uint64_t mount);
// The medium of a file system of this name.
Medium medium_of(std::string_view name);

}  // namespace memlith::core
