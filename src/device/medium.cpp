#include "device/medium.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/descriptor.hpp"

namespace memlith::core {

namespace {

// File systems whose files another machine has.
constexpr std::array<std::string_view, 23> kNetwork{
    "afs",        "beegfs",        "ceph",           "cifs",        "coda",         "fuse.ceph",     "fuse.curlftpfs",
    "fuse.davfs", "fuse.gcsfuse",  "fuse.glusterfs", "fuse.goofys", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone",
    "fuse.s3fs",  "fuse.smbnetfs", "fuse.sshfs",     "gpfs",        "lustre",       "nfs",           "nfs4",
    "smb3",       "smbfs"};
// File systems of the host of a virtual machine.
constexpr std::array<std::string_view, 3> kHost{"9p", "vboxsf", "virtiofs"};
constexpr std::uint32_t kVboxsfNumber = 0x786f4256;
constexpr std::uint32_t kExtNumber = EXT4_SUPER_MAGIC;
constexpr std::uint32_t kXfsNumber = XFS_SUPER_MAGIC;
constexpr std::uint32_t kBtrfsNumber = BTRFS_SUPER_MAGIC;
constexpr std::uint32_t kOverlayNumber = OVERLAYFS_SUPER_MAGIC;

std::string read_text(const std::string& path) {
  std::string text;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(file.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  return text;
}

bool to_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data();
}

std::string_view next_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

// By the kernel's number, where /proc is not mounted.
FileSystem by_number(std::uint32_t number) {
  switch (number) {
    case TMPFS_MAGIC: return {Medium::memory, "tmpfs"};
    case RAMFS_MAGIC: return {Medium::memory, "ramfs"};
    case NFS_SUPER_MAGIC: return {Medium::network, "nfs"};
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC: return {Medium::network, "cifs"};
    case CEPH_SUPER_MAGIC: return {Medium::network, "ceph"};
    case V9FS_MAGIC: return {Medium::program, "9p"};
    case kVboxsfNumber: return {Medium::program, "vboxsf"};
    case FUSE_SUPER_MAGIC: return {Medium::program, "fuse"};
    case kExtNumber: return {Medium::disk, "ext4"};
    case kXfsNumber: return {Medium::disk, "xfs"};
    case kBtrfsNumber: return {Medium::disk, "btrfs"};
    case kOverlayNumber: return {Medium::disk, "overlay"};
    default: return {};
  }
}

}  // namespace

Medium medium_of(std::string_view name) {
  const auto has = [name](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (name == "tmpfs" || name == "ramfs") return Medium::memory;
  if (has(kNetwork)) return Medium::network;
  // ntfs-3g and exfat-fuse are "fuseblk": a program here, on a disk here.
  if (has(kHost) || name.starts_with("fuse")) return Medium::program;
  return Medium::disk;
}

// A line: NUMBER PARENT DEVICE ROOT PLACE OPTIONS [TAG...] - TYPE SOURCE OPTIONS
FileSystem file_system_in(std::string_view mountinfo, std::uint64_t mount) {
  while (!mountinfo.empty()) {
    const std::size_t end = std::min(mountinfo.find('\n'), mountinfo.size());
    std::string_view line = mountinfo.substr(0, end);
    mountinfo.remove_prefix(std::min(end + 1, mountinfo.size()));
    std::uint64_t number = 0;
    if (!to_number(next_word(line), number) || number != mount) continue;
    const std::size_t type = line.find(" - ");
    if (type == std::string_view::npos) break;
    line.remove_prefix(type + 3);
    const std::string_view name = next_word(line);
    return {medium_of(name), std::string(name)};
  }
  return {};
}

FileSystem file_system_of(int fd) {
  struct stat file{};
  struct statfs system{};
  // The file system of a device's name says nothing about the device.
  if (::fstat(fd, &file) != 0 || S_ISBLK(file.st_mode) || S_ISCHR(file.st_mode)) return {};
  if (::fstatfs(fd, &system) != 0) return {};
  const FileSystem by_kernel = by_number(static_cast<std::uint32_t>(system.f_type));
  if (by_kernel.medium != Medium::program) return by_kernel;  // most files: nothing more is read
  const std::string about = read_text("/proc/self/fdinfo/" + std::to_string(fd));
  const std::size_t found = about.find("mnt_id:");
  std::uint64_t mount = 0;
  if (found == std::string::npos) return by_kernel;
  const std::size_t begin = about.find_first_not_of(" \t", found + 7);
  if (begin == std::string::npos || !to_number(std::string_view(about).substr(begin), mount)) return by_kernel;
  const FileSystem named = file_system_in(read_text("/proc/self/mountinfo"), mount);
  return named.name.empty() ? by_kernel : named;
}

FileSystem file_system_at(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  return file_system_of(file.get());
}

}  // namespace memlith::core
